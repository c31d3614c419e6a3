"""What comes in to be scored: examples or records, one by one or in blocks of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from groundscope.data.jsonl import readable_id
from groundscope.errors import InputError
from groundscope.example import Example

# Examples looked ahead in a stream, so that random documents can be drawn from them.
LOOK_AHEAD = 64


def in_blocks(examples: Iterable[Example | Mapping[str, Any]]) -> Iterator[list[Example | BadExample]]:
    """Cut a stream into blocks; where the stream breaks, what came before is still handed on."""
    block: list[Example | BadExample] = []
    iterator = iter(examples)
    while True:
        try:
            block.append(as_example(next(iterator)))
        except StopIteration:
            break
        except Exception:
            if block:
                yield block
            raise
        if len(block) == LOOK_AHEAD:
            yield block
            block = []
    if block:
        yield block


@dataclass(frozen=True)
class BadExample:
    """A record that is no example: what it calls itself, if anything, and what is wrong with it."""

    id: str | None
    reason: str


def as_example(item: Example | Mapping[str, Any]) -> Example | BadExample:
    """Return an example, or why a record is none."""
    try:
        return item if isinstance(item, Example) else Example.from_dict(item)
    except InputError as exc:
        return BadExample(readable_id(item), str(exc))

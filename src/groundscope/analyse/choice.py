"""Which heads and layers an intervention is about: named, or chosen by weights, or by labels on other sources."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from groundscope.analyse.differences import Place, signal_differences
from groundscope.analyse.intervention import InterventionOptions, heads_and_controls, layers_and_controls
from groundscope.errors import InputError
from groundscope.evaluate.protocol.splits import example_sources
from groundscope.example import Example
from groundscope.lm.language_model import LanguageModel
from groundscope.trace.traced import TracedExample

CONTEXT, KNOWLEDGE = "external_context_score", "parametric_knowledge_score"
_BEST = re.compile(r"(copying|difference|correlation):([1-9]\d*)")


@dataclass(frozen=True)
class Chosen:
    """Places and the examples on which their effect may be measured.

    Attributes:
        places: (layer, head) or (layer,).
        examples: Those that had no part in the choice.
        how: In words.
    """

    places: tuple[tuple[int, ...], ...]
    examples: tuple[Example, ...]
    how: str


def choose_heads(
    given: str, examples: Sequence[Example], traced: Sequence[TracedExample], copying: Mapping[Place, float], seed: int
) -> Chosen:
    """Read ``3.2,4.1``, ``copying:N`` or ``difference:N``.

    ``difference`` takes the heads whose external context score is most clearly higher in faithful responses of one
    half of the sources; their effect is then measured on the other half.

    Args:
        given: What the user wrote.
        examples: All examples.
        traced: Those read, with the external context score; needed for ``difference``.
        copying: Copying score by head, a higher one copies more; needed for ``copying``.
        seed: Of the halves.

    Raises:
        InputError: If it cannot be understood, or there is nothing to choose from.
    """
    check_given(given, None)
    match = _BEST.fullmatch(given)
    if match is None:
        return Chosen(tuple(_places(given, 2, "heads")), tuple(examples), "named")
    rule, count = match[1], int(match[2])
    if rule == "copying":
        best = sorted(copying, key=lambda place: (-copying[place], place))[:count]
        return Chosen(tuple(best), tuple(examples), f"the {len(best)} heads that copy most, by their weights")
    chosen_on, rest = halves(traced, seed)
    found = signal_differences(chosen_on, CONTEXT, resamples=1, seed=seed).places
    order = sorted(found, key=lambda place: -(place.difference.value or 0))[:count]
    heads = tuple((place.layer, place.head) for place in order if place.head is not None)
    how = f"the {len(heads)} heads that rise most when faithful, chosen on {len(chosen_on)} responses of other sources"
    return Chosen(heads, tuple(item.example for item in rest), how)


def choose_layers(given: str, examples: Sequence[Example], traced: Sequence[TracedExample], seed: int) -> Chosen:
    """Read ``20,21`` or ``correlation:N``.

    ``correlation`` takes the layers whose parametric knowledge score goes most with hallucination in one half of the
    sources; their effect is then measured on the other half.

    Raises:
        InputError: See :func:`choose_heads`.
    """
    check_given(None, given)
    match = _BEST.fullmatch(given)
    if match is None:
        return Chosen(tuple(_places(given, 1, "layers")), tuple(examples), "named")
    chosen_on, rest = halves(traced, seed)
    found = signal_differences(chosen_on, KNOWLEDGE, resamples=1, seed=seed).places
    order = sorted(found, key=lambda place: -(place.pearson.value or 0))[: int(match[2])]
    how = f"the {len(order)} layers that go most with the label, chosen on {len(chosen_on)} responses of other sources"
    return Chosen(tuple((place.layer,) for place in order), tuple(item.example for item in rest), how)


def check_given(heads: str | None, layers: str | None) -> None:
    """Refuse choices that cannot be understood, before anything is computed for them.

    Args:
        heads: As for :func:`choose_heads`; ``None`` is no choice.
        layers: As for :func:`choose_layers`.

    Raises:
        InputError: If one cannot be understood.
    """
    for what, given, size, rules, named in (
        ("heads", heads, 2, ("copying", "difference"), "3.2,4.1"),
        ("layers", layers, 1, ("correlation",), "20,21"),
    ):
        if given is None:
            continue
        rule, colon, _ = given.partition(":")
        if not colon:
            _places(given, size, what)
        elif rule not in rules or not _BEST.fullmatch(given):
            raise InputError(
                f"{what.capitalize()} are chosen by {' or '.join(f'{name}:N' for name in rules)}, N at least 1, or "
                f"named as {named}. Got {given!r} instead."
            )


def check_places(
    heads: str | None, layers: str | None, examples: Sequence[Example], lm: LanguageModel, how: InterventionOptions
) -> None:
    """Refuse choices that a model does not have the heads or layers for, before it reads anything.

    Args:
        heads: As for :func:`choose_heads`; ``None`` is no choice.
        layers: As for :func:`choose_layers`.
        examples: Those that a choice may be made on.
        lm: The model that is to be changed.
        how: Whose controls must be found.

    Raises:
        InputError: If there is no such place, there are not as many others for the control, or no two sources.
    """
    anatomy = lm.anatomy
    for what, given, there in (
        ("heads", heads, len(anatomy.attention_layers) * anatomy.heads),
        ("layers", layers, len(anatomy.layers)),
    ):
        match = None if given is None else _BEST.fullmatch(given)
        if match is not None and 2 * int(match[2]) > there:
            raise InputError(
                f"{lm.name} has {there} {what}, and the control needs as many others as are chosen. Got {given!r}; "
                f"choose at most {there // 2}."
            )
    if heads is not None and not _BEST.fullmatch(heads):
        heads_and_controls(lm, [(layer, head) for layer, head in _places(heads, 2, "heads")], how)
    if layers is not None and not _BEST.fullmatch(layers):
        layers_and_controls(lm, [layer for (layer,) in _places(layers, 1, "layers")], how)
    if needs_traces(heads) or needs_traces(layers):
        _check_sources(len(set(example_sources(examples))))


def needs_traces(given: str | None) -> bool:
    """Whether a choice is made by what was read."""
    return given is not None and given.startswith(("difference:", "correlation:"))


def halves(traced: Sequence[TracedExample], seed: int = 0) -> tuple[list[TracedExample], list[TracedExample]]:
    """Cut examples in two by source.

    Raises:
        InputError: If there is one source only.
    """
    names = example_sources([item.example for item in traced])
    distinct = sorted(set(names))
    _check_sources(len(distinct))
    order = np.random.default_rng(seed).permutation(len(distinct))
    first = {distinct[i] for i in order[: (len(distinct) + 1) // 2]}
    parts: tuple[list[TracedExample], list[TracedExample]] = ([], [])
    for item, name in zip(traced, names, strict=True):
        parts[name not in first].append(item)
    return parts


def _check_sources(count: int) -> None:
    if count < 2:
        raise InputError(f"Choosing on one half of the sources needs at least two. Got {count}.")


def _places(given: str, size: int, what: str) -> list[tuple[int, ...]]:
    form = "LAYER.HEAD" if size == 2 else "LAYER"
    found = []
    for part in given.split(","):
        numbers = part.strip().split(".")
        if len(numbers) != size or not all(number.isascii() and number.isdigit() for number in numbers):
            raise InputError(f"The {what} must be named as {form},{form},... Got {given!r} instead.")
        found.append(tuple(int(number) for number in numbers))
    return found

"""Label a file of records: several requests at once, resumable, within limits, counted."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from groundscope._version import __version__
from groundscope.cli.console import EXIT_INCOMPLETE, note, note_complete, resumable
from groundscope.data.checking.intact import check_intact
from groundscope.data.checking.label_faults import label_of
from groundscope.data.jsonl import STDIN, BadRecord, count_lines, file_sha256, read_records, record_line
from groundscope.data.labelling.gold import gold_fields
from groundscope.data.labelling.judge import Judge, JudgeError, NothingToJudgeError, RequestLimitError, Usage
from groundscope.data.labelling.judge_prompt import prompt_sha256
from groundscope.errors import InputError, PrerequisiteError
from groundscope.example import Example
from groundscope.outputs.names import LINES, check_promise
from groundscope.outputs.places import check_file_place
from groundscope.outputs.runs import RunWriter, partial_path, run_records, summary_if_complete

_FAILED = "failed"
_LABEL_FIELDS = ("labels", "hallucinated", "label_kind", "unmatched_spans", "label_reasons", "labelled_by")
_GIVE_UP = 10  # records that fail one after the other: the judge is broken, not the records


@dataclass(frozen=True)
class Labelled:
    """The outcome for one record: the fields that label it, or the error and whether the judge is to blame."""

    fields: dict[str, Any]
    usage: Usage = field(default_factory=Usage)
    error: str | None = None
    judge_failed: bool = False


class GoldLabeller:
    """Labels by known answers."""

    def __init__(self, field: str, whole_words: bool) -> None:
        self.settings = {"method": "gold answers", "field": field, "whole_words": whole_words}
        self._field, self._whole_words = field, whole_words

    def check(self, data: Path) -> None:
        """Refuse a field that no record has.

        Raises:
            InputError: If so.
        """
        first = None
        for record in read_records(data):
            if isinstance(record, Example):
                if self._field in record.extra:
                    return
                first = first or record
        if first is not None and (why := self(first).error) is not None:
            raise InputError(f"No record of {str(data)!r} has the field that --gold-answers names. {why}")

    def __call__(self, example: Example) -> Labelled:
        """Label one example."""
        try:
            return Labelled(gold_fields(example, self._field, self._whole_words))
        except InputError as exc:
            return Labelled({}, error=str(exc))


class JudgeLabeller:
    """Labels by a judge."""

    def __init__(self, judge: Judge) -> None:
        self.settings = {
            "method": "judge",
            "judge": judge.model,
            "url": judge.url,
            "occurrences": judge.occurrences,
            "prompt_sha256": prompt_sha256(),
        }
        self._judge = judge

    def __call__(self, example: Example) -> Labelled:
        """Label one example; what ends the whole run is raised."""
        try:
            judgement = self._judge.judge(example)
        except JudgeError as exc:
            return Labelled({}, exc.usage, str(exc), not isinstance(exc, NothingToJudgeError))
        return Labelled(judgement.applied(example), judgement.usage)


@dataclass
class Tally:
    """What became of the records, and what it used."""

    labelled: int = 0
    hallucinated: int = 0
    unmatched: int = 0
    kept: int = 0
    failed: int = 0
    bad: int = 0
    usage: Usage = field(default_factory=Usage)

    def add(self, outcome: str, fields: dict[str, Any], usage: Usage) -> None:
        """Count one record."""
        self.usage += usage
        if outcome == _FAILED:
            self.failed += 1
            return
        self.labelled += 1
        self.hallucinated += bool(fields.get("hallucinated"))
        self.unmatched += len(fields.get("unmatched_spans", ()))

    def read(self, record: Mapping[str, Any]) -> None:
        """Count one record as it stands in a file."""
        self.add(record["outcome"], record["fields"], Usage(**record["usage"]))

    @classmethod
    def from_dict(cls, summary: Mapping[str, Any]) -> Tally:
        """Read what stands in the side file of a finished run."""
        return cls(**{**summary, "usage": Usage(**summary["usage"])})

    def text(self, prices: tuple[float, float] | None) -> str:
        """Return the tally in words."""
        parts = [f"{self.labelled} labelled", f"{self.hallucinated} of them hallucinated"]
        names = (("kept", "labels kept"), ("failed", "failed"), ("bad", "not readable"))
        parts += [f"{count} {name}" for key, name in names if (count := getattr(self, key))]
        if self.unmatched:
            parts.append(f"{self.unmatched} spans not found in their response")
        usage = self.usage
        if usage.requests:
            parts.append(f"{usage.requests} requests, {usage.prompt_tokens} + {usage.completion_tokens} tokens")
            if prices is not None:
                parts.append(f"cost {usage.cost(*prices):.4f}")
            if usage.uncounted:
                parts.append(f"{usage.uncounted} answers came without token counts")
        return ", ".join(parts)


@dataclass
class LabelRun:
    """One run over a file of records.

    Attributes:
        data: The file.
        output: Where labelled records go.
        labeller: How to label.
        concurrency: Requests at once.
        prices: Of a million tokens read and written.
        max_cost: Stop when this run has cost so much; requests that are under way are still paid.
        limit: How many records to read at most.
        relabel: Whether to replace labels that are there.
        overwrite: Whether to discard an earlier output.
    """

    data: Path
    output: Path
    labeller: GoldLabeller | JudgeLabeller
    concurrency: int
    prices: tuple[float, float] | None
    max_cost: float | None
    limit: int | None
    relabel: bool
    overwrite: bool
    tally: Tally = field(default_factory=Tally, init=False)
    _spent: Usage = field(default_factory=Usage, init=False)
    _failures: int = field(default=0, init=False)

    def execute(self) -> int:
        """Label the file and return the exit code."""
        check_file_place(self.output, [self.data])
        check_promise(self.output, LINES)
        if str(self.data) == STDIN:
            raise InputError("Standard input cannot be labelled: the file is read twice. Save it to a file first.")
        check_intact(self.data)
        if next(read_records(self.data), None) is None:
            raise InputError(f"{str(self.data)!r} holds no records.")
        if isinstance(self.labeller, GoldLabeller):
            self.labeller.check(self.data)
        settings = self._settings()
        recalled = None if self.overwrite else summary_if_complete(self.output, settings, Tally.from_dict)
        if recalled is not None:
            note_complete(self.output)
            self.tally = recalled
            return self._report(True)
        writer = RunWriter(self.output, settings, overwrite=self.overwrite, read=Tally().read)
        partial = partial_path(self.output)
        with resumable(lambda: f"{self.tally.labelled} labelled records are in {str(partial)!r}"), writer:
            finished = self._label(writer, self._resumed())
            if finished:
                writer.finish(self._summary(), self._render)
        return self._report(finished)

    def _label(self, writer: RunWriter, done: set[str]) -> bool:
        """Label what is not done; whether the end was reached."""
        waiting: dict[Future[Labelled], Example] = {}
        count = count_lines(self.data)
        total = count if self.limit is None else min(count, self.limit)
        hidden = not sys.stderr.isatty()
        with (
            tqdm(total=total, disable=hidden, unit="record", file=sys.stderr, dynamic_ncols=True) as bar,
            ThreadPoolExecutor(self.concurrency) as pool,
        ):
            try:
                for example in self._examples(done, bar):
                    if self._cost_is_reached():
                        self._take_all(writer, waiting, bar)
                        return False
                    waiting[pool.submit(self.labeller, example)] = example
                    if len(waiting) >= self.concurrency:
                        self._take_first(writer, waiting, bar)
                while waiting:
                    self._take_first(writer, waiting, bar)
            except RequestLimitError as exc:
                self._take_all(writer, waiting, bar)
                note(str(exc))
                return False
            except BaseException:
                self._take_all(writer, waiting, bar)  # what is under way is paid for
                raise
        return True

    def _examples(self, done: set[str], bar: tqdm[Any]) -> Iterator[Example]:
        for record in self._records():
            if isinstance(record, BadRecord):
                self.tally.bad += 1
                self._tell(bar, f"{self.data!s}, line {record.line}: {record.error}")
            elif self._keeps(record):
                self.tally.kept += 1
            elif (record.id or "") not in done:
                yield record
                continue
            bar.update()

    def _records(self) -> Iterator[Example | BadRecord]:
        """Yield the records; one that could not be written again counts as not readable."""
        for number, record in enumerate(itertools.islice(read_records(self.data), self.limit), start=1):
            try:
                if isinstance(record, Example):
                    record_line(record.to_dict())
            except InputError as exc:
                yield BadRecord(number, str(exc))
            else:
                yield record

    def _keeps(self, example: Example) -> bool:
        return not self.relabel and label_of(example) is not None

    def _take_first(self, writer: RunWriter, waiting: dict[Future[Labelled], Example], bar: tqdm[Any]) -> None:
        for future in wait(waiting, return_when=FIRST_COMPLETED).done:
            self._take(writer, waiting.pop(future), future.result(), bar)

    def _take_all(self, writer: RunWriter, waiting: dict[Future[Labelled], Example], bar: tqdm[Any]) -> None:
        for future in waiting:
            future.cancel()
        for future in wait(waiting).done:
            if not future.cancelled() and future.exception() is None:
                self._take(writer, waiting[future], future.result(), bar, stop=False)
        waiting.clear()

    def _take(self, writer: RunWriter, example: Example, result: Labelled, bar: tqdm[Any], stop: bool = True) -> None:
        outcome = "labelled" if result.error is None else _FAILED
        usage = result.usage
        record = {"id": example.id, "outcome": outcome, "fields": result.fields, "error": result.error}
        writer.write_record(record | {"usage": vars(usage)})
        self.tally.add(outcome, result.fields, usage)
        self._spent += usage
        bar.update()
        if result.error is not None:
            self._tell(bar, f"record {example.id}: {result.error}")
        self._failures = self._failures + 1 if result.judge_failed else 0
        if stop and self._failures >= _GIVE_UP:
            raise PrerequisiteError(
                f"The judge failed on {_GIVE_UP} records in a row; the last: {result.error}. What was labelled is "
                "kept; the same command goes on where it stopped and tries these again."
            )
        if stop and self.max_cost is not None and usage.uncounted:
            raise InputError(
                "The judge does not say how many tokens it used, so --max-cost cannot be kept. Use --max-requests."
            )

    def _cost_is_reached(self) -> bool:
        if self.max_cost is None or self.prices is None or self._spent.cost(*self.prices) < self.max_cost:
            return False
        note(f"The limit of --max-cost {self.max_cost:g} is reached.")
        return True

    def _resumed(self) -> set[str]:
        """Count what an earlier run did; records on which it failed are tried again."""
        latest = {record["id"]: record for record in self._partial()}
        for record in self._partial():
            self.tally.usage += Usage(**record["usage"])
        done = {key for key, record in latest.items() if record["outcome"] != _FAILED}
        for key in done:
            self.tally.add(latest[key]["outcome"], latest[key]["fields"], Usage())
        if done:
            note(f"resuming {str(self.output)!r}: {len(done)} records are labelled already")
        return done

    def _partial(self) -> Iterator[dict[str, Any]]:
        return (record for _, record in run_records(partial_path(self.output)))

    def _render(self, partial: Path, place: Path) -> None:
        """Write the input's records in their order, each with its labels."""
        latest = {record["id"]: record for _, record in run_records(partial)}
        how = {name: value for name, value in self.labeller.settings.items() if name != "url"}
        with place.open("w", encoding="utf-8", newline="") as stream:
            for example in self._records():
                if isinstance(example, BadRecord):
                    continue
                record = example.to_dict()
                if not self._keeps(example):
                    found = latest[example.id or ""]
                    record = {name: value for name, value in record.items() if name not in _LABEL_FIELDS}
                    record |= {name: value for name, value in found["fields"].items() if value is not None}
                    record["labelled_by"] = how if found["error"] is None else how | {"error": found["error"]}
                stream.write(record_line(record))

    def _report(self, finished: bool) -> int:
        note(f"{self.tally.text(self.prices)}.")
        if not finished:
            note(f"{str(partial_path(self.output))!r} holds what is done; the same command goes on.")
        elif self.tally.failed:
            note("Records that failed are in the output without labels; label the output to try them again.")
        return EXIT_INCOMPLETE if not finished or self.tally.failed or self.tally.bad else 0

    def _summary(self) -> dict[str, Any]:
        return {**vars(self.tally), "usage": vars(self.tally.usage)}

    def _settings(self) -> dict[str, Any]:
        return {
            "version": __version__,
            **self.labeller.settings,
            "input_sha256": file_sha256(self.data),
            "limit": self.limit,
            "relabel": self.relabel,
        }

    @staticmethod
    def _tell(bar: tqdm[Any], message: str) -> None:
        with bar.external_write_mode(file=sys.stderr):
            note(message)

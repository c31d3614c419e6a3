"""``groundscope score DATA``: stream a file of records, resumable, with progress and a summary."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from groundscope._version import __version__
from groundscope.cli.answers.reading import Format, Reading, json_line
from groundscope.cli.console import (
    EXIT_FLAGGED,
    EXIT_INCOMPLETE,
    note,
    note_complete,
    resumable,
    standard_input,
)
from groundscope.data.checking.intact import check_intact
from groundscope.data.jsonl import STDIN, BadRecord, count_lines, file_sha256, read_records
from groundscope.errors import InputError
from groundscope.lm.loading.local import local_state
from groundscope.outputs.names import JSON, promised
from groundscope.outputs.places import check_file_place
from groundscope.outputs.runs import partial_path, run_records, summary_if_complete
from groundscope.outputs.verdicts import VerdictWriter, read_verdicts
from groundscope.verdict import SCHEMA_VERSION

if TYPE_CHECKING:
    from groundscope.example import Example, Label
    from groundscope.scope import Scope
    from groundscope.verdict import Verdict

# Random documents are drawn from the contexts of the first so many records: the draw must not depend on
# where a run was interrupted.
_OTHERS = 256
_SCORED = ("scored", "partial")
# A pipeline's declines are answers that were dealt with; a context that is missing is not.
_DONE = (*_SCORED, "no_answer")


@dataclass
class Tally:
    """What became of the records of a run."""

    outcomes: Counter[str] = field(default_factory=Counter)
    flagged: int = 0
    bad: list[BadRecord] = field(default_factory=list)

    def add(self, outcome: str, flagged: bool | None) -> None:
        """Count one verdict."""
        self.outcomes[outcome] += 1
        self.flagged += bool(flagged)

    @property
    def incomplete(self) -> bool:
        """Whether some record could not be read or scored; what claims nothing is done."""
        return bool(self.bad) or any(outcome not in _DONE for outcome in self.outcomes)

    def exit_code(self, fail_on_flagged: bool) -> int:
        """Return the exit code; what could not be checked outweighs what was flagged."""
        if self.incomplete:
            return EXIT_INCOMPLETE
        return EXIT_FLAGGED if self.flagged and fail_on_flagged else 0

    def to_dict(self) -> dict[str, Any]:
        """Return the tally as plain JSON values."""
        bad = [record.to_dict() for record in self.bad]
        return {"outcomes": dict(self.outcomes), "flagged": self.flagged, "bad_lines": bad}

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Tally:
        """Read what :meth:`to_dict` wrote."""
        bad = [BadRecord(item["line"], item["error"], item.get("id")) for item in record["bad_lines"]]
        return cls(Counter(record["outcomes"]), record["flagged"], bad)

    def __str__(self) -> str:
        scored = sum(self.outcomes[outcome] for outcome in _SCORED)
        parts = [f"{scored} scored", f"{self.flagged} flagged"]
        parts += [f"{count} {name}" for name, count in sorted(self.outcomes.items()) if name != "scored"]
        if self.bad:
            lines = ", ".join(str(record.line) for record in self.bad[:20])
            more = f" and {len(self.bad) - 20} more" if len(self.bad) > 20 else ""
            parts.append(f"{len(self.bad)} not readable (line {lines}{more})")
        return ", ".join(parts)


@dataclass
class FileRun:
    """One run over a file of records.

    Attributes:
        data: The file, or ``-``.
        output: Where verdicts go; ``None`` is standard output.
        format: What is written.
        reading: Model, detector and their settings.
        limit: How many records to read at most.
        overwrite: Whether to discard an earlier output.
        include_context: Whether JSON repeats question and passages.
    """

    data: str
    output: Path | None
    format: Format
    reading: Reading
    limit: int | None
    overwrite: bool
    include_context: bool
    tally: Tally = field(default_factory=Tally, init=False)
    _labels: dict[str, tuple[Label, ...]] = field(default_factory=dict, init=False)

    def execute(self, fail_on_flagged: bool) -> int:
        """Score the file and return the exit code."""
        if self.output is not None:
            check_file_place(self.output, [self.data])
        with _seekable(self.data) as path:
            check_intact(path, self.data)
            if next(read_records(path, self.data), None) is None:
                raise InputError(f"{self.data!r} holds no records.")
            if self.output is None:
                self._to_stdout(path)
            else:
                self._to_file(path, self.output)
        note(f"{self.tally}.")
        return self.tally.exit_code(fail_on_flagged)

    def _to_stdout(self, path: Path) -> None:
        scope = self.reading.load()
        page: list[Verdict] = []
        total = self._total(path)
        with self._progress(total, 0) as bar:
            for verdict in self._verdicts(scope, path, {}, bar):
                if self.format == "html":
                    page.append(verdict)
                elif self.format == "json":
                    print(json_line(verdict, self.include_context), flush=True)
                else:
                    print(self._text(verdict, None), end="\n\n", flush=True)
        self._check_all_read(total)
        if self.format == "html":
            from groundscope.report.verdict.html import render_page

            print(render_page(page, labels=self._page_labels(page)))

    def _to_file(self, path: Path, output: Path) -> None:
        settings = self._settings(path)
        recalled = None if self.overwrite else summary_if_complete(output, settings, Tally.from_dict)
        if recalled is not None:
            note_complete(output)
            self.tally = recalled
            return
        scope = self.reading.load()
        writer = VerdictWriter(output, settings, include_context=settings["include_context"], overwrite=self.overwrite)
        with resumable(lambda: f"{self._counted} finished records are in {str(partial_path(output))!r}"), writer:
            for done in writer.finished.values():
                self.tally.add(done.outcome, done.flagged)
            if writer.finished:
                note(f"resuming {str(output)!r}: {len(writer.finished)} records are done already")
            total = self._total(path)
            with self._progress(total, len(writer.finished)) as bar:
                for verdict in self._verdicts(scope, path, writer.finished, bar):
                    writer.write(verdict)
            self._check_all_read(total)
            writer.finish(self.tally.to_dict(), None if self._form == "json" else self._render)

    def _verdicts(
        self,
        scope: Scope,
        path: Path,
        finished: Container[str],
        bar: tqdm[Any],
    ) -> Iterator[Verdict]:
        """Yield the verdicts of what is not finished; count everything, report what fails."""

        def examples() -> Iterator[Example]:
            for record in itertools.islice(read_records(path), self.limit):
                if isinstance(record, BadRecord):
                    self.tally.bad.append(record)
                    self._tell(bar, f"{self.data}, line {record.line}: {record.error}")
                    bar.update()
                    continue
                if record.labels is not None and record.id is not None and self.format != "json":
                    self._labels[record.id] = record.labels
                if (record.id or "") not in finished:
                    yield record

        for verdict in scope.score_many(examples(), others=self._others(path)):
            self.tally.add(verdict.outcome, verdict.flagged)
            yield verdict
            if verdict.outcome in ("failed", "too_long"):
                self._tell(bar, f"record {verdict.id}: {verdict.outcome}: {verdict.message}")
            bar.set_postfix(flagged=self.tally.flagged, bad=len(self.tally.bad), refresh=False)
            bar.update()

    @property
    def _counted(self) -> int:
        return sum(self.tally.outcomes.values())

    @property
    def _form(self) -> str:
        """What the output holds: JSON is lines, unless its name promises one document."""
        whole = self.output is not None and self.format == "json" and promised(self.output) == JSON
        return "json array" if whole else self.format

    def _total(self, path: Path) -> int:
        count = count_lines(path)
        return count if self.limit is None else min(count, self.limit)

    def _check_all_read(self, total: int) -> None:
        """Never call a run done that saw fewer records than the file held when it began."""
        seen = self._counted + len(self.tally.bad)
        if seen < max(total, 1):
            raise InputError(
                f"{self.data!r} changed while it was read: {seen} of {total} records were seen. "
                "Run again on a file that nobody writes."
            )

    def _others(self, path: Path) -> list[Example]:
        first = itertools.islice(read_records(path), min(_OTHERS, self.limit or _OTHERS))
        return [record for record in first if not isinstance(record, BadRecord)]

    def _progress(self, total: int, initial: int) -> tqdm[Any]:
        # On a terminal that also shows the verdicts, a bar would only get between them.
        hidden = not sys.stderr.isatty() or (self.output is None and sys.stdout.isatty())
        return tqdm(total=total, initial=initial, disable=hidden, unit="record", file=sys.stderr, dynamic_ncols=True)

    @staticmethod
    def _tell(bar: tqdm[Any], message: str) -> None:
        with bar.external_write_mode(file=sys.stderr):
            note(message)

    def _settings(self, path: Path) -> dict[str, Any]:
        reading = self.reading
        return {
            "version": __version__,
            "schema_version": SCHEMA_VERSION,
            "model": reading.model,
            "model_files": local_state(reading.model),
            "detector": reading.detector,
            "detector_sha256": _learnt_sha256(reading.detector),
            "threshold": reading.threshold,
            "span_threshold": reading.span_threshold,
            "profile_sha256": _profile_sha256(reading.profile),
            "max_false_alarm": reading.max_false_alarm,
            "confidence": reading.confidence,
            "dtype": reading.dtype,
            "template_sha256": None if reading.template is None else file_sha256(reading.template),
            "long_context": reading.long_context,
            "contrast": reading.contrast,
            "seed": reading.seed,
            "input_sha256": file_sha256(path),
            "limit": self.limit,
            "format": self._form,
            "include_context": self.include_context or self.format == "html",
        }

    def _render(self, partial: Path, place: Path) -> None:
        if self.format == "html":
            from groundscope.report.verdict.html import write_page

            page = list(read_verdicts(partial))
            write_page(place, page, labels=self._page_labels(page))
            return
        with place.open("w", encoding="utf-8", newline="") as stream:
            if self.format == "text":
                texts = (self._text(verdict, False) for verdict in read_verdicts(partial))
                stream.write("\n\n".join(texts) + "\n")
                return
            before = "[\n"
            for _, record in run_records(partial):
                stream.write(before + json.dumps(record, ensure_ascii=False, allow_nan=False))
                before = ",\n"
            stream.write("\n]\n" if before != "[\n" else "[]\n")

    def _page_labels(self, page: list[Verdict]) -> list[tuple[Label, ...] | None]:
        return [self._labels.get(verdict.id or "") for verdict in page]

    def _text(self, verdict: Verdict, color: bool | None) -> str:
        from groundscope.report.verdict.terminal import format_verdict

        return format_verdict(verdict, color=color, labels=self._labels.get(verdict.id or ""))


@contextlib.contextmanager
def _seekable(data: str) -> Iterator[Path]:
    """Yield a file that can be read more than once; a pipe or device is copied into a temporary one."""
    if not _is_stream(data):
        yield Path(data)
        return
    with tempfile.TemporaryDirectory(prefix="groundscope-") as folder:
        copy = Path(folder, "records")
        try:
            with contextlib.ExitStack() as stack:
                source = standard_input("DATA") if data == STDIN else stack.enter_context(Path(data).open("rb"))
                shutil.copyfileobj(source, stack.enter_context(copy.open("wb")))
        except OSError as exc:
            raise InputError(
                f"{data!r} cannot be copied to the temporary folder {tempfile.gettempdir()!r}: {exc.strerror}. "
                "Give a regular file, or set TMPDIR to a folder with room."
            ) from exc
        yield copy


def _is_stream(data: str) -> bool:
    if data == STDIN:
        return True
    try:
        mode = Path(data).stat().st_mode
    except OSError:
        return False  # refused by whoever opens it
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _learnt_sha256(detector: str | None) -> str | None:
    """Of what a trained detector in a folder has learnt, so that another one is not taken for it."""
    from groundscope.detectors.saved.folder import ARRAYS, CONFIG

    files = [] if detector is None else [Path(detector) / name for name in (CONFIG, ARRAYS)]
    return ", ".join(file_sha256(file) for file in files if file.is_file()) or None


def _profile_sha256(profile: Path | None) -> str | None:
    """Of a profile, so that another one in its folder is not taken for it; one that cannot be used is refused."""
    if profile is None:
        return None
    from groundscope.detectors.saved.profile import PROFILE, load_profile

    load_profile(profile)
    return file_sha256(profile / PROFILE if profile.is_dir() else profile)

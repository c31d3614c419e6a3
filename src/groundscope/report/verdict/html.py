"""Verdicts as one self-contained HTML page.

The page holds its style and script and loads nothing; its content security policy allows only these two, by
hash, so that even text that slipped through the escaping could neither run nor fetch anything.
"""

from __future__ import annotations

import functools
import html
import itertools
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from jinja2 import Template
from markupsafe import Markup

from groundscope._version import __version__
from groundscope.errors import InputError, PrerequisiteError
from groundscope.example import Label
from groundscope.outputs.writing import replace_text
from groundscope.report.pages import asset, digest, environment
from groundscope.report.safe_text import escape_name, split_hidden
from groundscope.report.verdict.excerpts import Excerpts
from groundscope.report.verdict.passages import NearestSentences
from groundscope.report.verdict.scale import Scale
from groundscope.report.verdict.segments import Segment, cut_response
from groundscope.report.verdict.wording import (
    excerpt,
    explanation,
    headline,
    number,
    percent,
    probability,
    response_line,
    sentence_score,
    span_score,
)
from groundscope.verdict import Nearest, Reason, Threshold, Verdict

_LONGEST_QUOTE = 160
_COLOUR_STEPS = 10

VerdictLabels: TypeAlias = Mapping[int, Sequence[Label] | None] | Sequence[Sequence[Label] | None]


def render_page(
    verdicts: Sequence[Verdict], *, title: str = "groundscope report", labels: VerdictLabels | None = None
) -> str:
    """Draw verdicts on one page.

    Tokens are coloured by score (:mod:`groundscope.report.verdict.scale`), spans outlined and tied to their evidence,
    sentences listed with their reasons and tied to the passage sentence to compare them with, unscored ranges
    hatched, human labels underlined. Control characters are shown by name.

    Args:
        verdicts: What to show, in order; several get a summary table.
        title: Heading of the page.
        labels: What people marked: per verdict, in order, or by position. ``None`` for a verdict that nobody
            labelled, an empty sequence where people marked nothing.

    Returns:
        A whole HTML document.

    Raises:
        InputError: If labels and verdicts do not match, or a range lies outside its response.
    """
    by_position = _labels_by_position(labels, len(verdicts))
    views = [_view(index, verdict, by_position.get(index)) for index, verdict in enumerate(verdicts)]
    kinds = Counter(view["head"].kind for view in views)
    css, script = asset("page.css"), asset("page.js")
    policy = (
        f"default-src 'none'; style-src '{digest(css)}'; script-src '{digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return _template().render(
        title=title,
        views=views,
        counts={kind: kinds[kind] for kind in ("flagged", "unflagged", "open")},
        css=Markup(css),  # noqa: S704 - our own file
        with_probability=any(verdict.probability is not None for verdict in verdicts),
        script=Markup(script),  # noqa: S704 - our own file
        policy=policy,
        version=__version__,
    )


def write_page(
    path: str | os.PathLike[str],
    verdicts: Sequence[Verdict],
    *,
    title: str = "groundscope report",
    labels: VerdictLabels | None = None,
) -> None:
    """Write :func:`render_page` to a file, which appears whole or not at all.

    Raises:
        InputError: As :func:`render_page`.
        PrerequisiteError: If the file cannot be written.
    """
    page = render_page(verdicts, title=title, labels=labels)
    try:
        replace_text(Path(path), page)
    except OSError as exc:
        raise PrerequisiteError(
            f"The report cannot be written to {os.fspath(path)}: {exc.strerror or exc}. "
            "Choose a file in an existing folder that you may write to."
        ) from exc


def notebook_frame(verdict: Verdict, height: str = "34rem") -> str:
    """Return a verdict's page inside a frame, so that its style stays out of the notebook around it."""
    page = html.escape(render_page([verdict]))
    return (
        f'<iframe srcdoc="{page}" sandbox="allow-scripts" title="groundscope verdict" '
        f'style="width: 100%; height: {height}; border: 0"></iframe>'
    )


def _labels_by_position(labels: VerdictLabels | None, count: int) -> dict[int, Sequence[Label]]:
    if labels is None:
        return {}
    if isinstance(labels, Mapping):
        unknown = [index for index in labels if index not in range(count)]
        if unknown:
            raise InputError(
                f"Labels are given by the position of their verdict, from 0 and below {count}. "
                f"Got {unknown[0]!r} instead."
            )
        pairs = list(labels.items())
    else:
        if len(labels) != count:
            raise InputError(
                "There must be one entry of labels per verdict (None if nobody labelled it). "
                f"Got {len(labels)} entries for {count} verdicts."
            )
        pairs = list(enumerate(labels))
    return {index: items for index, items in pairs if items is not None}


def _view(index: int, verdict: Verdict, labels: Sequence[Label] | None) -> dict[str, Any]:
    """Everything the template prints about one verdict."""
    scale = Scale.of(verdict)
    quote = functools.partial(_quote, verdict.response)
    nearest = NearestSentences(verdict)
    return {
        "verdict": verdict,
        "anchor": f"verdict-{index + 1}",
        "head": headline(verdict),
        "figure": _figure(verdict),
        "cell": _cell(verdict),
        "line": _line(verdict),
        "judged": verdict.probability is not None,
        "digest_question": excerpt(verdict.question, _LONGEST_QUOTE),
        "digest_answer": excerpt(verdict.response, _LONGEST_QUOTE) or "(empty)",
        "scale": scale,
        "runs": _runs(cut_response(verdict, labels or ()), scale, verdict.probability is None),
        "spans": _spans(verdict, nearest),
        "labels": None
        if labels is None
        else [{"text": quote(label.start, label.end), "type": label.type} for label in labels],
        "unscored": [{"text": quote(item.start, item.end), "reason": item.reason} for item in verdict.unscored],
        "sentences": _sentences(verdict, nearest),
        "sentence_line": None if verdict.threshold is None else verdict.threshold.sentence_probability,
        "passages": [list(nearest.pieces(index)) for index in range(len(verdict.passages))],
        "facts": _facts(verdict),
    }


def _figure(verdict: Verdict) -> tuple[str, str] | None:
    """The number of a verdict, and what it is."""
    if verdict.score is None:
        return None
    if verdict.probability is not None:
        flagged_from = response_line(verdict)
        shown, what = probability(verdict.probability), "probability of being unsupported"
    else:
        flagged_from = "" if verdict.threshold is None else f"flagged from {_line(verdict)}"
        shown, what = number(verdict.score), "score"
    return shown, f"{what}, {flagged_from}" if flagged_from else what


def _cell(verdict: Verdict) -> str | None:
    if verdict.probability is not None:
        return probability(verdict.probability)
    return None if verdict.score is None else number(verdict.score)


def _line(verdict: Verdict) -> str | None:
    """Where a response is flagged, in the unit that is shown."""
    if verdict.threshold is None:
        return None
    if verdict.probability is None:
        return number(verdict.threshold.response)
    line = verdict.threshold.response_probability
    return None if line is None else probability(line)


def _runs(segments: Sequence[Segment], scale: Scale, with_scores: bool) -> list[dict[str, Any]]:
    return [
        {"span": span, "segments": [_drawn(segment, scale, with_scores) for segment in group]}
        for span, group in itertools.groupby(segments, key=lambda segment: segment.span)
    ]


def _drawn(segment: Segment, scale: Scale, with_scores: bool) -> dict[str, Any]:
    classes, notes = [], []
    score = segment.score
    # The space that tokenizers put before a word would make the colour start too early.
    if score is not None and (segment.span is not None or not segment.text.isspace()):
        classes.append(f"h{int(_COLOUR_STEPS * scale.level(score))}")
    if score is not None and with_scores:
        notes.append("score " + ", ".join(number(token.score) for token in segment.tokens))
        if any(token.stretch is not None for token in segment.tokens):
            notes.append(f"with its surroundings {number(score)}")
        elif len(segment.tokens) > 1:
            notes.append(f"mean {number(score)} of {len(segment.tokens)} tokens")
    if segment.unscored is not None:
        classes.append("unscored")
        notes.append(f"not scored: {segment.unscored}")
    if segment.labels:
        classes.append("label")
        kinds = ", ".join(dict.fromkeys(filter(None, segment.labels)))
        notes.append("marked by people" + (f": {kinds}" if kinds else ""))
    return {
        "text": segment.text,
        "classes": " ".join(classes),
        "title": "; ".join(notes),
        "sentence": segment.sentence,
    }


def _sentences(verdict: Verdict, nearest: NearestSentences) -> list[dict[str, Any]]:
    return [
        {
            "text": item.text,
            "score": sentence_score(item),
            "share": item.probability,
            "flagged": item.flagged,
            "scored": item.score is not None,
            "reasons": _reasons(item.reasons, item.flagged),
            "nearest": _nearest(item.nearest, nearest),
        }
        for item in verdict.sentences
    ]


def _reasons(reasons: Sequence[Reason], flagged: bool) -> list[dict[str, Any]]:
    """What spoke for the decision, then what spoke against it."""
    return [
        {"text": reason.text, "group": reason.group, "weight": f"{reason.weight:+.1f}", "against": against}
        for against in (False, True)
        for reason in explanation(reasons, flagged != against)
    ]


def _nearest(given: Nearest | None, nearest: NearestSentences) -> dict[str, Any] | None:
    place = nearest.number(given)
    if given is None or place is None:
        return None
    return {"number": place, "passage": given.passage, "text": nearest.text(given, _LONGEST_QUOTE)}


def _spans(verdict: Verdict, nearest: NearestSentences) -> list[dict[str, Any]]:
    excerpts = Excerpts(verdict)
    return [
        {
            "text": excerpt(span.text, _LONGEST_QUOTE),
            "score": span_score(span, verdict),
            "reasons": [item for item in _reasons(span.reasons, flagged=True) if not item["against"]],
            "nearest": _nearest(span.nearest, nearest),
            "evidence": [
                {
                    "passage": item.passage,
                    "weight": round(item.weight, 4),
                    "known": 0 <= item.passage < len(verdict.passages),
                    "excerpt": excerpts.find(span, item.passage, _LONGEST_QUOTE) if span.nearest is None else "",
                }
                for item in sorted(span.evidence, key=lambda item: -item.weight)
            ],
        }
        for span in verdict.spans
    ]


def _facts(verdict: Verdict) -> list[tuple[str, str]]:
    facts = [
        ("Outcome", verdict.outcome),
        ("Detector", verdict.detector),
        ("Read by", verdict.model),
        ("Response score", verdict.aggregation),
    ]
    if verdict.profile:
        facts.append(("Profile", verdict.profile))
    line = verdict.threshold
    if line is not None and verdict.probability is not None:
        facts.append(("Thresholds", f"{_probability_lines(line)}{line.source}"))
    elif line is not None:
        facts.append(("Thresholds", f"response {number(line.response)}, span {number(line.span)}: {line.source}"))
    if verdict.contrast is not None:
        facts.append(("Random document", json.dumps(dict(verdict.contrast), ensure_ascii=False, default=str)))
    return facts


def _probability_lines(line: Threshold) -> str:
    known = [
        f"{name} from probability {probability(value)}"
        for name, value in (("responses", line.response_probability), ("sentences", line.sentence_probability))
        if value is not None
    ]
    return f"{', '.join(known)}: " if known else ""


def _quote(response: str, start: int, end: int) -> str:
    return excerpt(response[start:end], _LONGEST_QUOTE)


@functools.cache
def _template() -> Template:
    return environment(
        split_hidden=split_hidden,
        escape_name=escape_name,
        ord=ord,
        number=number,
        percent=percent,
        probability=probability,
    ).from_string(asset("page.html.jinja"))

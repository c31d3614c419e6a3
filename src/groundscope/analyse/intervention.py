"""What the answer loses when chosen heads attend at random, or chosen feed-forward blocks are made louder.

ReDeEP (arXiv 2410.11414, section 3) asks so whether copying heads and knowledge layers cause what they go along with.
Any change to a model makes its answers less likely; what counts is by how much more than the same change to as many
other heads or layers, drawn at random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from groundscope.analyse.edits import Place, Rows, amplified_feed_forward, first_response_row, random_attention
from groundscope.errors import GroundscopeError, InputError, check_choice, check_count
from groundscope.evaluate.metrics.binary import Floats, Labels
from groundscope.evaluate.metrics.bootstrap import Difference, Estimate, Resampler
from groundscope.evaluate.protocol.splits import example_sources
from groundscope.example import Example
from groundscope.learn.labels import response_label
from groundscope.lm.language_model import LanguageModel
from groundscope.lm.prompt.layout import Layout
from groundscope.lm.prompt.template import PromptTemplate
from groundscope.reading import nothing_to_read
from groundscope.trace.engine import trace_each
from groundscope.trace.trace import Trace

Match = Literal["any", "layer"]
Progress = Callable[[Iterable[Example], int], Iterable[Example]]
_Edit = Callable[[Layout], AbstractContextManager[None]]


@dataclass(frozen=True)
class GroupEffect:
    """Changes of the mean negative log-likelihood (nats per token) of the answers of one group.

    Attributes:
        group: ``all``, ``faithful`` or ``hallucinated``.
        responses: Answers.
        sources: Different sources of these.
        unchanged: Mean negative log-likelihood under the model as it is.
        chosen: Mean change when the chosen places are changed, with its interval by source.
        control: Mean change over the draws of random places.
        difference: Chosen minus control, and the two-sided p of no difference.
        control_draws: Mean change by draw.
    """

    group: str
    responses: int
    sources: int
    unchanged: Estimate
    chosen: Estimate
    control: Estimate
    difference: Difference
    control_draws: tuple[float, ...]


@dataclass(frozen=True)
class Intervention:
    """The effect of one change to a model.

    Attributes:
        change: ``random attention`` or ``feed-forward x FACTOR``.
        model: The model.
        rows: ``response``: only where the answer is read; ``all``: in the prompt too.
        chosen: Heads, as (layer, head), or layers, as (layer,).
        controls: As many others per draw.
        groups: Effects; all answers, and both classes where there are labels of both.
        faithful_minus_hallucinated: Difference of (chosen minus control) between the classes.
        unread: Answers that could not be read, by reason.
    """

    change: str
    model: str
    rows: str
    chosen: tuple[tuple[int, ...], ...]
    controls: tuple[tuple[tuple[int, ...], ...], ...]
    groups: tuple[GroupEffect, ...]
    faithful_minus_hallucinated: Difference | None
    unread: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class InterventionOptions:
    """How an intervention is done.

    Attributes:
        template: The prompt around question and passages.
        rows: ``response`` or ``all``: where the change acts.
        draws: Draws of random places to compare with.
        match: ``layer``: random heads come from the layers of the chosen ones; ``any``: from all layers.
        resamples: Draws of the bootstrap.
        confidence: Of the intervals.
        seed: Of noise, random places and resamples.

    Raises:
        InputError: If a value is out of range.
    """

    template: PromptTemplate = field(default_factory=PromptTemplate)
    rows: Rows = "response"
    draws: int = 5
    match: Match = "any"
    resamples: int = 1000
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("intervene", "rows", self.rows, ("response", "all"))
        check_choice("intervene", "match", self.match, ("any", "layer"))
        check_count("intervene", "draws", self.draws)


def intervene_on_heads(
    lm: LanguageModel,
    examples: Sequence[Example],
    heads: Sequence[Place],
    options: InterventionOptions | None = None,
    *,
    progress: Progress | None = None,
) -> Intervention:
    """Let chosen heads attend at random and measure what the answers lose.

    Args:
        lm: The model; it is left as it was.
        examples: Passages and answers; labels are read where there are some.
        heads: (layer, head) pairs, chosen elsewhere than on these examples.
        options: How.
        progress: Wraps the examples to show how far it is.

    Raises:
        InputError: If there is no such head, none to compare with, or nothing to read.
        UnsupportedModelError: If the model's attention cannot be read.
    """
    options = options or InterventionOptions()
    chosen, controls = heads_and_controls(lm, heads, options)

    def edit(places: Sequence[Place]) -> _Edit:
        return lambda layout: random_attention(
            lm, places, first_row=first_response_row(options.rows, layout.prompt_length), seed=options.seed
        )

    edits = [edit(places) for places in (chosen, *controls)]
    with lm.tap.open():  # the unchanged model is read by the same attention code
        return _measured(lm, examples, "random attention", chosen, controls, edits, options, progress)


def intervene_on_layers(
    lm: LanguageModel,
    examples: Sequence[Example],
    layers: Sequence[int],
    factor: float = 10.0,
    options: InterventionOptions | None = None,
    *,
    progress: Progress | None = None,
) -> Intervention:
    """Multiply what the feed-forward blocks of chosen layers add, and measure what the answers lose.

    Args:
        lm: The model; it is left as it was.
        examples: Passages and answers; labels are read where there are some.
        layers: 0-based, chosen elsewhere than on these examples.
        factor: As in the paper 10.
        options: How; ``match`` has no meaning here.
        progress: Wraps the examples to show how far it is.

    Raises:
        InputError: If there is no such layer, none to compare with, or nothing to read.
        UnsupportedModelError: If the feed-forward blocks cannot be found.
    """
    options = options or InterventionOptions()
    chosen, controls = layers_and_controls(lm, layers, options, factor)

    def edit(places: Sequence[tuple[int, ...]]) -> _Edit:
        return lambda layout: amplified_feed_forward(
            lm, [p[0] for p in places], factor, first_row=first_response_row(options.rows, layout.prompt_length)
        )

    edits = [edit(places) for places in (chosen, *controls)]
    return _measured(lm, examples, f"feed-forward x {factor:g}", chosen, controls, edits, options, progress)


def heads_and_controls(
    lm: LanguageModel, heads: Sequence[Place], options: InterventionOptions
) -> tuple[list[Place], list[list[Place]]]:
    """Return heads once each, in order, and as many others per draw; nothing is read.

    Raises:
        InputError: See :func:`intervene_on_heads`.
        UnsupportedModelError: Likewise.
    """
    chosen = _distinct(heads, "heads")
    with random_attention(lm, chosen):
        pass  # refuses heads that do not exist
    return chosen, matched_heads(lm, chosen, options.draws, options.match, options.seed)


def layers_and_controls(
    lm: LanguageModel, layers: Sequence[int], options: InterventionOptions, factor: float = 10.0
) -> tuple[list[tuple[int, ...]], list[list[tuple[int, ...]]]]:
    """Return layers once each, in order, and as many others per draw; nothing is read.

    Raises:
        InputError: See :func:`intervene_on_layers`.
        UnsupportedModelError: Likewise.
    """
    chosen = _distinct([(layer,) for layer in layers], "layers")
    with amplified_feed_forward(lm, [layer for (layer,) in chosen], factor):
        pass
    others = [(layer,) for layer in range(len(lm.anatomy.layers)) if (layer,) not in chosen]
    return chosen, _draws(others, len(chosen), options, "layers")


def matched_heads(
    lm: LanguageModel, heads: Sequence[Place], draws: int, match: Match = "any", seed: int = 0
) -> list[list[Place]]:
    """Draw as many other heads, several times.

    Args:
        lm: The model.
        heads: Those to be matched; none of them is drawn.
        draws: How often.
        match: ``layer`` draws as many heads from each layer as were chosen there.
        seed: Of the draws.

    Raises:
        InputError: If there are not so many others.
    """
    taken = set(heads)
    others = [
        (layer, head)
        for layer in lm.anatomy.attention_layers
        for head in range(lm.anatomy.heads)
        if (layer, head) not in taken
    ]
    options = InterventionOptions(draws=draws, match=match, seed=seed)
    if match == "any":
        return _draws(others, len(taken), options, "heads")
    drawn: list[list[Place]] = [[] for _ in range(draws)]
    for layer in sorted({layer for layer, _ in taken}):
        count = sum(place[0] == layer for place in taken)
        here = [place for place in others if place[0] == layer]
        for index, more in enumerate(_draws(here, count, options, f"heads in layer {layer}")):
            drawn[index] += more
    return drawn


def _draws(others: list[Any], count: int, options: InterventionOptions, what: str) -> list[Any]:
    if len(others) < count:
        raise InputError(
            f"The control needs as many other {what} as were chosen. Got {count} chosen and {len(others)} others; "
            "choose fewer."
        )
    rng = np.random.default_rng([options.seed, len(others)])
    return [
        [others[i] for i in sorted(rng.choice(len(others), size=count, replace=False).tolist())]
        for _ in range(options.draws)
    ]


def _distinct(places: Sequence[Any], what: str) -> list[Any]:
    found = sorted(set(places))
    if not found:
        raise InputError(f"An intervention needs at least one of the {what}. Got none.")
    return found


def _measured(
    lm: LanguageModel,
    examples: Sequence[Example],
    change: str,
    chosen: Sequence[tuple[int, ...]],
    controls: Sequence[Sequence[tuple[int, ...]]],
    edits: Sequence[_Edit],
    options: InterventionOptions,
    progress: Progress | None,
) -> Intervention:
    renderer = lm.renderer(options.template)
    read: list[Example] = []
    losses: list[list[float]] = []
    unread: dict[str, int] = {}
    for example in progress(examples, len(examples)) if progress else examples:
        early = nothing_to_read(example)
        try:
            if early is not None:
                raise InputError(early.message)
            layout = renderer.layout(example)
            row = [_loss(lm, layout)]
            for edit in edits:
                with edit(layout):
                    row.append(_loss(lm, layout))
        except GroundscopeError as exc:
            reason = str(exc).partition(".")[0]
            unread[reason] = unread.get(reason, 0) + 1
            continue
        read.append(example)
        losses.append(row)
    if not read:
        reasons = ", ".join(f"{count} x {reason}" for reason, count in unread.items()) or "there are no examples"
        raise InputError(f"No answer could be read for the intervention: {reasons}.")
    table = np.array(losses)  # (answer, unchanged + chosen + draws)
    resampler = Resampler(example_sources(read), options.resamples, options.confidence, options.seed)
    groups, gap = _effects(table, read, resampler)
    return Intervention(
        change,
        lm.name,
        options.rows,
        tuple(chosen),
        tuple(tuple(places) for places in controls),
        tuple(groups),
        gap,
        unread,
    )


def _loss(lm: LanguageModel, layout: Layout) -> float:
    (found,) = trace_each(lm, [layout], ["token_logprob"], batch_size=1)
    if not isinstance(found, Trace):
        raise found
    return -float(found["token_logprob"].astype(np.float64).mean())


def _effects(
    table: Floats, examples: Sequence[Example], resampler: Resampler
) -> tuple[list[GroupEffect], Difference | None]:
    members: dict[str, Labels] = {"all": np.ones(len(table), dtype=np.bool_)}
    labelled = all(example.labels is not None or example.hallucinated is not None for example in examples)
    if labelled:
        wrong = np.array([response_label(example) for example in examples], dtype=np.bool_)
        if 0 < wrong.sum() < len(wrong):
            members |= {"faithful": ~wrong, "hallucinated": wrong}
    change = table[:, 1:] - table[:, :1]
    columns = np.column_stack([table[:, 0], change[:, 0], change[:, 1:].mean(axis=1)])
    groups, kept = [], {}
    for name, mask in members.items():
        mine, codes = columns[mask], resampler.codes[mask]
        sums = resampler.sums(codes, np.column_stack([np.ones(len(mine)), mine]))
        with np.errstate(divide="ignore", invalid="ignore"):  # a resample without the group is NaN
            draws = sums[:, 1:] / sums[:, :1]
        means = mine.mean(axis=0)
        base, chosen, control = (resampler.estimate(float(means[i]), draws[:, i]) for i in range(3))
        difference = resampler.difference(float(means[1]), float(means[2]), draws[:, 1], draws[:, 2])
        kept[name] = float(means[1] - means[2]), draws[:, 1] - draws[:, 2]
        by_draw = tuple(float(value) for value in change[mask, 1:].mean(axis=0))
        groups.append(GroupEffect(name, len(mine), len(np.unique(codes)), base, chosen, control, difference, by_draw))
    if "faithful" not in kept:
        return groups, None
    (one, one_draws), (other, other_draws) = kept["faithful"], kept["hallucinated"]
    return groups, resampler.difference(one, other, one_draws, other_draws)

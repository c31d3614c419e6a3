"""The plots of an evaluation, as SVG, from the reduced figures that its record holds.

Colours are those of Okabe and Ito, which most colour-blind people can tell apart; controls are dashed.
"""

from __future__ import annotations

import importlib.util
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from groundscope.errors import PrerequisiteError
from groundscope.evaluate.results.results import Anatomy, CrossTable, Evaluation, Figure
from groundscope.report.safe_text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A7F00")
_FAITHFUL, _HALLUCINATED = "#0072B2", "#D55E00"
_ACROSS = 3
# Text stays text; ids and dates do not change from run to run.
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "groundscope",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.parse_math": False,
    "legend.frameon": False,
}


@dataclass(frozen=True)
class Plot:
    """A picture.

    Attributes:
        name: Of its file, without extension.
        title: For people.
        svg: The picture itself.
    """

    name: str
    title: str
    svg: str


def check_plots() -> None:
    """Refuse to draw without matplotlib.

    Raises:
        PrerequisiteError: If it is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise PrerequisiteError("Plots need matplotlib, which is not installed: pip install 'groundscope[plots]'")


def draw(evaluation: Evaluation) -> list[Plot]:
    """Draw all plots for which there is something to show.

    Raises:
        PrerequisiteError: If matplotlib is not installed.
    """
    check_plots()
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        return list(_all(evaluation))


def _all(evaluation: Evaluation) -> Iterator[Plot]:
    controls = {row.name for row in evaluation.rows if row.kind == "control"}
    levels = [level for level in ("response", "window", "token") if any(f.level == level for f in evaluation.figures)]
    for level in levels:
        figures = [item for item in evaluation.figures if item.level == level]
        yield _curves(f"roc-{level}", f"ROC, {level} level", figures, controls)
        yield _curves(f"pr-{level}", f"Precision and recall, {level} level", figures, controls)
        methods = [item for item in figures if item.row not in controls]
        if methods:
            yield _densities(f"densities-{level}", f"Scores, {level} level", methods)
        probable = [item for item in methods if item.calibration]
        if probable:
            yield _calibration(f"calibration-{level}", f"Calibration, {level} level", probable)
    heads = [item for item in evaluation.anatomies if item.head_weights]
    if heads:
        yield _heads(heads)
    layers = [item for item in evaluation.anatomies if item.layer_weights]
    if layers:
        yield _layers(layers)
    for table in evaluation.cross:
        yield _cross(table)
    pairs = [item for item in evaluation.anatomies if item.pairs]
    if pairs:
        yield _pairs(pairs)


def _curves(name: str, title: str, figures: Sequence[Figure], controls: set[str]) -> Plot:
    axes, finish = _sheet(1, 6.4, 4.6)
    roc = name.startswith("roc")
    for number, item in enumerate(figures):
        x, y = zip(*(item.roc if roc else item.pr), strict=True)
        axes[0].plot(
            x,
            y,
            drawstyle="default" if roc else "steps-pre",
            color=_COLOURS[number % len(_COLOURS)],
            linestyle="--" if item.row in controls else "-",
            linewidth=1.2 if item.row in controls else 1.8,
            label=_label(item.row),
        )
    if roc:
        axes[0].plot([0, 1], [0, 1], color="#999999", linewidth=0.8)
    labels = ("false-positive rate", "true-positive rate") if roc else ("recall", "precision")
    axes[0].set(xlim=(0, 1), ylim=(0, 1.01), xlabel=labels[0], ylabel=labels[1])
    axes[0].legend(loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize=8)
    return finish(name, title)


def _densities(name: str, title: str, figures: Sequence[Figure]) -> Plot:
    axes, finish = _sheet(len(figures))
    for ax, item in zip(axes, figures, strict=False):
        ax.stairs(item.faithful, item.edges, fill=True, color=_FAITHFUL, alpha=0.35, label="faithful")
        ax.stairs(item.hallucinated, item.edges, fill=True, color=_HALLUCINATED, alpha=0.35, label="hallucinated")
        ax.set(title=_label(item.row), yticks=[], xlabel="score")
    axes[0].legend(fontsize=7)
    return finish(name, title)


def _calibration(name: str, title: str, figures: Sequence[Figure]) -> Plot:
    axes, finish = _sheet(len(figures))
    for ax, item in zip(axes, figures, strict=False):
        mean, rate, units = np.array(item.calibration, dtype=float).T
        ax.plot([0, 1], [0, 1], color="#999999", linewidth=0.8)
        ax.plot(mean, rate, color=_FAITHFUL, linewidth=1.2)
        ax.scatter(mean, rate, s=8 + 60 * units / units.max(), color=_FAITHFUL)
        ax.set(xlim=(0, 1), ylim=(0, 1), title=_label(item.row), xlabel="score", ylabel="rate of hallucination")
    return finish(name, title)


def _heads(anatomies: Sequence[Anatomy]) -> Plot:
    axes, finish = _sheet(len(anatomies), 4.4, 3.6)
    for ax, item in zip(axes, anatomies, strict=False):
        weights = np.array(item.head_weights)
        bound = float(np.abs(weights).max()) or 1.0
        image = ax.imshow(weights, cmap="RdBu_r", vmin=-bound, vmax=bound, aspect="auto", interpolation="nearest")
        ax.set(title=_label(item.row), xlabel="head", ylabel="layer")
        _whole(ax.xaxis)
        _whole(ax.yaxis)
        ax.figure.colorbar(image, ax=ax, shrink=0.8)
    return finish("head-weights", "Weights of heads, mean over folds; red speaks for hallucination")


def _layers(anatomies: Sequence[Anatomy]) -> Plot:
    axes, finish = _sheet(len(anatomies))
    for ax, item in zip(axes, anatomies, strict=False):
        ax.bar(range(len(item.layer_weights)), item.layer_weights, color=_FAITHFUL)
        ax.set(title=_label(item.row), xlabel="layer", ylabel=_layer_unit(item))
        _whole(ax.xaxis)
    return finish("layer-profile", "Where in the model the weight sits")


def _layer_unit(item: Anatomy) -> str:
    """Say what the layer profile shows: a method may weigh layers besides heads, or heads alone."""
    means = [float(np.abs(layer).mean()) for layer in item.head_weights]
    of_heads = len(means) == len(item.layer_weights) and np.allclose(means, item.layer_weights, rtol=1e-4)
    return "mean |weight| of heads" if of_heads else "weight"


def _cross(table: CrossTable) -> Plot:
    rows = [
        row for row in table.rows if row.kind == "method" and any(v is not None for line in row.auroc for v in line)
    ]
    axes, finish = _sheet(len(rows), 3.9, 3.4)
    names = [_label(part) for part in table.parts]
    for ax, row in zip(axes, rows, strict=False):
        matrix = np.array([[np.nan if value is None else value for value in line] for line in row.auroc])
        ax.imshow(matrix, cmap="RdBu", vmin=0, vmax=1, aspect="auto")
        for (a, b), value in np.ndenumerate(matrix):
            if math.isfinite(value):
                ink = "white" if abs(value - 0.5) > 0.3 else "black"
                ax.text(b, a, f"{value:.2f}", ha="center", va="center", fontsize=8, color=ink)
        ax.set(title=_label(row.name), xlabel="measured on", ylabel="fitted on")
        ax.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=7)
        ax.set_yticks(range(len(names)), names, fontsize=7)
    return finish(f"cross-{table.level}", f"Fitted on one part, measured on another: AUROC, {table.level} level")


def _pairs(anatomies: Sequence[Anatomy]) -> Plot:
    axes, finish = _sheet(2 * len(anatomies), across=2)
    for number, item in enumerate(anatomies):
        points = np.array(item.pairs, dtype=float)
        span = [_stretch(points[:, 0]), _stretch(points[:, 1])]
        for side, (kind, name) in enumerate(((0, "faithful"), (1, "hallucinated"))):
            chosen = points[points[:, 2] == kind]
            counts, x, y = np.histogram2d(chosen[:, 0], chosen[:, 1], bins=24, range=span)
            ax = axes[2 * number + side]
            mesh = ax.pcolormesh(x, y, np.where(counts.T > 0, counts.T, np.nan), cmap="viridis", rasterized=True)
            ax.figure.colorbar(mesh, ax=ax, label="answers")
            ax.set(title=f"{_label(item.row)}: {name}", xlabel="external score", ylabel="internal score")
            ax.set(xlim=span[0], ylim=span[1])
    return finish("external-internal", "External against internal score of answers")


def _whole(axis: Any) -> None:
    """Put ticks on whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def _stretch(values: Any) -> tuple[float, float]:
    low, high = float(np.min(values)), float(np.max(values))
    pad = 0.05 * (high - low) or 0.5
    return low - pad, high + pad


def _sheet(
    count: int, width: float = 3.4, height: float = 2.7, across: int = _ACROSS
) -> tuple[list[Axes], Callable[[str, str], Plot]]:
    """Return so many axes, and what makes a plot of their sheet."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as Sheet

    columns = min(across, max(1, count))
    lines = math.ceil(max(1, count) / columns)
    sheet = Sheet(figsize=(width * columns, height * lines), layout="constrained")
    FigureCanvasSVG(sheet)
    axes = list(np.ravel(np.asarray(sheet.subplots(lines, columns, squeeze=False))))
    for spare in axes[count:]:
        spare.set_axis_off()

    def finish(name: str, title: str) -> Plot:
        buffer = io.StringIO()
        sheet.savefig(buffer, format="svg", metadata={"Date": None, "Creator": "groundscope"})
        return Plot(name, title, buffer.getvalue())

    return axes, finish


def _label(text: str) -> str:
    """Return a name that fits and cannot break the picture; one that starts with "_" would vanish from legends."""
    shown = visible(text)
    shown = shown if len(shown) <= 34 else f"{shown[:31]}..."
    return f" {shown}" if shown.startswith("_") else shown

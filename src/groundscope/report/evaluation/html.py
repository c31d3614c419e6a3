"""An evaluation as one self-contained HTML page: tables, findings and pictures, nothing loaded, no script."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from markupsafe import Markup

from groundscope._version import __version__
from groundscope.evaluate.results.results import Evaluation
from groundscope.report.evaluation.plots import Plot
from groundscope.report.evaluation.tables import facts, tables
from groundscope.report.pages import asset, digest, environment


def render_evaluation(
    evaluation: Evaluation, plots: Sequence[Plot] = (), *, missing: str = "", title: str = "groundscope evaluation"
) -> str:
    """Draw an evaluation as a page.

    Args:
        evaluation: What was found.
        plots: Pictures.
        missing: Why there are none.
        title: Heading of the page.

    Returns:
        A whole HTML document.
    """
    css = asset("page.css") + asset("evaluation.css")
    policy = f"default-src 'none'; style-src '{digest(css)}'; img-src data:; base-uri 'none'; form-action 'none'"
    return (
        environment()
        .from_string(asset("evaluation.html.jinja"))
        .render(
            title=title,
            facts=facts(evaluation),
            findings=evaluation.findings,
            missing=missing,
            tables=tables(evaluation),
            plots=[{"name": plot.name, "title": plot.title, "source": _data(plot.svg)} for plot in plots],
            css=Markup(css),  # noqa: S704 - our own files
            policy=policy,
            version=__version__,
        )
    )


def _data(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()

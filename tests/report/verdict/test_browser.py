"""The page in a real browser: its script runs under its own security policy, and shows evidence on a click."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from sample_verdicts import judged

from groundscope.report.verdict.html import render_page
from groundscope.verdict import Evidence, Span, Threshold, TokenScore, Verdict

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium here; `apt-get install chromium` brings it"),
]
OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
]
RESPONSE = "It was completed in 1887 <b>by</b> <script>document.title='owned'</script>."


def page() -> str:
    year = RESPONSE.index("1887")
    verdict = Verdict(
        outcome="scored",
        response=RESPONSE,
        score=1.0,
        flagged=True,
        aggregation="mean over tokens",
        detector="contrast",
        model="tiny",
        threshold=Threshold(0.5, 0.5, "the test"),
        tokens=(TokenScore(year, year + 4, "1887", 2.0),),
        spans=(Span(year, year + 4, "1887", 2.0, (Evidence(1, 0.75), Evidence(0, 0.25))),),
        passages=("The tower stands in Rome.", "It was completed in 1889."),
    )
    return render_page([verdict])


def browse(tmp_path, html: str) -> tuple[str, str]:
    """The document after its scripts ran, and what the browser logged."""
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    command = [BROWSER, *OPTIONS, f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=2000", "--dump-dom"]
    done = subprocess.run(
        [*command, (tmp_path / "page.html").as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def test_the_page_runs_under_its_own_policy_and_nothing_in_it_runs_uninvited(tmp_path):
    dom, console = browse(tmp_path, page())
    assert console == ""
    assert "owned" not in re.search(r"<title>(.*?)</title>", dom, re.S)[1]
    assert "<b>by</b>" not in dom


def test_a_click_on_a_span_lights_its_passages(tmp_path):
    click = "<script>document.querySelector('.answer [data-span]').click()</script></body>"
    # The policy would refuse the test's own script.
    html = re.sub(r"<meta[^>]*Content-Security-Policy[^>]*>", "", page()).replace("</body>", click)
    before, _ = browse(tmp_path, page())
    after, console = browse(tmp_path, html)
    assert console == ""
    assert "% of the attention" not in re.search(r'class="[^"]*passage.*', before, re.S)[0].split("<script")[0]
    lit = re.findall(r'class="passage lit".*?class="share"[^>]*>(.*?)<', after, re.S)
    assert lit == ["25 % of the attention", "75 % of the attention"]
    assert 'aria-pressed="true"' in after and 'aria-pressed="true"' not in before


@pytest.mark.parametrize(
    ("selector", "lit"),
    [
        (".sentences [data-sentence='0']", ["The tower was completed on 31 March 1889."]),
        (".sentences [data-sentence='1'] a", ["The tower is 330 metres tall."]),
        (".answer [data-sentence='1']", ["The tower is 330 metres tall."]),
        (".answer [data-span='0']", ["The tower was completed on 31 March 1889."]),
        (".answer [data-span='0'] span", ["The tower was completed on 31 March 1889."]),
        (".sentences [data-sentence='2']", []),
    ],
)
def test_a_click_on_a_sentence_or_span_lights_the_passage_sentence_to_compare_with(tmp_path, selector, lit):
    click = f'<script>document.querySelector("{selector}").click()</script></body>'
    html = re.sub(r"<meta[^>]*Content-Security-Policy[^>]*>", "", render_page([judged()])).replace("</body>", click)
    after, console = browse(tmp_path, html)
    assert console == ""
    assert re.findall(r'<span class="near on"[^>]*>(.*?)</span>', after, re.S) == lit
    picked = re.findall(r'<li class="[^"]*\bon\b[^"]*"', after) + re.findall(r'<li[^>]* class="on"', after)
    assert picked, "what was clicked is shown as selected"

from groundscope.evaluate.metrics.bootstrap import Estimate
from groundscope.evaluate.results.findings import findings
from groundscope.evaluate.results.results import Comparison, Macro, Measured, Row

DATA = {"examples": 400, "positives": 200, "sources": 100}


def row(name, value, *, kind="method", within=None, spread=0.02):
    measured = Measured("response", "pooled", "", 400, 200, 100, auroc=Estimate(value, value - spread, value + spread))
    mean = Estimate(value if within is None else within)
    macros = (Macro("response", "generator", "auroc", 2, mean, mean),)
    return Row(name, kind, "untrained", {}, (measured,), macros)


def pair(first, second, low, high):
    return Comparison("response", "auroc", first, second, Estimate((low + high) / 2, low, high), None)


def test_one_sentence_per_control_says_all_that_it_beats():
    rows = [row("a", 0.9), row("b", 0.6), row("c", 0.74), row("length", 0.75, kind="control", within=0.7)]
    pairs = [pair("b", "length", -0.2, -0.1), pair("c", "length", -0.05, 0.03), pair("a", "length", 0.1, 0.2)]
    assert findings(DATA, rows, pairs, ["response"]) == (
        "response level: length (AUROC 0.750) clearly beats b (0.600), and is ahead of c (0.740).",
        "response level within generators: length (mean AUROC 0.700) is ahead of b (0.600).",
    )


def test_scores_that_say_the_opposite_are_named():
    rows = [row("a", 0.3), row("b", 0.49, spread=0.1), row("length", 0.2, kind="control")]
    (line,) = findings(DATA, rows, [], ["response"])
    assert line == "response level: upside down on these data, clearly below chance: a (0.300)."


def test_few_data_are_called_few_before_anything_else_is_said():
    rows = [row("a", 0.3), row("length", 0.75, kind="control")]
    first, *others = findings(DATA | {"sources": 5}, rows, [], ["response"])
    assert "The data are few" in first and "Read the intervals" in first and others


def test_intervals_over_a_handful_of_sources_are_not_to_be_read():
    (line,) = findings(DATA | {"sources": 4}, [row("a", 0.9)], [], ["response"])
    assert "from 4 sources" in line and "next to nothing" in line

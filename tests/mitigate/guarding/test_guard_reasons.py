"""The reasons in a guard's last verdict."""

from __future__ import annotations

import groundscope as gs
from groundscope.detectors.judgement import Judgement, Nearest, Reason, SentenceJudgement
from groundscope.detectors.untrained.uncertainty import Entropy
from groundscope.mitigate.guarding.guard import guard
from groundscope.text.sentences import split_sentences

QUESTION = "When was it completed?"
PASSAGES = ("The tower was completed in 1889.", "Bees make honey.")
SENTENCES = ["The tower cost 42 million.", "It was completed in 1887!", "Bees made it."]
TEXT = " ".join(SENTENCES)


class Quoting(Entropy):
    """Entropy that explains every sentence by quoting it."""

    def judge(self, trace):
        text = trace.layout.response
        return Judgement(
            tuple(
                SentenceJudgement(a, b, 1.0, 0.75, (Reason("text", 1.0, text[a:b]),), Nearest(0, 0, 5, 0.5))
                for a, b in split_sentences(text)
            ),
            1.0,
            0.75,
        )


def test_reasons_do_not_quote_what_is_withheld(tiny):
    scores = [item.score for item in gs.Scope(tiny, "entropy", threshold=4.0).score(QUESTION, PASSAGES, TEXT).sentences]
    line = sum(sorted(scores)[:2]) / 2
    flags = [score >= line for score in scores]
    assert sorted(flags) == [False, True, True]
    (*_, last) = guard(list(TEXT), gs.Scope(tiny, Quoting(), threshold=0.5), QUESTION, PASSAGES, threshold=line)
    verdict = last.verdict
    assert [bool(item.reasons) for item in verdict.sentences] == [not flagged for flagged in flags]
    assert [bool(item.nearest) for item in verdict.sentences] == [not flagged for flagged in flags]
    told = repr(verdict)
    assert [text in told for text in SENTENCES] == [not flagged for flagged in flags]

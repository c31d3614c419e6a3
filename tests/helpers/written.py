"""Verdicts that are written to files in tests."""

from groundscope.verdict import Evidence, Span, Threshold, TokenScore, Verdict

SETTINGS = {"detector": "contrast", "model": "m", "threshold": None, "seed": 0}


def verdict(name, response="It fell in 東京.", **fields):
    values = {
        "outcome": "scored",
        "score": 0.5,
        "flagged": True,
        "aggregation": "mean",
        "detector": "contrast",
        "model": "m",
        "threshold": Threshold(0.4, 0.6, "test"),
        "tokens": (TokenScore(0, 2, response[:2], 0.1),),
        "spans": (Span(3, 7, response[3:7], 0.9, (Evidence(0, 0.8),)),),
        "question": "Where?",
        "passages": ("It stood.",),
    }
    return Verdict(response=response, id=name, **(values | fields))

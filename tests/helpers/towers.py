"""Labelled examples for the tiny model, and probes that learn from them."""

from __future__ import annotations

import numpy as np

from groundscope import Example
from groundscope.data.contrast import draw_contrast
from groundscope.detectors.learnable import LearnedDetector
from groundscope.example import Label
from groundscope.learn.labels import response_label, token_labels
from groundscope.trace.traced import TracedExample

SIGNALS = ("token_logprob", "token_entropy", "mmd", "information_processing_rate_calibrated")


def make_examples(sources: int = 16, seed: int = 0) -> list[Example]:
    """Two answers per source, by two writers, in two tasks; about half of them hold one made-up number."""
    rng = np.random.default_rng(seed)
    examples = []
    for source in range(sources):
        year = int(rng.integers(1500, 1999))
        context = f"Tower {source} was completed in {year} and stands in Paris."
        for writer in ("first", "second"):
            wrong = bool(rng.random() < (0.6 if writer == "first" else 0.4))
            answer = f"It was completed in {year + 111 if wrong else year} by the company."
            start = answer.index("in ") + 3
            examples.append(
                Example(
                    question="When was it finished?",
                    passages=(context,),
                    response=answer,
                    labels=(Label(start, start + 4, "number"),) if wrong else (),
                    hallucinated=wrong,
                    id=f"{source}-{writer}",
                    dataset="towers",
                    task="qa" if source % 2 else "summarization",
                    label_kind="span",
                    model=writer,
                    source_id=str(source),
                )
            )
    return examples


def trace_all(lm, examples: list[Example]) -> list[TracedExample]:
    renderer = lm.renderer()
    layouts = [renderer.layout(item, [draw_contrast(item, examples).passages]) for item in examples]
    traces = lm.trace(layouts, SIGNALS)
    return [TracedExample(item, trace) for item, trace in zip(examples, traces, strict=True)]


class TokenProbe(LearnedDetector):
    """Logistic regression on two signals per token; keeps the ids it learnt from, to be found out if it leaks."""

    name, summary, reference = "token-probe", "two signals", "a test"
    label_kinds = ("span", "sentence")

    def __init__(self, strength: float = 1.0) -> None:
        self.strength = strength

    @property
    def signals(self):
        return ("token_logprob", "token_entropy")

    @staticmethod
    def _features(trace):
        return np.stack([trace["token_logprob"], trace["token_entropy"]], axis=1).astype(np.float64)

    def _fit(self, data, dev):
        from sklearn.linear_model import LogisticRegression

        x = np.concatenate([self._features(item.trace) for item in data])
        y = np.concatenate([token_labels(item.example, item.trace.layout) for item in data])
        model = LogisticRegression(C=self.strength, class_weight="balanced").fit(x, y)
        self.coef_, self.intercept_ = model.coef_[0], float(model.intercept_[0])
        self.trained_on_ = [item.example.id for item in data]

    def token_scores(self, trace):
        self.check_fitted()
        return 1 / (1 + np.exp(-(self._features(trace) @ self.coef_ + self.intercept_)))

    def head_weights(self):
        return self.coef_.reshape(1, 2)

    def external_internal(self, trace):
        return float(trace["token_logprob"].mean()), float(trace["token_entropy"].mean())

    def state(self):
        return {"coef": self.coef_}, {"intercept": self.intercept_}

    def restore(self, arrays, facts):
        self.coef_, self.intercept_ = np.asarray(arrays["coef"]), float(facts["intercept"])


class AnswerProbe(TokenProbe):
    """Learns from answers as a whole."""

    name = "answer-probe"
    label_kinds = ("span", "sentence", "response")

    def _fit(self, data, dev):
        from sklearn.linear_model import LogisticRegression

        x = np.stack([self._features(item.trace).mean(axis=0) for item in data])
        model = LogisticRegression(C=self.strength).fit(x, [response_label(item.example) for item in data])
        self.coef_, self.intercept_ = model.coef_[0], float(model.intercept_[0])
        self.trained_on_ = [item.example.id for item in data]

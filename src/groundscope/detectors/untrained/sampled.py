"""Detectors that compare the answer with others that the reading model gives to the same prompt."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from groundscope.detectors.untrained.controls import words_of
from groundscope.detectors.untrained.gathered import GatheredDetector, per_token
from groundscope.errors import InputError, check_count, is_finite
from groundscope.text.words import word_spans

if TYPE_CHECKING:
    from groundscope.example import Example
    from groundscope.lm.language_model import LanguageModel
    from groundscope.lm.prompt.layout import Layout
    from groundscope.lm.sampling import Samples, Sampling
    from groundscope.trace.trace import FloatArray

# The latest answers of each model: several detectors, and several responses to one question, sample once.
_DRAWN: WeakKeyDictionary[LanguageModel, OrderedDict[tuple[bytes, Sampling], Samples]] = WeakKeyDictionary()
# Prompts whose answers are kept, some kilobytes each.
_KEPT = 256


class SampledDetector(GatheredDetector):
    """A detector that lets the reading model answer the prompt itself, several times.

    The samples are the reading model's, whoever wrote the response. They are drawn from the whole distribution at
    the given temperature, by a seed; detectors with the same settings share them.

    Args:
        samples: How many, at least 2.
        temperature: Of the draw, above 0.
        max_new_tokens: Where a sample is cut off.
        seed: Of the draw, at least 0.

    Raises:
        InputError: If a parameter is not understood.
    """

    costs_more: ClassVar[bool] = True

    def __init__(self, samples: int = 10, temperature: float = 1.0, max_new_tokens: int = 64, seed: int = 0) -> None:
        owner = type(self).__name__
        check_count(owner, "samples", samples)
        check_count(owner, "max_new_tokens", max_new_tokens)
        if samples < 2:
            raise InputError(f"The 'samples' parameter of {owner} must be at least 2. Got {samples!r} instead.")
        if not is_finite(temperature) or temperature <= 0:
            raise InputError(
                f"The 'temperature' parameter of {owner} must be a finite number above 0. Got {temperature!r} instead."
            )
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise InputError(f"The 'seed' parameter of {owner} must be an integer of at least 0. Got {seed!r} instead.")
        self.samples = samples
        self.temperature = temperature
        self.max_new_tokens = max_new_tokens
        self.seed = seed

    @property
    def own_signal(self) -> str:
        """Name of the array that it gathers."""
        return f"{self.name}_{self.samples}x{self.max_new_tokens}_t{self.temperature:g}_s{self.seed}"

    def draw(self, lm: LanguageModel, layout: Layout) -> Samples:
        """Sample answers to the layout's prompt.

        Raises:
            ContextTooLongError: If prompt and samples do not fit the model.
            UnsupportedModelError: If the model cannot generate.
        """
        from groundscope.lm.sampling import Sampling, sample

        sampling = Sampling(self.samples, float(self.temperature), self.max_new_tokens, self.seed)
        key = (layout.prompt_ids.tobytes(), sampling)
        drawn = _DRAWN.setdefault(lm, OrderedDict())
        found = drawn.get(key)
        if found is None:
            found = drawn[key] = sample(lm, layout.prompt_ids, sampling)
        while len(drawn) > _KEPT:
            drawn.popitem(last=False)
        return found


class EigenScore(SampledDetector):
    """How far the model's own answers lie apart: log-determinant of the covariance of their states.

    With Z the (sample, channel) outputs of the middle layer at each sample's last token, each row centred over its
    channels: log det(Z Z' + 0.001 I) / samples. That is the paper's equation; its code divides the covariance by
    channels - 1, uses logarithms to base 10, and draws 10 samples at temperature 0.5 from the 5 likeliest tokens.
    It says how unsure the reading model is about the question, and does not read the response.

    Args:
        samples: See :class:`SampledDetector`; likewise the rest.
        temperature: Of the draw.
        max_new_tokens: Where a sample is cut off.
        seed: Of the draw.
    """

    name = "eigenscore"
    summary = "spread of the states of answers sampled from the reading model"
    reference = "EigenScore, INSIDE, arXiv 2402.03744, eq. 5-6"
    aggregation = "the same for all tokens"
    level: ClassVar[Literal["token", "response"]] = "response"

    def gather(self, lm: LanguageModel, example: Example, layout: Layout) -> Mapping[str, FloatArray]:
        """Sample answers and compare their states."""
        value = eigenscore(self.draw(lm, layout).states)
        return {self.own_signal: np.full(layout.response_length, value, dtype=np.float32)}


class SelfCheck(SampledDetector):
    """-log p(word) under the words of sampled answers, in nats, for each token of the word.

    The unigram model counts the words of the samples and, as in the paper, of the response itself, so that no word
    has probability 0. A word that no sample has scores highest. White space takes the response's mean.

    Args:
        samples: See :class:`SampledDetector`; likewise the rest. The paper draws 20.
        temperature: Of the draw.
        max_new_tokens: Where a sample is cut off.
        seed: Of the draw.
    """

    name = "selfcheck"
    summary = "surprise at each word, given the words of answers sampled from the reading model"
    reference = "SelfCheckGPT with n-grams (unigram), arXiv 2303.08896, section 5.3"

    def gather(self, lm: LanguageModel, example: Example, layout: Layout) -> Mapping[str, FloatArray]:
        """Sample answers and count their words."""
        samples = self.draw(lm, layout)
        if lm.tokenizer is None:
            raise InputError(f"{lm.name} was wrapped without a tokenizer, so its samples cannot be read as words.")
        texts = [str(lm.tokenizer.decode(list(ids), skip_special_tokens=True)) for ids in samples.ids]
        values = per_token(layout, word_spans(example.response), unigram_surprise(example.response, texts))
        if np.isnan(values).all():
            raise InputError("The response has no visible word, so none can be looked for in the samples.")
        values = np.where(np.isnan(values), np.nanmean(values), values)
        return {self.own_signal: values.astype(np.float32)}


def eigenscore(states: npt.NDArray[np.floating], alpha: float = 1e-3) -> float:
    """Return log det(Z Z' + alpha I) / samples of (sample, channel) states, rows centred over their channels."""
    rows = states.astype(np.float64)
    rows = rows - rows.mean(axis=1, keepdims=True)
    count = len(rows)
    sign, logarithm = np.linalg.slogdet(rows @ rows.T + alpha * np.eye(count))
    if sign <= 0:  # the smallest eigenvalues are lost beside huge ones
        eigenvalues = np.maximum(np.linalg.eigvalsh(rows @ rows.T), 0) + alpha
        logarithm = np.log(eigenvalues).sum()
    return float(logarithm / count)


def unigram_surprise(response: str, samples: list[str]) -> list[float]:
    """Return -log p of each unit of the response under the counts of samples and response together."""
    own = words_of(response)
    counts = Counter(own)
    for text in samples:
        counts.update(words_of(text))
    total = counts.total()
    return [math.log(total / counts[word]) for word in own]

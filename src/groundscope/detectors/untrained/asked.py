"""P(True): the reading model is asked whether the answer is supported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from groundscope.detectors.untrained.gathered import GatheredDetector
from groundscope.errors import NonFiniteError, UnsupportedModelError

if TYPE_CHECKING:
    from groundscope.detectors.base import Scores
    from groundscope.example import Example
    from groundscope.lm.language_model import LanguageModel
    from groundscope.lm.prompt.layout import Ids, Layout
    from groundscope.trace.trace import FloatArray, Trace

_PROMPT = (
    "Context:\n{passages}\n\n{question}\n\n"
    "Is the proposed answer fully supported by the context? Reply with Yes or No only."
)
_YES = ("Yes", " Yes", "yes", " yes", "YES", " YES")
_NO = ("No", " No", "no", " no", "NO", " NO")


class PTrue(GatheredDetector):
    """1 - p(Yes) / (p(Yes) + p(No)), for each token: the model's own word on whether the answer is supported.

    The model reads the passages, the question and the answer in one prompt, with its chat template if it has one,
    and the probabilities are those of its next token, all ways to write Yes and No added up. The paper asks about
    truth and shows the model sampled answers beside the proposed one; here the question is support, and
    there are none.
    """

    name = "p-true"
    summary = "the reading model's own word on whether the answer is supported"
    reference = "P(True), arXiv 2207.05221, section 3.1"
    aggregation = "the same for all tokens"
    neutral = 0.5
    level: ClassVar[Literal["token", "response"]] = "response"
    costs_more: ClassVar[bool] = True

    @property
    def own_signal(self) -> str:
        """Name of the array that it gathers."""
        return "p_true"

    def gather(self, lm: LanguageModel, example: Example, layout: Layout) -> Mapping[str, FloatArray]:
        """Ask.

        Raises:
            ContextTooLongError: If context, question and answer do not fit the model together.
            UnsupportedModelError: If its tokenizer does not tell Yes from No.
        """
        value = p_true(lm, question_ids(lm, example))
        return {self.own_signal: np.full(layout.response_length, value, dtype=np.float32)}

    def token_scores(self, trace: Trace) -> Scores:
        """Score every response token, in [0, 1]."""
        return 1.0 - super().token_scores(trace)


def question_ids(lm: LanguageModel, example: Example) -> Ids:
    """Lay out the prompt that asks whether an answer is supported; names of special tokens in it stay text."""
    from groundscope.example import Example
    from groundscope.lm.prompt.template import PromptTemplate

    question = f"Question: {example.question}\n\n" if example.question.strip() else ""
    asked = Example(f"{question}Proposed answer: {example.response}", example.passages, "Yes")
    template = PromptTemplate(user=_PROMPT)
    return lm.renderer(template).layout(asked).prompt_ids


def p_true(lm: LanguageModel, ids: Ids) -> float:
    """Return p(Yes) / (p(Yes) + p(No)) at the token after a prompt.

    Raises:
        UnsupportedModelError: If the tokenizer does not tell Yes from No.
        NonFiniteError: If the model's logits are not finite.
    """
    import torch

    yes, no = _choices(lm.tokenizer)
    anatomy = lm.anatomy
    unembedding = anatomy.unembedding
    if unembedding is None:
        raise UnsupportedModelError(f"{lm.name} has no output distribution that can be read.")
    with torch.no_grad():
        inputs = torch.from_numpy(ids)[None].to(lm.device)
        hidden = anatomy.decoder(
            input_ids=inputs, attention_mask=torch.ones_like(inputs), use_cache=False
        ).last_hidden_state
        logits = unembedding.logits(hidden[0, -1:])[0].double().cpu()
    both = torch.stack([logits[sorted(group)].logsumexp(0) for group in (yes, no)])
    value = float(both.softmax(0)[0])
    if not np.isfinite(value):
        raise NonFiniteError(f"{lm.name} produced NaN or infinity when it was asked. Check the weights.")
    return value


def _choices(tokenizer: Any) -> tuple[set[int], set[int]]:
    """Tokens that say Yes, and tokens that say No."""
    from groundscope.lm.prompt.offsets import encode

    ways = [[encode(tokenizer, text)[0] for text in variants] for variants in (_YES, _NO)]
    yes, no = ({ids[0] for ids in side if len(ids) == 1} for side in ways)
    if not yes or not no:  # a small vocabulary: how the words begin must do
        yes, no = ({ids[0] for ids in side} for side in ways)
    if yes <= no or no <= yes:
        raise UnsupportedModelError(
            "The tokenizer begins Yes and No with the same token, so the answer to a yes-or-no question cannot be "
            "read from the next token. Use another detector."
        )
    return yes - no, no - yes

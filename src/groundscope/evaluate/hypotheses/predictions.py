"""What a signal must show if it measures the use of documents, or of a model's own knowledge (LUMINA, section 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from groundscope.evaluate.hypotheses.quantity import Role

Condition = Literal["documents", "placebo", "none"]
Answers = Literal["given", "generated"]


@dataclass(frozen=True)
class Group:
    """Which responses are read, and under what.

    Attributes:
        task: Only responses of this task; ``None`` for all.
        condition: ``documents``: the passages given; ``placebo``: another random document in their place;
            ``none``: no passage.
        answers: ``given``: those of the data; ``generated``: what the reading model answers without passages.
    """

    task: str | None
    condition: Condition
    answers: Answers = "given"

    def as_placebo(self) -> Group:
        """Return the group with a random document where the passages were."""
        return replace(self, condition="placebo") if self.condition == "documents" else self


@dataclass(frozen=True)
class Hypothesis:
    """The first group's values are larger than the second's.

    Attributes:
        name: ``H1`` to ``H4``.
        role: Which signals it is about.
        claim: In words.
        first: Claimed to be larger.
        second: Claimed to be smaller.
        paired: Whether both groups are the same tokens.
    """

    name: str
    role: Role
    claim: str
    first: Group
    second: Group
    paired: bool = False

    @property
    def groups(self) -> tuple[Group, Group]:
        """The two sides."""
        return self.first, self.second

    @property
    def placebo(self) -> tuple[Group, Group]:
        """The two sides with a random document where the passages were; what is due to these should vanish."""
        return self.first.as_placebo(), self.second.as_placebo()

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks that the data must hold."""
        return tuple(dict.fromkeys(group.task for group in self.groups if group.task is not None))


HYPOTHESES: tuple[Hypothesis, ...] = (
    Hypothesis(
        "H1",
        "external",
        "answers to documents score higher than answers made without documents",
        Group("qa", "documents"),
        Group("qa", "none", "generated"),
    ),
    Hypothesis(
        "H2",
        "external",
        "summaries score higher than answers to questions",
        Group("summarization", "documents"),
        Group("qa", "documents"),
    ),
    Hypothesis(
        "H3",
        "internal",
        "the same answers score higher without documents than with them",
        Group(None, "none"),
        Group(None, "documents"),
        paired=True,
    ),
    Hypothesis(
        "H4",
        "internal",
        "texts from data score higher than summaries",
        Group("data2text", "documents"),
        Group("summarization", "documents"),
    ),
)
"""LUMINA, arXiv 2509.21875, section 5: H1 and H2 are about external scores, H3 and H4 about internal ones."""


def of_role(role: Role) -> Sequence[Hypothesis]:
    """Return the hypotheses about signals of a role."""
    return [item for item in HYPOTHESES if item.role == role]

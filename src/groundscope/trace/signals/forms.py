"""Forms of the distribution shift: signals whose names carry the numbers they are computed with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from groundscope.errors import InputError, check_choice, check_count, is_finite

Kernel = Literal["cosine", "rbf"]
KERNELS: tuple[Kernel, ...] = ("cosine", "rbf")
_NAME = re.compile(r"mmd(?P<rbf>_rbf)?(?:_top(?P<top>[1-9][0-9]*))?(?:_sigma(?P<sigma>[0-9.e+-]+))?")


@dataclass(frozen=True)
class MmdForm:
    """How two output distributions are compared.

    Names are ``mmd`` (cosine kernel, whole vocabulary), ``mmd_top100`` (the 100 likeliest tokens of each) and
    ``mmd_rbf_top100_sigma1``. A form has one name only, so numbers are written in the shortest way.

    Attributes:
        kernel: ``cosine``, (1 + cos) / 2 of the tokens' input embeddings, or ``rbf``, exp(-distance² / 2 sigma²).
        top_k: Likeliest tokens of each distribution that are compared; ``None`` for all.
        sigma: Width of the rbf kernel, in units of the input embeddings, which are not normed for it.

    Raises:
        InputError: If a number is not usable, or the rbf kernel is asked for without ``top_k``.
    """

    kernel: Kernel = "cosine"
    top_k: int | None = None
    sigma: float = 1.0

    def __post_init__(self) -> None:
        check_form("MMD", self.kernel, self.top_k, self.sigma)

    @property
    def name(self) -> str:
        """Name of the signal."""
        top = "" if self.top_k is None else f"_top{int(self.top_k)}"
        if self.kernel == "cosine":
            return f"mmd{top}"
        return f"mmd_rbf{top}_sigma{repr(float(self.sigma)).removesuffix('.0')}"


def check_form(owner: str, kernel: object, top_k: object, sigma: object) -> None:
    """Refuse what is no form; see :class:`MmdForm`."""
    check_choice(owner, "kernel", kernel, KERNELS)
    if top_k is not None:
        check_count(owner, "top_k", top_k)
    if not is_finite(sigma) or sigma <= 0:  # type: ignore[operator]
        raise InputError(f"The 'sigma' parameter of {owner} must be a finite number above 0. Got {sigma!r} instead.")
    if kernel == "rbf" and top_k is None:
        raise InputError(
            f"The 'top_k' parameter of {owner} must be an integer with kernel='rbf'. Got None instead; the rbf kernel "
            "has no closed form, so the whole vocabulary would mean one number for every pair of tokens. The "
            "published truncation is top_k=100."
        )


def mmd_form(name: object) -> MmdForm | None:
    """Return the form that a signal's name stands for; ``None`` if it is no such name."""
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        return None
    try:
        form = MmdForm(
            "rbf" if match["rbf"] else "cosine",
            None if match["top"] is None else int(match["top"]),
            1.0 if match["sigma"] is None else float(match["sigma"]),
        )
    except ValueError:  # InputError is one: the numbers are no numbers, or none that can be used
        return None
    return form if form.name == name else None

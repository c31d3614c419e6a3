"""The Jensen-Shannon divergence, as exact in single precision where two distributions nearly agree."""

from __future__ import annotations

import torch
from torch import Tensor

from groundscope.trace.scratch import Scratch


def divergence(p: Tensor, q: Tensor, scratch: Scratch) -> Tensor:
    """Jensen-Shannon divergence in nats over the last axis.

    With m = (p+q)/2, u = p/m and v = 2-u the share of an element is (p log u + q log v) / 2. Both parts are far larger
    than their sum where p is near q. They cancel to the last bit if u + v is exactly 2, which rounding u to the spacing
    of v makes sure of; the error of u itself is multiplied by the small p - q.

    Args:
        p: (..., element) shares of a whole, not negative; they need not sum to one.
        q: The same; it may have axes of length one where p has more.
        scratch: Memory to work in.

    Returns:
        (...), at least 0 but for rounding.
    """
    kind = torch.finfo(p.dtype)
    least = kind.eps / 2
    two = torch.full((), 2.0, dtype=p.dtype, device=p.device)
    middle = torch.add(q * 0.5 + kind.tiny, p, alpha=0.5, out=scratch.like("middle", p))
    v = torch.sub(two, torch.div(p, middle, out=middle), out=middle).clamp_(min=least)
    u = torch.sub(two, v, out=scratch.like("ratio", p)).clamp_(min=least)
    shares = u.log_().mul_(p).addcmul_(v.log_(), q)
    summed: Tensor = shares.sum(-1)
    return summed / 2

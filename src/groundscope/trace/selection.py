"""The largest entries of many rows: what the external context score looks at."""

from __future__ import annotations

import torch
from torch import Tensor

from groundscope.trace.scratch import Scratch

# With more positions, too few bits of the value are left beside them.
_PACKABLE = 4096


def largest(values: Tensor, k: int, scratch: Scratch) -> Tensor:
    """Indices of the k largest entries of each row, in no particular order.

    Args:
        values: (..., column) non-negative.
        k: How many, at least 1 and at most the number of columns.
        scratch: Memory to work in.

    Returns:
        (..., k) int16, or int32 where there are more columns than that can count.
    """
    columns = values.shape[-1]
    narrow = torch.int16 if columns <= torch.iinfo(torch.int16).max else torch.int32
    # Bits of non-negative floats order like the floats, and integers are compared faster.
    bits = values.view(torch.int64 if values.dtype == torch.float64 else torch.int32)
    if values.device.type == "cpu" and bits.dtype == torch.int32 and 64 < columns <= _PACKABLE and k < columns:
        return _by_partition(bits, k, scratch).to(narrow)
    return bits.topk(k, dim=-1, sorted=False).indices.to(narrow)


def _by_partition(bits: Tensor, k: int, scratch: Scratch) -> Tensor:
    """Pack the column into each value's lowest bits and partition: one pass over integers, nothing moved twice.

    What is lost of the values matters only in rows where the k-th and the next one differ in nothing else;
    these are done again on whole values.
    """
    columns = bits.shape[-1]
    width = (columns - 1).bit_length()
    packed = torch.bitwise_and(bits, -(1 << width), out=scratch.like("packed", bits))
    packed.bitwise_or_(torch.arange(columns, dtype=torch.int32))
    rows = packed.view(-1, columns)
    border = columns - k
    # On this thread alone: torch's own workers are still spinning for their next task and leave no core to others.
    rows.numpy().partition(border, -1)
    index = rows[:, border:] & ((1 << width) - 1)
    unsure = (rows[:, :border].amax(-1) >> width) == (rows[:, border] >> width)
    if bool(unsure.any()):
        index[unsure] = bits.reshape(-1, columns)[unsure].topk(k, dim=-1, sorted=False).indices.int()
    return index.view(*bits.shape[:-1], k)

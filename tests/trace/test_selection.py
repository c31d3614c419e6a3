import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from groundscope.trace.scratch import Scratch
from groundscope.trace.selection import largest


def _assert_largest(values: torch.Tensor, k: int) -> None:
    index = largest(values, k, Scratch()).long()
    assert index.shape == (*values.shape[:-1], k)
    assert (index.sort(-1).values.diff(dim=-1) > 0).all()
    assert torch.equal(values.gather(-1, index).sort(-1).values, values.topk(k, -1, sorted=True).values.flip(-1))


@pytest.mark.parametrize("columns", [1, 64, 65, 1000, 4096, 4097])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_largest_entries_are_found(columns, dtype):
    generator = torch.Generator().manual_seed(columns)
    values = torch.softmax(torch.randn(3, 7, columns, generator=generator, dtype=dtype) * 3, -1)
    for k in {1, max(1, columns // 10), columns}:
        _assert_largest(values, k)


@pytest.mark.parametrize("gap", [0.0, 1e-7, 1e-4])
def test_values_that_differ_in_their_last_bits_only_are_told_apart(gap):
    steps = torch.arange(500, dtype=torch.float32)
    values = (0.25 * (1 + gap * steps))[torch.randperm(500, generator=torch.Generator().manual_seed(0))]
    _assert_largest(values.expand(2, 3, 500).contiguous(), 50)


@given(arrays(np.float32, (2, 100), elements=st.floats(0, 1, width=32)), st.integers(1, 99))
def test_ties_and_zeros_do_not_matter(values, k):
    _assert_largest(torch.from_numpy(values), k)


def test_a_buffer_is_used_again_where_it_fits():
    scratch = Scratch()
    first = scratch.take("a", (4, 5), torch.float32, torch.device("cpu"))
    again = scratch.take("a", (2, 3), torch.float32, torch.device("cpu"))
    assert first.data_ptr() == again.data_ptr() and again.shape == (2, 3)
    assert scratch.take("b", (2, 3), torch.float32, torch.device("cpu")).data_ptr() != first.data_ptr()
    assert scratch.take("a", (2, 3), torch.float64, torch.device("cpu")).dtype == torch.float64

import pytest
import torch
from torch import nn

import groundscope as gs
from groundscope.lm.anatomy import unembedding as module
from groundscope.lm.anatomy.unembedding import Unembedding
from reference import families

HALVES = (torch.bfloat16, torch.float16)


def head_and_states(dtype, vocabulary=300, channels=24, **options):
    generator = torch.Generator().manual_seed(0)
    head = nn.Linear(channels, vocabulary, bias=False, **options).to(dtype)
    nn.init.normal_(head.weight, generator=generator)
    return head, (8 * torch.randn(2, 5, channels, generator=generator)).to(dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("block", [1, 24 * 128, 1 << 21])
def test_products_in_half_precision_are_not_rounded(monkeypatch, dtype, block):
    monkeypatch.setattr(module, "_BLOCK", block)
    head, states = head_and_states(dtype)
    exact = states.double() @ head.weight.double().t()
    with torch.no_grad():
        got, own = Unembedding((), head).logits(states), Unembedding((), head).own_logits(states)
    assert got.dtype == own.dtype == torch.float32 and got.shape == (2, 5, 300)
    torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=1e-4)
    assert torch.equal(own, head(states).float())
    assert (own - exact).abs().max() > 50 * (got - exact).abs().max()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALVES])
@pytest.mark.parametrize("rows", [1, 15, 16, 70])
@pytest.mark.parametrize("block", [1, 24 * 128, 1 << 21])
@pytest.mark.parametrize("graded", [False, True])
def test_any_number_of_rows_in_blocks_of_words_and_given_memory(monkeypatch, dtype, rows, block, graded):
    monkeypatch.setattr(module, "_BLOCK", block)
    head, _ = head_and_states(dtype)
    states = torch.randn(rows, 24, generator=torch.Generator().manual_seed(1)).to(dtype)
    exact = states.double() @ head.weight.double().t()
    memory = torch.full((rows, 300), torch.nan, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    with torch.set_grad_enabled(graded):
        plain = Unembedding((), head).logits(states)
        found = Unembedding((), head).logits(states, memory)
    assert plain.dtype == found.dtype == memory.dtype and torch.equal(plain, found)
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-4)
    assert found.data_ptr() == memory.data_ptr() and not found.requires_grad


def biased(head):
    head.bias = nn.Parameter(torch.ones(len(head.weight), dtype=head.weight.dtype))


def hooked(head):
    head.register_forward_hook(lambda _, __, returned: returned * 2)


def hooked_before(head):
    head.register_forward_pre_hook(lambda _, given: (given[0] * 2,))


class Quantised(nn.Linear):
    def forward(self, states):
        return super().forward(states) + 1


def of_another_kind(head):
    head.__class__ = Quantised


@pytest.mark.parametrize("change", [biased, hooked, hooked_before, of_another_kind])
def test_a_matrix_that_does_more_is_asked_itself(change):
    head, states = head_and_states(torch.bfloat16)
    plain = head(states)
    change(head)
    assert torch.equal(Unembedding((), head).logits(states), head(states).float())
    assert not torch.equal(head(states), plain)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_full_precision_is_what_the_model_computes(dtype):
    head, states = head_and_states(dtype)
    found = Unembedding((), head, scale=0.5, softcap=30.0)
    assert torch.equal(found.logits(states), found.own_logits(states))
    torch.testing.assert_close(found.logits(states), 30 * torch.tanh(0.5 * head(states) / 30))


def test_signals_of_a_model_in_bfloat16_see_unrounded_logits():
    lm = gs.LanguageModel(families.build("llama").to(torch.bfloat16))
    found = lm.anatomy.unembedding
    states = torch.randn(3, found.head.in_features).bfloat16()
    with torch.no_grad():
        logits, own = found.logits(states), found.own_logits(states)
    assert not torch.equal(logits, logits.bfloat16().float()) and torch.equal(own, own.bfloat16().float())

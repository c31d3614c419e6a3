"""Layouts of random ids for tests of the engine."""

from __future__ import annotations

import numpy as np

import groundscope as gs
import reference


def layout_of(case: reference.Case, **changes) -> gs.Layout:
    return gs.Layout.from_ids(
        changes.get("prompt_ids", case.prompt_ids),
        changes.get("response_ids", case.response_ids),
        passages=changes.get("passages", case.passages),
        header=changes.get("header", case.header),
        contrast_prompt_ids=changes.get("contrast_prompt_ids", case.contrast_prompt_ids),
    )


def some_cases(count: int, seed: int = 0, **options) -> list[reference.Case]:
    rng = np.random.default_rng(seed)
    return [reference.random_case(rng, reference.VOCAB, 1 + i % 3, **options) for i in range(count)]


def some_layouts(count: int, seed: int = 0, **options) -> list[gs.Layout]:
    return [layout_of(case) for case in some_cases(count, seed, **options)]


def assert_same(got: gs.Trace, want: gs.Trace, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    assert list(got) == list(want)
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=rtol, atol=atol, err_msg=name)

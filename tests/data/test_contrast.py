"""Random documents: drawn by a seed, from other contexts only, whatever the order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundscope.data.contrast import draw_contrast, draw_contrasts, neutral_passages
from groundscope.errors import InputError
from groundscope.example import Example


def example(number: int, **changes) -> Example:
    fields = {
        "question": f"question {number}",
        "passages": (f"passage {number} a", f"passage {number} b"),
        "response": f"response {number}",
        "id": str(number),
    }
    return Example(**{**fields, **changes})


OTHERS = [example(number) for number in range(20)]


def test_pool_is_plain_and_without_repetition():
    pool = neutral_passages()
    assert len(pool) >= 10 and len(set(pool)) == len(pool)
    for passage in pool:
        assert passage == passage.strip() and 100 < len(passage) < 1000 and passage.isascii()


@given(st.integers(0, 2**31), st.integers(0, 2**32 - 1))
def test_draw_depends_on_the_seed_and_not_on_order_or_company(seed, shuffle):
    shuffled = list(OTHERS)
    random.Random(shuffle).shuffle(shuffled)
    for item in OTHERS[:3]:
        want = draw_contrast(item, OTHERS, seed)
        assert draw_contrast(item, shuffled, seed) == want
        assert draw_contrast(item, [*shuffled, *shuffled], seed) == want
        assert want.passages in {other.passages for other in OTHERS} - {item.passages}
        assert want.info == {"source": "examples", "which": want.passages[0].split()[1], "seed": seed}


def test_seeds_and_examples_draw_differently():
    drawn = {draw_contrast(OTHERS[0], OTHERS, seed).passages for seed in range(40)}
    assert len(drawn) > 10
    assert len({draw_contrast(item, OTHERS, 0).passages for item in OTHERS}) > 5
    pool = {draw_contrast(OTHERS[0], (), seed).passages for seed in range(40)}
    assert len(pool) > 5


def test_the_same_context_is_never_its_own_random_document():
    own = example(1)
    same = [
        own,
        example(1, response="another answer", id="x"),
        example(2, source_id="group", passages=("quite elsewhere",)),
        example(3, passages=("new", "passage 1 b")),  # shares one passage
        example(4, passages=()),
        example(5, passages=("  ",)),
    ]
    assert draw_contrast(Example("q", own.passages, "r", source_id="group"), same, 0).info["source"] == "pool"
    assert draw_contrast(own, same, 0).passages == ("quite elsewhere",)


@pytest.mark.parametrize("passages", [("a b c",), ("n/a", "?"), ("  tiny" + " " * 50,)])
def test_contexts_that_say_next_to_nothing_stand_in_for_no_other(passages):
    assert draw_contrast(example(1), [example(2, passages=passages)]).info["source"] == "pool"


def test_examples_without_a_source_are_told_apart_by_their_passages():
    other = example(2, source_id=None)
    assert draw_contrast(example(1, source_id=None), [other], 0).passages == other.passages


def test_without_others_the_pool_is_drawn_up_to_the_length_of_the_context():
    short = draw_contrast(example(1), (), 0)
    assert len(short.passages) == 1 and short.info == {"source": "pool", "which": None, "seed": 0}
    long = draw_contrast(example(1, passages=("word " * 400,)), (), 0)
    assert sum(map(len, long.passages)) >= 2000 > sum(map(len, long.passages[:-1]))
    endless = draw_contrast(example(1, passages=("word " * 100_000,)), (), 0)
    assert sorted(endless.passages) == sorted(neutral_passages())


def test_a_context_from_the_pool_is_not_compared_with_itself():
    pool = neutral_passages()
    for seed in range(30):
        assert pool[0] not in draw_contrast(example(1, passages=(pool[0],)), (), seed).passages


def test_repeated_identifiers_do_no_harm():
    twins = [example(1, id="same"), example(2, id="same"), example(3, id=None)]
    drawn = {draw_contrast(twins[0], twins, seed).info["which"] for seed in range(20)}
    assert drawn == {"same", None}


def test_which_example_stands_for_a_shared_context_does_not_hang_on_order():
    shared = [example(2, id=name) for name in ("b", "a", "c")]
    for order in (shared, shared[::-1]):
        assert draw_contrast(example(1), order, 0).info["which"] == "a"


def test_several_documents_differ_and_begin_with_those_of_a_shorter_draw():
    for seed in range(10):
        for match_length in (False, True):
            many = draw_contrasts(OTHERS[0], OTHERS, seed, 19, match_length)
            assert len({document.passages for document in many}) == 19
            assert all(document.passages != OTHERS[0].passages for document in many)
            for count in (1, 4):
                assert draw_contrasts(OTHERS[0], OTHERS[::-1], seed, count, match_length) == many[:count]
        assert draw_contrasts(OTHERS[0], OTHERS, seed) == [draw_contrast(OTHERS[0], OTHERS, seed)]


def test_the_default_draw_is_what_it_was_when_thresholds_were_shipped():
    assert draw_contrast(OTHERS[0], OTHERS, 0).info["which"] == "1"
    assert draw_contrast(OTHERS[1], OTHERS, 7).info["which"] == "17"
    pool = neutral_passages()
    assert draw_contrast(OTHERS[0], (), 0).passages == (pool[7],)


def test_where_other_examples_do_not_suffice_the_pool_fills_up():
    drawn = draw_contrasts(example(1), [example(2), example(3)], 0, 4)
    assert [document.info["source"] for document in drawn] == ["examples", "examples", "pool", "pool"]
    assert len({document.passages for document in drawn}) == 4


@given(st.integers(0, 2**31), st.integers(1, 5000))
def test_documents_of_the_pool_are_distinct_up_to_the_last(seed, length):
    item = example(1, passages=("w" * length,))
    everything = len(neutral_passages())
    drawn = draw_contrasts(item, (), seed, everything)
    assert len({document.passages for document in drawn}) == everything
    with pytest.raises(InputError, match=f"pool holds {everything} different random documents"):
        draw_contrasts(item, (), seed, everything + 1)


@given(st.integers(0, 2**31))
def test_length_matched_draws_come_from_the_nearest_few(seed):
    others = [example(number, passages=("x" * (10 * number),)) for number in range(2, 60)]
    item = example(1, passages=("y" * 301,))
    document = draw_contrast(item, others, seed, match_length=True)
    assert 280 <= len(document.passages[0]) <= 320
    assert document.info["match_length"] is True
    several = draw_contrasts(item, others, seed, 4, match_length=True)
    assert all(260 <= len(document.passages[0]) <= 340 for document in several)


def test_length_matched_draws_are_still_drawn():
    others = [example(number, passages=("x" * (10 * number),)) for number in range(2, 60)]
    item = example(1, passages=("y" * 301,))
    lengths = {len(draw_contrast(item, others, seed, match_length=True).passages[0]) for seed in range(60)}
    assert lengths == {280, 290, 300, 310, 320}


@pytest.mark.parametrize("count", [0, -1, 1.5, True, None])
def test_a_count_that_is_none_is_refused(count):
    with pytest.raises(InputError, match="'count' parameter of draw_contrasts must be"):
        draw_contrasts(example(1), (), 0, count)

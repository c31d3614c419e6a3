from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from groundscope.detectors.learnable import check_disjoint
from groundscope.errors import InputError
from groundscope.evaluate.protocol.splits import by_record, by_shares, carve, folds, sources
from groundscope.learn.labels import response_label
from groundscope.trace.traced import TracedExample


def changed(traced, **fields):
    return [TracedExample(replace(item.example, **fields), item.trace) for item in traced]


def parts_of(traced, split):
    return [[traced[i] for i in part] for part in (split.train, split.dev, split.test)]


def test_folds_cover_everything_once_and_share_no_source(traced):
    splits = list(folds(traced, 4))
    assert sorted(np.concatenate([split.test for split in splits])) == list(range(len(traced)))
    for split in splits:
        train, dev, test = parts_of(traced, split)
        assert len(train) + len(dev) + len(test) == len(traced)
        for one, other in ((train, dev), (train, test), (dev, test)):
            check_disjoint(one, other)
        for part in (train, dev):
            assert len({response_label(item.example) for item in part}) == 2


def test_folds_hang_on_the_seed_alone(traced):
    one, same, other = ([split.test.tolist() for split in folds(traced, 4, seed=seed)] for seed in (0, 0, 1))
    assert one == same != other
    assert folds(traced, 4, seed=2**70)


def test_the_same_passages_are_one_source_whatever_their_identifier(traced):
    passage = traced[0].example.passages[0]
    double = TracedExample(
        replace(traced[0].example, source_id="elsewhere", id="double", dataset="x", passages=(f"  {passage} ",)),
        traced[0].trace,
    )
    names = sources([*traced, double])
    assert names[-1] == names[0] == names[1]
    assert len(set(names)) == len(set(sources(traced)))


def test_fewer_sources_than_folds(traced):
    with pytest.raises(InputError, match="needs at least 20 sources"):
        list(folds(traced, 20))


@pytest.mark.parametrize("count", [0, 1, 2.5])
def test_a_count_that_is_none(traced, count):
    with pytest.raises(InputError, match="'count' parameter"):
        list(folds(traced, count))


def test_one_class_only(traced):
    clean = changed(traced, labels=(), hallucinated=False)
    with pytest.raises(InputError, match="one class only: 32 faithful and 0 hallucinated"):
        list(folds(clean, 3))
    with pytest.raises(InputError, match="no examples"):
        list(folds([], 3))


def test_all_hallucinated_ones_of_one_source(traced):
    first = traced[0].group
    lone = [
        TracedExample(replace(item.example, labels=(), hallucinated=item.group == first), item.trace) for item in traced
    ]
    with pytest.raises(InputError, match=r"one class only|cannot be held back"):
        list(folds(lone, 4))


def test_by_record(traced):
    names = ["train"] * 16 + ["dev"] * 8 + ["test"] * 8
    named = [TracedExample(replace(t.example, split=name), t.trace) for t, name in zip(traced, names, strict=True)]
    split = by_record(named)
    assert [len(part) for part in (split.train, split.dev, split.test)] == [16, 8, 8]
    without_dev = [
        TracedExample(replace(t.example, split=t.example.split.replace("dev", "train")), t.trace) for t in named
    ]
    train, dev, test = parts_of(traced, by_record(without_dev))
    assert len(test) == 8 and len(dev) and len(train) + len(dev) == 24
    check_disjoint(train, dev)


@pytest.mark.parametrize("missing", ["train", "test"])
def test_a_split_without_records_is_named(traced, missing):
    other = "test" if missing == "train" else "train"
    named = [TracedExample(replace(t.example, split=other), t.trace) for t in traced]
    with pytest.raises(InputError, match=f"No record says '{missing}' .{len(traced)} say '{other}'"):
        by_record(named)


def test_a_source_on_two_sides_is_refused(traced):
    named = [
        TracedExample(replace(t.example, split="test" if t.example.model == "first" else "train"), t.trace)
        for t in traced
    ]
    with pytest.raises(InputError, match="must not share a source"):
        by_record(named)


def test_records_without_a_split(traced):
    with pytest.raises(InputError, match="32 have another or none"):
        by_record(traced)
    with pytest.raises(InputError, match="No record says 'test'"):
        by_record(changed(traced, split="train"))


def test_by_shares(traced):
    train, dev, test = parts_of(traced, by_shares(traced, 0.25, 0.25))
    assert len(train) > len(dev) > 3 and len(test) > 3
    check_disjoint(train, test)
    for wrong in ((0.5, 0.5), (0, 0.2), (0.2, 1.5), ("a", 0.2)):
        with pytest.raises(InputError):
            by_shares(traced, *wrong)


def test_a_share_to_carve(traced):
    labels = np.array([response_label(item.example) for item in traced])
    groups = np.array(sources(traced))
    large, small = carve(labels, groups, np.arange(len(traced)), 0.2, 0)
    assert 0.1 < len(small) / len(traced) < 0.4
    assert not set(groups[large]) & set(groups[small])
    with pytest.raises(InputError, match="range \\(0, 1\\)"):
        carve(labels, groups, np.arange(len(traced)), 1.0, 0)

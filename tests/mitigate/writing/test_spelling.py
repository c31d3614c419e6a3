"""Text while tokens come: whole characters, offsets as derived for the finished text, stop strings."""

from __future__ import annotations

import pytest
import tokenizers_zoo as zoo
from hypothesis import given
from hypothesis import strategies as st

from groundscope.errors import InputError, LayoutError
from groundscope.lm.prompt.offsets import derive_offsets, encode
from groundscope.mitigate.writing.spelling import Spelling, StopStrings

TEXTS = ("It was completed in 1889.", "naïve café: 東京タワー 🎉👩‍👩‍👧 ok", " leading and\n\nnew lines")


@pytest.mark.parametrize("kind", sorted(zoo.ZOO))
@pytest.mark.parametrize("text", TEXTS)
def test_pieces_join_to_what_the_tokens_decode_to(kind, text):
    tokenizer = zoo.ZOO[kind]()
    ids, _ = encode(tokenizer, text)
    whole = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    try:
        derived = derive_offsets(tokenizer, whole, ids)
    except LayoutError:
        pytest.skip("what this tokenizer decodes to cannot be located in its tokens")
    spelling = Spelling(tokenizer)
    pieces = [spelling.add(number) for number in ids]
    pieces.append(spelling.finish())
    assert "".join(pieces) == spelling.text == whole
    assert len(spelling.offsets) == len(ids)
    for (start, end), (first, last) in zip(spelling.offsets, derived.tolist(), strict=True):
        assert whole[start:end].strip() == whole[first:last].strip()


def test_no_half_character_is_shown(tiny_tokenizer):
    spelling = Spelling(tiny_tokenizer)
    ids = tiny_tokenizer("東🎉", add_special_tokens=False)["input_ids"]
    assert [spelling.add(number) for number in ids] == ["", "", "東", "", "", "", "🎉"]
    assert spelling.offsets == [(0, 1)] * 3 + [(1, 2)] * 4
    cut = Spelling(tiny_tokenizer)
    assert [cut.add(number) for number in ids[:2]] == ["", ""] and cut.text == ""
    other = cut.copy()
    assert other.finish() == "\ufffd" and cut.text == "" and cut.add(ids[2]) == "東"


def test_bytes_that_never_become_a_character_do_not_wait_for_ever(tiny_tokenizer):
    (number,) = tiny_tokenizer.convert_tokens_to_ids(["Ń"])  # the byte-level name of a continuation byte
    spelling = Spelling(tiny_tokenizer)
    pieces = [spelling.add(number) for _ in range(20)]
    assert any(pieces[:10]) and set("".join(pieces)) == {"\ufffd"}


@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_what_is_held_back_is_just_what_may_become_a_stop_string(text, strings):
    stops = StopStrings(strings)
    place = stops.find(text)
    assert (place is None) == (not any(item in text for item in strings))
    if place is not None:
        assert any(text.startswith(item, place) for item in strings)
        return
    held = stops.held(text)
    sure = text[: len(text) - held]
    for item in strings:
        for more in (item[i:] for i in range(len(item) + 1)):
            found = (text + more).find(item)
            assert found < 0 or found >= len(sure)
    assert held == 0 or any(item.startswith(text[-held:]) for item in strings)


@pytest.mark.parametrize("strings", ["text", [""], [3], b"x", None, 5, iter("x"), {"x"}])
def test_unusable_stop_strings_are_refused(strings):
    with pytest.raises(InputError, match="'stop' parameter"):
        StopStrings(strings)


def test_stop_strings_are_valid_text():
    with pytest.raises(InputError, match="'stop' is not valid Unicode"):
        StopStrings(["\ud800"])

import unicodedata
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrain.cleaning import COUNTS, clean

AWKWARD = "aé e\u0301 ́ \t\r\n\x00\x1f\x85\u2028\u200b\u200d\u3000\ufeff\ud800文。"
text_st = st.text(alphabet=st.one_of(st.sampled_from(AWKWARD), st.characters()))


@given(text_st)
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    lines = clean(text, Counter())
    counts: Counter[str] = Counter()
    assert clean("\n".join(lines), counts) == lines
    assert counts.total() == 0


@given(text_st)
def test_clean_lines_are_normal_and_hold_nothing_unwanted(text: str) -> None:
    for line in clean(text, Counter()):
        assert unicodedata.is_normalized("NFC", line)
        assert line == " ".join(line.split())
        assert not any(unicodedata.category(c) in ("Cc", "Cs") for c in line)
        line.encode()  # no lone surrogates


@given(text_st)
def test_every_removed_character_is_counted(text: str) -> None:
    counts: Counter[str] = Counter()
    lines = clean(text, counts)
    if counts["lines_normalised"]:
        return  # composition changes the number of characters
    removed = counts["control_characters"] + counts["zero_width_characters"] + counts["whitespace_characters"]
    assert len(text) - text.count("\n") == sum(map(len, lines)) + removed


@pytest.mark.parametrize(
    ("text", "lines", "counts"),
    [
        ("plain text\n\nsecond", ["plain text", "second"], {}),
        ("a\x00b\x07c\x7f", ["abc"], {"control_characters": 3}),
        ("half \ud83d of a pair", ["half of a pair"], {"control_characters": 1, "whitespace_characters": 1}),
        ("zero\u200bwidth\ufeff so\u00adft \u202eright", ["zerowidth soft right"], {"zero_width_characters": 4}),
        ("family: 👩\u200d👧 می\u200cخواهم", ["family: 👩\u200d👧 می\u200cخواهم"], {}),
        ("  two  spaces\ttab\u3000wide \r", ["two spaces tab wide"], {"whitespace_characters": 5}),
        ("one\u2028line\x85only", ["one line only"], {}),
        ("cafe\u0301", ["café"], {"lines_normalised": 1}),
        ("e\u200b\u0301", ["é"], {"zero_width_characters": 1, "lines_normalised": 1}),
        (" \n\t\n\u3000", [], {"whitespace_characters": 3}),
    ],
)
def test_what_is_changed_has_a_name_and_a_number(text: str, lines: list[str], counts: dict[str, int]) -> None:
    counted: Counter[str] = Counter()
    assert clean(text, counted) == lines
    assert +counted == Counter(counts)
    assert counted.keys() <= COUNTS.keys()

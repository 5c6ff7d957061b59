import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelled.oddities import COMPOSED, CONTROL, DECOMPOSED, MOJIBAKE, REPLACEMENT, oddities
from labelled.reader import DataOptions, RowReader
from tests.conftest import SHARED

LATIN = ["très bon café", "Straße", "“quoted” – it’s", "señor", "ação", "Łódź"]
CHINESE = ["这家店很好，我们很喜欢", "房间空间太小", "推荐所有喜欢的红迷们"]


@pytest.mark.parametrize("text", LATIN)
def test_utf8_read_as_a_latin_encoding_is_mojibake(text: str) -> None:
    assert MOJIBAKE not in oddities(text)
    assert MOJIBAKE in oddities(text.encode().decode("latin-1"))
    assert MOJIBAKE in oddities("and " + text.encode().decode("cp1252", errors="replace"))


@pytest.mark.parametrize("text", CHINESE)
def test_chinese_read_wrongly_is_mojibake(text: str) -> None:
    assert MOJIBAKE not in oddities(text)
    assert MOJIBAKE in oddities(text.encode("gbk").decode("latin-1"))
    assert MOJIBAKE in oddities(text.encode("gbk").decode("cp1252", errors="ignore"))
    assert {MOJIBAKE, REPLACEMENT} & set(oddities(text.encode().decode("gbk", errors="replace")))
    assert REPLACEMENT in oddities(text[:2].encode("utf-8")[:5].decode("utf-8", errors="replace"))


def test_signs_and_capital_letters_are_not() -> None:
    for text in ("很奇妙·······", "SÃO PAULO Â", "þórður", "20 °C ±½", "À É ÎÕ Ü", "联通"):
        assert not {MOJIBAKE, REPLACEMENT, CONTROL} & set(oddities(text)), text


@given(st.text(st.characters(codec="utf-8"), max_size=8))
def test_controls_and_normal_forms_are_those_of_unicode(text: str) -> None:
    found = oddities(text)
    controls = [c for c in text if unicodedata.category(c) == "Cc" and c not in "\t\n\r"]
    assert (CONTROL in found) == bool(controls)
    assert (DECOMPOSED in found) == (unicodedata.normalize("NFC", text) != text)
    assert (COMPOSED in found) == (
        unicodedata.normalize("NFC", text) == text and unicodedata.normalize("NFD", text) != text
    )
    assert ("�" in text) <= (REPLACEMENT in found)


@pytest.mark.parametrize(
    ("name", "columns", "most"),
    [
        ("zh/ChnSentiCorp/train.tsv", ("0", "1"), 0),
        ("zh/tnews/dev.tsv", ("0", "1"), 0),
        ("goemotions/dev.tsv", ("0", "1"), 0),
        ("banking77/train.csv", None, 0),
        ("glue/STS-B/train.tsv", None, 1),  # row 4107 holds "Stalloneâ€™s"
    ],
)
def test_real_text_is_hardly_ever_taken_for_mojibake(name: str, columns: tuple[str, str] | None, most: int) -> None:
    path: Path = SHARED / "data" / "labelled" / name
    if not path.is_file():
        pytest.skip("the real data is not beside this checkout")
    reader = RowReader(path, DataOptions(header=columns is None, text_column=columns[0] if columns else None), None)
    texts = [row.text if isinstance(row.text, str) else " ".join(row.text) for row in reader]
    assert sum(MOJIBAKE in oddities(text) for text in texts) == most

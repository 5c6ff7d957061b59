import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrain.cleaning import Counter, clean
from pretrain.sentences import MAX_CHARACTERS, split_document, split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["He paid 3.14 dollars.", "Then he left."],
        ["Mr. Smith met Dr. Jones at St. Mary's.", "They talked."],
        ["J. K. Rowling wrote it.", "So did I.", "You did not."],
        ["See No. 5, Fig. 3 and pp. 7.", "It was in Jan. 1990."],
        ["He lives in the U.S. Capitol.", "She lives in the U.S.", "The end came at 5 a.m.", "It was cold."],
        ["Use a tool, e.g. Word, i.e. an editor.", "Done."],
        ["“Really?” he asked.", "“Yes!” she said.", "“Good.”", "He left."],
        ['"Stop!"', '"Why?"', "(He did not know.)", "He ran."],
        ["Wait...", "What was it?!", "Nothing… really."],
        ["In 1990.", "25 people came."],
        ["1. First of all, no.", "Second."],
        ["Was it Plan 9?", "¿Quién sabe?", "«Oui.»", "Нет.", "Да!"],
        ["no capital. follows here and yahoo.com is a name v2.0 too"],
        ["कहाँ है।", "यहाँ है।"],
        ["Etc. is not an end."],
    ],
)
def test_latin_sentences(sentences: list[str]) -> None:
    if sentences == ["Etc. is not an end."]:
        assert split_sentences(sentences[0]) == sentences  # a small letter follows
        return
    assert [piece.strip() for piece in split_sentences(" ".join(sentences))] == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["你好。", "世界！", "真的吗？", "是的"],
        ["他说：“好。”", "然后走了。", "「本当ですか。」", "はい。"],
        ["价格是3.5元。", "版本2.0发布了!", "好不好?", "他用Python 3.11写的。"],
        ["什么！？", "没有。。。", "完"],
    ],
)
def test_sentences_without_spaces(sentences: list[str]) -> None:
    assert split_sentences("".join(sentences)) == sentences


@given(st.text(alphabet="aA1 .!?。！？\"'”’）)(…中文é", max_size=60).map(lambda s: " ".join(s.split())))
def test_no_character_is_lost_or_added(text: str) -> None:
    pieces = split_sentences(text)
    assert "".join(pieces) == text
    assert all(piece.strip() for piece in pieces) or not text


@given(st.text(max_size=200))
def test_any_clean_text_can_be_split(text: str) -> None:
    lines = clean(text, Counter())
    joined = "".join(split_document(lines))
    assert joined.replace(" ", "") == "".join(lines).replace(" ", "")


@pytest.mark.parametrize("character", ["a", "字", "a "])
def test_endless_sentences_are_cut(character: str) -> None:
    text = (character * 30_000).strip()
    pieces = split_sentences(text)
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= MAX_CHARACTERS
    if " " in character:
        assert all(piece.strip().startswith("a") for piece in pieces)


def test_paragraphs_are_joined_by_a_space_only_where_the_script_has_spaces() -> None:
    assert list(split_document(["One. Two", "three."])) == ["One.", " Two", " three."]
    assert list(split_document(["第一。", "第二。", "Latin."])) == ["第一。", "第二。", "Latin."]
    assert list(split_document([])) == []

"""Where words begin, against the offsets that the tokenizer itself reports; templates against its own framing."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from contract.encoding import TextEncoder
from contract.errors import DataError
from contract.tokenizer_files import save_tokenizer
from pretrain.sentences import split_document
from pretrain.tokenizer import KINDS, TokenizerKind, load_from_folder
from pretrain.vocabulary import describe, for_sentences, load_plain, tokenizer_fingerprint
from tests.pretrain.stores import TEXT, tiny_tokenizer

words_st = st.lists(
    st.sampled_from(
        ["light", "unbelievable", "don't", "1923,", "(sea)", "well-known", "café", "天地", "的keeper", "...", "x"]
    ),
    min_size=1,
    max_size=9,
).map(" ".join)
# A word is a run of letters and digits; punctuation and Chinese characters stand alone.
WORD = re.compile(r"[一-鿿]|[^\W一-鿿]+|[^\w\s]")


@pytest.mark.parametrize("kind", KINDS)
@given(text=words_st)
def test_words_begin_where_the_text_says(kind: TokenizerKind, text: str) -> None:
    tokenizer = Tokenizer.from_str(tiny_tokenizer(kind).to_str())
    encoding = tokenizer.encode(text, add_special_tokens=False)
    vocabulary = describe(tokenizer)
    begins = {match.start() for match in WORD.finditer(text)}
    starts = vocabulary.word_starts(np.array(encoding.ids)).tolist()
    seen = -1
    for number, ((begin, end), token, start) in enumerate(zip(encoding.offsets, encoding.tokens, starts, strict=True)):
        content = [place for place in range(begin, end) if not text[place].isspace()]
        if token in ("▁", "Ġ"):  # a space that stands alone is a word of its own
            continue
        if not content or content[0] <= seen:
            assert not start, f"{encoding.tokens}: {number} is the rest of a character"
            continue
        seen = content[-1]
        after_space = number > 0 and encoding.tokens[number - 1] in ("▁", "Ġ")
        alone = WORD.match(text, content[0]) and not text[content[0]].isalnum()
        if after_space and text[content[0]].isascii() and not alone:
            continue  # "▁" + "x": the space took the mark, x goes with it
        assert start == (content[0] in begins), f"{encoding.tokens} at {number}: {starts}"


def test_a_chinese_character_in_bytes_is_one_word() -> None:
    tokenizer = tiny_tokenizer("bpe")
    ids = tokenizer.encode("龘龘é", add_special_tokens=False).ids
    assert len(ids) == 9, "a space, and characters that were never seen as their bytes"
    starts = describe(tokenizer).word_starts(np.array(ids)).tolist()
    assert [place for place, start in enumerate(starts) if start] == [0, 1, 4, 7]


@pytest.mark.parametrize("kind", KINDS)
def test_the_template_is_the_one_by_which_texts_are_framed(kind: TokenizerKind) -> None:
    tokenizer = tiny_tokenizer(kind)
    vocabulary, template = describe(tokenizer), describe(tokenizer).template
    encoder = TextEncoder(tokenizer, max_length=64, pad_token_id=vocabulary.pad_id, type_vocab_size=2)
    first, second = (tokenizer.encode(text, add_special_tokens=False).ids for text in ("light", "sea sea"))
    single, pair = encoder.encode("light"), encoder.encode(("light", "sea sea"))
    assert single.input_ids.tolist() == [*template.before, *first, *template.after]
    assert pair.input_ids.tolist() == [*template.before, *first, *template.between, *second, *template.end]
    tail = len(second) + len(template.end)
    assert pair.token_type_ids.tolist() == [0] * (len(pair.input_ids) - tail) + [template.second_type] * tail
    assert vocabulary.special.sum() == 5
    assert vocabulary.size == tokenizer.get_vocab_size()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "lines", [["".join(TEXT)], ["One story. Two stories.", "天地玄黄。宇宙洪荒。", "The light. ", "x"]]
)
def test_the_tokens_of_sentences_are_the_tokens_of_the_document(kind: TokenizerKind, lines: list[str]) -> None:
    tokenizer = tiny_tokenizer(kind)
    encoder, prefix = for_sentences(tokenizer)
    sentences = list(split_document([line.strip() for line in lines]))
    joined = [
        i for s in [prefix + sentences[0], *sentences[1:]] for i in encoder.encode(s, add_special_tokens=False).ids
    ]
    assert joined == tokenizer.encode("".join(sentences), add_special_tokens=False).ids


def test_the_fingerprint_ignores_padding_and_truncation_only(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer("bpe")
    changed = Tokenizer.from_str(tokenizer.to_str())
    changed.enable_padding()
    changed.enable_truncation(9)
    assert tokenizer_fingerprint(changed) == tokenizer_fingerprint(tokenizer)
    changed.save(str(tmp_path / "t.json"))
    assert tokenizer_fingerprint(load_plain(tmp_path / "t.json")) == tokenizer_fingerprint(tokenizer)
    assert tokenizer_fingerprint(tiny_tokenizer("unigram")) != tokenizer_fingerprint(tokenizer)
    changed.add_tokens(["new"])
    assert tokenizer_fingerprint(changed) != tokenizer_fingerprint(tokenizer)


def test_a_tokenizer_comes_back_from_a_model_folder(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer("bpe")
    save_tokenizer(tmp_path, tokenizer, max_length=64, type_vocab_size=1)
    (tmp_path / "config.json").write_text('{"model_type": "roberta"}')
    made = load_from_folder(tmp_path)
    assert made.family == "roberta"
    assert tokenizer_fingerprint(made.tokenizer) == tokenizer_fingerprint(tokenizer)
    (tmp_path / "config.json").unlink()
    assert load_from_folder(tmp_path).family == "roberta"
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        load_from_folder(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(DataError, match="has no tokenizer files"):
        load_from_folder(tmp_path)


def test_tokenizers_without_what_is_needed_are_refused() -> None:
    bare = Tokenizer(models.WordLevel({"a": 0, "[PAD]": 1, "[UNK]": 2}, unk_token="[UNK]"))
    bare.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(DataError, match="no mask token"):
        describe(bare)
    bare = Tokenizer(models.WordLevel({"a": 0, "[PAD]": 1, "[MASK]": 2, "[SEP]": 3}, unk_token="[PAD]"))
    bare.post_processor = processors.TemplateProcessing(
        single="[SEP] $A", pair="$B [SEP] $A", special_tokens=[("[SEP]", 3)]
    )
    with pytest.raises(DataError, match="does not frame a pair"):
        describe(bare)

"""Whether a tokenizer fits the texts, on real vocabularies where they are beside this checkout."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from contract.encoding import TextEncoder
from contract.tokenizer_files import add_family_template, load_tokenizer
from labelled.fit import Fit, fit_of
from tests.tiny import tiny_tokenizer

CHINESE = ["这家店很好，我们很喜欢", "房间空间太小", "推荐所有喜欢的红迷们"]
ENGLISH = ["a good film", "the plot is thin", "Good acting and a good script"]


def wordpiece(words: str, lowercase: bool) -> TextEncoder:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words.split()]
    vocab = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    add_family_template(tokenizer, "bert")
    return TextEncoder(tokenizer, max_length=32, pad_token_id=0, type_vocab_size=2)


def test_b24_unknown_tokens_are_counted_by_hand() -> None:
    encoder = wordpiece("a good film the plot is", lowercase=False)
    fit = fit_of(encoder, ENGLISH)  # unknown: thin, Good, acting, and, script
    assert (fit.tokens, fit.unknown) == (13, 5)
    assert fit.warning is not None
    assert "38% of the tokens are unknown" in fit.warning
    assert fit_of(wordpiece("a good film the plot is thin acting and script", lowercase=True), ENGLISH).warning is None
    pairs = fit_of(encoder, [("a good film", "Thin"), ("a", "")])
    assert (pairs.tokens, pairs.unknown) == (5, 1)


def test_b24_at_20_percent_there_is_no_warning_yet() -> None:
    assert Fit(tokens=10, unknown=2, characters=50).warning is None
    assert Fit(tokens=100, unknown=21, characters=500).warning is not None
    assert Fit(tokens=0, unknown=0, characters=1).warning is None


def test_b24_a_script_that_is_spelled_in_bytes_is_told() -> None:
    encoder = TextEncoder(tiny_tokenizer("roberta"), max_length=64, pad_token_id=1)
    assert encoder.unknown_id is None or fit_of(encoder, CHINESE).unknown == 0
    assert fit_of(encoder, ENGLISH).warning is None
    warning = fit_of(encoder, CHINESE).warning
    assert warning is not None
    assert "tokens per character" in warning


def test_b24_a_vocabulary_of_capitals_reads_capitals(cases: Path) -> None:
    tokenizer = load_tokenizer(cases / "ckpt" / "B24_cased_without_tokenizer_config")
    assert tokenizer is not None
    encoder = TextEncoder(tokenizer, max_length=32, pad_token_id=0, type_vocab_size=2)
    assert fit_of(encoder, ["Good Film"]).unknown == 0
    assert fit_of(encoder, ["good film"] * 3).warning is not None


@pytest.mark.parametrize("texts", [ENGLISH, CHINESE, ["", "a"], [("a b", "c"), ("", "d")]])
def test_measuring_equals_encoding(texts: list[str]) -> None:
    for encoder in (
        wordpiece("a good film 店 很", lowercase=True),
        TextEncoder(tiny_tokenizer("albert"), max_length=8, pad_token_id=0, type_vocab_size=2),
    ):
        whole = [item.full_length for item in encoder.encode_batch(texts)]
        assert [each.tokens for each in encoder.measure(texts)] == whole
    encoder = wordpiece("a good film 店 很", lowercase=True)
    long = TextEncoder(encoder.tokenizer, max_length=512, pad_token_id=0, type_vocab_size=2)
    assert [each.unknown for each in long.measure(texts)] == [
        int((item.input_ids == 1).sum()) for item in long.encode_batch(texts)
    ]


def test_what_is_read_of_long_texts_is_equal_exactly_if_the_ids_are() -> None:
    encoder = TextEncoder(tiny_tokenizer("albert"), max_length=9, pad_token_id=0, type_vocab_size=2)
    base = "one two three four five six seven"
    texts = [base + " good", base + " bad", "short", "another " + base, (base, base + " x"), (base, base + " y")]
    ids = [tuple(item.input_ids) for item in encoder.encode_batch(texts)]
    read = [each.read for each in encoder.measure(texts)]
    cut = [item.truncated for item in encoder.encode_batch(texts)]
    assert [value != 0 for value in read] == cut
    for first in range(len(texts)):
        for second in range(len(texts)):
            if cut[first] and cut[second]:
                assert (read[first] == read[second]) == (ids[first] == ids[second])

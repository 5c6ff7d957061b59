"""Text encoding against the tokenizers library's own truncation and padding, and against many threads."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from contract.encoding import EncodedText, TextEncoder, is_encodable
from contract.errors import InvalidRequest, TextTooLong

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghij"]


def tokenizer(style: str = "bert") -> Tokenizer:
    """Word level, so that a word is a token. Pairs have three special tokens in BERT's style, four in RoBERTa's."""
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(["[PAD]", "[CLS]", "[SEP]"])
    between = "[SEP] [SEP]" if style == "roberta" else "[SEP]"
    second = 0 if style == "roberta" else 1
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair=f"[CLS] $A {between} $B:{second} [SEP]:{second}",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return made


def encoder(style: str = "bert", max_length: int = 8) -> TextEncoder:
    return TextEncoder(
        tokenizer(style), max_length=max_length, pad_token_id=0, type_vocab_size=1 if style == "roberta" else 2
    )


def words(count: int, start: int = 0) -> str:
    return " ".join("abcdefghij"[(start + i) % 10] for i in range(count))


sides = st.integers(0, 20).map(words)
texts = sides | st.tuples(sides, sides)


@settings(deadline=None, max_examples=300)
@given(texts, st.integers(5, 24), st.sampled_from(["right", "left"]), st.sampled_from(["bert", "roberta"]))
def test_truncation_is_the_librarys_longest_first(
    text: str | tuple[str, str], max_length: int, side: str, style: str
) -> None:
    oracle = tokenizer(style)
    oracle.enable_truncation(max_length, strategy="longest_first", direction=side)
    expected = oracle.encode(*((text,) if isinstance(text, str) else text))
    oracle.no_truncation()
    whole = oracle.encode(*((text,) if isinstance(text, str) else text))
    got = encoder(style, max_length).encode(text, side)  # type: ignore[arg-type]
    assert got.input_ids.tolist() == expected.ids
    assert got.token_type_ids.tolist() == (expected.type_ids if style == "bert" else [0] * len(expected.ids))
    assert got.full_length == len(whole.ids)
    assert got.truncated == (len(whole.ids) > max_length)


@settings(deadline=None)
@given(st.lists(texts, min_size=1, max_size=8), st.sampled_from(["bert", "roberta"]))
def test_a_batch_is_its_texts_one_by_one_padded_like_the_library_pads(
    batch: list[str | tuple[str, str]], style: str
) -> None:
    one = encoder(style)
    encoded = one.encode_batch(batch)
    for item, text in zip(encoded, batch, strict=True):
        alone = one.encode(text)
        assert item.input_ids.tolist() == alone.input_ids.tolist()
    arrays = one.pad(encoded)
    oracle = tokenizer(style)
    oracle.enable_truncation(8, strategy="longest_first")
    oracle.enable_padding(pad_id=0, pad_token="[PAD]")
    expected = oracle.encode_batch(batch)
    assert {name: array.dtype for name, array in arrays.items()} == dict.fromkeys(arrays, np.dtype(np.int64))
    assert arrays["input_ids"].tolist() == [item.ids for item in expected]
    assert arrays["attention_mask"].tolist() == [item.attention_mask for item in expected]
    if style == "bert":
        assert arrays["token_type_ids"].tolist() == [item.type_ids for item in expected]
    else:
        assert not arrays["token_type_ids"].any()


@pytest.mark.parametrize(("count", "truncated"), [(5, False), (6, False), (7, True), (8, True)])
def test_the_limit_counts_special_tokens_and_is_exact(count: int, truncated: bool) -> None:
    item = encoder(max_length=8).encode(words(count))
    assert item.truncated is truncated
    assert len(item.input_ids) == min(count + 2, 8)
    assert item.full_length == count + 2


@pytest.mark.parametrize(
    ("text", "full", "index"),
    [(words(7), 9, 0), ((words(3), words(3)), 9, 1), ((words(0), words(6)), 9, 0)],
)
def test_without_truncation_a_long_text_is_refused_with_its_place(
    text: str | tuple[str, str], full: int, index: int
) -> None:
    one = encoder(max_length=8)
    batch: list[str | tuple[str, str]] = [words(6)] * index + [text]
    with pytest.raises(TextTooLong, match=f"{full} tokens and the limit is 8") as caught:
        one.encode_batch(batch, "off")
    assert caught.value.field == f"inputs[{index}]"
    assert [item.truncated for item in one.encode_batch([words(6), (words(2), words(3))], "off")] == [False, False]


@pytest.mark.parametrize("text", ["", "   ", "\n\t"])
def test_a_blank_text_is_only_special_tokens(text: str) -> None:
    assert encoder().encode(text).input_ids.tolist() == [2, 3]
    assert encoder().encode((text, text)).input_ids.tolist() == [2, 3, 3]


@pytest.mark.parametrize("kind", ["word", "wordpiece", "unigram", "bpe"])
def test_special_tokens_in_a_text_are_text(kind: str) -> None:
    """Also where the vocabulary itself holds the names, as ALBERT's does."""
    vocabulary = [*WORDS, *"[]SEPCLADUNK"]
    made = tokenizer()
    match kind:
        case "wordpiece":
            made.model = models.WordPiece({w: i for i, w in enumerate(vocabulary)}, unk_token="[UNK]")
        case "unigram":
            made.model = models.Unigram([(word, -2.0 if len(word) == 1 else 0.0) for word in vocabulary], unk_id=1)
        case "bpe":
            made.model = models.BPE(
                {w: i for i, w in enumerate(vocabulary)}, [], unk_token="[UNK]", ignore_merges=False
            )
    made.add_special_tokens(["[UNK]"])
    one = TextEncoder(made, max_length=99, pad_token_id=0, type_vocab_size=2)
    naive = made.encode("a [SEP] [CLS] [PAD] b", add_special_tokens=False)
    assert {0, 2, 3} <= set(naive.ids), "there is something to guard against"
    got = one.encode("a [SEP] [CLS] [PAD] b").input_ids.tolist()
    assert [got[0], got[1], got[-2], got[-1]] == [2, 4, 5, 3]
    assert not {0, 2, 3} & set(got[1:-1])
    assert one.encode(("a b", "[SEP] c")).input_ids.tolist()[:4] == [2, 4, 5, 3]
    assert one.tokenizer.token_to_id("[SEP]") == 3, "the encoder's tokenizer is saved with models and stays itself"


def test_added_tokens_that_are_not_special_keep_their_ids() -> None:
    made = tokenizer()
    made.add_special_tokens(["<extra>"])
    made.add_tokens(["new york"])
    one = TextEncoder(made, max_length=99, pad_token_id=0, type_vocab_size=2)
    assert made.token_to_id("new york") == len(WORDS) + 1
    assert one.encode("a new york <extra>").input_ids.tolist() == [2, 4, len(WORDS) + 1, 1, 3]


@pytest.mark.parametrize("text", ["a\ud83d", "\udc00", ("a", "b\ud800c")])
def test_half_a_surrogate_pair_is_refused_with_its_place(text: str | tuple[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="surrogate") as caught:
        encoder().encode_batch(["a", text])
    assert caught.value.field == "inputs[1]"
    assert not all(is_encodable(part) for part in ((text,) if isinstance(text, str) else text))


def test_whole_emoji_and_nul_are_text() -> None:
    assert encoder().encode("a \U0001f600 b\x00").input_ids.tolist() == [2, 4, 1, 1, 3]
    assert is_encodable("\U0001f600")


@pytest.mark.parametrize("max_length", [0, 1, 3])
def test_a_limit_without_room_for_text_is_refused(max_length: int) -> None:
    with pytest.raises(ValueError, match="leaves no room"):
        encoder(max_length=max_length)


def test_settings_saved_inside_a_tokenizer_have_no_effect_and_the_callers_object_is_untouched() -> None:
    saved = tokenizer()
    saved.enable_truncation(4)
    saved.enable_padding(length=16)
    one = TextEncoder(saved, max_length=8, pad_token_id=0, type_vocab_size=2)
    assert one.encode(words(6)).input_ids.tolist() == encoder().encode(words(6)).input_ids.tolist()
    assert one.encode("a").input_ids.tolist() == [2, 4, 3]
    settings_after = json.loads(saved.to_str())
    assert settings_after["truncation"]["max_length"] == 4
    assert settings_after["padding"]["strategy"] == {"Fixed": 16}


def test_threads_with_different_wishes_do_not_disturb_each_other() -> None:
    """B35."""
    """One shared tokenizer whose truncation is set per call gives wrong lengths here, without an exception."""
    one = encoder(max_length=20)
    long = words(60)
    stop = threading.Event()

    def work(kind: int) -> int:
        calls = 0
        while calls < 20 and not stop.is_set():
            calls += 1
            if kind == 0:
                assert [len(item.input_ids) for item in one.encode_batch([long, "a b", (long, long)])] == [20, 4, 20]
            elif kind == 1:
                assert one.encode(long, "left").input_ids[-2] == one.tokenizer.token_to_id("j")
            else:
                with pytest.raises(TextTooLong):
                    one.encode(long, "off")
                assert len(one.encode(words(18), "off").input_ids) == 20
        return calls

    with ThreadPoolExecutor(6) as pool:
        results = [pool.submit(work, number % 3) for number in range(6)]
        try:
            assert [result.result() for result in results] == [20] * 6
        finally:
            stop.set()


def test_an_encoded_text_knows_whether_it_was_cut() -> None:
    ids = np.arange(3)
    assert EncodedText(ids, ids, 4).truncated
    assert not EncodedText(ids, ids, 3).truncated

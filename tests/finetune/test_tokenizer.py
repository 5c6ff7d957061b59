import subprocess
import sys
from pathlib import Path

import pytest

from contract.tokenizer_files import special_tokens
from finetune.tokenizer import KINDS, Kind, train_tokenizer
from labelled.reader import Row

ROOT = Path(__file__).parents[2]
TEXTS = [f"the {word} number {n % 7} is a good {word}, is it not?" for n in range(40) for word in ("first", "other")]


def rows(texts: list[str]) -> list[Row]:
    return [Row(text, (), 0.0, n, n) for n, text in enumerate(texts)]


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_lead_and_frame_texts_and_pairs(family: str, kind: Kind) -> None:
    tokenizer = train_tokenizer(rows(TEXTS), family=family, kind=kind, vocab_size=400)
    specials = special_tokens(family)
    assert tuple(tokenizer.id_to_token(number) for number in range(len(specials))) == specials
    assert tokenizer.get_vocab_size() <= 400
    single = tokenizer.encode("the first number")
    assert single.tokens[0] == ("<s>" if family == "roberta" else "[CLS]")
    assert single.tokens[-1] == ("</s>" if family == "roberta" else "[SEP]")
    pair = tokenizer.encode("the first", "the other")
    assert pair.type_ids[-1] == (0 if family == "roberta" else 1)
    assert sorted(tokenizer.get_vocab().values()) == list(range(tokenizer.get_vocab_size())), "no holes in the ids"


def test_byte_level_tokens_lose_nothing() -> None:
    tokenizer = train_tokenizer(rows(TEXTS), family="albert", kind="bpe", vocab_size=400)
    for text in ("the good number", "未见过 \U0001f600 caf\u00e9", "<pad> [SEP]"):
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=True).strip() == text or "<pad>" in text
        assert "<unk>" not in tokenizer.encode(text.replace("<pad>", "")).tokens


def test_pairs_are_learned_from_on_both_sides() -> None:
    pairs = [Row(("aaaa aaaa", "zebra zebra"), (), 0.0, n, n) for n in range(5)]
    assert "\u0120zebra" in train_tokenizer(pairs, family="bert", kind="bpe", vocab_size=400).get_vocab()


def test_a_wide_alphabet_does_not_burst_the_vocabulary() -> None:
    texts = ["".join(chr(0x4E00 + 37 * n + k) for k in range(9)) + " word word" for n in range(200)]
    for kind in ("bpe", "wordpiece"):
        assert train_tokenizer(rows(texts), family="bert", kind=kind, vocab_size=400).get_vocab_size() <= 400


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_the_same_texts_give_the_same_tokenizer_in_every_process(kind: str) -> None:
    code = (
        "import sys\n"
        "from finetune.tokenizer import train_tokenizer\n"
        "from tests.finetune.test_tokenizer import TEXTS, rows\n"
        f"print(train_tokenizer(rows(TEXTS), family='albert', kind={kind!r}, vocab_size=330).to_str())"
    )
    runs = {
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True).stdout for _ in range(3)
    }
    assert len(runs) == 1

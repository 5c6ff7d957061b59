import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import DataError, UsageError
from contract.tokenizer_files import special_tokens
from pretrain.tokenizer import FAMILY, KINDS, TokenizerKind, TokenizerPlan, train_tokenizer
from pretrain.vocabulary import describe, for_sentences
from tests.pretrain.stores import CASES, TEXT, shared, tiny_tokenizer

ROOT = Path(__file__).parents[2]


def plan(kind: TokenizerKind, size: int, **changes: object) -> TokenizerPlan:
    return TokenizerPlan(source=kind, vocab_size=size, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_have_the_fixed_ids_of_their_family(kind: TokenizerKind) -> None:
    """B57."""
    tokenizer = tiny_tokenizer(kind)
    specials = special_tokens(FAMILY[kind])
    assert [tokenizer.token_to_id(token) for token in specials] == [0, 1, 2, 3, 4]
    assert tokenizer.token_to_id(specials[1] if kind == "bpe" else specials[0]) == (1 if kind == "bpe" else 0)
    assert sorted(tokenizer.get_vocab().values()) == list(range(tokenizer.get_vocab_size()))


@pytest.mark.parametrize("kind", KINDS)
@given(
    text=st.lists(st.sampled_from([*special_tokens("bert"), *special_tokens("roberta"), "a", " ", "<", "["])).map(
        "".join
    )
)
def test_special_strings_in_a_text_are_text(kind: TokenizerKind, text: str) -> None:
    """B47, for any mixture of special strings, spaces and brackets."""
    vocabulary = describe(tiny_tokenizer(kind))
    encoder, _ = for_sentences(tiny_tokenizer(kind))
    ids = set(encoder.encode(text, add_special_tokens=False).ids)
    assert ids & {i for i in range(5) if i != vocabulary.unk_id} == set()


@pytest.mark.parametrize("kind", KINDS)
def test_special_strings_in_the_training_text_change_nothing(kind: TokenizerKind) -> None:
    lines = shared(CASES / "B47_literal_special_tokens.txt").read_text().splitlines()
    tokenizer = train_tokenizer(
        plan(kind, 400, character_coverage=1.0, lowercase=False), [*TEXT, *lines] * 50
    ).tokenizer
    assert [tokenizer.token_to_id(token) for token in special_tokens(FAMILY[kind])] == [0, 1, 2, 3, 4]
    encoder, _ = for_sentences(tokenizer)
    for line in lines:
        ids = encoder.encode(line, add_special_tokens=False).ids
        assert min(ids) > 4
        assert tokenizer.decode(ids).replace(" ", "") == line.replace(" ", "")


def test_a_vocabulary_without_room_for_the_alphabet_is_refused_with_the_number_it_needs() -> None:
    """B57: a Chinese text, sizes 10 and 60."""
    lines = shared(CASES / "B57_corpus_zh.txt").read_text().splitlines()
    for kind in ("unigram", "wordpiece"):
        with pytest.raises(DataError, match=r"needs at least (\d+) tokens and --vocab-size is 10") as caught:
            train_tokenizer(plan(kind, 10, character_coverage=1.0), lines)
        least = int(str(caught.value).split("at least ")[1].split()[0])
        with pytest.raises(DataError, match="needs at least"):
            train_tokenizer(plan(kind, least - 1, character_coverage=1.0), lines)
        tokenizer = train_tokenizer(plan(kind, least, character_coverage=1.0), lines).tokenizer
        assert tokenizer.get_vocab_size() <= least, "the size is honoured"
        ids = tokenizer.encode("天地 abc", add_special_tokens=False).ids
        unknown = describe(tokenizer).unk_id
        assert unknown not in ids
        assert unknown in tokenizer.encode("天鑫", add_special_tokens=False).ids, (
            "an unknown character is the unknown token"
        )
    with pytest.raises(DataError, match="byte-level BPE needs at least 261 tokens, --vocab-size is 60"):
        train_tokenizer(plan("bpe", 60), lines)


@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_rare_characters_are_left_out_by_coverage_and_told(kind: TokenizerKind) -> None:
    text = ["the light of the sea"] * 400 + ["鑫 and ß"]
    made = train_tokenizer(plan(kind, 60, character_coverage=0.999, lowercase=False), text)
    assert any("rare characters" in note and "鑫 (U+946B)" in note for note in made.notes)
    assert made.tokenizer.token_to_id("鑫") is None
    unknown = describe(made.tokenizer).unk_id
    assert unknown in made.tokenizer.encode("鑫", add_special_tokens=False).ids
    assert unknown not in made.tokenizer.encode("the light", add_special_tokens=False).ids


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_that_gives_fewer_tokens_says_so(kind: TokenizerKind) -> None:
    made = train_tokenizer(plan(kind, 5000, character_coverage=1.0), TEXT * 5)
    assert made.tokenizer.get_vocab_size() < 1000
    assert any("fewer than the 5000 asked for" in note for note in made.notes)


@pytest.mark.parametrize(
    ("kind", "lowercase", "same"),
    [
        ("unigram", None, True),
        ("unigram", False, False),
        ("wordpiece", None, True),
        ("wordpiece", False, False),
        ("bpe", None, False),
    ],
)
def test_case_follows_the_family_unless_told_otherwise(kind: TokenizerKind, lowercase: bool | None, same: bool) -> None:
    text = [*TEXT, *(sentence.upper() for sentence in TEXT)] * 10
    tokenizer = train_tokenizer(plan(kind, 500, character_coverage=1.0, lowercase=lowercase), text).tokenizer
    small, large = (tokenizer.encode(t, add_special_tokens=False).ids for t in ("naive light", "NAÏVE LIGHT"))
    assert (small == large) == same


@pytest.mark.slow
def test_the_same_text_gives_the_same_file_in_every_process() -> None:
    """The hash maps inside the trainers are seeded anew in each process; threads must not matter either."""
    code = (
        "from tests.pretrain.stores import TEXT\n"
        "from pretrain.tokenizer import KINDS, TokenizerPlan, train_tokenizer\n"
        "from pretrain.vocabulary import tokenizer_fingerprint\n"
        "import random\n"
        "words = [w for t in TEXT for w in t.split()]\n"
        "draw = random.Random(1)\n"
        "pairs = [zip(draw.sample(words, 9), draw.sample(words, 9)) for _ in range(900)]\n"
        "text = [' '.join(a[:3] + b[-3:] for a, b in pair) for pair in pairs]\n"
        "for kind in KINDS:\n"
        "    plan = TokenizerPlan(source=kind, vocab_size=450, character_coverage=1.0)\n"
        "    print(tokenizer_fingerprint(train_tokenizer(plan, text).tokenizer))\n"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={"RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2", "3", "4")
    }
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"source": "char"}, "'char' is neither bpe, unigram, wordpiece nor a folder"),
        ({"source": "bpe", "lowercase": True}, "byte-level BPE does not lower-case"),
        ({"source": "unigram", "vocab_size": 3}, "no room beside the special tokens"),
        ({"source": "unigram", "character_coverage": 99.95}, "not between 0.9 and 1"),
    ],
)
def test_impossible_plans_are_refused(wrong: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TokenizerPlan(**wrong)

"""A tokenizer for a corpus: trained on a sample of it, or taken from a model folder.

    bpe         byte-level BPE, cased, no normalisation        RoBERTa
    unigram     SentencePiece unigram, lower case, no accents  ALBERT
    wordpiece   WordPiece, lower case, no accents              BERT

The same sample gives the same file, byte for byte. The tokenizers library alone does not promise that: its unigram and
WordPiece trainers walk over hash maps in an order that changes from run to run. So unigram models are trained by the
sentencepiece library with a fixed number of threads, and WordPiece gets its alphabet in a fixed order.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from contract.errors import CheckpointError, DataError, UsageError
from contract.storage import read_json
from contract.tokenizer_files import add_family_template, load_tokenizer, special_tokens

TokenizerKind = Literal["bpe", "unigram", "wordpiece"]
KINDS: tuple[TokenizerKind, ...] = get_args(TokenizerKind)
FAMILY: dict[TokenizerKind, str] = {"bpe": "roberta", "unigram": "albert", "wordpiece": "bert"}
THREADS = 4
"""Of the unigram trainer: sums depend on it in the last bit, so it is fixed, not the number of cores."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizerPlan:
    """How to come by a tokenizer."""

    source: str
    """``bpe``, ``unigram``, ``wordpiece``, or the path of a model folder whose tokenizer is used as it is."""
    vocab_size: int = 8000
    lowercase: bool | None = None
    """None is the family's habit: lower case for unigram and wordpiece, never for bpe."""
    character_coverage: float = 0.99995
    """Share of the sample's characters that the alphabet must cover; rarer ones become the unknown token.
    The default is that of the ALBERT authors' SentencePiece command. Byte-level BPE needs none."""

    @property
    def kind(self) -> TokenizerKind | None:
        """The kind to train, or None for a folder."""
        return next((kind for kind in KINDS if kind == self.source), None)

    def __post_init__(self) -> None:
        if self.lowercase and self.source == "bpe":
            raise UsageError("byte-level BPE does not lower-case; leave --lowercase out, or use --tokenizer unigram.")
        if self.vocab_size < 8:
            raise UsageError(f"--vocab-size {self.vocab_size} has no room beside the special tokens; use thousands.")
        if not 0.9 < self.character_coverage <= 1:
            raise UsageError(f"--character-coverage {self.character_coverage} is not between 0.9 and 1.")
        if self.kind is None and not Path(self.source).is_dir():
            raise UsageError(
                f"--tokenizer {self.source!r} is neither {', '.join(KINDS)} nor a folder with tokenizer files."
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class MadeTokenizer:
    """A tokenizer and what is worth telling about it."""

    tokenizer: Tokenizer
    family: str
    notes: tuple[str, ...] = ()


def load_from_folder(folder: Path) -> MadeTokenizer:
    """The tokenizer of a model folder, and the family that its ``config.json`` names.

    Raises:
        DataError: the folder has no tokenizer files, or they are damaged.
    """
    try:
        tokenizer = load_tokenizer(folder)
    except CheckpointError as error:
        raise DataError(str(error)) from None
    if tokenizer is None:
        raise DataError(f"{folder} has no tokenizer files (tokenizer.json, vocab.txt, ...).")
    config = folder / "config.json"
    family = str(read_json(config, DataError).get("model_type")) if config.is_file() else ""
    if family not in FAMILY.values():
        family = "roberta" if tokenizer.token_to_id("<s>") is not None else "bert"
    return MadeTokenizer(tokenizer=tokenizer, family=family)


def train_tokenizer(plan: TokenizerPlan, sentences: Sequence[str]) -> MadeTokenizer:
    """Train a tokenizer on sentences; special tokens get the ids of their family.

    Raises:
        DataError: the vocabulary has no room for the characters of the text.
    """
    kind = plan.kind
    assert kind is not None
    lowercase = kind != "bpe" if plan.lowercase is None else plan.lowercase
    notes: list[str] = []
    match kind:
        case "bpe":
            tokenizer = _train_bpe(plan, sentences)
        case "unigram":
            tokenizer, notes = _train_unigram(plan, sentences, lowercase)
        case "wordpiece":
            tokenizer, notes = _train_wordpiece(plan, sentences, lowercase)
    family = FAMILY[kind]
    specials = special_tokens(family)
    tokenizer.add_special_tokens(
        [AddedToken(token, lstrip=token in ("<mask>", "[MASK]"), normalized=False) for token in specials]
    )
    assert [tokenizer.token_to_id(token) for token in specials] == list(range(len(specials)))
    add_family_template(tokenizer, family)
    size = tokenizer.get_vocab_size()
    if size < plan.vocab_size:
        notes.append(f"the text gives {size} tokens, fewer than the {plan.vocab_size} asked for.")
    return MadeTokenizer(tokenizer=tokenizer, family=family, notes=tuple(notes))


def _train_bpe(plan: TokenizerPlan, sentences: Sequence[str]) -> Tokenizer:
    specials = special_tokens("roberta")
    least = len(specials) + 256
    if plan.vocab_size < least:
        raise DataError(f"byte-level BPE needs at least {least} tokens, --vocab-size is {plan.vocab_size}.")
    tokenizer = Tokenizer(models.BPE())
    # The space before the first word makes it the same token as inside a sentence. RoBERTa has none, at the price of
    # two tokens for every word that can begin a text.
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=plan.vocab_size,
        min_frequency=2,
        special_tokens=list(specials),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences, trainer)
    return tokenizer


def _train_wordpiece(plan: TokenizerPlan, sentences: Sequence[str], lowercase: bool) -> tuple[Tokenizer, list[str]]:
    specials = special_tokens("bert")
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    text = [normalizer.normalize_str(sentence) for sentence in sentences]
    alphabet, rare = _alphabet(text, plan.character_coverage)
    # Every character that can stand inside a word also exists as "##c". The trainer would number these in the order
    # of a hash map; as "special" tokens they have a fixed order. The flag is dropped with the trainer's tokenizer.
    inside = [f"##{character}" for character in alphabet if not _splits_words(character)]
    _check_room(plan, len(specials) + len(alphabet) + len(inside), len(alphabet))
    learner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    learner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=plan.vocab_size,
        min_frequency=2,
        special_tokens=[*specials, *alphabet, *inside],
        show_progress=False,
    )
    learner.train_from_iterator(_without(text, rare), trainer)
    vocab = learner.get_vocab(with_added_tokens=True)
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return tokenizer, _rare_note(rare, text)


def _splits_words(character: str) -> bool:
    """Whether BERT's pre-tokenizer makes every occurrence of a character a word of its own."""
    pieces = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(f"a{character}a")
    normal = normalizers.BertNormalizer(lowercase=False, strip_accents=False, clean_text=False)
    return len(pieces) == 3 or " " in normal.normalize_str(character)


def _train_unigram(plan: TokenizerPlan, sentences: Sequence[str], lowercase: bool) -> tuple[Tokenizer, list[str]]:
    import sentencepiece

    specials = special_tokens("albert")
    # As in ALBERT's preprocessing: quotes, then accents and case. (google-research/albert, tokenization.py)
    steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if lowercase:
        steps += [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    normalizer = normalizers.Sequence([*steps, normalizers.Replace(Regex(" {2,}"), " ")])
    text = [normalizer.normalize_str(sentence).strip() for sentence in sentences]
    alphabet, rare = _alphabet(text, plan.character_coverage)
    _check_room(plan, len(specials) + len(alphabet) + 1, len(alphabet))
    # sentencepiece cuts literal special strings out of what it learns from, characters and all, unless they are broken.
    broken = re.compile(r"[\[<](?=" + "|".join(re.escape(token[1:]) for token in specials) + ")")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(broken.sub(r"\g<0> ", line) for line in _without(text, rare) if line.strip()),
        model_writer=model,
        model_type="unigram",
        vocab_size=plan.vocab_size,
        hard_vocab_limit=False,
        character_coverage=1.0,
        normalization_rule_name="identity",
        max_sentence_length=1 << 20,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        pad_piece=specials[0],
        unk_piece=specials[1],
        control_symbols=list(specials[2:]),
        num_threads=THREADS,
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    vocab = [(processor.id_to_piece(i), processor.get_score(i)) for i in range(processor.get_piece_size())]
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=1))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    return tokenizer, _rare_note(rare, text)


def _alphabet(text: Iterable[str], coverage: float) -> tuple[list[str], Counter[str]]:
    """The most frequent characters that make up ``coverage`` of the text, in code order, and the rest with counts."""
    counts: Counter[str] = Counter()
    for sentence in text:
        counts.update(sentence)
    counts.pop(" ", None)
    total, reached = counts.total(), 0
    kept = []
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if reached >= coverage * total:
            break
        kept.append(character)
        reached += count
    return sorted(kept), Counter({c: n for c, n in counts.items() if c not in set(kept)})


def _check_room(plan: TokenizerPlan, least: int, characters: int) -> None:
    if plan.vocab_size < least:
        raise DataError(
            f"the text has {characters} different characters, so {plan.source} needs at least {least} tokens and "
            f"--vocab-size is {plan.vocab_size}: raise it, lower --character-coverage (now {plan.character_coverage}) "
            "to leave rare characters out, or use --tokenizer bpe, which knows every character."
        )


def _without(text: Iterable[str], rare: Counter[str]) -> Iterable[str]:
    """The text with a space for each rare character."""
    if not rare:
        return text
    table = str.maketrans(dict.fromkeys(rare, " "))
    return (sentence.translate(table) for sentence in text)


def _rare_note(rare: Counter[str], text: Iterable[str]) -> list[str]:
    if not rare:
        return []
    share = rare.total() / max(1, sum(map(len, text)))
    shown = " ".join(f"{c} (U+{ord(c):04X})" for c, _ in sorted(rare.items(), key=lambda i: (-i[1], i[0]))[:5])
    return [
        f"{len(rare)} rare characters ({share:.3%} of the sample) are not in the vocabulary "
        f"and become the unknown token: {shown}{' ...' if len(rare) > 5 else '.'}"
    ]

"""Tokenizers in Hugging Face's files: reading every layout that BERT, RoBERTa and ALBERT come in, and writing one.

The files that are present decide what is built, never the name of a folder or of a class:

    tokenizer.json             read as it is
    vocab.txt                  WordPiece: BERT, and the Chinese models that are called RoBERTa or ALBERT
    vocab.json + merges.txt    byte-level BPE: RoBERTa
    spiece.model               SentencePiece unigram: ALBERT

What is built equals what transformers' fast tokenizers do with the same files, with one exception that is meant: a
``vocab.txt`` with capital letters and no ``do_lower_case`` beside it is not lower-cased.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from contract.errors import CheckpointError, listing
from contract.storage import read_json, write_json

__all__ = [
    "Tokenizer",
    "add_family_template",
    "load_tokenizer",
    "save_tokenizer",
    "special_tokens",
    "stored_max_length",
]

SPECIAL_TOKENS: dict[str, tuple[str, ...]] = {
    "bert": ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    "roberta": ("<s>", "<pad>", "</s>", "<unk>", "<mask>"),
    "albert": ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
}
ROLES = {
    # role: the tokens that play it, in the order in which they are looked for
    "cls_token": ("[CLS]", "<s>"),
    "sep_token": ("[SEP]", "</s>"),
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "mask_token": ("[MASK]", "<mask>"),
}


def special_tokens(family: str) -> tuple[str, ...]:
    """Special tokens of a family for a tokenizer that is trained from scratch; a token's place is its id."""
    return SPECIAL_TOKENS[family]


def add_family_template(tokenizer: Tokenizer, family: str) -> None:
    """Make a tokenizer frame texts as its family does; its vocabulary must hold the family's special tokens.

    bert, albert    [CLS] first [SEP]      [CLS] first [SEP] second [SEP]        second has segment type 1
    roberta         <s> first </s>         <s> first </s></s> second </s>        one segment type
    """
    cls, sep = ("<s>", "</s>") if family == "roberta" else ("[CLS]", "[SEP]")
    _frame(tokenizer, cls, sep)


def _frame(tokenizer: Tokenizer, cls: str, sep: str) -> None:
    ids = [(token, tokenizer.token_to_id(token)) for token in (cls, sep)]
    if cls == "<s>":
        pair = f"{cls} $A {sep} {sep} $B {sep}"
    else:
        pair = f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1"
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{cls} $A {sep}", pair=pair, special_tokens=ids)


def load_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer of a model folder, or None if there are no tokenizer files.

    Raises:
        CheckpointError: a file is damaged, or the vocabulary lacks the special tokens that frame a text.
    """
    settings = _optional(folder / "tokenizer_config.json")
    try:
        if (folder / "tokenizer.json").is_file():
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            if tokenizer.post_processor is not None:
                return tokenizer
        elif (folder / "vocab.txt").is_file():
            tokenizer = _wordpiece(folder / "vocab.txt", settings)
        elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
            tokenizer = _byte_level_bpe(folder / "vocab.json", folder / "merges.txt", settings)
        elif (folder / "spiece.model").is_file():
            tokenizer = _unigram(folder / "spiece.model", settings)
        else:
            return None
    except (CheckpointError, OSError):
        raise
    except Exception as error:  # tokenizers raises bare Exception for every kind of broken file
        raise CheckpointError(f"the tokenizer files of {folder} cannot be read ({error}); copy them again.") from None
    _add_special_tokens(tokenizer, settings | _optional(folder / "special_tokens_map.json"), folder)
    return tokenizer


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path, CheckpointError) if path.is_file() else {}


def _wordpiece(path: Path, settings: dict[str, Any]) -> Tokenizer:
    # Not splitlines, which also splits at separators that are tokens of multilingual vocabularies.
    tokens = path.read_text(encoding="utf-8-sig").rstrip("\n").split("\n")
    vocab = {token: index for index, token in enumerate(tokens)}
    lowercase = settings.get("do_lower_case")
    if lowercase is None:
        # transformers would say yes, and turn every capitalised word of a cased model into [UNK].
        lowercase = not any(token != token.lower() for token in vocab if not re.fullmatch(r"\[.*\]|<.*>", token))
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token=_named(settings, "unk_token") or "[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=lowercase,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return tokenizer


def _byte_level_bpe(vocab: Path, merges: Path, settings: dict[str, Any]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE.from_file(str(vocab), str(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=settings.get("add_prefix_space", False))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _unigram(path: Path, settings: dict[str, Any]) -> Tokenizer:
    model = read_sentencepiece(path)
    # SentencePiece may learn "9," as one piece; ALBERT's authors split it again, so such pieces are made unattractive.
    vocab = [(p.text, p.score - 100 if re.search(r"\d,$", p.text) else p.score) for p in model.pieces]
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=model.unk_id))
    steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not settings.get("keep_accents", False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if settings.get("do_lower_case", True):
        steps.append(normalizers.Lowercase())
    if model.charsmap:
        steps.append(normalizers.Precompiled(model.charsmap))
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.add_tokens([AddedToken(p.text, normalized=False) for p in model.pieces if p.kind == USER_DEFINED])
    return tokenizer


def _named(settings: dict[str, Any], role: str) -> str | None:
    """A special token's text; files store it as a string or as an object."""
    value = settings.get(role)
    return value.get("content") if isinstance(value, dict) else value


def _roles(tokenizer: Tokenizer, settings: dict[str, Any]) -> dict[str, str]:
    """The token that plays each role: the one that the files name, else the usual one that the vocabulary has."""
    found = {}
    for role, usual in ROLES.items():
        for token in (_named(settings, role), *usual):
            if token is not None and tokenizer.token_to_id(token) is not None:
                found[role] = token
                break
    return found


def _add_special_tokens(tokenizer: Tokenizer, settings: dict[str, Any], folder: Path) -> None:
    roles = _roles(tokenizer, settings)
    if missing := {"cls_token", "sep_token", "unk_token", "pad_token"} - roles.keys():
        raise CheckpointError(
            f"the vocabulary in {folder} has no {listing(missing)}; the usual names are "
            f"{listing(name for role in missing for name in ROLES[role])}."
        )
    tokenizer.add_special_tokens(
        [AddedToken(t, lstrip=role == "mask_token", special=True, normalized=False) for role, t in roles.items()]
    )
    for token, index in sorted(_optional(folder / "added_tokens.json").items(), key=lambda item: item[1]):
        tokenizer.add_tokens([AddedToken(token, normalized=False)])
        if tokenizer.token_to_id(token) != index:
            raise CheckpointError(f"{folder / 'added_tokens.json'} gives {token!r} the id {index}, which is not free.")
    _frame(tokenizer, roles["cls_token"], roles["sep_token"])


def save_tokenizer(folder: Path, tokenizer: Tokenizer, *, max_length: int, type_vocab_size: int) -> None:
    """Write ``tokenizer.json`` and the two files from which transformers' ``AutoTokenizer`` learns its settings.

    The class is the generic ``PreTrainedTokenizerFast``: the family's classes rebuild parts of a tokenizer by rules of
    their own, the generic one takes ``tokenizer.json`` as it is.
    """
    private = Tokenizer.from_str(tokenizer.to_str())
    private.no_padding()
    private.no_truncation()
    roles = _roles(private, {})
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    private.save(str(folder / "tokenizer.json"))
    write_json(folder / "special_tokens_map.json", roles)
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": max_length,
            "model_input_names": inputs
            if type_vocab_size > 1
            else [name for name in inputs if name != "token_type_ids"],
            "clean_up_tokenization_spaces": False,
            **_prefix_space(private),
            **roles,
        },
    )


def _prefix_space(tokenizer: Tokenizer) -> dict[str, bool]:
    """Whether the first word gets a space before it: transformers overrides what tokenizer.json says of it."""
    pre_tokenizer = json.loads(tokenizer.to_str())["pre_tokenizer"] or {}
    return {name: pre_tokenizer[name] for name in ("add_prefix_space",) if name in pre_tokenizer}


def stored_max_length(folder: Path) -> int | None:
    """``model_max_length`` of a model folder, if it names one; some files hold a huge number that means none."""
    value = _optional(folder / "tokenizer_config.json").get("model_max_length")
    return value if isinstance(value, int) and 0 < value < 10**9 else None


# A SentencePiece model is a protocol buffer with three fields that matter here; a few lines read it without a package.
# https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto

USER_DEFINED = 4
UNIGRAM = 1


class Piece(NamedTuple):
    """One entry of the vocabulary."""

    text: str
    score: float
    kind: int
    """1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte."""


class SentencePiece(NamedTuple):
    """What a ``spiece.model`` holds."""

    pieces: tuple[Piece, ...]
    unk_id: int
    charsmap: bytes
    """Normalisation rules in compiled form; may be empty."""


def read_sentencepiece(path: Path) -> SentencePiece:
    """Read a ``spiece.model``.

    Raises:
        CheckpointError: it is not a unigram model, or damaged.
    """
    try:
        top = list(_fields(path.read_bytes()))
        pieces = []
        for message in (value for number, value in top if number == 1):
            values = dict(_fields(message))
            score = struct.unpack("<f", values.get(2, bytes(4)))[0]
            pieces.append(Piece(values[1].decode(), score, values.get(3, 1)))
        trainer = dict(_fields(next((value for number, value in top if number == 2), b"")))
        normalizer = dict(_fields(next((value for number, value in top if number == 3), b"")))
    except (IndexError, KeyError, ValueError, AttributeError, TypeError, struct.error):
        raise CheckpointError(f"{path} is not a SentencePiece model, or damaged; copy it again.") from None
    if not pieces or trainer.get(3, UNIGRAM) != UNIGRAM:
        raise CheckpointError(f"{path} is not a unigram SentencePiece model; ALBERT's are.")
    return SentencePiece(tuple(pieces), trainer.get(40, 0), normalizer.get(2, b""))


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """(field number, value) pairs of a protocol buffer message: ints for varints, bytes for the rest."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        number, wire = divmod(varint(), 8)
        if wire == 0:
            yield number, varint()
            continue
        length = {1: 8, 5: 4}.get(wire) or varint()
        if at + length > len(message) or wire not in (1, 2, 5):
            raise ValueError("truncated")
        yield number, message[at : at + length]
        at += length

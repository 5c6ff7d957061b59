"""What a tokenizer tells the rest of the room: its identity, its special tokens and where words begin.

Words are found by the mark that each kind of tokenizer leaves in its tokens:

    byte-level BPE           "Ġ" begins a word                 RoBERTa
    unigram, or BPE with it  "▁" begins a word                 ALBERT, SentencePiece
    WordPiece                "##" continues a word             BERT

Punctuation is a word of its own in all three, as in BERT's and ALBERT's reference code. So is each Chinese or Japanese
token: without a segmenter there are no larger words to find, and whole-word masking of such text masks characters.
A token that is part of a character (byte-level BPE) continues the character's first token.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding, Tokenizer, pre_tokenizers

from contract.encoding import blind_to_special_tokens
from contract.errors import DataError
from pretrain.sentences import CJK

Flags = npt.NDArray[np.bool_]
Kind = Literal["byte-level BPE", "unigram", "WordPiece", "other"]

_CJK = re.compile(f"[{CJK}]")
_ROLES = {"mask": ("[MASK]", "<mask>"), "pad": ("[PAD]", "<pad>"), "unk": ("[UNK]", "<unk>")}


@dataclass(frozen=True, kw_only=True, slots=True)
class Template:
    """The special tokens around one text and around a pair, with their segment types, as (id, type) pairs."""

    before: tuple[int, ...]
    """Ids before the first text; type 0."""
    after: tuple[int, ...]
    """Ids after a single text; type 0."""
    between: tuple[int, ...]
    """Ids between the texts of a pair; type 0."""
    end: tuple[int, ...]
    """Ids after a pair, of the second text's type."""
    second_type: int
    """Segment type of a pair's second text: 1, or 0 for families with one type."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WordTables:
    """For each token id, what it means for the border of words; see ``word_starts``."""

    opens: Flags
    """(vocab,) a word begins at this token."""
    closes: Flags
    """(vocab,) a word begins after this token."""
    never: Flags
    """(vocab,) no word begins at this token: it is the rest of a character."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Vocabulary:
    """A tokenizer as the store and its views see it."""

    size: int
    kind: Kind
    mask_id: int
    pad_id: int
    unk_id: int | None
    """None for a tokenizer that knows every text, such as byte-level BPE."""
    special: Flags
    """(vocab,) special tokens: never masked, never a random replacement."""
    template: Template
    words: WordTables | None
    """None if the kind of tokenizer is not known."""

    @property
    def ordinary_ids(self) -> npt.NDArray[np.int64]:
        """Ids that are not special, in order."""
        return np.flatnonzero(~self.special)

    def word_starts(self, ids: npt.NDArray[np.int64]) -> Flags:
        """(tokens,) whether a word begins at each token; special tokens are words of their own.

        Raises:
            DataError: the kind of tokenizer is not known.
        """
        if self.words is None:
            raise DataError(
                "whole words cannot be found: the tokenizer is neither byte-level BPE, unigram nor WordPiece; "
                "use the masking unit 'token'."
            )
        starts, rest = self.words.opens[ids], self.words.never[ids]
        closes = self.words.closes[ids]
        if rest.any():  # what follows a character in bytes depends on its first token
            closes = closes[np.maximum.accumulate(np.where(rest, 0, np.arange(len(ids))))]
        starts[1:] |= closes[:-1]
        starts &= ~rest
        starts[:1] = True
        return starts


def tokenizer_fingerprint(tokenizer: Tokenizer) -> str:
    """sha256 of a tokenizer without its mutable padding and truncation settings."""
    private = Tokenizer.from_str(tokenizer.to_str())
    private.no_padding()
    private.no_truncation()
    return hashlib.sha256(private.to_str().encode()).hexdigest()


def describe(tokenizer: Tokenizer) -> Vocabulary:
    """Read a tokenizer's special tokens, template and words.

    Raises:
        DataError: it has no mask or padding token, or its template has an unknown form.
    """
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    ids = {role: _first_id(tokenizer, names) for role, names in _ROLES.items()}
    if ids["mask"] is None or ids["pad"] is None:
        missing = "mask" if ids["mask"] is None else "padding"
        raise DataError(f"the tokenizer has no {missing} token; masked language modelling needs one of each.")
    special = np.zeros(size, dtype=bool)
    added = tokenizer.get_added_tokens_decoder()
    special[[index for index, token in added.items() if token.special]] = True
    special[[index for index in ids.values() if index is not None]] = True
    template = _template(tokenizer)
    special[[*template.before, *template.after, *template.between, *template.end]] = True
    kind = tokenizer_kind(tokenizer)
    tokens = [tokenizer.id_to_token(index) or "" for index in range(size)]
    return Vocabulary(
        size=size,
        kind=kind,
        mask_id=ids["mask"],
        pad_id=ids["pad"],
        unk_id=None if kind == "byte-level BPE" else ids["unk"],
        special=special,
        template=template,
        words=_word_tables(tokens, kind, special),
    )


def _first_id(tokenizer: Tokenizer, names: tuple[str, ...]) -> int | None:
    return next((index for name in names if (index := tokenizer.token_to_id(name)) is not None), None)


def tokenizer_kind(tokenizer: Tokenizer) -> Kind:
    """How a tokenizer marks words, from its model and pre-tokenizer."""
    parts: dict[str, Any] = json.loads(tokenizer.to_str())
    model = parts["model"].get("type")
    before = _types(parts.get("pre_tokenizer"))
    if model == "WordPiece" and parts["model"].get("continuing_subword_prefix") == "##":
        return "WordPiece"
    if model == "BPE" and "ByteLevel" in before:
        return "byte-level BPE"
    if model in ("Unigram", "BPE") and "Metaspace" in before:
        return "unigram"
    return "other"


def _types(part: dict[str, Any] | None) -> set[str]:
    if part is None:
        return set()
    return {part["type"]}.union(*(_types(inner) for inner in part.get("pretokenizers", ())))


def _template(tokenizer: Tokenizer) -> Template:
    """Learn the template by framing two texts of one token."""
    first, second = _one_token(tokenizer), _one_token(tokenizer)
    single = tokenizer.post_process(_one_token(tokenizer), None, add_special_tokens=True)
    pair = tokenizer.post_process(first, second, add_special_tokens=True)
    content = [place for place, mask in enumerate(single.special_tokens_mask) if not mask]
    places = [place for place, mask in enumerate(pair.special_tokens_mask) if not mask]
    if len(content) != 1 or len(places) != 2 or single.ids[: content[0]] != pair.ids[: places[0]]:
        raise DataError(
            "the tokenizer's template does not frame a pair as 'specials, first, specials, second, specials'; "
            "use a tokenizer of the BERT, RoBERTa or ALBERT family."
        )
    return Template(
        before=tuple(single.ids[: content[0]]),
        after=tuple(single.ids[content[0] + 1 :]),
        between=tuple(pair.ids[places[0] + 1 : places[1]]),
        end=tuple(pair.ids[places[1] + 1 :]),
        second_type=pair.type_ids[places[1]],
    )


def _one_token(tokenizer: Tokenizer) -> Encoding:
    for text in ("a", "的", "0", "."):
        encoding = tokenizer.encode(text, add_special_tokens=False)
        if len(encoding) > 0:
            encoding.truncate(1)
            return encoding
    raise DataError("the tokenizer makes no token of 'a', '的', '0' or '.'; its vocabulary is empty.")


def _word_tables(tokens: list[str], kind: Kind, special: Flags) -> WordTables | None:
    if kind == "other":
        return None
    opens, closes = special.copy(), special.copy()
    never = np.zeros(len(tokens), dtype=bool)
    characters = _byte_characters() if kind == "byte-level BPE" else {}
    for index, token in enumerate(tokens):
        if special[index] or not token:
            continue
        if kind == "WordPiece":
            opens[index] = not token.startswith("##")
            continue
        text, marked, partial = token.removeprefix("▁"), token.startswith("▁"), False
        if kind == "byte-level BPE":
            content = bytes(characters[c] for c in token if c in characters)
            partial = bool(content) and content[0] & 0xC0 == 0x80
            marked = content[:1].isspace()
            # An incomplete character at the end counts as Chinese if its first byte says so (U+3000 and beyond).
            text = content.decode(errors="replace").lstrip()
            if text.startswith("\ufffd") and not partial and content.lstrip()[0] in range(0xE3, 0xEA):
                text = "的"
        never[index] = partial
        opens[index] = marked or (not partial and bool(text) and _alone(text[0]))
        closes[index] = bool(text) and _alone(text[-1])
    return WordTables(opens=opens, closes=closes, never=never)


def _alone(character: str) -> bool:
    """Whether a character is a word of its own: punctuation and symbols, Chinese and Japanese."""
    return (unicodedata.category(character)[0] in "PS" and character != "\ufffd") or bool(_CJK.match(character))


def _byte_characters() -> dict[str, int]:
    """The visible characters by which byte-level BPE writes bytes (GPT-2's table)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}
    assert table.keys() == set(pre_tokenizers.ByteLevel.alphabet())
    return table


def load_plain(path: Path) -> Tokenizer:
    """A ``tokenizer.json`` with every mutable setting at rest."""
    return _at_rest(Tokenizer.from_file(str(path)))


def for_sentences(tokenizer: Tokenizer) -> tuple[Tokenizer, str]:
    """A tokenizer for the sentences of a document, and what to put before its first one.

    Byte-level BPE and unigram tokenizers may put a space before every text. For a text in pieces, only the first piece
    may get it, else each Chinese sentence would begin with a space that nobody wrote. So the tokens of a document's
    sentences, joined, are the tokens of the whole document. Names of special tokens in a text are text.
    """
    parts: dict[str, Any] = json.loads(tokenizer.to_str())
    changed = _without_prefix(parts.get("pre_tokenizer"))
    blind = blind_to_special_tokens(_at_rest(Tokenizer.from_str(json.dumps(parts))))
    return blind, " " if changed else ""


def _without_prefix(part: dict[str, Any] | None) -> bool:
    if part is None:
        return False
    changed = False
    if part["type"] == "ByteLevel":
        changed, part["add_prefix_space"] = bool(part["add_prefix_space"]), False
    elif part["type"] == "Metaspace":
        changed, part["prepend_scheme"] = part["prepend_scheme"] != "never", "never"
    return changed | any([_without_prefix(inner) for inner in part.get("pretokenizers", ())])


def _at_rest(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer

"""Text to token ids, the same in training, evaluation, export and serving.

Truncation and padding are mutable state inside a ``tokenizers.Tokenizer``: two threads that set them differently
read each other's settings. So this module never sets them. The tokenizer splits text, ``Encoding.truncate`` cuts
one encoding, ``post_process`` adds the special tokens, and ``pad`` makes arrays.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding, Tokenizer

from contract.errors import InvalidRequest, TextTooLong

Ids: TypeAlias = npt.NDArray[np.int64]
Truncation: TypeAlias = Literal["right", "left", "off"]
Text: TypeAlias = str | tuple[str, str]
"""One text, or a pair of texts."""


@dataclass(frozen=True, slots=True)
class EncodedText:
    """Token ids of one text or pair, special tokens included, without padding."""

    input_ids: Ids
    """(seq,)"""
    token_type_ids: Ids
    """(seq,) segment numbers; all 0 for a single text and for families that have one segment type."""
    full_length: int
    """Number of tokens before truncation, special tokens included."""

    @property
    def truncated(self) -> bool:
        """Whether tokens were cut."""
        return self.full_length > len(self.input_ids)


class Measured(NamedTuple):
    """What a tokenizer makes of a text."""

    tokens: int
    """Before truncation, special tokens included."""
    unknown: int
    """Those of them that stand for what the vocabulary lacks."""
    read: int
    """A hash of what the model reads of a text that is too long, cut on the right; 0 for others."""


class TextEncoder:
    """Turns texts into token ids with a fixed length limit. Safe to share between threads.

    Args:
        tokenizer: a tokenizer whose post-processor adds the special tokens of its family.
        max_length: most tokens of an encoded text or pair, special tokens included.
        pad_token_id: id that fills padded positions.
        type_vocab_size: number of segment types the model knows; with 1, every token is of type 0.
    """

    def __init__(self, tokenizer: Tokenizer, *, max_length: int, pad_token_id: int, type_vocab_size: int = 1) -> None:
        # A private copy with every mutable setting at rest: a saved tokenizer.json may carry padding or truncation.
        self.tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self._splitter = blind_to_special_tokens(self.tokenizer)
        self.max_length = max_length
        self.pad_token_id = pad_token_id
        self.type_vocab_size = type_vocab_size
        self.unknown_id = _unknown_id(self._splitter)
        """Id of the token for what the vocabulary lacks; None where every text can be spelled, as in bytes."""
        self._specials = (
            self.tokenizer.num_special_tokens_to_add(False),
            self.tokenizer.num_special_tokens_to_add(True),
        )
        if max_length <= self._specials[1]:
            raise ValueError(
                f"max_length={max_length} leaves no room for text beside {self._specials[1]} special tokens."
            )

    def encode(self, text: Text, truncation: Truncation = "right") -> EncodedText:
        """Encode one text or pair; see ``encode_batch``."""
        return self.encode_batch([text], truncation)[0]

    def encode_batch(self, texts: Sequence[Text], truncation: Truncation = "right") -> list[EncodedText]:
        """Encode texts and pairs, in order.

        Args:
            texts: single texts, pairs, or a mix.
            truncation: which side of a too long text is cut; of a pair the longer side is cut first, and neither
                side is cut to nothing while the other has tokens to give. ``"off"`` refuses too long texts.

        Raises:
            TextTooLong: a text exceeds ``max_length`` and truncation is off; ``field`` names it.
            InvalidRequest: a text holds a lone surrogate, which is half a character and cannot be encoded.
        """
        flat: list[str] = []
        for index, text in enumerate(texts):
            for part in (text,) if isinstance(text, str) else text:
                if not is_encodable(part):
                    raise InvalidRequest(
                        "the text holds half of a surrogate pair (a cut emoji?); send whole characters.",
                        field=f"inputs[{index}]",
                    )
                flat.append(part)
        pieces = iter(self._splitter.encode_batch(flat, add_special_tokens=False))
        encoded = []
        for index, text in enumerate(texts):
            first = next(pieces)
            second = next(pieces) if not isinstance(text, str) else None
            encoded.append(self._assemble(first, second, truncation, index))
        return encoded

    def read_part(self, text: Text, truncation: Truncation = "right") -> list[tuple[int, int]]:
        """Of each side, where the model reads: its first character and the one after its last."""
        sides = [text] if isinstance(text, str) else list(text)
        pieces = self._splitter.encode_batch(sides, add_special_tokens=False)
        lengths = [len(piece) for piece in pieces]
        self._cut(pieces[0], pieces[1] if len(pieces) == 2 else None, truncation, 0)
        spans = []
        for side, piece, length in zip(sides, pieces, lengths, strict=True):
            if len(piece) == length:
                spans.append((0, len(side)))
            elif truncation == "left":
                spans.append((piece.offsets[0][0] if piece.offsets else len(side), len(side)))
            else:
                spans.append((0, piece.offsets[-1][1] if piece.offsets else 0))
        return spans

    def specials(self, text: Text) -> int:
        """How many special tokens frame a text or pair."""
        return int(self._specials[not isinstance(text, str)])

    def measure(self, texts: Sequence[Text]) -> list[Measured]:
        """Tokens of texts, several times as fast as encoding them. The texts must be free of lone surrogates."""
        flat = [part for text in texts for part in ((text,) if isinstance(text, str) else text)]
        pieces = iter(self._splitter.encode_batch_fast(flat, add_special_tokens=False))
        found = []
        for text in texts:
            parts = [next(pieces)] if isinstance(text, str) else [next(pieces), next(pieces)]
            tokens = sum(map(len, parts)) + self.specials(text)
            unknown = 0 if self.unknown_id is None else sum(part.ids.count(self.unknown_id) for part in parts)
            found.append(Measured(tokens, unknown, self._hash_of_read(parts) if tokens > self.max_length else 0))
        return found

    def _hash_of_read(self, parts: list[Encoding]) -> int:
        """A hash of the ids that stay of a text or pair that is too long, cut on the right."""
        room = self.max_length - int(self._specials[len(parts) == 2])
        keep = (room,) if len(parts) == 1 else _longest_first((len(parts[0]), len(parts[1])), room)
        return hash(tuple(tuple(part.ids[:count]) for part, count in zip(parts, keep, strict=True)))

    def _cut(self, first: Encoding, second: Encoding | None, truncation: Truncation, index: int) -> int:
        """Cut the sides to the limit, in place; the number of tokens before, special tokens included."""
        room = self.max_length - self._specials[second is not None]
        lengths = (len(first), 0 if second is None else len(second))
        full_length = sum(lengths) + int(self._specials[second is not None])
        if sum(lengths) > room:
            if truncation == "off":
                raise TextTooLong(
                    f"the text has {full_length} tokens and the limit is {self.max_length}; "
                    "shorten it or allow truncation.",
                    field=f"inputs[{index}]",
                )
            if second is None:
                first.truncate(room, direction=truncation)
            else:
                keep = _longest_first(lengths, room)
                first.truncate(keep[0], direction=truncation)
                second.truncate(keep[1], direction=truncation)
        return full_length

    def _assemble(self, first: Encoding, second: Encoding | None, truncation: Truncation, index: int) -> EncodedText:
        full_length = self._cut(first, second, truncation, index)
        whole = self.tokenizer.post_process(first, second, add_special_tokens=True)
        types = np.asarray(whole.type_ids, dtype=np.int64)
        return EncodedText(
            input_ids=np.asarray(whole.ids, dtype=np.int64),
            token_type_ids=types if self.type_vocab_size > 1 else np.zeros_like(types),
            full_length=full_length,
        )

    def pad(self, encoded: Sequence[EncodedText]) -> dict[str, Ids]:
        """Arrays (batch, seq) named as the model's inputs, padded on the right to the longest text."""
        return padded(encoded, self.pad_token_id)


def padded(encoded: Sequence[EncodedText], pad_token_id: int) -> dict[str, Ids]:
    """Arrays (batch, seq) named as the model's inputs, padded on the right to the longest text."""
    shape = (len(encoded), max(len(item.input_ids) for item in encoded))
    batch = {
        "input_ids": np.full(shape, pad_token_id, dtype=np.int64),
        "attention_mask": np.zeros(shape, dtype=np.int64),
        "token_type_ids": np.zeros(shape, dtype=np.int64),
    }
    for row, item in enumerate(encoded):
        length = len(item.input_ids)
        batch["input_ids"][row, :length] = item.input_ids
        batch["attention_mask"][row, :length] = 1
        batch["token_type_ids"][row, :length] = item.token_type_ids
    return batch


def blind_to_special_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """A copy for which a user's "</s>" or "[SEP]" is text, never structure.

    Two doors lead from such a text to the special id. ``encode_special_tokens`` shuts the search for added tokens. The
    other is the vocabulary: a Unigram or whole-word model holds "[SEP]" like any other piece, so the piece gets a name
    that no text can contain after splitting at spaces. Unknown tokens keep theirs: the model itself needs it.
    """
    state = json.loads(tokenizer.to_str())
    model = state["model"]
    renamed = {token["content"]: f" {token['id']}" for token in state["added_tokens"] if token["special"]}
    if model["type"] == "Unigram":
        if model["unk_id"] is not None:
            renamed.pop(model["vocab"][model["unk_id"]][0], None)
        model["vocab"] = [[renamed.get(piece, piece), score] for piece, score in model["vocab"]]
    elif model["type"] in ("WordLevel", "WordPiece"):
        renamed.pop(model["unk_token"], None)
        model["vocab"] = {renamed.get(piece, piece): number for piece, number in model["vocab"].items()}
    else:  # BPE: what no merge makes is never made
        renamed = {}
    for token in state["added_tokens"]:
        token["content"] = renamed.get(token["content"], token["content"])
    blind = Tokenizer.from_str(json.dumps(state))
    blind.encode_special_tokens = True
    return blind


def _unknown_id(tokenizer: Tokenizer) -> int | None:
    model = json.loads(tokenizer.to_str())["model"]
    if model["type"] == "Unigram":
        return None if model["unk_id"] is None else int(model["unk_id"])
    token = model.get("unk_token")
    return None if token is None else tokenizer.token_to_id(token)


def is_encodable(text: str) -> bool:
    """False for a text with a lone surrogate: half a character, as JSON escapes and careless slicing leave it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _longest_first(lengths: tuple[int, int], room: int) -> tuple[int, int]:
    """How many tokens of each side stay: the shorter side whole if it fits in half of the room.

    The same split as the ``longest_first`` strategy of the tokenizers library.
    """
    short = min(*lengths, room // 2)
    return (short, room - short) if lengths[0] <= lengths[1] else (room - short, short)

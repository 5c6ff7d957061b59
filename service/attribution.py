"""Which words of a text carry its answer: each is left out in turn, and the label's score compared (occlusion).

A word is left out of the text itself, not masked among its tokens: no vocabulary has to have a mask, no fine-tuned
model has to have seen one, and anybody can repeat the comparison with two requests to ``/classify``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from contract.encoding import EncodedText, Text, TextEncoder, Truncation
from contract.scores import Array
from service.schemas import PartEffect

_ALONE = re.compile("[\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
"""Ideographs and kana, which are written without spaces: each is a word of its own."""
_APOSTROPHES = "'\u2019"


@dataclass(frozen=True, slots=True)
class Part:
    """Characters that are left out together."""

    side: int
    """0, or 1 for the second text of a pair."""
    start: int
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Occlusion:
    """A text and its variants, ready for the engine."""

    sides: tuple[str, ...]
    """The characters that the model reads of each text."""
    offsets: tuple[int, ...]
    """Where each of them begins in the text that was given."""
    truncated: bool
    parts: list[Part]
    words: int
    words_per_part: int
    encoded: list[EncodedText]
    """The whole text, and then without each part."""

    def effects(self, scores: Array, logits: Array) -> list[PartEffect]:
        """From one label's scores (1 + parts,) and logits (1 + parts,) to what each part does for it."""
        effects = []
        for part, score, logit in zip(self.parts, scores[1:], logits[1:], strict=True):
            offset = self.offsets[part.side]
            effects.append(
                PartEffect(
                    side="text" if part.side == 0 else "text_pair",
                    start=offset + part.start,
                    end=offset + part.end,
                    text=self.sides[part.side][part.start : part.end],
                    score_drop=float(scores[0]) - float(score),
                    logit_drop=float(logits[0]) - float(logit),
                )
            )
        return effects


def occlude(encoder: TextEncoder, text: Text, truncation: Truncation, *, max_parts: int, max_tokens: int) -> Occlusion:
    """Make the variants of a text.

    A text over the model's limit is cut first: otherwise a variant would show what was cut in place of its part.

    Args:
        encoder: of the model.
        text: a text or a pair.
        truncation: as in a request to classify.
        max_parts: most parts; the words of longer texts are grouped.
        max_tokens: of the text and all variants together; bounds the parts as well.

    Raises:
        TextTooLong: the text exceeds the limit and truncation is off.
    """
    given = (text,) if isinstance(text, str) else text
    spans = encoder.read_part(text, truncation)
    sides = tuple(side[start:end] for side, (start, end) in zip(given, spans, strict=True))
    cut = "right" if truncation == "off" else truncation
    whole = encoder.encode(_text(sides), cut)
    words_of_sides = [words(side) for side in sides]
    parts, size = grouped(words_of_sides, min(max_parts, max_tokens // len(whole.input_ids) - 1))
    return Occlusion(
        sides=sides,
        offsets=tuple(start for start, _ in spans),
        truncated=sides != given,
        parts=parts,
        words=sum(map(len, words_of_sides)),
        words_per_part=size,
        encoded=[whole, *encoder.encode_batch([_text(without(sides, part)) for part in parts], cut)],
    )


def _text(sides: tuple[str, ...]) -> Text:
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def words(text: str) -> list[tuple[int, int]]:
    """Where the words are; each run of other characters than letters, digits and spaces counts as one.

    Marks belong to the character before them, and an apostrophe between letters to the word.
    """
    found: list[tuple[int, int]] = []
    kind = "space"
    for at, character in enumerate(text):
        before, kind = kind, _kind(character)
        if kind == "mark":
            kind = before if found and before != "space" else "other"
        elif character in _APOSTROPHES and before == "word" and text[at + 1 : at + 2].isalpha():
            kind = "word"
        elif kind == "alone" or kind != before:
            before = "space"  # whatever was before, something new begins
        if kind == "space":
            continue
        if before == "space":
            found.append((at, at + 1))
        else:
            found[-1] = (found[-1][0], at + 1)
    return found


def _kind(character: str) -> str:
    category = unicodedata.category(character)
    if character.isspace() or category[0] == "Z":
        return "space"
    if category[0] == "M" or category == "Cf":  # accents, vowel signs, joiners
        return "mark"
    if _ALONE.match(character):
        return "alone"
    return "word" if category[0] in "LN" else "other"


def grouped(sides: Sequence[Sequence[tuple[int, int]]], most: int) -> tuple[list[Part], int]:
    """At most ``most`` parts that cover all words, and how many words each has; parts do not span both sides.

    Args:
        sides: the words of each text.
        most: limit; texts of a pair have at least one part each, whatever it is.
    """
    size = 1
    while size < max(map(len, sides)) and sum(-(-len(side) // size) for side in sides) > most:
        size += 1
    parts = []
    for number, side in enumerate(sides):
        for first in range(0, len(side), size):
            group = side[first : first + size]
            parts.append(Part(number, group[0][0], group[-1][1]))
    return parts, size


def without(sides: tuple[str, ...], part: Part) -> tuple[str, ...]:
    """The sides less a part. Between two spaces, or at an end, the spaces on one side go with it."""
    side = sides[part.side]
    before, after = side[: part.start], side[part.end :]
    if after[:1].isspace() and (not before or before[-1].isspace()):
        after = after.lstrip()
    elif not after:
        before = before.rstrip()
    return (*sides[: part.side], before + after, *sides[part.side + 1 :])

# ruff: noqa: RUF001  (typographic quotes and full-width marks are what this file is about)
"""Where sentences end, for scripts with and without spaces between words. Cuts lose nothing: pieces join to the text.

Rules, not a model: terminators with their closing quotes; abbreviations, initials and decimals that do not end a
sentence; 。！？ without any space. It errs on the side of longer sentences.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

MAX_CHARACTERS = 4000
"""Longest sentence, in characters; what is longer (tables, text without punctuation) is cut at a space, or anywhere."""

CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
"""Character ranges of Chinese and Japanese writing, for a regular expression's class."""
_WITHOUT_SPACES = re.compile(f"[{CJK}\u3000-\u303f\uff00-\uffef]")

_CLOSERS = "\"'”’»)\\]}」』）》】〉"
_CJK_STOPS = frozenset("。！？｡")
_TERMINATOR = re.compile(f"([.!?…؟۔।॥。！？｡]+)([{_CLOSERS}]*)( ?)")
_OPENERS = "\"'“‘«([{¿¡–—-"
_FIRST_WORD = re.compile(f"[{re.escape(_OPENERS)}]*(\\w+)")

_NEVER_LAST = """
    mr mrs ms messrs dr prof rev fr hon st mt sr jr gen col capt cmdr lt sgt cpl maj adm gov sen rep pres supt
    vs viz cf e.g i.e al ca approx dept est mme mlle
"""
_NUMBERED = """
    no nos nr vol vols pp p fig figs eq ch sec art op bk pt jan feb mar apr jun jul aug sep sept oct nov dec
"""
_STARTERS = """
    the a an he she it they we i you this that these those there in on at by for from with as after before but and
    however although when while if his her its their our my one some many most all both
"""
NEVER_LAST = frozenset(_NEVER_LAST.split())
"""Abbreviations that do not end a sentence, whatever follows."""
NUMBERED = frozenset(_NUMBERED.split())
"""Abbreviations that do not end a sentence when a number follows."""
STARTERS = frozenset(_STARTERS.split())
"""Words that begin a sentence after an abbreviation with inner dots, such as U.S. or a.m."""


def split_sentences(text: str) -> list[str]:
    """Cut one paragraph after each sentence; ``"".join`` of the result is the paragraph.

    A space between two sentences stays at the beginning of the second one, where a byte-level tokenizer wants it.

    Args:
        text: one line whose white space is single spaces, without margins.
    """
    cuts = [0]
    cuts += [cut for match in _TERMINATOR.finditer(text) if 0 < (cut := _cut(text, match)) < len(text)]
    cuts.append(len(text))
    pieces = [text[a:b] for a, b in itertools.pairwise(cuts)]
    return pieces if len(text) <= MAX_CHARACTERS else [part for piece in pieces for part in _shorter(piece)]


def split_document(lines: Sequence[str]) -> Iterator[str]:
    """The sentences of a document's cleaned lines, with a space between paragraphs where their script uses spaces."""
    previous = ""
    for line in lines:
        sentences = split_sentences(line)
        if previous and not (_WITHOUT_SPACES.match(previous) or _WITHOUT_SPACES.match(line)):
            sentences[0] = " " + sentences[0]
        yield from sentences
        previous = line[-1]


def _cut(text: str, match: re.Match[str]) -> int:
    """Where to cut at a terminator: an index, or 0 for nowhere."""
    begin, after = match.span()
    if after - begin == 2 and text[begin] == "." and text[begin + 1] == " ":
        # Nine of ten cases, decided without the rules below: a full stop between a plain word and a capital letter.
        word = text[text.rfind(" ", 0, begin) + 1 : begin]
        if text[after : after + 1].isupper() and len(word) > 1 and word.islower() and word.isalpha():
            return 0 if word in NEVER_LAST else begin + 1
    stops, closers, space = match.groups()
    end = match.end(2)
    if not _CJK_STOPS.isdisjoint(stops):
        return end
    if not space:
        left, right = text[match.start() - 1 : match.start()], text[end : end + 1]
        chinese = _WITHOUT_SPACES.match(left) and _WITHOUT_SPACES.match(right)
        return end if chinese and not {"!", "?"}.isdisjoint(stops) else 0
    following = _FIRST_WORD.match(text, match.end())
    first = following.group(1) if following else ""
    if first[:1].islower():
        return 0
    if stops != "." or closers:
        return end
    start = text.rfind(" ", 0, match.start()) + 1
    return end if _full_stop(text[start : match.start()].lstrip(_OPENERS), first, start == 0) else 0


def _full_stop(word: str, first: str, at_start: bool) -> bool:
    """Whether a single dot between the words ``word`` and ``first`` ends a sentence or belongs to an abbreviation."""
    lower = word.lower()
    if lower in NEVER_LAST or (lower in NUMBERED and first[:1].isdigit()):
        return False
    if len(word) == 1 and word.isupper() and word.isascii():
        return word == "I" and len(first) > 1  # an initial; but a sentence may end in "I"
    if "." in word:
        return first.lower() in STARTERS
    if word.isdigit() and at_start:
        return False  # "1. First" at the beginning of a paragraph is a list number
    return bool(first) or bool(word)


def _shorter(sentence: str) -> Iterator[str]:
    while len(sentence) > MAX_CHARACTERS:
        cut = sentence.rfind(" ", 1, MAX_CHARACTERS)
        cut = cut if cut > 0 else MAX_CHARACTERS
        yield sentence[:cut]
        sentence = sentence[cut:]
    yield sentence

"""Named and counted cleaning of one document. Nothing is dropped or changed without a number in the manifest.

Zero-width joiners (U+200C, U+200D) stay: Persian, Indic scripts and emoji mean something by them. A line ends at a line
feed only; U+2028, U+0085 and their kin occur inside real texts and count as spaces.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

COUNTS = {
    "documents_read": "documents found in the input",
    "undecodable_documents": "dropped: bytes that are not UTF-8",
    "malformed_records": "dropped: JSON lines that do not hold a text",
    "long_documents_cut": "cut at the length limit; every part counts as a document",
    "empty_documents": "dropped: nothing left after cleaning",
    "tiny_documents": "dropped: fewer characters than the minimum",
    "exact_duplicates": "dropped: the same cleaned text as an earlier document",
    "near_duplicates": "dropped: almost the same text as an earlier document",
    "control_characters": "control characters and lone surrogates removed",
    "zero_width_characters": "zero-width, soft-hyphen and direction marks removed",
    "whitespace_characters": "white space removed: margins, and runs beyond one space",
    "lines_normalised": "lines changed by Unicode normalisation (NFC)",
}
"""What is counted, in the order of the report."""

# Controls that are white space (tab, U+0085, ...) are handled with it. Surrogates come from JSON escapes.
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ud800-\udfff]")
_ZERO_WIDTH = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")


def clean(text: str, counts: Counter[str]) -> list[str]:
    """The non-empty lines of a document, cleaned; cleaning them again changes nothing.

    Args:
        text: one document; its lines are paragraphs.
        counts: numbers of the characters and lines that were changed are added here.
    """
    lines = []
    for line in text.split("\n"):
        # isprintable is false for every control, format and surrogate character and for every space but U+0020.
        if not line.isprintable():
            line = _strip_characters(line, counts)
        if not unicodedata.is_normalized("NFC", line):
            line = unicodedata.normalize("NFC", line)
            counts["lines_normalised"] += 1
        single = " ".join(line.split())
        if len(single) != len(line):
            counts["whitespace_characters"] += len(line) - len(single)
        if single:
            lines.append(single)
    return lines


def _strip_characters(line: str, counts: Counter[str]) -> str:
    line, removed = _CONTROL.subn("", line)
    counts["control_characters"] += removed
    line, removed = _ZERO_WIDTH.subn("", line)
    counts["zero_width_characters"] += removed
    return line

"""Signs that a text was decoded, cut or typed wrongly: what a reader of the text would stumble over.

Mojibake is told by its own bytes: text that, written in the encoding it was wrongly read with, reads as well-formed
UTF-8 (or as GB 2312), which hardly any text does by chance. Every check looks at texts beyond ASCII only, except that
for control characters.
"""

from __future__ import annotations

import re
from unicodedata import is_normalized

REPLACEMENT, MOJIBAKE, CONTROL = "replacement characters", "mojibake", "control characters"
COMPOSED, DECOMPOSED = "composed", "decomposed"

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# U+FFFD written as UTF-8 and read as GBK is these three, the best known mojibake in Chinese
_REPLACED = re.compile("\ufffd|锟斤拷")
# a lead byte of UTF-8 as Latin-1 and cp1252 show it, and what both show for the bytes that may follow it
_TAIL = bytes(range(0x80, 0xC0))
_FOLLOWING = _TAIL.decode("latin-1") + _TAIL.decode("cp1252", errors="ignore")
_UTF8_AS_LATIN = re.compile(f"[\xc2-\xf4][{_FOLLOWING}]{{1,3}}")
_GB_AS_LATIN = re.compile("[\xb0-\xf7][\xa1-\xfe](?:[\xa1-\xfe][\xa1-\xfe])+")
_BEYOND_ASCII = re.compile("[^\x00-\x7f]{3,}")
FIRST_CJK, FIRST_LATIN = "\u2e80", "\xc0"
"""Below the letters of Latin-1 are signs, and people write rows of dots."""


def oddities(text: str) -> tuple[str, ...]:
    """Which of the constants above a text shows; ``COMPOSED`` and ``DECOMPOSED`` are odd only beside each other."""
    if text.isascii():
        return (CONTROL,) if not text.isprintable() and _CONTROL.search(text) else ()
    found = []
    if _REPLACED.search(text):
        found.append(REPLACEMENT)
    if _is_mojibake(text):
        found.append(MOJIBAKE)
    if not text.isprintable() and _CONTROL.search(text):
        found.append(CONTROL)
    if not is_normalized("NFC", text):
        found.append(DECOMPOSED)
    elif not is_normalized("NFD", text):
        found.append(COMPOSED)
    return tuple(found)


def _is_mojibake(text: str) -> bool:
    return (
        any(_reads(run, "cp1252", "utf-8") or _reads(run, "latin-1", "utf-8") for run in _UTF8_AS_LATIN.findall(text))
        or any(max(run) >= FIRST_LATIN and _reads(run, "latin-1", "gb2312") for run in _GB_AS_LATIN.findall(text))
        or any(_reads(run, "gbk", "utf-8", FIRST_CJK) for run in _BEYOND_ASCII.findall(text))
    )


def _reads(run: str, wrong: str, right: str, least: str = "\x80") -> bool:
    """Whether the bytes of ``run`` in the encoding ``wrong`` are text in ``right``, of characters from ``least`` on."""
    try:
        return min(run.encode(wrong).decode(right)) >= least
    except UnicodeError:
        return False

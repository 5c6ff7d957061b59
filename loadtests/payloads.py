"""The traffic: a seeded sequence of request bodies with mixed text lengths, the same for every server.

Texts come in blocks of 32. Each block holds one text from each 1/32 of the length distribution, each half of a block
one from each 1/16, and so on down to pairs of a short and a long one; within that, the order is random. So even a
short stretch has practically the same mix of lengths as any other: a faster server, which reads further in the same
time, does not get easier or harder texts for it.

Bodies are serialised once, before the run: while it measures, the generator must not spend the processor that the
server needs. This module is also imported by the Locust process and therefore light.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist
from typing import TypeVar

from contract.errors import DataError
from loadtests.protocols import PROTOCOLS, Protocol

Drawn = TypeVar("Drawn")

STRATA = 32
MEDIAN_WORDS = 24
SPREAD = 0.9
"""Standard deviation of the logarithm of the number of words: a tenth of the texts has fewer than 8, a tenth more
than 76 words."""
MAX_WORDS = 300
DEFAULT_COUNT = 4096

_WORDS = """
the a of and to in is that it was for on as with at by from this be have not are or but all can more when who will one
time people year way day thing world life hand part place case week company system program question work government
number night point home water room mother area money story fact month lot right study book eye job word business issue
side kind head house service friend father power hour game line end member law car city community name president team
minute idea body information back parent face others level office door health person art war history party result
change morning reason research girl guy moment air teacher force education please ignore previous answer message order
write show tell find give think say make know take see come want look use work call try ask need feel become leave
new good high small large next early young important few public bad same able cannot never always quickly really very
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Payload:
    """One request, ready to be sent."""

    body: bytes
    """The JSON of the service's protocol."""
    texts: int
    characters: int
    """Characters of its texts: the length that does not depend on a tokenizer."""
    labels: tuple[str, ...] | None = None
    """The right label of each text, if known."""


def synthetic_texts(count: int, *, seed: int) -> list[str]:
    """English-looking texts whose number of words is log-normal."""
    rng = random.Random(f"texts {seed}")
    vocabulary = _WORDS.split()

    def text(quantile: float) -> str:
        words = round(MEDIAN_WORDS * math.exp(SPREAD * NormalDist().inv_cdf(quantile)))
        chosen = rng.choices(vocabulary, k=min(max(words, 1), MAX_WORDS))
        return " ".join(chosen).capitalize() + rng.choice((".", "?", "!", ""))

    return _stratified(text, count, rng)


def texts_from_file(path: Path, count: int, *, seed: int) -> tuple[list[str], list[str] | None]:
    """Texts and, if the file has them, their labels; drawn so that each block of 32 texts spans the file's lengths.

    Args:
        path: UTF-8, one text a line; or ``.jsonl`` with ``{"text": ..., "label": ...}`` a line, label optional.
            Blank lines are skipped.
        count: texts to draw.
        seed: of the draw.

    Raises:
        DataError: the file is missing, not UTF-8, has no text, or has a line without ``text`` or with labels missing.
    """
    try:
        content = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"the texts file {path} cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError as error:
        raise DataError(f"the texts file {path} is not UTF-8 (byte {error.start}); save it as UTF-8.") from None
    lines = [(number, line) for number, line in enumerate(content.splitlines(), 1) if line.strip()]
    if not lines:
        raise DataError(f"the texts file {path} has no text; one text per line was expected.")
    rows = [_row(path, *line) for line in lines] if path.suffix == ".jsonl" else [(line, None) for _, line in lines]
    if len({label is None for _, label in rows}) > 1:
        raise DataError(f"the texts file {path} has labels for some texts only; give all of them one, or none.")
    ordered = sorted(rows, key=lambda row: (len(row[0]), row[0]))
    drawn = _stratified(lambda quantile: ordered[int(quantile * len(ordered))], count, random.Random(f"lines {seed}"))
    labels = [label for _, label in drawn if label is not None]
    return [text for text, _ in drawn], labels or None


def _row(path: Path, number: int, line: str) -> tuple[str, str | None]:
    try:
        row = json.loads(line)
        text, label = row["text"], row.get("label")
    except (ValueError, KeyError, TypeError, AttributeError):
        text = label = None
    if not isinstance(text, str) or not isinstance(label, str | None):
        raise DataError(f'the texts file {path}, line {number}: {{"text": "...", "label": "..."}} was expected.')
    return text, label


def _stratified(text_at: Callable[[float], Drawn], count: int, rng: random.Random) -> list[Drawn]:
    texts: list[Drawn] = []
    while len(texts) < count:
        texts += [text_at((stratum + rng.uniform(1e-9, 1 - 1e-9)) / STRATA) for stratum in _spread(0, STRATA, rng)]
    return texts[:count]


def _spread(low: int, high: int, rng: random.Random) -> list[int]:
    """``low`` to ``high`` in random order, but that each aligned 2, 4, 8, ... of them are spread over the range."""
    if high - low == 1:
        return [low]
    middle = (low + high) // 2
    pairs = zip(_spread(low, middle, rng), _spread(middle, high, rng), strict=True)
    return [item for pair in pairs for item in rng.sample(pair, 2)]


def payloads(
    texts: Sequence[str],
    *,
    labels: Sequence[str] | None = None,
    protocol: Protocol = PROTOCOLS["robal"],
    batch: int = 1,
) -> list[Payload]:
    """One request for each ``batch`` texts; the last ones that fill none are left out."""
    return [
        Payload(
            body=protocol.body(texts[at : at + batch]),
            texts=batch,
            characters=sum(map(len, texts[at : at + batch])),
            labels=None if labels is None else tuple(labels[at : at + batch]),
        )
        for at in range(0, len(texts) - batch + 1, batch)
    ]


def save_payloads(path: Path, traffic: Sequence[Payload]) -> str:
    """Write the sequence, one JSON line per request; returns the file's sha256."""
    data = "".join(f"{json.dumps(asdict(item) | {'body': item.body.decode()})}\n" for item in traffic).encode()
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def load_payloads(path: Path) -> list[Payload]:
    """Read what ``save_payloads`` wrote."""
    items = map(json.loads, path.read_text().splitlines())
    return [
        Payload(
            body=item["body"].encode(),
            texts=item["texts"],
            characters=item["characters"],
            labels=None if item["labels"] is None else tuple(item["labels"]),
        )
        for item in items
    ]

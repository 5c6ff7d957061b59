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
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

from contract.errors import DataError

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
    """JSON for ``POST /classify``."""
    texts: int
    characters: int
    """Characters of its texts: the length that does not depend on a tokenizer."""


def synthetic_texts(count: int, *, seed: int) -> list[str]:
    """English-looking texts whose number of words is log-normal."""
    rng = random.Random(f"texts {seed}")
    vocabulary = _WORDS.split()

    def text(quantile: float) -> str:
        words = round(MEDIAN_WORDS * math.exp(SPREAD * NormalDist().inv_cdf(quantile)))
        chosen = rng.choices(vocabulary, k=min(max(words, 1), MAX_WORDS))
        return " ".join(chosen).capitalize() + rng.choice((".", "?", "!", ""))

    return _stratified(text, count, rng)


def texts_from_file(path: Path, count: int, *, seed: int) -> list[str]:
    """Lines of a UTF-8 file, drawn so that each block of 32 texts spans its lengths. Blank lines are skipped.

    Raises:
        DataError: the file is missing, not UTF-8, or has no text.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise DataError(f"the texts file {path} cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError as error:
        raise DataError(f"the texts file {path} is not UTF-8 (byte {error.start}); save it as UTF-8.") from None
    ordered = sorted((line for line in lines if line.strip()), key=lambda line: (len(line), line))
    if not ordered:
        raise DataError(f"the texts file {path} has no text; one text per line was expected.")
    return _stratified(lambda quantile: ordered[int(quantile * len(ordered))], count, random.Random(f"lines {seed}"))


def _stratified(text_at: Callable[[float], str], count: int, rng: random.Random) -> list[str]:
    texts: list[str] = []
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


def payloads(texts: Sequence[str]) -> list[Payload]:
    """One request for each text."""
    return [Payload(body=json.dumps({"inputs": text}).encode(), texts=1, characters=len(text)) for text in texts]


def save_payloads(path: Path, traffic: Sequence[Payload]) -> str:
    """Write the sequence, one JSON line per request; returns the file's sha256."""
    lines = (
        json.dumps({"texts": item.texts, "characters": item.characters, "body": item.body.decode()}) for item in traffic
    )
    data = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def load_payloads(path: Path) -> list[Payload]:
    """Read what ``save_payloads`` wrote."""
    items = map(json.loads, path.read_text().splitlines())
    return [Payload(body=item["body"].encode(), texts=item["texts"], characters=item["characters"]) for item in items]

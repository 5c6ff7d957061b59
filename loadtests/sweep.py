"""The regime map: the time of one call over length, batch, precision and threads, for several bundles in turn.

All cells of a bundle are asked in one visit to a fresh server, by one user, shuffled, short ones more often; visits go
A B B A. Each visit is saved as it ends, and a sweep that was interrupted goes on after the last one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from contract.encoding import TextEncoder
from contract.errors import DataError, Failure, UsageError
from contract.manifest import load_manifest, load_text_encoder
from loadtests.compare import order
from loadtests.driver import drive
from loadtests.load import Load
from loadtests.payloads import Payload, save_payloads, synthetic_texts
from loadtests.protocols import PROTOCOLS
from loadtests.records import Run, faults
from loadtests.servers import serve_command, serving

TOKENS_PER_CYCLE = 256
"""A cell is asked that many tokens' worth of times in each cycle, at least once."""
MAX_PER_CYCLE = 16
LONGEST_S = 3600.0
VISITS = "visits.jsonl"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One shape of a request."""

    length: int
    """Tokens of each text, special tokens included."""
    texts: int

    @property
    def times(self) -> int:
        """How often it is asked in a cycle."""
        return max(1, min(MAX_PER_CYCLE, TOKENS_PER_CYCLE // (self.length * self.texts)))


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepPlan:
    """The shape of a sweep."""

    lengths: tuple[int, ...]
    batches: tuple[int, ...]
    precisions: tuple[str, ...]
    threads: tuple[int, ...]
    max_tokens: int
    """Larger calls are left out: they take seconds and behave like the largest that are in."""
    rounds: int
    cycles: int
    """Measured cycles of a visit, after one that is not."""
    seed: int
    margin: float = 0.05

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All shapes of requests."""
        return tuple(
            Cell(length=length, texts=texts)
            for texts in self.batches
            for length in self.lengths
            if length * texts <= self.max_tokens
        )

    @property
    def settings(self) -> list[tuple[str, int]]:
        """Each precision with each number of threads."""
        return [(precision, threads) for precision in self.precisions for threads in self.threads]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One answer."""

    length: int
    texts: int
    latency_ms: float
    engine_ms: float


@dataclass(frozen=True, kw_only=True, slots=True)
class CellVisit:
    """What one visit found."""

    round: int
    subject: int
    precision: str
    threads: int
    rss_bytes: int
    samples: tuple[Sample, ...]


def check_cells(bundles: Sequence[Path], plan: SweepPlan) -> None:
    """Raise UsageError for lengths that a bundle does not read, or a plan without cells."""
    if not plan.cells:
        raise UsageError(f"no call of --lengths and --batches has at most {plan.max_tokens} tokens.")
    for bundle in bundles:
        manifest = load_manifest(bundle)
        for precision in plan.precisions:
            manifest.graph(precision)
        if max(plan.lengths) > manifest.max_length:
            raise UsageError(
                f"--lengths has {max(plan.lengths)} tokens and {bundle} reads at most {manifest.max_length}."
            )


def sweep(
    bundles: Sequence[Path],
    plan: SweepPlan,
    *,
    folder: Path,
    work: Path,
    on_progress: Callable[[str, float], None] = lambda doing, done: None,
) -> list[CellVisit]:
    """Visit every bundle at every precision and number of threads, in ``plan.rounds`` rounds.

    Args:
        bundles: the baseline and the others.
        plan: cells, rounds, cycles.
        folder: where visits are saved, and found again.
        work: for logs and records of the running visit.
        on_progress: told what is being done and how many visits are over.

    Raises:
        Failure: a server or the generator broke, or answered wrongly.
        UsageError: ``folder`` holds visits of another plan.
    """
    saved = _Saved(folder / VISITS, {"plan": asdict(plan), "bundles": [_identity(bundle) for bundle in bundles]})
    visits = saved.visits
    done = {(visit.round, visit.subject, visit.precision, visit.threads) for visit in visits}
    todo = [
        (round_, subject, precision, threads)
        for round_ in range(plan.rounds)
        for precision, threads in plan.settings
        for _, subject in order(round_ + 1, len(bundles))[-len(bundles) :]
    ]
    for number, (round_, subject, precision, threads) in enumerate(todo):
        if (round_, subject, precision, threads) in done:
            continue
        manifest = load_manifest(bundles[subject], verify=False)
        title = f"round {round_ + 1}/{plan.rounds}, {manifest.name}, {precision}, {threads} thread(s)"
        on_progress(title, number)
        traffic, cells = _traffic(load_text_encoder(bundles[subject], manifest), plan, round_)
        save_payloads(work / "payloads.jsonl", traffic)

        def command(port: int, subject: int = subject, threads: int = threads, precision: str = precision) -> list[str]:
            return serve_command(bundles[subject].absolute(), port=port, threads=threads, precision=precision)

        with serving(command, name=manifest.name, work=work) as server:
            load = Load(users=1, warmup_s=0, seconds=LONGEST_S, max_requests=len(traffic))
            run = drive(server.url, load, payloads=work / "payloads.jsonl", work=work)
            rss_bytes = server.usage().rss_bytes
        visit = CellVisit(
            round=round_,
            subject=subject,
            precision=precision,
            threads=threads,
            rss_bytes=rss_bytes,
            samples=_samples(run, cells, skip=len(traffic) // (plan.cycles + 1), name=title),
        )
        saved.add(visit)
    on_progress("done", len(todo))
    return visits


def texts_of(encoder: TextEncoder, tokens: int, rng: random.Random) -> str:
    """A text of exactly so many tokens, special tokens included, from words that are one token each.

    Raises:
        DataError: the tokenizer has no such words.
    """
    specials = len(encoder.encode("").input_ids)
    words = sorted(set(" ".join(synthetic_texts(64, seed=0)).lower().split()))
    whole = [word for word in words if len(encoder.encode(f"{word} {word} {word}").input_ids) == specials + 3]
    if not whole:
        raise DataError("the tokenizer cuts every common English word; lengths cannot be set with it.")
    return " ".join(rng.choices(whole, k=max(0, tokens - specials)))


def _traffic(encoder: TextEncoder, plan: SweepPlan, round_: int) -> tuple[list[Payload], list[Cell]]:
    """One cycle that is not measured and ``plan.cycles`` that are, each in an order of its own."""
    rng = random.Random(f"sweep {plan.seed} {round_}")
    ask = PROTOCOLS["robal"]
    traffic, cells = [], []
    for _ in range(plan.cycles + 1):
        cycle = [cell for cell in plan.cells for _ in range(cell.times)]
        rng.shuffle(cycle)
        for cell in cycle:
            texts = [texts_of(encoder, cell.length, rng) for _ in range(cell.texts)]
            traffic.append(Payload(body=ask.body(texts), texts=cell.texts, characters=sum(map(len, texts))))
            cells.append(cell)
    return traffic, cells


def _samples(run: Run, cells: Sequence[Cell], *, skip: int, name: str) -> tuple[Sample, ...]:
    if problems := [fault for fault in faults([run]) if "bottleneck" not in fault]:
        raise Failure(f"{name}: {problems[0]}.")
    samples = []
    for request in run.requests:
        cell = cells[request.index]
        if request.tokens != cell.length * cell.texts:
            raise Failure(
                f"{name}: the service read {request.tokens} tokens where {cell.length * cell.texts} were sent."
            )
        if request.index >= skip:
            samples.append(
                Sample(
                    length=cell.length,
                    texts=cell.texts,
                    latency_ms=request.latency_ms,
                    engine_ms=request.stages_ms["engine"],
                )
            )
    return tuple(samples)


def _identity(bundle: Path) -> str:
    return hashlib.sha256((bundle / "manifest.json").read_bytes()).hexdigest()


class _Saved:
    """Visits on disk: a first line that says what they are of, then one line each, flushed as it ends."""

    def __init__(self, path: Path, plan: Mapping[str, Any]) -> None:
        self.path = path
        head = json.loads(json.dumps(plan))
        self.visits: list[CellVisit] = []
        if path.exists():
            lines = list(self._whole_lines())
            if not lines or lines[0] != head:
                raise UsageError(f"{path} holds visits of another sweep; choose another --out, or --overwrite.")
            for line in lines[1:]:
                samples = tuple(Sample(**sample) for sample in line.pop("samples"))
                self.visits.append(CellVisit(**line, samples=samples))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._append(head)

    def _whole_lines(self) -> Iterator[Any]:
        """A kill may have cut the last line; it is dropped, and its visit made again."""
        text = self.path.read_text()
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            os.truncate(self.path, len(whole.encode()))
        for line in whole.splitlines():
            with contextlib.suppress(ValueError):
                yield json.loads(line)

    def add(self, visit: CellVisit) -> None:
        """Keep one more."""
        self.visits.append(visit)
        self._append(asdict(visit))

    def _append(self, value: Mapping[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(value) + "\n")
            file.flush()
            os.fsync(file.fileno())

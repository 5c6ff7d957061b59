"""Threads and instances for this machine, measured: what ``robal plan`` does and what the service then uses.

One call with all processors is fastest for a lone text; several calls of fewer threads side by side finish more texts,
because no thread waits for another at the end of each operation. Which of the two matters is the caller's choice, how
much is the machine's. The answer lies beside the bundle, with the machine that it was measured on; elsewhere it counts
for nothing.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from contract.encoding import EncodedText
from contract.errors import BundleError
from contract.machine import processor
from contract.manifest import load_manifest, load_text_encoder
from contract.storage import read_json, write_json
from service.engine import OnnxEngine, available_providers

logger = logging.getLogger("robal.service")

PLAN_NAME = "plan.json"
Goal: TypeAlias = Literal["latency", "throughput"]

MEAN_TOKENS, SIGMA = 30, 0.8
"""Of the log-normal lengths of the texts: many short ones and a few long ones."""
TEXTS = 48
BATCH_TEXTS = 8
LONE_TOKENS = 24


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One way to use the processors."""

    precision: str
    threads: int
    instances: int
    provider: str = "cpu"
    lone_ms: float
    """Median time of a lone short text."""
    texts_per_s: float
    """Of mixed lengths, all instances busy; median over the rounds."""


def layouts(cpus: int) -> list[tuple[int, int]]:
    """(threads, instances) that use the processors fully: from one call with all to one call for each."""
    return [(cpus // instances, instances) for instances in range(1, cpus + 1) if cpus % instances == 0]


def measure(
    folder: Path,
    *,
    cpus: int,
    rounds: int,
    advance: Callable[[str, int, int], None] = lambda *_: None,
) -> list[Measured]:
    """Measure every precision of a bundle in every layout with every provider, interleaved.

    Args:
        folder: the bundle.
        cpus: processors to use.
        rounds: times that each is measured.
        advance: receives the progress.
    """
    manifest = load_manifest(folder)
    encoder = load_text_encoder(folder, manifest)
    limit, words = encoder.max_length, encoder.tokenizer.get_vocab_size()
    random = np.random.default_rng(0)
    lengths = random.lognormal(np.log(MEAN_TOKENS) - SIGMA**2 / 2, SIGMA, TEXTS).clip(3, limit).astype(int).tolist()
    mixed, lone = _texts(random, lengths, words), _texts(random, [min(LONE_TOKENS, limit)], words)
    batches = [mixed[at : at + BATCH_TEXTS] for at in range(0, TEXTS, BATCH_TEXTS)]
    ways = [
        (graph.precision, provider, *layout)
        for graph in manifest.graphs
        for provider in available_providers()
        for layout in layouts(cpus)
    ]
    seconds: dict[tuple[str, str, int, int], list[tuple[float, float]]] = {way: [] for way in ways}
    steps = (rounds + 1) * len(ways)
    for number in range(rounds + 1):
        for place, way in enumerate(ways if number % 2 else reversed(ways)):
            precision, provider, threads, instances = way
            what = f"{precision} on {provider}, {instances} x {threads} threads"
            advance(what, number * len(ways) + place, steps)
            engine = OnnxEngine(
                folder, manifest, precision=precision, threads=threads, instances=instances, provider=provider
            )
            engine.run(lone)
            alone = min(_timed(engine.run, lone) for _ in range(3))
            with ThreadPoolExecutor(instances) as pool:
                together = _timed(_run_all, pool, engine, batches)
            engine.close()
            if number:  # the first round warms caches and the processor's clock
                seconds[way].append((alone, together))
    return [
        Measured(
            precision=way[0],
            provider=way[1],
            threads=way[2],
            instances=way[3],
            lone_ms=1e3 * statistics.median(alone for alone, _ in seconds[way]),
            texts_per_s=TEXTS / statistics.median(together for _, together in seconds[way]),
        )
        for way in ways
    ]


def choose(measured: Sequence[Measured], precision: str, goal: Goal) -> Measured:
    """The best layout of one precision for a goal."""
    same = [way for way in measured if way.precision == precision]
    if goal == "latency":
        return min(same, key=lambda way: way.lone_ms)
    return max(same, key=lambda way: way.texts_per_s)


def save_plan(folder: Path, measured: Sequence[Measured], *, cpus: int, goal: Goal) -> None:
    """Write ``plan.json`` beside the bundle's files."""
    plan = {"machine": _machine(cpus), "goal": goal, "measured": [asdict(way) for way in measured]}
    write_json(folder / PLAN_NAME, plan)


def planned(folder: Path, *, precision: str, cpus: int) -> Measured | None:
    """What was planned for this bundle, machine and precision; None if nothing was, or on another machine.

    Raises:
        BundleError: there is a plan and it cannot be read.
    """
    path = folder / PLAN_NAME
    if not path.is_file():
        return None
    plan: dict[str, Any] = read_json(path, BundleError)
    if plan.get("machine") != (here := _machine(cpus)):
        logger.warning("%s is for %s and this is %s: run `robal plan` here.", path, plan.get("machine"), here)
        return None
    try:
        return choose([Measured(**way) for way in plan["measured"]], precision, plan["goal"])
    except (KeyError, TypeError, ValueError) as error:
        raise BundleError(f"{path} is damaged ({error!r}); delete it, or run `robal plan` again.") from None


def _machine(cpus: int) -> dict[str, Any]:
    import onnxruntime  # here, because the supervising process imports this module and seldom has a plan

    return {
        "processor": processor(),
        "cpus": cpus,
        "onnxruntime": onnxruntime.__version__,
        "providers": available_providers(),
    }


def _texts(random: np.random.Generator, lengths: Sequence[int], words: int) -> list[EncodedText]:
    rows = [random.integers(0, words, length) for length in lengths]
    return [EncodedText(row, np.zeros_like(row), len(row)) for row in rows]


def _run_all(pool: ThreadPoolExecutor, engine: OnnxEngine, batches: Sequence[Sequence[EncodedText]]) -> None:
    list(pool.map(engine.run, batches))


def _timed(run: Callable[..., object], *arguments: object) -> float:
    began = time.perf_counter()
    run(*arguments)
    return time.perf_counter() - began

"""What each setting of the serving engine is worth: the same traffic with one of them changed at a time.

    python -m benchmarks.engine_settings BUNDLE [--precision fp32] [--threads 2] [--rounds 5]

Times are interleaved; given is the ratio to the engine as it is, with its range over the rounds. "Side by side" runs
two engine calls at once, as two instances do: threads that spin then take each other's processor. Memory is that of a
process of its own after mixed traffic up to 16 texts of 512 tokens, above one that has loaded nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.engine import BATCH, measure, median_ms, mixed_lengths, ratio, texts
from contract.manifest import load_manifest
from service import engine as service_engine
from service.engine import OnnxEngine

AS_IT_IS = "as it is"


def spinning(options: Any) -> None:
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")


def arena(options: Any) -> None:
    options.enable_cpu_mem_arena = True


def arena_and_patterns(options: Any) -> None:
    arena(options)
    options.enable_mem_pattern = True


def unpacked(options: Any) -> None:
    options.add_session_config_entry("session.disable_prepacking", "1")


VARIANTS: dict[str, Callable[[Any], None]] = {
    AS_IT_IS: lambda options: None,
    "threads spin": spinning,
    "memory arena": arena,
    "arena and patterns": arena_and_patterns,
    "no prepacking": unpacked,
}
CAPS = (256, 512, 2048, 4096)
"""Most tokens of one run of the graph; the service has ``service.engine.GROUP_TOKENS``."""


def engine(folder: Path, precision: str, threads: int, variant: str) -> OnnxEngine:
    """The engine with one setting changed."""
    plain = service_engine.session_options

    def changed(threads: int) -> Any:
        options = plain(threads)
        VARIANTS[variant](options)
        return options

    service_engine.session_options = changed
    try:
        manifest = load_manifest(folder, verify=False)
        return OnnxEngine(folder, manifest, precision=precision, threads=threads, instances=2)
    finally:
        service_engine.session_options = plain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory-of", choices=VARIANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        print(resident_mb(options))
        return
    random = np.random.default_rng(0)
    traffic = texts(random, mixed_lengths(random))
    batches = [traffic[at : at + BATCH] for at in range(0, len(traffic), BATCH)]
    lone = texts(random, [16])
    runs: dict[str, Callable[[], object]] = {}
    for name in VARIANTS:
        whole = engine(options.bundle, options.precision, options.threads, name)
        half = engine(options.bundle, options.precision, max(1, options.threads // 2), name)
        runs[f"{name}: lone"] = partial(whole.run, lone)
        runs[f"{name}: mixed"] = partial(one_by_one, whole, batches)
        runs[f"{name}: side by side"] = partial(side_by_side, half, batches)
    everything = [traffic]
    usual = engine(options.bundle, options.precision, options.threads, AS_IT_IS)
    caps = (service_engine.GROUP_TOKENS, *CAPS)
    for cap in caps:
        runs[f"cap {cap}"] = partial(capped, usual, everything, cap)
    seconds = measure(runs, options.rounds)
    print(f"## {options.bundle.name} {options.precision}, {options.threads} threads\n")
    print("| setting | lone text of 16 | mixed, 16 at a time | two calls side by side | resident MB |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name in VARIANTS:
        cells = [
            f"{median_ms(seconds[f'{name}: {way}'])} ms"
            if name == AS_IT_IS
            else ratio(seconds[f"{name}: {way}"], seconds[f"{AS_IT_IS}: {way}"])
            for way in ("lone", "mixed", "side by side")
        ]
        command = [sys.executable, "-m", "benchmarks.engine_settings", str(options.bundle), "--memory-of", name]
        command += ["--precision", options.precision, "--threads", str(options.threads)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        print(f"| {name} | " + " | ".join(cells) + f" | {done.stdout.strip()} |")
    print(f"\n{len(traffic)} texts in one call, at most so many tokens a run of the graph, over {caps[0]}:\n")
    for cap in CAPS:
        print(f"- {cap}: {ratio(seconds[f'cap {cap}'], seconds[f'cap {caps[0]}'])}")


def one_by_one(engine: OnnxEngine, batches: list[Any]) -> None:
    for batch in batches:
        engine.run(batch)


def side_by_side(engine: OnnxEngine, batches: list[Any]) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(engine.run, batches))


def capped(engine: OnnxEngine, batches: list[Any], cap: int) -> None:
    before, service_engine.GROUP_TOKENS = service_engine.GROUP_TOKENS, cap
    try:
        one_by_one(engine, batches)
    finally:
        service_engine.GROUP_TOKENS = before


def resident_mb(options: argparse.Namespace) -> str:
    """After traffic, with the largest value between two calls in brackets."""
    import onnxruntime  # noqa: F401  # what is above it is the engine's

    process = psutil.Process()
    empty = process.memory_info().rss
    loaded = engine(options.bundle, options.precision, options.threads, options.memory_of)
    random = np.random.default_rng(0)
    largest = 0
    for lengths in ([1], random.integers(1, 513, 16), [512] * 16, [8]):
        loaded.run(texts(random, lengths))
        largest = max(largest, process.memory_info().rss)
    return f"{(process.memory_info().rss - empty) / 1e6:.0f} ({(largest - empty) / 1e6:.0f})"


if __name__ == "__main__":
    main()

"""How fast the serving engine is: int8 beside fp32, beside optimum's ORTModel, and beside what the processor can do.

    python benchmarks/engine.py BUNDLE [--threads 2] [--rounds 7] [--baseline DIR] [--memory]

BUNDLE has fp32 and int8 (``robal export PRESET --random-weights 0 --tokenizer ...``). Rows:

- a lone text of 16 to 512 tokens, in fp32 and int8;
- mixed lengths (log-normal, mean 30) in batches of 16 as they arrive: our engine in both precisions, and
  ``ORTModelForSequenceClassification`` on optimum's own export of the same shape, which pads each batch. The first run
  makes that export in DIR (transformers and optimum are needed for it; without DIR the row is left out);
- the share of the machine's matrix-product peak, from operations counted by formula for real tokens only;
- with ``--memory``: resident memory of a process with the engine above one without, after lengths 1 to 512.

Everything is interleaved within a round, the order reversed every other round. Given are medians over the rounds, and
ratios with the range of the per-round ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from contract.encoding import EncodedText, padded
from contract.manifest import load_manifest
from service.engine import OnnxEngine

LENGTHS = (16, 64, 128, 256, 512)
BATCH = 16
MIXED_TEXTS = 64
PEAK_SIZE = 1536

MEMORY = """
import sys, numpy as np, psutil
from pathlib import Path
from contract.manifest import load_manifest
from contract.encoding import EncodedText
from service.engine import OnnxEngine
import onnxruntime
process = psutil.Process()
empty = process.memory_info().rss
if sys.argv[2] != "none":
    folder = Path(sys.argv[1])
    engine = OnnxEngine(folder, load_manifest(folder, verify=False), precision=sys.argv[2], threads=2)
    random = np.random.default_rng(0)
    loaded = process.memory_info().rss
    peak = loaded
    for lengths in ([1], *(random.integers(1, 513, 16) for _ in range(6)), [512] * 16, [8]):
        rows = [random.integers(5, 900, n) for n in lengths]
        engine.run([EncodedText(ids, np.zeros_like(ids), len(ids)) for ids in rows])
        peak = max(peak, process.memory_info().rss)
    print(*(round((value - empty) / 1e6) for value in (loaded, process.memory_info().rss, peak)))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--baseline", type=Path)
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    manifest = load_manifest(options.bundle)
    config = json.loads((options.bundle / "config.json").read_text())
    print(f"## {manifest.name}, {options.threads} threads, onnxruntime {onnxruntime.__version__}\n")
    if options.memory:
        memory(options.bundle)
        return
    engines = {
        precision: OnnxEngine(options.bundle, manifest, precision=precision, threads=options.threads)
        for precision in ("fp32", "int8")
    }
    random = np.random.default_rng(0)
    runs: dict[str, tuple[Callable[[], object], float]] = {}
    for length in LENGTHS:
        lone = texts(random, [length])
        for precision, engine in engines.items():
            runs[f"1 x {length} {precision}"] = (lambda e=engine, t=lone: e.run(t), flops(config, [length]))
    lengths = mixed_lengths(random)
    traffic = texts(random, lengths)
    batches = [traffic[at : at + BATCH] for at in range(0, len(traffic), BATCH)]
    for precision, engine in engines.items():
        runs[f"mixed {precision}"] = (lambda e=engine: [e.run(batch) for batch in batches], flops(config, lengths))
    if options.baseline:
        theirs = ortmodel(options.baseline, config, options.threads)
        arrays = [padded(batch, manifest.pad_token_id) for batch in batches]
        runs["mixed ORTModel"] = (lambda: [theirs(batch) for batch in arrays], flops(config, lengths))
    peaks = {"fp32": peak(options.threads, integer=False), "int8": peak(options.threads, integer=True)}
    seconds = measure({name: run for name, (run, _) in runs.items()}, options.rounds)
    widest = max(map(len, lengths_of(batches)))
    waste = sum(len(batch) * max(batch) for batch in lengths_of(batches)) / sum(lengths)
    print(f"mixed: {len(lengths)} texts, {sum(lengths)} tokens, padded/real {waste:.2f}, up to {widest} a batch")
    print(f"peak: fp32 {peaks['fp32'] / 1e9:.0f} GFLOP/s, int8 {peaks['int8'] / 1e9:.0f} GOP/s\n")
    print("| what | fp32 ms | int8 ms | fp32 / int8 | share of peak fp32 | int8 |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for row in (*(f"1 x {length}" for length in LENGTHS), "mixed"):
        one, two = seconds[f"{row} fp32"], seconds[f"{row} int8"]
        needed = runs[f"{row} fp32"][1]
        shares = [needed / statistics.median(s) / peaks[p] for s, p in ((one, "fp32"), (two, "int8"))]
        print(
            f"| {row} | {median_ms(one)} | {median_ms(two)} | {ratio(one, two)} | {shares[0]:.0%} | {shares[1]:.0%} |"
        )
    if options.baseline:
        theirs_s = seconds["mixed ORTModel"]
        print(f"\nORTModel fp32, padded, mixed: {median_ms(theirs_s)} ms")
        for precision in engines:
            print(f"ORTModel / robal {precision}: {ratio(theirs_s, seconds[f'mixed {precision}'])}")


def lengths_of(batches: Sequence[Sequence[EncodedText]]) -> list[list[int]]:
    return [[len(text.input_ids) for text in batch] for batch in batches]


def texts(random: np.random.Generator, lengths: Sequence[int]) -> list[EncodedText]:
    ids = [random.integers(5, 900, length) for length in lengths]
    return [EncodedText(row, np.zeros_like(row), len(row)) for row in ids]


def mixed_lengths(random: np.random.Generator) -> list[int]:
    """Log-normal, mean 30: many short texts and a few long ones."""
    sigma = 0.8
    drawn = random.lognormal(np.log(30) - sigma**2 / 2, sigma, MIXED_TEXTS)
    return [int(length) for length in drawn.clip(3, 512)]


def flops(config: dict[str, int], lengths: Sequence[int]) -> float:
    """Operations that the answers need: every real token, of the last block what the first token depends on."""
    hidden, ffn, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    token = 2 * (4 * hidden * hidden + 2 * hidden * ffn)
    total = 0.0
    for length in lengths:
        total += (layers - 1) * (token * length + 4 * length * length * hidden)
        total += 2 * 2 * hidden * hidden * length + 4 * length * hidden + token - 4 * hidden * hidden
        if config.get("embedding_size", hidden) != hidden:
            total += 2 * config["embedding_size"] * hidden * length
        total += 2 * hidden * hidden
    return total


def peak(threads: int, *, integer: bool) -> float:
    """Operations per second of one large matrix product in onnxruntime: the most that an engine on it can reach."""
    n = PEAK_SIZE
    kinds = (TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32) if integer else (TensorProto.FLOAT,) * 3
    random = np.random.default_rng(0)
    weight = random.integers(-60, 60, (n, n)).astype(np.int8 if integer else np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger" if integer else "MatMul", ["a", "b"], ["c"])],
        "peak",
        [helper.make_tensor_value_info("a", kinds[0], [n, n])],
        [helper.make_tensor_value_info("c", kinds[2], [n, n])],
        [onnx.numpy_helper.from_array(weight, "b")],
    )
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    inputs = {"a": random.integers(0, 255, (n, n)).astype(np.uint8 if integer else np.float32)}
    best = min(timed(lambda: session.run(None, inputs)) for _ in range(8))
    return 2 * n**3 / best


def ortmodel(folder: Path, config: dict[str, int], threads: int) -> Callable[[dict[str, np.ndarray]], object]:
    """Optimum's model on optimum's export of the same shape with random weights, with as many threads as ours."""
    import torch
    from optimum.onnxruntime import ORTModelForSequenceClassification
    from transformers import AutoConfig, AutoModelForSequenceClassification

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    if not (folder / "onnx" / "model.onnx").exists():
        shape = AutoConfig.for_model(**config)
        AutoModelForSequenceClassification.from_config(shape).save_pretrained(folder / "torch")
        exported = ORTModelForSequenceClassification.from_pretrained(folder / "torch", export=True)
        exported.save_pretrained(folder / "onnx")
    model = ORTModelForSequenceClassification.from_pretrained(folder / "onnx", session_options=settings)
    names = set(model.input_names)

    def run(batch: dict[str, np.ndarray]) -> object:
        return model(**{name: torch.from_numpy(array) for name, array in batch.items() if name in names}).logits

    return run


def timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def measure(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each run in each round, after one that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name in list(runs) if number % 2 else reversed(list(runs)):
            took = timed(runs[name])
            if number:
                seconds[name].append(took)
        print(f"round {number}/{rounds}", file=sys.stderr)
    return seconds


def median_ms(seconds: Sequence[float]) -> str:
    return f"{1e3 * statistics.median(seconds):.1f}"


def ratio(above: Sequence[float], below: Sequence[float]) -> str:
    each = [one / two for one, two in zip(above, below, strict=True)]
    return f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f})"


def memory(bundle: Path) -> None:
    print("| precision | loaded MB | after traffic MB | peak between calls MB |\n| --- | ---: | ---: | ---: |")
    for precision in ("fp32", "int8"):
        command = [sys.executable, "-c", MEMORY, str(bundle), precision]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
        print(f"| {precision} | " + " | ".join(done.stdout.split()) + " |")


if __name__ == "__main__":
    main()

"""How fast ``robal pretrain prepare`` is beside the tokenizers library alone, and how much memory it takes.

    python benchmarks/prepare.py TEXTS [--megabytes 40] [--large 300] [--tokenizer bpe] [--repeats 3]

``--repeats 0`` leaves the speed out, ``--large 0`` the memory.

TEXTS is a folder of .txt files. Speed: the same text, tokenizer and number of cores. The library encodes documents that
are already in memory, with its own threads, with and without offsets; the faster one counts. ``prepare`` reads, cleans,
hashes, splits sentences, tokenises in processes, removes duplicates and writes the store; the start of its processes
counts, training a tokenizer does not. Runs are interleaved; medians are compared.

Memory: the peak of the largest single process, for a small and a large corpus. Text beyond what TEXTS holds is the same
documents again with a line that makes each copy new, so that nothing is a duplicate.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer

from contract.tokenizer_files import save_tokenizer
from pretrain.tokenizer import FAMILY, KINDS, TokenizerPlan, train_tokenizer

CORES = len(os.sched_getaffinity(0))
FILE_MB = 8

PREPARE = """
import json, resource, sys, time
from pathlib import Path
from pretrain.prepare import PrepareSettings, prepare
from pretrain.tokenizer import TokenizerPlan

if __name__ == "__main__":
    texts, out, model, workers = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    began = time.perf_counter()
    store = prepare([texts], out, PrepareSettings(tokenizer=TokenizerPlan(source=model)), workers=workers)
    seconds = time.perf_counter() - began
    peaks = [resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps({"seconds": seconds, "main_mb": peaks[0], "worker_mb": peaks[1], **store.manifest["counts"]}))
"""

LIBRARY = """
import json, sys, time
from pathlib import Path
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file(sys.argv[2] + "/tokenizer.json")
texts = "".join(path.read_text(encoding="utf-8") for path in sorted(Path(sys.argv[1]).glob("*.txt")))
documents = [text for text in texts.split("\\n\\n") if text.strip()]
encode = getattr(tokenizer, sys.argv[3])
began = time.perf_counter()
for begin in range(0, len(documents), 1000):
    encode(documents[begin : begin + 1000], add_special_tokens=False)
print(json.dumps({"seconds": time.perf_counter() - began}))
"""


def documents(texts: Path) -> Iterator[str]:
    """Documents without end: those of the folder, then their copies, each made new by a line of its own."""
    originals = [
        text
        for path in sorted(texts.rglob("*.txt"))
        for text in path.read_text(encoding="utf-8").split("\n\n")
        if text.strip()
    ]
    copy = 0
    while True:
        yield from (text if copy == 0 else f"{text}\nThis is copy {copy}." for text in originals)
        copy += 1


def corpus(texts: Path, folder: Path, megabytes: float) -> float:
    """Write about so many megabytes of documents into files of a few megabytes; returns the exact number."""
    folder.mkdir(parents=True)
    written, source = 0, documents(texts)
    for number in range(int(megabytes / FILE_MB) + 1):
        with (folder / f"{number:04}.txt").open("wb") as handle:
            while handle.tell() < FILE_MB * 1e6 and written < megabytes * 1e6:
                written += handle.write(next(source).strip().encode() + b"\n\n")
    return written / 1e6


def measured(code: str, *arguments: object) -> dict[str, float]:
    """Run a program in a process of its own and read the figures that it prints."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(code)
        script.flush()
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
        command = [sys.executable, script.name, *map(str, arguments)]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(run.stderr)
    figures: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--megabytes", type=float, default=40.0, help="text for the speed")
    parser.add_argument("--large", type=float, default=300.0, help="text for the memory, beside 10 MB; 0 leaves it out")
    parser.add_argument("--tokenizer", choices=KINDS, default="bpe")
    parser.add_argument("--vocab-size", type=int, default=8000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        size = corpus(options.texts, work / "texts", options.megabytes)
        model = trained(work / "texts", work / "model", options)
        print(f"{size:.1f} MB of text, {CORES} cores, {options.tokenizer} with {model.get_vocab_size()} tokens\n")
        seconds: dict[str, list[float]] = {"encode_batch": [], "encode_batch_fast": [], "prepare": []}
        for turn in range(options.repeats):
            for way in ("encode_batch", "encode_batch_fast"):
                seconds[way].append(measured(LIBRARY, work / "texts", work / "model", way)["seconds"])
            out = work / f"store{turn}"
            seconds["prepare"].append(measured(PREPARE, work / "texts", out, work / "model", CORES)["seconds"])
        if options.repeats:
            rates = {way: size / statistics.median(times) for way, times in seconds.items()}
            for way, rate in rates.items():
                spread = " ".join(f"{size / t:.2f}" for t in sorted(seconds[way]))
                print(f"{way:20} {rate:6.2f} MB/s   ({spread})")
            best = max(rates["encode_batch"], rates["encode_batch_fast"])
            print(f"{'ratio':20} {rates['prepare'] / best:6.2f}        target 0.80\n")
        if options.large:
            for megabytes in (10.0, options.large):
                size = corpus(options.texts, work / f"memory{megabytes:.0f}", megabytes)
                began = time.perf_counter()
                out = work / f"memory-store{megabytes:.0f}"
                figures = measured(PREPARE, work / f"memory{megabytes:.0f}", out, work / "model", CORES)
                print(
                    f"{size:6.1f} MB: peak of a worker {figures['worker_mb']:.0f} MB, of the main process "
                    f"{figures['main_mb']:.0f} MB; {figures['documents']:,.0f} documents, "
                    f"{figures['tokens']:,.0f} tokens, {time.perf_counter() - began:.0f} s"
                )


def trained(texts: Path, model: Path, options: argparse.Namespace) -> Tokenizer:
    """A tokenizer of the kind that is asked for, as a model folder."""
    lines = [line for path in sorted(texts.glob("*.txt"))[:2] for line in path.read_text(encoding="utf-8").split("\n")]
    plan = TokenizerPlan(source=options.tokenizer, vocab_size=options.vocab_size)
    tokenizer = train_tokenizer(plan, lines[:20_000]).tokenizer
    model.mkdir()
    save_tokenizer(model, tokenizer, max_length=512, type_vocab_size=2)
    (model / "config.json").write_text(f'{{"model_type": "{FAMILY[options.tokenizer]}"}}')
    return tokenizer


if __name__ == "__main__":
    main()

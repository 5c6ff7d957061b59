"""How long ``robal data check`` takes for a large file, and how much memory.

    python benchmarks/data_check.py [--rows 1000000] [--words 17] [--repeats 3] [--model FOLDER]

The file is a CSV of random words, four labels, some repeated rows and some accents, made anew in a temporary folder and
removed. Seconds are those of the whole command, memory is the peak resident size of its process.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def write_file(path: Path, rows: int, words: int) -> None:
    """One row in a hundred repeats an earlier one, one in a hundred has an accent."""
    chance = random.Random(0)
    vocabulary = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(20_000)]
    kept: list[tuple[str, str]] = []
    with path.open("w", newline="", encoding="utf-8") as handle:
        out = csv.writer(handle)
        out.writerow(["text", "label"])
        for number in range(rows):
            if kept and number % 100 == 50:
                out.writerow(chance.choice(kept))
                continue
            text = " ".join(chance.choices(vocabulary, k=chance.randint(3, 2 * words - 3)))
            row = (f"{text} café" if number % 100 == 25 else text, chance.choice("abcd"))
            if number % 1000 == 0:
                kept.append(row)
            out.writerow(row)


def measure(path: Path, flags: list[str]) -> tuple[float, float, dict[str, object]]:
    """(seconds, peak MB, report) of one run."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "robal", "data", "check", str(path), "--json", *flags], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    output = process.stdout.read()
    _, _, usage = os.wait4(process.pid, 0)
    return time.perf_counter() - began, usage.ru_maxrss / 1024, json.loads(output)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--words", type=int, default=17, help="of a text, in the mean")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--model", help="count tokens too")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        write_file(path, chosen.rows, chosen.words)
        flags = ["--model", chosen.model] if chosen.model else []
        runs = [measure(path, flags) for _ in range(chosen.repeats)]
        size = path.stat().st_size / 1e6
    seconds, memory = [run[0] for run in runs], max(run[1] for run in runs)
    found = {f["kind"]: f["count"] for f in runs[0][2]["findings"]}  # type: ignore[attr-defined]
    print(
        f"{chosen.rows:,} rows, {size:.0f} MB: median {statistics.median(seconds):.1f} s ({min(seconds):.1f} to "
        f"{max(seconds):.1f}), peak {memory:.0f} MB; {found}"
    )


if __name__ == "__main__":
    main()

"""Command-line options that several load tests share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

Users: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Closed loop: numbers of users who send at once, as in 1,8. A lone user shows latency, many a load. "
        "Default: 1,8, unless --rate or --trace is given."
    ),
]
Rate: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Open loop: arrivals per second, as in 20,40, whether or not earlier ones are answered."),
]
Burstiness: TypeAlias = Annotated[
    float,
    typer.Option(
        min=0, max=10, help="Of arrivals: deviation of their gaps over the mean. 0 even, 1 Poisson, more: bursts."
    ),
]
Trace: TypeAlias = Annotated[
    Path | None, typer.Option(help="Open loop: a file of arrival times in seconds, one a line, to replay.")
]
MaxInFlight: TypeAlias = Annotated[
    int,
    typer.Option(min=1, max=4096, help="Open loop: requests open at once; what arrives beyond is counted as dropped."),
]
Processes: TypeAlias = Annotated[int, typer.Option(min=1, max=16, help="Generator processes; each is one thread.")]
Threads: TypeAlias = Annotated[
    int | None,
    typer.Option(min=1, help="Threads of each server. Default: all cores but one, which is the generator's."),
]
Precision: TypeAlias = Annotated[str, typer.Option(help="Which graph of the bundles to serve.")]
Texts: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        help="Your own texts instead of synthetic ones: one a line in UTF-8, or .jsonl with text and, to count right "
        "answers, label."
    ),
]
Margin: TypeAlias = Annotated[
    float, typer.Option(min=0.001, max=0.5, help="Ratios this close to 1, interval included, are equivalent.")
]
Target: TypeAlias = Annotated[
    float | None, typer.Option("--target-ms", min=0.001, help="Answers that take longer are of no use (goodput).")
]
Api: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="Protocol of services given by address: robal, tei, infinity, vllm, oip or hf; once, or for each."
    ),
]
Model: TypeAlias = Annotated[str | None, typer.Option(help="The model's name, for protocols that ask for it.")]
AllowRemote: TypeAlias = Annotated[
    bool, typer.Option("--allow-remote", help="Allow addresses of other machines. Only those that are yours.")
]
Pin: TypeAlias = Annotated[
    bool, typer.Option("--pin", help="Keep the generator on the last core and the servers on the others.")
]
Asserts: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--assert",
        help="A condition that must hold, else exit code 1: 'p99_ms < 50', 'b.size_bytes < 0.2 * a.size_bytes', with a "
        "for the first service.",
    ),
]
Junit: TypeAlias = Annotated[Path | None, typer.Option(help="Write the outcome of the conditions there, as JUnit XML.")]
Seed: TypeAlias = Annotated[int, typer.Option(help="Of the traffic, the arrivals and the intervals.")]
Out: TypeAlias = Annotated[Path, typer.Option(help="Folder for report.html, .md, .json and the raw requests.")]
Overwrite: TypeAlias = Annotated[bool, typer.Option("--overwrite", help="Replace an earlier report in --out.")]

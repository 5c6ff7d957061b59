"""``robal export``."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from contract.errors import Interrupted, UsageError
from export.words import described

if TYPE_CHECKING:  # torch and onnx take seconds to import, and --help needs neither
    from collections.abc import Iterator, Mapping

    from contract.manifest import Manifest
    from export.bundle import Advance

app = typer.Typer()


@app.command("export", no_args_is_help=True)
def export(
    source: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT",
            help="A checkpoint of `robal finetune`, or any Hugging Face folder with a BERT, RoBERTa or ALBERT sequence "
            "classifier. With --random-weights: the name of a preset, such as albert-base.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The bundle folder to write.", show_default=False)],
    name: Annotated[
        str | None,
        typer.Option(help="Name of the model, as the service will report it.", show_default="the name of --out"),
    ] = None,
    precision: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Graphs to put into the bundle, separated by commas: fp32, int8. The latter stores and computes "
            "linear layers and embeddings in 8 bits, a quarter of the size.",
        ),
    ] = "fp32,int8",
    eval_file: Annotated[
        Path | None,
        typer.Option(
            "--eval",
            metavar="FILE",
            help="Labelled file on which int8 must be as good as fp32: at most half a point less, and 99 % of the "
            "texts keep their label. If it is not, the layers that mind most stay in fp32. Without a file, the "
            "accuracy of int8 is unchecked and `robal serve` uses it only on demand.",
            show_default=False,
        ),
    ] = None,
    text_column: Annotated[
        str | None, typer.Option(help="Column of the text in --eval.", show_default="a usual name")
    ] = None,
    pair_column: Annotated[
        str | None, typer.Option(help="Column of the second text in --eval.", show_default="a usual name")
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(help="Column of the label in --eval.", show_default="a usual name")
    ] = None,
    no_header: Annotated[
        bool, typer.Option("--no-header", help="The first line of --eval is data; columns are 0, 1, ...")
    ] = False,
    label_names: Annotated[
        str | None,
        typer.Option(
            metavar="FROM=TO,...",
            help="Class names for labels of --eval.",
            show_default="those of the training",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a bundle that is there already.")] = False,
    random_weights: Annotated[
        int | None,
        typer.Option(
            metavar="SEED",
            help="Export the shape of a preset with random weights. Its answers mean nothing; its speed and memory do.",
            show_default=False,
        ),
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="With --random-weights: a checkpoint or bundle whose tokenizer is borrowed.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Turn a checkpoint into a bundle that `robal serve` runs without PyTorch.

    The bundle is an ONNX graph with its weights, the tokenizer and a manifest. It is compared with the PyTorch model
    on many batch sizes, lengths and paddings before it takes its place; a difference stops the export.

    A trained model: robal export runs/spam --out bundles/spam --eval dev.csv

    A shape, for latency: robal export roberta-base --random-weights 0 --tokenizer bundles/spam --out bundles/base
    """
    from export.bundle import PRECISIONS, check_target, write_bundle
    from export.sources import from_checkpoint, from_preset
    from labelled.labels import parse_renames
    from labelled.reader import DataOptions

    precisions = tuple(part.strip() for part in precision.split(","))
    if not set(precisions) <= set(PRECISIONS) or len(set(precisions)) < len(precisions):
        raise UsageError(f"--precision is {precision!r}; fp32, int8 or fp32,int8 was expected.")
    options = DataOptions(
        text_column=text_column, pair_column=pair_column, label_column=label_column, header=not no_header
    )
    renames = parse_renames(label_names)
    if random_weights is None and tokenizer is not None:
        raise UsageError("--tokenizer goes with --random-weights; a checkpoint brings its own tokenizer.")
    check_target(out, overwrite=overwrite)
    try:
        with _progress() as advance:
            advance("reading the model", 0, 1)
            if random_weights is None:
                exported = from_checkpoint(Path(source))
            elif tokenizer is not None:
                exported = from_preset(source, seed=random_weights, tokenizer_folder=tokenizer)
            else:
                raise UsageError("--random-weights needs --tokenizer FOLDER, a checkpoint or bundle to borrow from.")
            labelled = None if eval_file is None else exported.read_labelled(eval_file, options, renames)
            manifest = write_bundle(
                exported,
                out,
                name=name or out.resolve().name,
                precisions=precisions,
                labelled=labelled,
                advance=advance,
            )
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; {out} is as it was before.") from None
    print_rows(summary(manifest, out))


@app.command("verify", no_args_is_help=True)
def verify(
    bundle: Annotated[Path, typer.Argument(help="A bundle of `robal export`.", show_default=False)],
    eval_file: Annotated[
        Path | None,
        typer.Option("--eval", metavar="FILE", help="Labelled file to compare the graphs on.", show_default=False),
    ] = None,
    no_header: Annotated[
        bool, typer.Option("--no-header", help="The first line of --eval is data; columns are 0, 1, ...")
    ] = False,
) -> None:
    """Take a bundle through its gates again, on this machine and with its onnxruntime.

    Example: robal verify bundles/spam --eval test.csv
    """
    from export.recheck import recheck
    from labelled.reader import DataOptions

    with _progress() as advance:
        manifest, graphs = recheck(bundle, data=eval_file, options=DataOptions(header=not no_header), advance=advance)
    rows = {"bundle": f"{bundle}: {manifest.name}, every gate passed"}
    for graph in graphs:
        rows |= {f"{graph.precision} {key}": text for key, text in described(graph).items()}
    print_rows(rows)


@app.command("inspect", no_args_is_help=True)
def inspect(bundle: Annotated[Path, typer.Argument(help="A bundle of `robal export`.", show_default=False)]) -> None:
    """Say what is in a bundle: model, sizes, operators, figures of its gates, where it comes from.

    Example: robal inspect bundles/spam
    """
    from contract.manifest import load_manifest
    from export.recheck import operator_counts

    manifest = load_manifest(bundle)
    rows = summary(manifest, bundle)
    rows["labels"] = ", ".join(manifest.labels)
    for graph in manifest.graphs:
        counts = operator_counts(bundle, graph).most_common()
        rows[f"{graph.precision} operators"] = f"opset {graph.opset}: " + ", ".join(f"{n} {op}" for op, n in counts)
    rows["made by"] = f"robal {manifest.robal_version}, " + ", ".join(
        f"{key} {value}" for key, value in manifest.provenance.get("export", {}).items()
    )
    for key in ("source", "preset", "seed", "tokenizer"):
        if key in manifest.provenance:
            rows[key] = str(manifest.provenance[key])
    for metric, value in manifest.metrics.items():
        if isinstance(value, int | float):
            rows[f"training {metric}"] = f"{value:.4g}"
    print_rows(rows)


@contextmanager
def _progress() -> Iterator[Advance]:
    """A bar on a terminal, a line for each stage elsewhere; both on stderr."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    seen: set[str] = set()
    with bar:
        task = bar.add_task("", total=None)

        def advance(stage: str, done: int, total: int) -> None:
            if stage not in seen and not console.is_terminal:
                typer.echo(f"{stage} ...", err=True)
            seen.add(stage)
            bar.update(task, description=stage, completed=done, total=total)

        yield advance


def summary(manifest: Manifest, folder: Path) -> dict[str, str]:
    """What an export prints at its end."""
    unique, used = manifest.unique_parameters, manifest.parameters
    rows = {
        "bundle": str(folder),
        "model": f"{manifest.family}, {len(manifest.labels)} labels, up to {manifest.max_length} tokens",
        "parameters": f"{unique:,} stored" + (f", {used:,} used by the layers" if used != unique else ""),
    }
    for graph in manifest.graphs:
        rows |= {f"{graph.precision} {key}": text for key, text in described(graph).items()}
    if "note" in manifest.provenance:
        rows["note"] = manifest.provenance["note"]
    return rows


def print_rows(rows: Mapping[str, str]) -> None:
    """A two-column table on stdout."""
    table = Table.grid(padding=(0, 2))
    for key, value in rows.items():
        table.add_row(f"[bold]{key}[/bold]", escape(value))
    Console().print(table)

"""``robal pretrain``: commands that turn texts into checkpoints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from contract.errors import UsageError
from pretrain.ablate_cli import ablate_command
from pretrain.run_cli import plan_command, run_command

app = typer.Typer()
pretrain = typer.Typer(no_args_is_help=True, help="Pretrain an encoder on your own text, one step per command.")
app.add_typer(pretrain, name="pretrain")

INPUT, TOKENIZER, CLEANING = "Input", "Tokenizer", "Cleaning and splits"


@app.callback()
def _root() -> None:
    """Keep the group a group while it has one command."""


@pretrain.callback()
def _group() -> None:
    """Pretrain an encoder on your own text.

    The first step turns texts into a token store, once for all experiments; the second trains on it:

        robal pretrain prepare corpus/ --out runs/store --tokenizer bpe

        robal pretrain run runs/store --minutes 30 --out runs/pretrained
    """


pretrain.command("run", no_args_is_help=True)(run_command)
pretrain.command("plan", no_args_is_help=True)(plan_command)
pretrain.command("ablate", no_args_is_help=True)(ablate_command)


@pretrain.command("prepare", no_args_is_help=True)
def prepare(
    inputs: Annotated[
        list[Path],
        typer.Argument(
            help="Files or folders of .txt (UTF-8, a blank line between documents), .jsonl, .jsonl.gz or .parquet.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the store to write.", show_default=False)],
    tokenizer: Annotated[
        str,
        typer.Option(
            help="bpe (RoBERTa's byte-level BPE), unigram (ALBERT's) or wordpiece (BERT's) to train one on the texts, "
            "or a model folder whose tokenizer is used as it is.",
            rich_help_panel=TOKENIZER,
        ),
    ] = "bpe",
    vocab_size: Annotated[
        int,
        typer.Option(
            help="Tokens of a trained tokenizer; the papers use 50,265 (RoBERTa) and 30,000 (ALBERT).",
            rich_help_panel=TOKENIZER,
        ),
    ] = 8000,
    lowercase: Annotated[
        bool | None,
        typer.Option(
            "--lowercase/--cased",
            help="Whether a trained tokenizer drops case and accents. Unigram and wordpiece do, unless told not to.",
            rich_help_panel=TOKENIZER,
            show_default=False,
        ),
    ] = None,
    character_coverage: Annotated[
        float,
        typer.Option(
            help="Share of all characters that the alphabet of unigram and wordpiece covers; rarer ones become the "
            "unknown token. For Chinese 0.9995 saves many tokens.",
            rich_help_panel=TOKENIZER,
        ),
    ] = 0.99995,
    sample_mb: Annotated[
        float,
        typer.Option(
            help="Text that a tokenizer is trained on, taken evenly from the corpus.", rich_help_panel=TOKENIZER
        ),
    ] = 32.0,
    max_unknown: Annotated[
        float,
        typer.Option(help="Largest share of unknown tokens that is accepted.", rich_help_panel=TOKENIZER),
    ] = 0.01,
    document_per_line: Annotated[
        bool,
        typer.Option("--document-per-line", help="In .txt files each line is a document.", rich_help_panel=INPUT),
    ] = False,
    text_field: Annotated[
        str, typer.Option(help="JSON field or Parquet column with the text.", rich_help_panel=INPUT)
    ] = "text",
    bad_files: Annotated[
        str,
        typer.Option(
            help="refuse: stop at the first binary file, wrong byte or broken record, with its place. "
            "skip: leave such files, documents and records out and count them.",
            rich_help_panel=INPUT,
        ),
    ] = "refuse",
    min_characters: Annotated[int, typer.Option(help="Shorter documents are dropped.", rich_help_panel=CLEANING)] = 10,
    near_duplicates: Annotated[
        bool,
        typer.Option(
            "--near-duplicates",
            help="Also drop documents that share 80 % of their five-token runs with an earlier one (MinHash). "
            "Exact duplicates always go.",
            rich_help_panel=CLEANING,
        ),
    ] = False,
    heldout: Annotated[
        float,
        typer.Option(
            help="Share of documents that is held out, chosen by their content and the seed.", rich_help_panel=CLEANING
        ),
    ] = 0.01,
    seed: Annotated[int, typer.Option(help="Decides which documents are held out.", rich_help_panel=CLEANING)] = 0,
    workers: Annotated[
        int | None,
        typer.Option(help="Processes; the result does not depend on it. Default: one per core.", show_default=False),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing store.")] = False,
) -> None:
    """Turn texts into a token store: clean, deduplicate, split, tokenise, hold out.

    The store is one read-only folder from which every input format, masking style and objective is read. Memory does
    not grow with the corpus. A run that was stopped goes on where it was; the same texts and options give the same
    bytes.

        robal pretrain prepare corpus/ --out runs/store --tokenizer unigram --vocab-size 8000

        robal pretrain prepare news.jsonl.gz --text-field body --out runs/news --tokenizer runs/roberta
    """
    from pretrain.prepare import PrepareSettings
    from pretrain.prepare import prepare as make_store
    from pretrain.sources import Reading
    from pretrain.tokenizer import TokenizerPlan

    if bad_files not in ("refuse", "skip"):
        raise UsageError(f"--bad-files {bad_files!r} is neither refuse nor skip.")
    settings = PrepareSettings(
        tokenizer=TokenizerPlan(
            source=tokenizer, vocab_size=vocab_size, lowercase=lowercase, character_coverage=character_coverage
        ),
        reading=Reading(document_per_line=document_per_line, text_field=text_field, bad_files=bad_files),  # type: ignore[arg-type]
        min_characters=min_characters,
        near_duplicates=near_duplicates,
        heldout=heldout,
        seed=seed,
        sample_mb=sample_mb,
        max_unknown=max_unknown,
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    store = make_store(inputs, out, settings, workers=cores if workers is None else workers, overwrite=overwrite)
    width = max(map(len, store.manifest["cleaning"]))
    for name, count in store.manifest["cleaning"].items():
        print(f"{name.replace('_', ' '):{width}} {count:>12,}")
    print(f"{'unknown tokens':{width}} {store.manifest['unknown_share']:>12.4%}")
    print(f"{'fingerprint':{width}} {store.fingerprint[:12]:>12}")

"""``robal finetune``, ``robal evaluate``, ``robal predict`` and ``robal data``."""

from __future__ import annotations

import typer

from finetune.data_cli import data
from finetune.score_cli import evaluate, predict
from finetune.train_cli import finetune

app = typer.Typer()
for command in (finetune, evaluate, predict):
    app.command(command.__name__, no_args_is_help=True)(command)
app.add_typer(data, name="data")

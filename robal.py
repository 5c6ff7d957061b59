"""The ``robal`` command: one lazily mounted sub-command per job, and one place where errors become exit codes.

Each room owns its commands in its ``cli.py``. A room is imported only when one of its commands runs, so that
``robal serve`` never loads torch and ``robal --help`` answers at once.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from contract.errors import Interrupted, MissingExtra, RobalError, outcome

COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module that owns it, one line for the overview)
    "pretrain": ("pretrain.cli", "Pretrain an encoder on your own text."),
    "data": ("finetune.cli", "Check labelled files before a training."),
    "finetune": ("finetune.cli", "Train a classifier on a labelled file."),
    "evaluate": ("finetune.cli", "Score a checkpoint or bundle on a labelled file."),
    "predict": ("finetune.cli", "Label a file of texts with a checkpoint or bundle."),
    "export": ("export.cli", "Turn a checkpoint into a verified ONNX bundle."),
    "inspect": ("export.cli", "Say what is in a bundle."),
    "verify": ("export.cli", "Take a bundle through its gates again."),
    "plan": ("service.cli", "Measure how a bundle runs best on this machine."),
    "serve": ("service.cli", "Serve a bundle over HTTP."),
    "loadtest": ("loadtests.cli", "Measure and compare running services."),
}
EXTRAS = {"pretrain": "train", "finetune": "train", "export": "export", "loadtests": "loadtest"}
"""The extra that installs what a room needs beyond the serving set."""

ROOT = Path(__file__).parent


class LazyGroup(TyperGroup):
    """Lists every command from the table above and imports the room of the one that runs."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the pipeline, not of the alphabet."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The real command if it is the one to run or to explain, a stub with its help line otherwise."""
        if cmd_name not in COMMANDS:
            return None
        module, summary = COMMANDS[cmd_name]
        if cmd_name not in sys.argv[1:2]:
            stub = typer.Typer()
            stub.command(name=cmd_name, help=summary)(lambda: None)
            return typer.main.get_command(stub)
        return typer.main.get_group(importlib.import_module(module).app).commands[cmd_name]

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an interrupt or a missing package that it did not answer itself gets one sentence."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted("interrupted; nothing half-written was left.") from None
        except ModuleNotFoundError as error:
            room = COMMANDS[sys.argv[1]][0].partition(".")[0]
            if error.name is None or (ROOT / error.name.partition(".")[0]).exists() or room not in EXTRAS:
                raise
            raise MissingExtra(
                f"this command needs the package {error.name!r}, which is not installed; "
                f"run: pip install 'robal[{EXTRAS[room]}]' (or scripts/env in a checkout)."
            ) from None


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Train, export, serve and load-test BERT-family text classifiers. "
    "Each command explains itself: [bold]robal COMMAND --help[/bold].",
)


@app.callback()
def _root() -> None:
    """Keep sub-commands even when only one is registered."""


def main() -> None:
    """Run the command line; a mistake or failure ends as one sentence on stderr and an exit code."""
    try:
        app()
    except RobalError as error:
        print(f"robal: {error}", file=sys.stderr)
        sys.exit(outcome(error).exit_code)


if __name__ == "__main__":
    main()

"""Options of the recipes of fine-tuning. Each says what it does, when it helps and whose idea it is."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

RECIPES = "Recipes, all off unless asked for"

LayerDecay = Annotated[
    float,
    typer.Option(
        help="Factor of the learning rate from each layer to the one below; 1 is off, 0.9 to 0.95 is usual for "
        "BERT and RoBERTa. Refused for ALBERT, whose layers are one (Clark et al. 2020).",
        rich_help_panel=RECIPES,
    ),
]
ReinitLayers = Annotated[
    int,
    typer.Option(
        help="Top layers to draw anew before training; 1 to 3 can help small sets (Zhang et al. 2021).",
        rich_help_panel=RECIPES,
    ),
]
FreezeLayers = Annotated[
    int,
    typer.Option(
        help="Lowest layers to leave as they are, the embeddings with them: faster, less memory (Lee et al. 2019).",
        rich_help_panel=RECIPES,
    ),
]
LabelSmoothing = Annotated[
    float,
    typer.Option(
        help="Share of each target that is spread over all classes, such as 0.1 for noisy labels (Szegedy et al."
        " 2016).",
        rich_help_panel=RECIPES,
    ),
]
RDrop = Annotated[
    float,
    typer.Option(
        help="Weight of the distance between two passes with different dropout; 0.5 to 5. Doubles the work "
        "(Liang et al. 2021).",
        rich_help_panel=RECIPES,
    ),
]
EmaDecay = Annotated[
    float,
    typer.Option(
        help="Evaluate and keep averaged weights, with this weight of the past: 0.99 for hundreds of steps, "
        "0.999 for thousands; 0 is off (Polyak and Juditsky 1992).",
        rich_help_panel=RECIPES,
    ),
]
ClassWeights = Annotated[
    Literal["none", "balanced"],
    typer.Option(
        help="balanced makes rare classes count as much as frequent ones: better macro F1, worse calibration.",
        rich_help_panel=RECIPES,
    ),
]
FocalGamma = Annotated[
    float,
    typer.Option(
        help="Rows that are right already count less, (1 - p) ^ gamma; 2 in the paper, 0 is off (Lin et al. 2017).",
        rich_help_panel=RECIPES,
    ),
]
Seeds = Annotated[
    int,
    typer.Option(
        help="Runs with --seed, --seed + 1, ...; the best on dev is kept (Dodge et al. 2020: small sets differ "
        "by points).",
        rich_help_panel=RECIPES,
    ),
]
Retries = Annotated[
    int,
    typer.Option(
        help="New tries at a third of the learning rate when a run learned nothing; 0 never tries again.",
        rich_help_panel=RECIPES,
    ),
]

"""Training recipes of the papers, each value with its source: the paper, a README or the code. They disagree.

A recipe is everything about optimisation and data that is not the shape of the network. ``NAMED`` holds the published
ones at their published size, and ``mini`` for the mini shapes. ``Recipe.scaled`` shrinks one to what a smaller budget
can pay for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from contract.errors import UsageError, listing
from pretrain.layout import Format
from pretrain.masking import Masking, Style, Unit
from pretrain.views import Objective, ViewSettings

OptimizerName = Literal["adamw", "lamb-google", "lamb-nvidia"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How a model is trained. Batch size and steps are those of the whole run, over all ranks and micro-batches."""

    optimizer: OptimizerName
    learning_rate: float
    """The peak, at the end of the warm-up."""
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    """Not for biases and layer norms."""
    clip_norm: float
    """Largest norm of the whole gradient; 0 means no clipping."""
    batch_size: int
    """Sequences in an update, if they all fill the window: what is held constant is ``batch_size * window`` tokens."""
    steps: int
    """Updates."""
    warmup_steps: int
    power: float
    """Exponent of the decay to 0 after the warm-up; 1 is linear."""
    window: int
    """Most tokens of a sequence, special tokens included."""
    format: Format
    """How sequences are cut from the text."""
    short_share: float
    """Share of segment pairs with a random shorter limit."""
    objective: Objective
    masking: Style
    """New masks in each epoch, or a few fixed copies."""
    copies: int
    """Of static masks."""
    unit: Unit
    """What is masked as a whole."""

    def view(self, seed: int) -> ViewSettings:
        """What decides the samples."""
        return ViewSettings(
            format=self.format,
            objective=self.objective,
            masking=Masking(style=self.masking, copies=self.copies, unit=self.unit),
            max_length=self.window,
            short_share=self.short_share,
            seed=seed,
        )

    def scaled(self, sequences: float) -> Recipe:
        """The recipe for a budget of so many sequences, if that is less than it was published with.

        Batch size and steps shrink by the same factor, so that three settings that made equal passes over the data
        still do and keep their proportions. The warm-up keeps its share. The learning rate stays: smaller models bear
        higher ones, smaller batches ask for lower ones.
        """
        published = self.batch_size * self.steps
        if sequences >= published:
            return self
        batch = max(1, round(self.batch_size * (sequences / published) ** 0.5))
        return replace(self.with_steps(max(1, round(sequences / batch))), batch_size=batch)

    def with_steps(self, steps: int) -> Recipe:
        """The recipe over another number of updates; the warm-up keeps its share."""
        return replace(self, steps=steps, warmup_steps=round(self.warmup_steps / self.steps * steps))


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """A recipe and where each of its values is written."""

    recipe: Recipe
    sources: Mapping[str, str]
    """Field of the recipe -> source."""
    about: str


def _published(about: str, *tables: Mapping[str, tuple[Any, str]]) -> Published:
    """Later tables overrule earlier ones."""
    merged: dict[str, tuple[Any, str]] = {}
    for table in tables:
        merged |= table
    assert merged.keys() == {field.name for field in fields(Recipe)}, about
    recipe = Recipe(**{name: value for name, (value, _) in merged.items()})
    return Published(recipe=recipe, sources={name: source for name, (_, source) in merged.items()}, about=about)


_BERT_CODE = "code, google-research/bert optimization.py"
_BERT_PAPER = "paper, Devlin et al. 2018, appendix A.2"
_BERT: Mapping[str, tuple[Any, str]] = {
    "optimizer": ("adamw", f"{_BERT_CODE}; it leaves out Adam's bias correction, we do not"),
    "learning_rate": (1e-4, _BERT_PAPER),
    "beta1": (0.9, _BERT_PAPER),
    "beta2": (0.999, _BERT_PAPER),
    "eps": (1e-6, _BERT_CODE),
    "weight_decay": (0.01, _BERT_PAPER),
    "clip_norm": (1.0, _BERT_CODE),
    "batch_size": (256, _BERT_PAPER),
    "steps": (1_000_000, _BERT_PAPER),
    "warmup_steps": (10_000, _BERT_PAPER),
    "power": (1.0, _BERT_PAPER),
    "window": (512, f"{_BERT_PAPER}; the paper trains 90 % of the steps at 128"),
    "format": ("segment-pair", _BERT_PAPER),
    "short_share": (0.1, "code, google-research/bert create_pretraining_data.py"),
    "objective": ("nsp", _BERT_PAPER),
    "masking": ("static", "code, google-research/bert create_pretraining_data.py"),
    "copies": (10, "code, google-research/bert create_pretraining_data.py, and Liu et al. 2019, section 4.1"),
    "unit": ("token", _BERT_PAPER),
}

_ROBERTA_T9 = "paper, Liu et al. 2019, table 9"
_ROBERTA: Mapping[str, tuple[Any, str]] = {
    "optimizer": ("adamw", "paper, Liu et al. 2019, section 2.4"),
    "learning_rate": (6e-4, f"{_ROBERTA_T9}, base"),
    "beta1": (0.9, _ROBERTA_T9),
    "beta2": (0.98, _ROBERTA_T9),
    "eps": (1e-6, _ROBERTA_T9),
    "weight_decay": (0.01, _ROBERTA_T9),
    "clip_norm": (0.0, _ROBERTA_T9),
    "batch_size": (8192, f"{_ROBERTA_T9}, which says 8k"),
    "steps": (500_000, _ROBERTA_T9),
    "warmup_steps": (24_000, f"{_ROBERTA_T9}, base"),
    "power": (1.0, _ROBERTA_T9),
    "window": (512, "paper, Liu et al. 2019, section 3.1: full length only"),
    "format": ("full-sentences", "paper, Liu et al. 2019, section 4.2"),
    "short_share": (0.0, "paper, Liu et al. 2019, section 3.1"),
    "objective": ("mlm", "paper, Liu et al. 2019, section 4.2"),
    "masking": ("dynamic", "paper, Liu et al. 2019, section 4.1"),
    "copies": (10, "paper, Liu et al. 2019, section 4.1, where static masking is compared"),
    "unit": ("token", "paper, Liu et al. 2019, section 2.3"),
}
_ROBERTA_T3 = "paper, Liu et al. 2019, table 3"
_ROBERTA_T3_WARMUP = "not published; the share of the code's base.yaml, 10,000 of 125,000"
_FAIRSEQ = "code, fairseq examples/roberta/config/pretraining/base.yaml"
_FAIRSEQ_README = "README, fairseq examples/roberta/README.pretraining.md"

_ALBERT_CODE = "code, google-research/albert run_pretraining.py"
_ALBERT_PAPER = "paper, Lan et al. 2019, section 4.1"
_ALBERT_LAMB = "code, google-research/albert lamb_optimizer.py"
_ALBERT: Mapping[str, tuple[Any, str]] = {
    "optimizer": ("lamb-google", _ALBERT_LAMB),
    "learning_rate": (0.00176, _ALBERT_PAPER),
    "beta1": (0.9, _ALBERT_LAMB),
    "beta2": (0.999, _ALBERT_LAMB),
    "eps": (1e-6, _ALBERT_LAMB),
    "weight_decay": (0.01, "code, google-research/albert optimization.py"),
    "clip_norm": (1.0, "code, google-research/albert optimization.py"),
    "batch_size": (4096, _ALBERT_PAPER),
    "steps": (125_000, _ALBERT_PAPER),
    "warmup_steps": (3125, _ALBERT_CODE),
    "power": (1.0, f"{_ALBERT_CODE}; without its step at the end of the warm-up"),
    "window": (512, _ALBERT_PAPER),
    "format": ("segment-pair", _ALBERT_PAPER),
    "short_share": (0.1, _ALBERT_PAPER),
    "objective": ("sop", "paper, Lan et al. 2019, section 3.1"),
    "masking": ("static", "code, google-research/albert create_pretraining_data.py"),
    "copies": (40, "code, google-research/albert create_pretraining_data.py; BERT's has 10"),
    "unit": ("ngram", _ALBERT_PAPER),
}

_OURS = "ours, for mini shapes on one machine"
_MINI: Mapping[str, tuple[Any, str]] = {
    "optimizer": ("adamw", _OURS),
    "learning_rate": (1e-3, _OURS),
    "clip_norm": (1.0, _OURS),
    "batch_size": (32, _OURS),
    "steps": (2000, _OURS),
    "warmup_steps": (200, _OURS),
    "window": (128, _OURS),
    "masking": ("dynamic", _OURS),
}


def _table3(batch: int, steps: int, rate: float) -> Mapping[str, tuple[Any, str]]:
    return {
        "batch_size": (batch, _ROBERTA_T3),
        "steps": (steps, _ROBERTA_T3),
        "learning_rate": (rate, _ROBERTA_T3),
        "warmup_steps": (round(0.08 * steps), _ROBERTA_T3_WARMUP),
    }


NAMED: dict[str, Published] = {
    "bert": _published("BERT as published", _BERT),
    "roberta-256": _published("RoBERTa's batch study, 256 x 1M", _ROBERTA, _table3(256, 1_000_000, 1e-4)),
    "roberta-2k": _published("RoBERTa's batch study, 2K x 125K", _ROBERTA, _table3(2048, 125_000, 7e-4)),
    "roberta-8k": _published("RoBERTa's batch study, 8K x 31K", _ROBERTA, _table3(8192, 31_000, 1e-3)),
    "roberta-base": _published("RoBERTa base, final run", _ROBERTA),
    "roberta-large": _published(
        "RoBERTa large, final run",
        _ROBERTA,
        {"learning_rate": (4e-4, f"{_ROBERTA_T9}, large"), "warmup_steps": (30_000, f"{_ROBERTA_T9}, large")},
    ),
    "roberta-fairseq": _published(
        "RoBERTa base as fairseq ships it",
        _ROBERTA,
        {
            "learning_rate": (5e-4, f"{_FAIRSEQ}; so does {_FAIRSEQ_README}: 1e-4 for 256, 7e-4 for 8192"),
            "batch_size": (2048, _FAIRSEQ_README),
            "steps": (125_000, _FAIRSEQ),
            "warmup_steps": (10_000, _FAIRSEQ),
        },
    ),
    "albert": _published("ALBERT as published", _ALBERT),
    "mini-bert": _published("BERT's choices at mini scale", _BERT, _MINI),
    "mini-roberta": _published("RoBERTa's choices at mini scale", _ROBERTA, _MINI),
    "mini-albert": _published("ALBERT's choices at mini scale, with AdamW", _ALBERT, _MINI),
}

FOR_SHAPE = {
    "bert-base": "bert",
    "bert-large": "bert",
    "roberta-base": "roberta-base",
    "roberta-large": "roberta-large",
    "albert-base": "albert",
    "albert-large": "albert",
    "albert-xlarge": "albert",
    "albert-xxlarge": "albert",
    "mini-bert": "mini-bert",
    "mini-roberta": "mini-roberta",
    "mini-albert": "mini-albert",
}
"""Name of a shape (``encoders.presets``) -> name of the recipe that it was published with."""


def named(name: str) -> Published:
    """A recipe by name.

    Raises:
        UsageError: there is no such recipe; the message has the names that exist.
    """
    if name not in NAMED:
        raise UsageError(f"there is no recipe {name!r}; there are {listing(NAMED, limit=len(NAMED))}.")
    return NAMED[name]

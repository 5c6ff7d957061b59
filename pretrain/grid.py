"""The papers' experiments as variants of one small run: what changes, and what was published for it.

    formats    RoBERTa, table 2     four input formats, with NSP where there are pairs
    masking    RoBERTa, table 1     static against dynamic masks
    batch      RoBERTa, table 3     three batch sizes, equal passes over the data
    sentence   ALBERT, table 5      none, NSP or SOP, each tested on NSP and on SOP
    embedding  ALBERT, tables 3, 4  width of the embeddings x what layers share
    depth      ALBERT, table 11     1 to 24 layers with one block's weights
    layers     ALBERT, figure 1     how far each layer moves its input: ALBERT beside BERT

Embedding widths follow the hidden size: an eighth, a quarter, a half and all of it, for the paper's 64, 128, 256 and
768 beside 768.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from contract.errors import UsageError, listing
from encoders.config import Sharing
from pretrain import published
from pretrain.published import Row
from pretrain.settings import ShapeChanges

Values = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One row of an experiment's table."""

    name: str
    shape: str
    """Name of a preset."""
    changes: ShapeChanges = field(default_factory=ShapeChanges)
    values: Values = field(default_factory=dict)
    """Fields of the recipe that differ from the mini recipe of the shape."""
    batch_factor: float = 1.0
    """Batch size as a multiple of the others'; the steps are divided by it."""
    rate_factor: float = 1.0
    """Learning rate as a multiple of the others'."""
    published: Row = field(default_factory=dict)
    trained: bool = True
    """False for weights as they were drawn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """One table of the report."""

    name: str
    title: str
    source: str
    variants: tuple[Variant, ...]
    about: str
    """What the paper found, and what differs here beside the scale."""


def _formats(_: int) -> Experiment:
    rows: Mapping[str, Values] = {
        "segment-pair + NSP": {"format": "segment-pair", "objective": "nsp"},
        "sentence-pair + NSP": {"format": "sentence-pair", "objective": "nsp"},
        "full-sentences": {"format": "full-sentences", "objective": "mlm"},
        "doc-sentences": {"format": "doc-sentences", "objective": "mlm"},
    }
    return Experiment(
        name="formats",
        title="Input formats",
        source="RoBERTa, table 2",
        about="The paper: sentence pairs hurt, dropping NSP does not, staying within documents is slightly better. "
        "Every format has the same number of tokens in an update.",
        variants=tuple(
            Variant(name=name, shape="mini-bert", values=values, published=published.FORMATS[name])
            for name, values in rows.items()
        ),
    )


def _masking(_: int) -> Experiment:
    return Experiment(
        name="masking",
        title="Static and dynamic masking",
        source="RoBERTa, table 1",
        about="The paper: equal, or slightly better with dynamic masks; the gain is that nothing is stored ten times. "
        "As there, each static mask is seen four times.",
        variants=tuple(
            Variant(
                name=style,
                shape="mini-bert",
                values={"masking": style, "format": "segment-pair", "objective": "nsp"},
                published=published.MASKING[style],
            )
            for style in ("static", "dynamic")
        ),
    )


def _batch(_: int) -> Experiment:
    rows = {"256 x 1M": (1 / 8, 1 / 7), "2K x 125K": (1.0, 1.0), "8K x 31K": (4.0, 10 / 7)}
    return Experiment(
        name="batch",
        title="Batch size at equal passes over the data",
        source="RoBERTa, table 3",
        about="The paper: 2K is best in perplexity and on tasks, 8K is about as good and divides better over devices. "
        "Batches and learning rates stand in the paper's proportions.",
        variants=tuple(
            Variant(
                name=name,
                shape="mini-bert",
                values={"format": "full-sentences", "objective": "mlm"},
                batch_factor=batch,
                rate_factor=rate,
                published=published.BATCH[name],
            )
            for name, (batch, rate) in rows.items()
        ),
    )


def _sentence(_: int) -> Experiment:
    objectives = {"none": "mlm", "NSP": "nsp", "SOP": "sop"}
    return Experiment(
        name="sentence",
        title="Sentence tasks, tested on each other",
        source="ALBERT, table 5",
        about="The paper: NSP teaches nothing about order (52 % on SOP, chance is 50), SOP teaches most of NSP (79 %). "
        "A model without a sentence task is tested with an untrained sentence head.",
        variants=tuple(
            Variant(
                name=name,
                shape="mini-albert",
                values={"objective": objective, "format": "segment-pair"},
                published=published.SENTENCE[name],
            )
            for name, objective in objectives.items()
        ),
    )


EMBEDDING_PARTS = {64: 8, 128: 4, 256: 2, 768: 1}
"""The paper's E at hidden 768 -> what our hidden size is divided by."""


def _embedding(hidden: int) -> Experiment:
    variants = []
    for sharing in get_args(Sharing):
        for theirs, parts in EMBEDDING_PARTS.items():
            ours = hidden // parts
            variants.append(
                Variant(
                    name=f"E={ours}, {sharing}",
                    shape="mini-albert",
                    changes=ShapeChanges(embedding_size=ours, layer_sharing=sharing),
                    published=published.EMBEDDING.get((theirs, sharing), {}),
                )
            )
    return Experiment(
        name="embedding",
        title="Width of the embeddings and what layers share",
        source="ALBERT, tables 3 and 4",
        about="The paper: almost all of the loss comes from sharing feed-forward parts, sharing attention is nearly "
        "free at E=128, and without sharing a wider E helps a little.",
        variants=tuple(variants),
    )


DEPTHS = (1, 3, 6, 12, 24)


def _depth(_: int) -> Experiment:
    return Experiment(
        name="depth",
        title="Layers that all use one block's weights",
        source="ALBERT, table 11",
        about="The paper: large gains up to 12 layers, little up to 24, none beyond. There each depth starts from the "
        "shallower one; here each starts from random weights.",
        variants=tuple(
            Variant(
                name=f"{depth} layers",
                shape="mini-albert",
                changes=ShapeChanges(layers=depth),
                published=published.DEPTH[depth],
            )
            for depth in DEPTHS
        ),
    )


def _layers(_: int) -> Experiment:
    return Experiment(
        name="layers",
        title="How far each layer moves its input",
        source="ALBERT, figure 1",
        about="The paper: with shared weights the steps from layer to layer are far smoother, and in both models they "
        "do not shrink to nothing. Mean over the tokens of held-out text.",
        variants=tuple(
            Variant(
                name=name,
                shape=shape,
                changes=ShapeChanges(layers=12),
                values={"objective": "sop", "format": "segment-pair"},
            )
            for name, shape in (("ALBERT, 12 layers", "mini-albert"), ("BERT, 12 layers", "mini-bert"))
        ),
    )


EXPERIMENTS: Mapping[str, Callable[[int], Experiment]] = {
    "formats": _formats,
    "masking": _masking,
    "batch": _batch,
    "sentence": _sentence,
    "embedding": _embedding,
    "depth": _depth,
    "layers": _layers,
}


def experiments(names: tuple[str, ...], hidden: int) -> tuple[Experiment, ...]:
    """Experiments by name, in the order of the report; all of them for no names.

    Args:
        names: as in ``EXPERIMENTS``.
        hidden: width of the models, which the embeddings' widths are parts of.

    Raises:
        UsageError: a name does not exist.
    """
    if unknown := set(names) - EXPERIMENTS.keys():
        raise UsageError(f"there is no experiment {listing(unknown)}; there are {listing(EXPERIMENTS)}.")
    return tuple(build(hidden) for name, build in EXPERIMENTS.items() if not names or name in names)


def scratch(shape: str) -> Variant:
    """The variant of a shape that is fine-tuned without pretraining: what pretraining must beat."""
    return Variant(name=f"{shape}, not pretrained", shape=shape, trained=False)

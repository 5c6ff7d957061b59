"""The report of the experiments: one table for each, with spread over seeds and the published row beside it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, get_args

from torch import device as torch_device
from torch import nn

from encoders.config import EncoderConfig, Sharing
from encoders.encoder import Encoder
from encoders.heads import Pooler
from encoders.presets import preset
from pretrain.ablate import Grid, train_tokens
from pretrain.grid import EMBEDDING_PARTS, Experiment, Variant, scratch
from pretrain.published import EMBEDDING
from pretrain.settings import ShapeChanges, changed_shape

Figures = Sequence[float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A measured quantity."""

    name: str
    path: tuple[str, ...]
    """Where it is in a result."""
    scale: float = 1.0
    digits: int = 1
    higher_is_better: bool | None = True


PERPLEXITY = Column(name="perplexity", path=("heldout", "perplexity"), digits=2, higher_is_better=False)
ACCURACY = Column(name="MLM %", path=("heldout", "mlm_accuracy"), scale=100)
NSP = Column(name="NSP %", path=("cross", "nsp"), scale=100)
SOP = Column(name="SOP %", path=("cross", "sop"), scale=100)
SCORE = Column(name="score %", path=("finetuning", "score"), scale=100)
UNIQUE = Column(name="parameters", path=("parameters", "unique"), digits=0, higher_is_better=None)
COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "sentence": (ACCURACY, NSP, SOP, SCORE),
    "embedding": (UNIQUE, PERPLEXITY, SCORE),
    "depth": (UNIQUE, PERPLEXITY, SCORE),
    "layers": (UNIQUE, PERPLEXITY, SCORE),
}
USUAL = (PERPLEXITY, ACCURACY, SCORE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One variant over its seeds."""

    name: str
    values: Mapping[str, Figures]
    """Column -> a value for each seed that is done."""
    published: Mapping[str, float | str]
    layers: Mapping[str, Sequence[float]]
    """Mean over seeds of each layer's figures."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """One experiment with what was measured."""

    experiment: Experiment
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    finding: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Everything that the two renderings show."""

    title: str
    scale: Mapping[str, Any]
    """Facts about our runs, for the statement that the scale differs."""
    tables: tuple[Table, ...]
    counts: Sequence[Mapping[str, Any]]
    """Exact parameters of the paper's own shapes, beside its rounded ones."""
    missing: int
    """Runs that are not done."""


def build(grid: Grid, tokens: int) -> Report:
    """The report of what is done so far."""
    tables = []
    missing = 0
    for experiment in grid.experiments:
        shapes = dict.fromkeys(variant.shape for variant in experiment.variants)
        variants = (*experiment.variants, *map(scratch, shapes))
        columns = COLUMNS.get(experiment.name, USUAL)
        rows = []
        for variant in variants:
            results = [grid.result(grid.job(variant, seed, tokens)) for seed in range(grid.seeds)]
            done = [result for result in results if result is not None]
            missing += len(results) - len(done)
            if done:
                rows.append(_row(variant, columns, done))
        if rows:
            names = {variant.name for variant in experiment.variants}
            trained = [row for row in rows if row.name in names]
            finding = judge(trained, columns[-1])
            passes = tokens / max(1, train_tokens(grid.store))
            if experiment.name == "masking" and passes <= 1:
                finding = (
                    f"Nothing. The runs saw {passes:.1%} of the text, so no mask came back: both rows are the same "
                    "by construction. Compare them with a smaller store or more updates."
                )
            tables.append(Table(experiment=experiment, columns=columns, rows=tuple(rows), finding=finding))
    return Report(
        title="The papers' experiments at mini scale",
        scale=_scale_facts(grid, tokens),
        tables=tuple(tables),
        counts=paper_counts() if any(table.experiment.name == "embedding" for table in tables) else (),
        missing=missing,
    )


def _row(variant: Variant, columns: Sequence[Column], results: Sequence[Mapping[str, Any]]) -> Row:
    values = {}
    for column in columns:
        found = [_find(result, column.path) for result in results]
        values[column.name] = [column.scale * value for value in found if value is not None]
    layers: dict[str, list[float]] = {}
    for name in ("distance", "cosine", "degrees"):
        seeds = [result["layers"][name] for result in results if "layers" in result]
        if seeds:
            layers[name] = [statistics.fmean(column) for column in zip(*seeds, strict=True)]
    return Row(name=variant.name, values=values, published=variant.published, layers=layers)


def _find(result: Mapping[str, Any], path: Sequence[str]) -> float | None:
    value: Any = result
    for name in path:
        if name not in value:
            return None
        value = value[name]
    return float(value)


def spread(values: Figures) -> float:
    """Standard deviation over seeds; 0 for a single one."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def distinct(first: Figures, second: Figures) -> bool:
    """Whether two means differ by more than twice the standard error of their difference; needs two seeds each."""
    if min(len(first), len(second)) < 2:
        return False
    error = math.hypot(spread(first) / math.sqrt(len(first)), spread(second) / math.sqrt(len(second)))
    return abs(statistics.fmean(first) - statistics.fmean(second)) > 2 * error


def judge(rows: Sequence[Row], column: Column) -> str:
    """What a table says, in a sentence that does not say more than the seeds allow."""
    known = [row for row in rows if row.values[column.name]]
    if len(known) < 2:
        return "Too few runs are done to compare."
    sign = 1 if column.higher_is_better else -1
    ordered = sorted(known, key=lambda row: -sign * statistics.fmean(row.values[column.name]))
    best = ordered[0]
    seeds = min(len(row.values[column.name]) for row in known)
    if seeds < 2:
        return f"One seed: {best.name} has the best {column.name}, and nothing tells whether by chance."
    level = [row.name for row in ordered[1:] if not distinct(best.values[column.name], row.values[column.name])]
    worse = [row.name for row in ordered[1:] if row.name not in level]
    text = f"{best.name} has the best {column.name}"
    if level:
        text += f"; with {seeds} seeds it cannot be told from {', '.join(level)}"
    if worse:
        text += f"; it is better than {', '.join(worse)} by more than the spread"
    return text + "."


def _scale_facts(grid: Grid, tokens: int) -> Mapping[str, Any]:
    jobs = grid.jobs(tokens)
    results = [result for job in jobs if (result := grid.result(job)) is not None]
    counts = grid.store.manifest.get("counts", {})
    return {
        "tokens": tokens,
        "updates": round(tokens / grid.sizes.batch_tokens),
        "window": grid.sizes.window,
        "batch": grid.sizes.batch_size,
        "hidden": grid.sizes.hidden,
        "layers": grid.sizes.layers,
        "corpus_tokens": counts.get("tokens", 0),
        "vocabulary": grid.store.vocabulary.size,
        "seeds": grid.seeds,
        "runs": len(results),
        "hours": round(sum(result["seconds"] for result in results) / 3600, 2),
        "task": grid.task.train.name,
        "metric": results[0]["finetuning"]["metric"] if results else "",
        "store": grid.store.fingerprint[:12],
        "created": datetime.now(UTC).isoformat(timespec="minutes"),
        "robal_version": version("robal"),
    }


def encoder_parameters(config: EncoderConfig) -> int:
    """Parameters of encoder and pooler, which is what ALBERT's tables count."""
    with torch_device("meta"):
        parts = nn.ModuleList([Encoder(config), Pooler(config)])
    return sum(parameter.numel() for parameter in parts.parameters())


def paper_counts() -> list[dict[str, Any]]:
    """ALBERT base at the paper's own size: exact parameters for each E and sharing, beside the published rounding."""
    rows = []
    for sharing in get_args(Sharing):
        for size in EMBEDDING_PARTS:
            config = changed_shape(preset("albert-base"), ShapeChanges(embedding_size=size, layer_sharing=sharing))
            published = EMBEDDING.get((size, sharing), {}).get("parameters", "")
            rows.append({"E": size, "sharing": sharing, "exact": encoder_parameters(config), "published": published})
    return rows


def as_json(report: Report) -> dict[str, Any]:
    """The report as plain data."""
    return {
        "title": report.title,
        "scale": dict(report.scale),
        "missing_runs": report.missing,
        "tables": [
            {
                "experiment": table.experiment.name,
                "source": table.experiment.source,
                "finding": table.finding,
                "rows": [asdict(row) for row in table.rows],
            }
            for table in report.tables
        ],
        "exact_parameters": list(report.counts),
    }

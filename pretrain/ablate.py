"""The grid of experiments: which runs, at which scale, and each of them to the end, also after an interruption.

    OUT/grid.json                     the scale, chosen once, and the time spent
    OUT/runs/KEY-SEED/result.json     what a run measured; there, the run is done
    OUT/report.md, .html, .json       made from the results that exist

A run is pretraining, held-out figures, and a fine-tuning score on a labelled file. Fine-tuning is `robal finetune` as a
process of its own, on the checkpoint folder: the stages meet on disk. Rows of two tables that are the same run are run
once. Seeds are the outer loop, so a grid that is stopped early has whole tables with fewer seeds.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from contract.errors import Failure, Interrupted, UsageError
from contract.storage import read_json, write_json
from encoders.checkpoint import save_checkpoint
from encoders.precision import choose_precision
from encoders.training import count_parameters
from pretrain.flops import token_flops
from pretrain.grid import Experiment, Variant, scratch
from pretrain.measure import HELDOUT_TOKENS, measure
from pretrain.progress import say
from pretrain.recipes import FOR_SHAPE, named
from pretrain.run import initial_model, pretrain
from pretrain.settings import Settings, Upkeep, differences, listing_of, shape_for, with_changes
from pretrain.store import TRAIN, Store

CALIBRATION_STEPS = 8
LEAST_STEPS = 20
"""Fewer updates than this show nothing."""
OVERHEAD_S = 8.0
"""Of a run, beside its steps: opening, held-out figures, checkpoints."""
BASE_HIDDEN = 256
"""Width that the mini recipes' learning rate is made for; narrower models bear, and need, a higher one."""
MASK_VIEWS = 4
"""How often each static mask is seen, as in RoBERTa's comparison."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """The labelled set that every run ends on."""

    train: Path
    dev: Path | None
    options: str
    """Further options of `robal finetune`, as typed in a shell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """What every run of the grid has in common."""

    hidden: int = BASE_HIDDEN
    """Width of the models."""
    layers: int = 6
    """Of the models whose experiment does not name a depth."""
    batch_size: int = 32
    """Sequences in an update, if they all fill the window."""
    window: int = 128

    @property
    def batch_tokens(self) -> int:
        """Tokens in an update."""
        return self.batch_size * self.window


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One run."""

    label: str
    settings: Settings
    trained: bool

    @property
    def key(self) -> str:
        """Equal for the same run in another table; the seed is left readable."""
        record = self.settings.as_record() | {"trained": self.trained}
        return f"{hashlib.blake2b(json.dumps(record, sort_keys=True).encode(), digest_size=8).hexdigest()}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """What to run. Everything that decides a result is in the jobs' keys."""

    store: Store
    out: Path
    experiments: tuple[Experiment, ...]
    seeds: int
    task: Task
    sizes: Sizes
    micro_tokens: int
    device: torch.device

    def job(self, variant: Variant, seed: int, tokens: int) -> Job:
        """A variant that trains on about so many tokens."""
        layers = variant.changes.layers or self.sizes.layers
        changes = replace(variant.changes, hidden_size=self.sizes.hidden, layers=layers)
        config = shape_for(self.store, variant.shape, changes)
        recipe = named(FOR_SHAPE[variant.shape]).recipe
        recipe = replace(recipe, learning_rate=recipe.learning_rate * BASE_HIDDEN / self.sizes.hidden)
        sizes = {"batch_size": self.sizes.batch_size, "window": self.sizes.window}
        recipe = with_changes(recipe, **{**sizes, **variant.values})
        batch = max(1, round(recipe.batch_size * variant.batch_factor))
        steps = max(1, round(tokens / (batch * recipe.window)))
        epochs = tokens / max(1, train_tokens(self.store))
        recipe = with_changes(
            recipe,
            batch_size=batch,
            steps=steps,
            learning_rate=recipe.learning_rate * variant.rate_factor,
            copies=max(1, round(epochs / MASK_VIEWS)),
        )
        if recipe.masking == "dynamic":
            recipe = replace(recipe, copies=1)  # means nothing there, and must not tell equal runs apart
        settings = Settings(
            start=variant.shape,
            config=config,
            recipe=recipe,
            seed=seed,
            minutes=None,
            micro_tokens=self.micro_tokens,
            packed=True,
            precision=choose_precision("auto", self.device, config.hidden_size),
            compiled=False,
            store=self.store.fingerprint,
        )
        return Job(label=variant.name, settings=settings, trained=variant.trained)

    def jobs(self, tokens: int) -> list[Job]:
        """Every distinct run, those that others are compared with first, seed by seed."""
        variants = [variant for experiment in self.experiments for variant in experiment.variants]
        shapes = dict.fromkeys(variant.shape for variant in variants)
        everything = [*map(scratch, shapes), *variants]
        jobs = [self.job(variant, seed, tokens) for seed in range(self.seeds) for variant in everything]
        unique: dict[str, Job] = {}
        for job in jobs:
            unique.setdefault(job.key, job)
        return list(unique.values())

    def folder(self, job: Job) -> Path:
        """Of a run."""
        return self.out / "runs" / job.key

    def result(self, job: Job) -> dict[str, Any] | None:
        """What a run measured, if it is done."""
        path = self.folder(job) / "result.json"
        return read_json(path, UsageError) if path.is_file() else None


def train_tokens(store: Store) -> int:
    """Tokens of one pass over the text that is not held out."""
    first, last = store.split_documents(TRAIN)
    return int(store.sentences[store.documents[last]] - store.sentences[store.documents[first]])


def run_grid(
    grid: Grid, *, minutes: float | None, steps: int | None, keep_checkpoints: bool, report: Callable[[int], None]
) -> tuple[int, int]:
    """Run what is not done yet, until everything is or the time is spent.

    Args:
        grid: what to run.
        minutes: budget in all, earlier parts of the same grid included; None: without limit.
        steps: updates of a run with the mini recipes' batch; None: chosen so that the grid fits the budget.
        keep_checkpoints: keep the weights of finished runs.
        report: writes the report, given the tokens of a run; called after each seed and at the end.

    Returns:
        How many runs are done, of how many.

    Raises:
        UsageError: the budget is too small for what was asked, or the folder holds another grid.
        Interrupted: Ctrl-C; what is done is kept.
        Failure: a run or its fine-tuning failed.
    """
    path = grid.out / "grid.json"
    known: dict[str, Any] = read_json(path, UsageError) if path.is_file() else {"spent_s": 0.0}
    began, spent_before = time.monotonic(), float(known["spent_s"])

    def spent() -> float:
        return spent_before + time.monotonic() - began

    def note(tokens: int) -> None:
        write_json(path, {**_identity(grid), "tokens": tokens, "spent_s": round(spent(), 1)})

    _check_same(grid, known, steps)
    try:
        tokens = int(known["tokens"]) if "tokens" in known else _choose_tokens(grid, minutes, steps)
        jobs = grid.jobs(tokens)
        note(tokens)
        done = 0
        for number, job in enumerate(jobs, 1):
            if grid.result(job) is None:
                if minutes is not None and spent() > 60 * minutes:
                    break
                say(f"run {number} of {len(jobs)}: {job.label}, seed {job.settings.seed} ({spent() / 60:.0f} minutes)")
                _run(grid, job, keep_checkpoints=keep_checkpoints)
                note(tokens)
            done += 1
            if number == len(jobs) or jobs[number].settings.seed != job.settings.seed:
                report(tokens)
    except (KeyboardInterrupt, Interrupted):
        finished = len(list((grid.out / "runs").glob("*/result.json")))
        raise Interrupted(
            f"interrupted; {finished} runs are done and kept in {grid.out}; the same command goes on."
        ) from None
    report(tokens)
    return done, len(jobs)


def _identity(grid: Grid) -> dict[str, Any]:
    """What must stay as it is from one call to the next."""
    task = {"train": str(grid.task.train), "dev": str(grid.task.dev), "options": grid.task.options}
    return {"store": grid.store.fingerprint, "sizes": asdict(grid.sizes), "task": task}


def _check_same(grid: Grid, known: Mapping[str, Any], steps: int | None) -> None:
    """Refuse to mix results that cannot stand in one table.

    Raises:
        UsageError: the folder holds a grid of other texts, sizes, length or task.
    """
    if "tokens" not in known:
        return
    changed = differences(_identity(grid), {name: known.get(name) for name in _identity(grid)})
    if steps is not None and steps * grid.sizes.batch_tokens != known["tokens"]:
        changed.append(f"steps ({known['tokens'] / grid.sizes.batch_tokens:g} before, {steps} now)")
    if changed:
        raise UsageError(f"{grid.out} holds a grid with other settings: {listing_of(changed)}; give another --out.")


def _run(grid: Grid, job: Job, *, keep_checkpoints: bool) -> dict[str, Any]:
    """One run from beginning, or from where it stopped, to its result."""
    folder = grid.folder(job)
    begun = time.monotonic()
    checkpoint = folder / "pretrained"
    if job.trained:
        if not _is_finished(checkpoint):
            care = Upkeep(save_minutes=5.0, keep=1, spike_nats=0.0, heldout_tokens=HELDOUT_TOKENS)
            pretrain(job.settings, care, grid.store, checkpoint, device=grid.device, go_on=True, overwrite=False)
    else:
        model = initial_model(job.settings)
        window = job.settings.recipe.window
        save_checkpoint(checkpoint, model, grid.store.tokenizer, max_length=window, record={"training": {"steps": 0}})
    used, unique = count_parameters(initial_model(job.settings))
    result = {
        "label": job.label,
        "seed": job.settings.seed,
        "trained": job.trained,
        "parameters": {"used": used, "unique": unique},
        "training": read_json(checkpoint / "robal.json", UsageError)["training"],
        **measure(checkpoint, job.settings, grid.store, grid.device),
        "finetuning": finetune(checkpoint, folder / "finetuned", grid.task, seed=job.settings.seed),
        "seconds": round(time.monotonic() - begun, 1),
    }
    write_json(folder / "result.json", result)
    if not keep_checkpoints:
        for name in ("pretrained", "finetuned"):
            shutil.rmtree(folder / name, ignore_errors=True)
    return result


def _is_finished(checkpoint: Path) -> bool:
    path = checkpoint / "run" / "settings.json"
    return path.is_file() and bool(read_json(path, UsageError)["finished"])


def finetune(checkpoint: Path, out: Path, task: Task, *, seed: int) -> dict[str, Any]:
    """Fine-tune a checkpoint by the product's own command and read what it wrote.

    Returns:
        ``metric``, ``score`` on the dev rows, and ``seconds``.

    Raises:
        Failure: the command failed; its last line says why.
    """
    dev = ["--dev", str(task.dev)] if task.dev is not None else []
    command = [
        *(sys.executable, "-m", "robal", "finetune", "--model", str(checkpoint), "--train", str(task.train)),
        *(*dev, "--out", str(out), "--overwrite", "--seed", str(seed), *shlex.split(task.options)),
    ]
    begun = time.monotonic()
    finished = subprocess.run(command, cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        lines = finished.stderr.strip().splitlines() or ["no message"]
        raise Failure(f"fine-tuning {checkpoint} failed: {lines[-1]} (the command was: {shlex.join(command)})")
    metrics = read_json(out / "robal.json", UsageError)["metrics"]
    metric = str(metrics["chosen_by"])
    return {"metric": metric, "score": float(metrics["dev"][metric]), "seconds": round(time.monotonic() - begun, 1)}


def _choose_tokens(grid: Grid, minutes: float | None, steps: int | None) -> int:
    """So many tokens for each run that the whole grid fits the budget, by a measured rate."""
    update = grid.sizes.batch_tokens
    if steps is not None:
        return steps * update
    if minutes is None:
        raise UsageError("give --minutes for the whole grid, or --steps for each run.")
    say("measuring how fast this machine is")
    jobs = grid.jobs(CALIBRATION_STEPS * update)
    rate, tuning_s = _calibrate(grid, jobs)
    costs = [_flops_per_token(job) for job in jobs if job.trained]
    fixed_s = sum(OVERHEAD_S + tuning_s * _depth(job) / _depth(jobs[0]) for job in jobs)
    left_s = 60 * minutes - fixed_s
    tokens = int(left_s * rate / sum(costs)) if left_s > 0 else 0
    if tokens < LEAST_STEPS * update:
        needed = (fixed_s + LEAST_STEPS * update * sum(costs) / rate) / 60
        raise UsageError(
            f"{len(jobs)} runs need at least {needed:.0f} minutes here (fine-tuning alone {fixed_s / 60:.0f}) and "
            f"--minutes is {minutes:g}; raise it, or take fewer --seeds or --only some experiments."
        )
    say(f"{len(jobs)} runs of {tokens:,} tokens ({tokens // update} updates each)")
    return tokens


def _calibrate(grid: Grid, jobs: Sequence[Job]) -> tuple[float, float]:
    """(operations per second of training, seconds of fine-tuning the first shape)."""
    folder = grid.out / "calibration"
    shutil.rmtree(folder, ignore_errors=True)
    job = next(job for job in jobs if job.trained)
    care = Upkeep(save_minutes=0.0)
    pretrain(job.settings, care, grid.store, folder / "run", device=grid.device, go_on=False, overwrite=False)
    lines = [json.loads(line) for line in (folder / "run" / "run" / "metrics.jsonl").read_text().splitlines()]
    rates = sorted(line["flops_per_second"] for line in lines if line["kind"] == "step")
    tuned = finetune(folder / "run", folder / "tuned", grid.task, seed=0)
    shutil.rmtree(folder)
    return rates[len(rates) // 2], float(tuned["seconds"])


def _flops_per_token(job: Job) -> float:
    length = 0.8 * job.settings.recipe.window
    return token_flops(job.settings.config, length=length, masked_share=0.15).total


def _depth(job: Job) -> int:
    return job.settings.config.num_hidden_layers

"""One run from a store to a checkpoint: build everything, go on from where an earlier part stopped, train, finish."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch.optim import AdamW, Optimizer

from contract.errors import Interrupted
from encoders.checkpoint import load_masked_lm, load_pretraining, open_checkpoint
from encoders.heads import Model
from encoders.precision import Precision
from encoders.training import count_parameters, parameter_groups, seed_everything
from pretrain import resume
from pretrain.alarms import Alarms, unigram_entropy
from pretrain.batches import Position, Steps
from pretrain.distributed import Replica, World, join, replicate
from pretrain.evaluation import Heldout, evaluate, heldout_of
from pretrain.flops import build_model
from pretrain.lamb import Lamb, Variant
from pretrain.loop import Run, train
from pretrain.micro import Batcher
from pretrain.recipes import Recipe
from pretrain.resume import RunFolder, State
from pretrain.settings import Settings, Upkeep
from pretrain.store import Store
from pretrain.telemetry import Telemetry, measure_peak
from pretrain.views import View

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """What a run has to tell."""

    out: Path
    state: State
    heldout: Mapping[str, float]
    parameters: int
    """Unique ones."""
    leads: bool
    """Whether this process speaks for all of them."""


def pretrain(
    settings: Settings, upkeep: Upkeep, store: Store, out: Path, *, device: torch.device, go_on: bool, overwrite: bool
) -> Finished:
    """Run a pretraining to its end.

    Args:
        settings: what to do.
        upkeep: how to look after it.
        store: the text.
        out: folder of the run; see ``resume.py``.
        device: ``cpu`` or ``cuda``.
        go_on: go on with an unfinished run in ``out``; without one, start.
        overwrite: replace what an earlier run wrote.

    Raises:
        UsageError: the folder, or the settings of a resumed run, do not fit.
        Interrupted: Ctrl-C or a polite kill; the state is saved.
        Failure: the loss broke or the disk is full.
    """
    with join(device) as world:
        folder = RunFolder(out)
        world.raise_together(lambda: _prepare(folder, settings, store, go_on=go_on, overwrite=overwrite))
        return _pretrain(settings, upkeep, store, folder, world)


def _prepare(folder: RunFolder, settings: Settings, store: Store, *, go_on: bool, overwrite: bool) -> None:
    resume.check_target(folder.out, resume=go_on, overwrite=overwrite)
    if go_on and folder.exists:
        resume.compare(folder, settings)
        resume.cut_logs(folder, max(folder.steps(), default=0))
    else:
        about = {"robal_version": version("robal"), "store_folder": str(store.folder)}
        resume.begin(folder, settings, about)


def _pretrain(settings: Settings, upkeep: Upkeep, store: Store, folder: RunFolder, world: World) -> Finished:
    recipe = settings.recipe
    model = initial_model(settings).to(world.device)
    unique = count_parameters(model)[1]
    with_types = settings.config.type_vocab_size > 1
    view = View(store, recipe.view(settings.seed))
    batcher = Batcher(
        view=view,
        micro_tokens=settings.micro_tokens,
        packed=settings.packed,
        with_types=with_types,
        device=world.device,
    )
    heldout = heldout_of(
        store,
        recipe.view(settings.seed),
        tokens=upkeep.heldout_tokens,
        micro_tokens=settings.micro_tokens,
        packed=settings.packed,
        with_types=with_types,
        world=world,
    )
    replica = replicate(model, world, upkeep.parallelism)
    optimizer = make_optimizer(model, recipe)
    entropy = unigram_entropy(store)
    alarms = Alarms(spike_nats=upkeep.spike_nats, entropy=entropy, warmup_steps=recipe.warmup_steps)
    state = State(step=0, position=Position(), elapsed_s=0.0, tokens=0, alarms=alarms.state())
    if folder.steps():
        state = resume.restore(folder, model, optimizer)
        alarms.restore(state.alarms)
    if settings.compiled:
        compile_parts(model)
    world.raise_together(lambda: resume.check_space(folder, unique))
    peak = measure_peak(world.device, DTYPES[settings.precision])
    in_seconds = settings.minutes is not None
    about = _about(settings, store, unique, entropy, world)
    figures: dict[str, float] = {}

    def look() -> dict[str, float]:
        if heldout is None:
            return {}
        seen = evaluate(model, heldout, world, settings.precision)
        replica.settle()
        return seen

    def save(state: State, newest: dict[str, float]) -> None:
        figures.update(newest)
        resume.save(
            folder,
            model=model,
            optimizer=optimizer,
            state=state,
            store=store,
            world=world,
            max_length=recipe.window,
            record=_record(about, state, dict(figures)),
            keep=upkeep.keep,
        )

    with Telemetry(
        folder.metrics if world.leads else None,
        tensorboard=upkeep.tensorboard,
        total=60 * settings.minutes if settings.minutes is not None else recipe.steps,
        in_seconds=in_seconds,
        entropy=entropy,
    ) as telemetry:
        telemetry.note(_introduction(settings, view, unique, peak, heldout, state, replica, world))
        run = Run(
            settings=settings,
            upkeep=upkeep,
            world=world,
            replica=replica,
            optimizer=optimizer,
            batcher=batcher,
            steps=Steps(view=view, batch_tokens=recipe.batch_size * recipe.window),
            folder=folder,
            alarms=alarms,
            telemetry=telemetry,
            peak_flops=peak,
            evaluate=look,
            save=save,
        )
        state, finished = train(run, state)
    if not finished:
        raise Interrupted(
            f"interrupted after {state.step} steps; {folder.out} holds this state, and the same command with --resume "
            "goes on from it."
        )
    world.raise_together(lambda: resume.finish(folder))
    return Finished(out=folder.out, state=state, heldout=figures, parameters=unique, leads=world.leads)


def initial_model(settings: Settings) -> Model:
    """The model that step 1 starts from: random weights that depend on the seed alone, or those of a folder."""
    seed_everything(settings.seed)
    folder = Path(settings.start)
    if (folder / "config.json").is_file():
        load = load_pretraining if settings.sentence_task else load_masked_lm
        return load(open_checkpoint(folder), strict=False, seed=settings.seed).model
    return build_model(settings.config, sentence_task=settings.sentence_task)


def make_optimizer(model: Model, recipe: Recipe) -> Optimizer:
    """The recipe's optimizer; no decay of biases and norms."""
    groups = parameter_groups(model, recipe.weight_decay)
    betas = (recipe.beta1, recipe.beta2)
    if recipe.optimizer == "adamw":
        return AdamW(groups, lr=recipe.learning_rate, betas=betas, eps=recipe.eps, fused=True)
    variant: Variant = "google" if recipe.optimizer == "lamb-google" else "nvidia"
    return Lamb(groups, lr=recipe.learning_rate, betas=betas, eps=recipe.eps, variant=variant)


def compile_parts(model: Model) -> None:
    """Compile what is done for each token on its own; attention's runs change from batch to batch."""
    for part in (*model.encoder.ffn, model.masked_lm):
        assert isinstance(part, torch.nn.Module)
        part.compile(dynamic=True)


def _about(settings: Settings, store: Store, unique: int, entropy: float, world: World) -> dict[str, Any]:
    """``robal.json`` of every checkpoint of the run, as far as it is known when the run begins."""
    return {
        "robal_version": version("robal"),
        "command": shlex.join(["robal", *sys.argv[1:]]),
        "task": {"objective": settings.recipe.objective, "format": settings.recipe.format},
        "data": {"store": store.fingerprint, "counts": dict(store.manifest.get("counts", {}))},
        "seed": settings.seed,
        "training": {
            "start": settings.start,
            "recipe": asdict(settings.recipe),
            "minutes": settings.minutes,
            "micro_tokens": settings.micro_tokens,
            "packed": settings.packed,
            "precision": settings.precision,
            "compiled": settings.compiled,
            "device": world.device.type,
            "ranks": world.size,
            "threads": torch.get_num_threads(),
            "unique_parameters": unique,
            "unigram_entropy": round(entropy, 4),
            "versions": {name: version(name) for name in ("torch", "tokenizers", "numpy")},
        },
    }


def _record(about: Mapping[str, Any], state: State, figures: Mapping[str, float]) -> dict[str, Any]:
    progress = {
        "steps": state.step,
        "epochs": state.position.epoch,
        "tokens": state.tokens,
        "seconds": round(state.elapsed_s, 1),
    }
    return {
        **about,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "training": {**about["training"], **progress},
        "metrics": {"heldout": dict(figures)} if figures else {},
    }


def _introduction(
    settings: Settings,
    view: View,
    unique: int,
    peak: float,
    heldout: Heldout | None,
    state: State,
    replica: Replica,
    world: World,
) -> str:
    recipe = settings.recipe
    budget = f"{settings.minutes:g} minutes" if settings.minutes is not None else f"{recipe.steps:,} steps"
    held = "nothing is held out" if heldout is None else f"{heldout.samples:,} held-out samples"
    lines = [
        f"{settings.start}: {unique:,} parameters, {world.size} x {world.device.type} in {settings.precision}, "
        f"{peak / 1e9:,.0f} GFLOP/s in matrix products",
        f"{view.samples:,} samples of {view.tokens:,} tokens ({recipe.format}, {recipe.objective}, {recipe.masking} "
        f"masks by {recipe.unit}); {held}",
        f"{budget} of {recipe.batch_size * recipe.window:,} tokens, {recipe.optimizer} up to "
        f"{recipe.learning_rate:.2g}",
    ]
    if state.step:
        lines.append(f"going on after step {state.step}")
    return "\n".join(lines)

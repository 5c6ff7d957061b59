"""The training loop, written out in full.

    for each step                               its samples are the same for any number of ranks
        this rank's share, as micro-batches     loaded while the step before is computed, where a GPU computes
        one small exchange                      masked tokens and pairs of all ranks; does anyone want to stop?
        for each micro-batch                    losses summed / totals of all ranks; gradients add up
        clip, look for trouble, update
        ledger, figures; now and then: held-out figures, a checkpoint

Dividing sums by the totals of the whole step makes accumulation and ranks a question of memory and time only: 1 x N and
N x 1 give the same gradient. (The mean of the parts' means is another number as soon as parts differ in size.)
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import torch
from torch.optim import Optimizer

from contract.errors import Failure
from contract.storage import write_json
from encoders.precision import autocast
from encoders.signals import StopRequest
from encoders.training import MetricLog, rate_fraction
from pretrain.alarms import Alarms, TrainingBroke
from pretrain.batches import Step, Steps
from pretrain.distributed import Replica, World
from pretrain.draws import key_of
from pretrain.flops import token_flops
from pretrain.micro import Batcher, MicroBatch, summed
from pretrain.resume import RunFolder, State
from pretrain.samples import NO_LABEL
from pretrain.settings import Settings, Upkeep
from pretrain.telemetry import StepFigures, Telemetry


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """A step and this rank's share of it."""

    step: Step
    micros: list[MicroBatch]
    load_seconds: float
    wait_seconds: float


def load(steps: Iterator[Step], batcher: Batcher, world: World) -> Iterator[Loaded]:
    """This rank's micro-batches, step by step.

    On a GPU the next step's are made meanwhile; a CPU has no idle hands.
    """

    def make(step: Step) -> tuple[Step, list[MicroBatch], float]:
        begun = time.perf_counter()
        micros = batcher.load(step.shares(world.size)[world.rank], step.epoch)
        return step, micros, time.perf_counter() - begun

    if world.device.type == "cpu":
        for step in steps:
            _, micros, seconds = make(step)
            yield Loaded(step=step, micros=micros, load_seconds=seconds, wait_seconds=seconds)
        return
    with ThreadPoolExecutor(1) as worker:
        ahead = worker.submit(make, next(steps))
        while True:
            begun = time.perf_counter()
            step, micros, seconds = ahead.result()
            waited = time.perf_counter() - begun
            ahead = worker.submit(make, next(steps))
            yield Loaded(step=step, micros=micros, load_seconds=seconds, wait_seconds=waited)


@dataclass(frozen=True, kw_only=True, slots=True)
class Totals:
    """What all ranks must know of a step before it is computed."""

    masked: int
    pairs: int
    samples: int
    tokens: int
    computed: int
    """Positions, padding included."""
    attended: int
    digest: int
    stop: bool
    """A rank was asked to stop."""
    save: bool
    """It is time for a checkpoint, by the clock of rank 0."""
    elapsed_ms: int
    """By the clock of rank 0."""


def exchange(micros: list[MicroBatch], world: World, *, stop: bool, save: bool, elapsed_s: float) -> Totals:
    """Sum up a step over all ranks, in one message."""
    lead = world.leads
    digest = sum(micro.digest for micro in micros) % 2**64
    numbers = world.total(
        [
            sum(len(micro.targets) for micro in micros),
            sum(int((micro.pair_labels != NO_LABEL).sum()) for micro in micros),
            sum(micro.samples for micro in micros),
            sum(micro.tokens for micro in micros),
            sum(micro.input_ids.numel() for micro in micros),
            sum(micro.attended for micro in micros),
            digest - 2**64 if digest >= 2**63 else digest,  # as a signed number
            int(stop),
            int(save and lead),
            round(1000 * elapsed_s) if lead else 0,
        ]
    )
    masked, pairs, samples, tokens, computed, attended, signed, stops, saves, elapsed = numbers
    return Totals(
        masked=masked,
        pairs=pairs,
        samples=samples,
        tokens=tokens,
        computed=computed,
        attended=attended,
        digest=signed % 2**64,
        stop=stops > 0,
        save=saves > 0,
        elapsed_ms=elapsed,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """What a run is made of."""

    settings: Settings
    upkeep: Upkeep
    world: World
    replica: Replica
    optimizer: Optimizer
    batcher: Batcher
    steps: Steps
    folder: RunFolder
    alarms: Alarms
    telemetry: Telemetry
    peak_flops: float
    """Of one rank."""
    evaluate: Callable[[], dict[str, float]]
    """Held-out figures; empty if nothing is held out."""
    save: Callable[[State, dict[str, float]], None]
    """Writes a checkpoint with the newest held-out figures."""


def train(run: Run, state: State) -> tuple[State, bool]:
    """Train from a state to the end of the budget, or until asked to stop.

    Returns:
        The last state, saved, and whether the run is finished.

    Raises:
        Failure: the loss is not finite or jumped; or the disk is full.
    """
    recipe, world = run.settings.recipe, run.world
    began, elapsed_before = time.perf_counter(), state.elapsed_s
    saved_at, saved_step, figures = began, state.step, {}
    run.replica.model.train()
    ledger = MetricLog(run.folder.ledger) if world.leads else None
    with StopRequest() as request:
        for loaded in load(run.steps.start_at(state.position), run.batcher, world):
            now = time.perf_counter()
            elapsed = elapsed_before + now - began
            due = run.upkeep.save_minutes > 0 and now - saved_at >= 60 * run.upkeep.save_minutes
            totals = exchange(loaded.micros, world, stop=request.made, save=due, elapsed_s=elapsed)
            if totals.stop or _is_over(run.settings, state.step, totals.elapsed_ms / 1000):
                break
            state = _update(run, state, loaded, totals, ledger, elapsed_before - began)
            every = run.upkeep.evaluate_steps
            if every and state.step % every == 0 and state.step < recipe.steps:
                figures = _look(run, state)
            if totals.save or (run.upkeep.save_steps and state.step % run.upkeep.save_steps == 0):
                run.save(state, figures)
                saved_at, saved_step = time.perf_counter(), state.step
    if ledger is not None:
        ledger.close()
    finished = _is_over(run.settings, state.step, totals.elapsed_ms / 1000)
    if finished:
        figures = _look(run, state)
    if finished or saved_step != state.step:
        run.save(state, figures)
    return state, finished


def _look(run: Run, state: State) -> dict[str, float]:
    figures = run.evaluate()
    if figures:
        run.telemetry.evaluated(state.step, figures)
    return figures


def _is_over(settings: Settings, step: int, elapsed_s: float) -> bool:
    if settings.minutes is not None:
        return elapsed_s >= 60 * settings.minutes
    return step >= settings.recipe.steps


def _learning_rate(settings: Settings, step: int, elapsed_s: float, mean_step_s: float) -> float:
    """Of an update, by its number or, with a budget in minutes, by the time at which it will be done."""
    recipe = settings.recipe
    if settings.minutes is None:
        fraction = rate_fraction(step, total=recipe.steps, warmup=recipe.warmup_steps, power=recipe.power)
    else:
        total = 60 * settings.minutes
        warmup = recipe.warmup_steps / recipe.steps * total
        fraction = rate_fraction(elapsed_s + mean_step_s, total=total, warmup=warmup, power=recipe.power)
    return recipe.learning_rate * fraction


def _update(
    run: Run, state: State, loaded: Loaded, totals: Totals, ledger: MetricLog | None, clock_zero: float
) -> State:
    """One update of the weights, and its traces."""
    settings, world, replica = run.settings, run.world, run.replica
    begun = time.perf_counter()
    step, sent_before = state.step + 1, replica.sent_bytes
    elapsed = totals.elapsed_ms / 1000
    rate = _learning_rate(settings, step, elapsed, elapsed / step)
    # every random number of the forward pass is a function of these three, so there is no generator state to keep
    torch.manual_seed(int(key_of(settings.seed, "dropout", step, world.rank) >> 1))
    words = pairs = right_pairs = torch.zeros((), dtype=torch.float64, device=world.device)
    for number, micro in enumerate(loaded.micros, 1):
        with replica.accumulating(is_last=number == len(loaded.micros)):
            with autocast(world.device, settings.precision):
                sums = summed(replica.call, micro)
            loss = sums.words / max(totals.masked, 1) + sums.pairs / max(totals.pairs, 1)
            loss.backward()  # type: ignore[no-untyped-call]
        words, pairs = words + sums.words.detach(), pairs + sums.pairs.detach()
        right_pairs = right_pairs + sums.right_pairs
    norm = replica.clip(settings.recipe.clip_norm or math.inf)
    sums_of_all = world.total_floats([float(words), float(pairs), float(right_pairs)])
    word_loss = sums_of_all[0] / max(totals.masked, 1)
    try:
        note = run.alarms.check(step, word_loss, norm)
    except TrainingBroke as trouble:
        raise Failure(_broken(run, loaded.step, step, str(trouble), rate)) from None
    if note:
        run.telemetry.note(note)
    for group in run.optimizer.param_groups:
        group["lr"] = rate
    run.optimizer.step()
    run.optimizer.zero_grad()
    if world.device.type == "cuda":
        torch.cuda.synchronize(world.device)
    if ledger is not None:
        _write_ledger(ledger, step, loaded.step, totals, names=run.upkeep.ledger_ids)
    now = time.perf_counter()
    seconds = now - begun + loaded.wait_seconds
    operations = totals.tokens * _flops_per_token(settings, totals)
    run.telemetry.stepped(
        StepFigures(
            step=step,
            epoch=loaded.step.epoch,
            learning_rate=rate,
            mlm_loss=word_loss,
            pair_loss=sums_of_all[1] / totals.pairs if totals.pairs else None,
            pair_accuracy=sums_of_all[2] / totals.pairs if totals.pairs else None,
            gradient_norm=norm,
            samples=totals.samples,
            tokens=totals.tokens,
            masked=totals.masked,
            masked_rate=totals.masked / max(totals.tokens, 1),
            padding_share=1 - totals.tokens / max(totals.computed, 1),
            seconds=seconds,
            load_seconds=loaded.load_seconds,
            wait_seconds=loaded.wait_seconds,
            tokens_per_second=totals.tokens / seconds,
            flops_per_second=operations / seconds,
            peak_share=operations / seconds / (run.peak_flops * world.size),
            sent_bytes=replica.sent_bytes - sent_before,
            at_word_frequencies=run.alarms.plateau,
        ),
        now + clock_zero,
    )
    return replace(
        state,
        step=step,
        position=loaded.step.after,
        elapsed_s=now + clock_zero,
        tokens=state.tokens + totals.tokens,
        alarms=run.alarms.state(),
    )


def _flops_per_token(settings: Settings, totals: Totals) -> float:
    real = max(totals.tokens, 1)
    return token_flops(settings.config, length=totals.attended / real, masked_share=totals.masked / real).total


def _write_ledger(ledger: MetricLog, step: int, samples: Step, totals: Totals, *, names: bool) -> None:
    """What a step trained on: the order of its samples, and their contents with masks and labels, as digests."""
    order = hashlib.blake2b(samples.ids.astype("<i8").tobytes(), digest_size=8).hexdigest()
    line = {"step": step, "epoch": samples.epoch, "samples": len(samples.ids), "order": order}
    line["content"] = f"{totals.digest:016x}"
    if names:
        line["ids"] = samples.ids.tolist()
    ledger.write(**line)


def _broken(run: Run, samples: Step, step: int, trouble: str, rate: float) -> str:
    """The message of a broken run; the batch's samples go into a file."""
    path = run.folder.run / "broken-batch.json"
    if run.world.leads:
        write_json(path, {"step": step, "epoch": samples.epoch, "samples": samples.ids.tolist(), "trouble": trouble})
    steps = run.folder.steps()
    good = (
        f"the last good checkpoint is {run.folder.step_folder(steps[-1]) / 'model'}; go on from it with --model and a "
        f"--learning-rate below {rate:.1e}"
        if steps
        else f"there was no checkpoint yet; start again with a --learning-rate below {rate:.1e}"
    )
    first = ", ".join(map(str, samples.ids[:4].tolist()))
    return (
        f"{trouble}, on the batch of epoch {samples.epoch} that begins with the samples {first} (all in {path}); the "
        f"weights were not updated with it. Now {good}."
    )

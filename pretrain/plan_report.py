"""A plan on the screen: what it will cost, and the source of each value of the recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from rich.table import Table

from contract.errors import CheckpointError
from contract.storage import read_json
from encoders.config import EncoderConfig
from encoders.precision import choose_precision, training_device
from encoders.presets import preset
from pretrain.flops import TokenFlops
from pretrain.plan import Plan, hardware, make_plan
from pretrain.recipes import FOR_SHAPE, Published, named
from pretrain.settings import with_changes
from pretrain.telemetry import measure_peak


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """A plan with what it was made for."""

    shape: str
    config: EncoderConfig
    published: Published
    plan: Plan
    hardware: str
    devices: int
    precision: Literal["fp32", "bf16"]
    peak_flops: float
    memory_bytes: float | None
    """Of one device; None if unknown."""
    utilisation: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "shape": self.shape,
            "recipe": asdict(self.published.recipe),
            "sources": dict(self.published.sources),
            "hardware": {"name": self.hardware, "devices": self.devices, "peak_flops": self.peak_flops},
            "precision": self.precision,
            "utilisation": self.utilisation,
            "plan": self.plan.as_dict(),
        }


def plan_for(
    shape: str,
    recipe: str | None,
    *,
    hardware: str,
    devices: int,
    utilisation: float,
    micro_tokens: int,
    steps: int | None,
    batch_size: int | None,
) -> Result:
    """Make a plan from names.

    Args:
        shape: a preset, or the path of a ``config.json``.
        recipe: a recipe; None means that of the shape.
        hardware: a device, or ``this`` for the machine that computes.
        devices: how many.
        utilisation: share of the peak that will be reached.
        micro_tokens: tokens on a device at once.
        steps: if not the recipe's.
        batch_size: if not the recipe's.

    Raises:
        UsageError: a name does not exist.
        CheckpointError: the file is no configuration of a known family.
    """
    path = Path(shape)
    if path.suffix == ".json":
        config = EncoderConfig.from_hf(read_json(path, CheckpointError))
        fallback = (
            "bert" if config.model_type == "bert" else {"roberta": "roberta-base"}.get(config.model_type, "albert")
        )
    else:
        config, fallback = preset(shape), FOR_SHAPE[shape]
    published = named(recipe or fallback)
    changed = {"steps": steps, "batch_size": batch_size}
    sources = {**published.sources, **{name: "yours" for name, value in changed.items() if value is not None}}
    if steps is not None:
        sources["warmup_steps"] += "; in proportion"
    published = Published(recipe=with_changes(published.recipe, **changed), sources=sources, about=published.about)
    peak, memory, precision = _device(hardware, config)
    plan = make_plan(
        config,
        published.recipe,
        peak_flops=peak,
        devices=devices,
        utilisation=utilisation,
        micro_tokens=micro_tokens,
        precision=precision,
        on_cpu=hardware == "this" and training_device().type == "cpu",
    )
    return Result(
        shape=shape,
        config=config,
        published=published,
        plan=plan,
        hardware=hardware,
        devices=devices,
        precision=precision,
        peak_flops=peak,
        memory_bytes=memory,
        utilisation=utilisation,
    )


def _device(name: str, config: EncoderConfig) -> tuple[float, float | None, Literal["fp32", "bf16"]]:
    if name == "this":
        device = training_device()
        precision = choose_precision("auto", device, config.hidden_size)
        return measure_peak(device, torch.bfloat16 if precision == "bf16" else torch.float32), None, precision
    known = hardware(name)
    return known.bf16_tflops * 1e12, known.memory_gb * 1e9, "bf16"


def print_plan(result: Result) -> None:
    """Two tables on stdout."""
    screen = Console(highlight=False, width=None)
    plan = result.plan
    shared = "" if plan.parameters == plan.unique_parameters else f", used as {plan.parameters:,}"
    rows: Mapping[str, str] = {
        "parameters": f"{plan.unique_parameters:,}{shared}",
        "operations per token": f"{plan.flops.total / 1e9:.3g} GFLOP ({_parts(plan.flops)})",
        "tokens of the run": f"{plan.tokens:,}",
        "memory of a device": _memory(result),
        "exchanged per update": f"{plan.allreduce_bytes / 1e6:,.0f} MB of gradients by each device",
        "one update": f"{plan.step_seconds:,.2f} s",
        "whole run": f"{_time(plan.days)} on {result.devices} x {result.hardware} ({result.precision}, "
        f"{result.utilisation:.0%} of {result.peak_flops / 1e12:,.3g} TFLOP/s each)",
    }
    table = Table(title=f"{result.shape}: {result.published.about}", show_header=False, title_justify="left")
    for name, text in rows.items():
        table.add_row(name, text)
    screen.print(table)
    sources = Table("value", "", "source", title="recipe", title_justify="left")
    for name, value in asdict(result.published.recipe).items():
        shown = f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
        sources.add_row(name.replace("_", " "), shown, result.published.sources[name])
    screen.print(sources)


def _parts(flops: TokenFlops) -> str:
    return f"blocks {flops.blocks / 1e9:.3g}, attention {flops.attention / 1e9:.3g}, head {flops.head / 1e9:.3g}"


def _memory(result: Result) -> str:
    memory = result.plan.memory
    fixed = memory.weights + memory.gradients + memory.optimizer
    text = f"{memory.total / 1e9:,.1f} GB: {fixed / 1e9:,.1f} weights, gradients, moments; "
    text += f"{memory.activations / 1e9:,.1f} activations"
    if result.memory_bytes is not None and memory.total > result.memory_bytes:
        text += f". It has {result.memory_bytes / 1e9:,.0f} GB: lower --micro-tokens, or slice with --parallel fsdp"
    return text


def _time(days: float) -> str:
    if days >= 1:
        return f"{days:,.1f} days"
    return f"{days * 24:.1f} hours" if days * 24 >= 1 else f"{days * 1440:.1f} minutes"

"""What a pretraining run will cost, before it runs: ``robal pretrain plan``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from contract.errors import UsageError, listing
from encoders.config import EncoderConfig
from pretrain.flops import BYTES_FP32, Memory, TokenFlops, memory, parameters, token_flops
from pretrain.recipes import Recipe

MASKED_SHARE = 0.15


@dataclass(frozen=True, kw_only=True, slots=True)
class Hardware:
    """One accelerator, by its data sheet; dense rates, without sparsity."""

    bf16_tflops: float
    """Tera-operations per second; float16 where there is no bfloat16."""
    fp32_tflops: float
    memory_gb: float
    about: str


HARDWARE: dict[str, Hardware] = {
    "v100": Hardware(bf16_tflops=125, fp32_tflops=15.7, memory_gb=32, about="V100 SXM2 32 GB, float16"),
    "a100": Hardware(bf16_tflops=312, fp32_tflops=19.5, memory_gb=80, about="A100 SXM 80 GB"),
    "h100": Hardware(bf16_tflops=989, fp32_tflops=67, memory_gb=80, about="H100 SXM 80 GB"),
    "h200": Hardware(bf16_tflops=989, fp32_tflops=67, memory_gb=141, about="H200 SXM 141 GB"),
    "rtx4090": Hardware(bf16_tflops=165, fp32_tflops=82.6, memory_gb=24, about="GeForce RTX 4090"),
}
UTILISATION = 0.45
"""Share of the peak that a well-set run reaches on a large GPU (NVIDIA's BERT-large on A100: 45 %)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The answer."""

    parameters: int
    """Counted once per execution of their layer: the size of the network that does the same work unshared."""
    unique_parameters: int
    flops: TokenFlops
    """Per token, forward and backward."""
    tokens: int
    """Of the whole run, if every sequence fills the window."""
    memory: Memory
    """Of one rank."""
    allreduce_bytes: int
    """Gradients that each rank hands to the others at each update, in float32."""
    step_seconds: float
    days: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        totals = {"flops_per_token": self.flops.total, "memory_bytes": self.memory.total}
        return asdict(self) | totals


def make_plan(
    config: EncoderConfig,
    recipe: Recipe,
    *,
    peak_flops: float,
    devices: int = 1,
    utilisation: float = UTILISATION,
    micro_tokens: int,
    precision: Literal["fp32", "bf16"],
    on_cpu: bool = False,
) -> Plan:
    """Compute a plan.

    Args:
        config: the shape.
        recipe: batch, steps and window.
        peak_flops: operations per second of one device in the given precision.
        devices: how many share the work.
        utilisation: share of the peak that will be reached.
        micro_tokens: tokens that a device holds at once.
        precision: of matrix products and activations.
        on_cpu: whether the devices are CPUs.

    Raises:
        UsageError: the window does not fit the shape's positions.
    """
    if recipe.window > config.max_length:
        raise UsageError(
            f"the recipe's window has {recipe.window} tokens and the shape has positions for {config.max_length}."
        )
    sentence_task = recipe.objective != "mlm"
    used, unique = parameters(config, sentence_task=sentence_task)
    flops = token_flops(config, length=recipe.window, masked_share=MASKED_SHARE)
    step_tokens = recipe.batch_size * recipe.window
    step_seconds = step_tokens * flops.total / (peak_flops * devices * utilisation)
    return Plan(
        parameters=used,
        unique_parameters=unique,
        flops=flops,
        tokens=step_tokens * recipe.steps,
        memory=memory(
            config,
            sentence_task=sentence_task,
            micro_tokens=micro_tokens,
            length=recipe.window,
            masked_share=MASKED_SHARE,
            activation_bytes=2 if precision == "bf16" else 4,
            on_cpu=on_cpu,
        ),
        allreduce_bytes=unique * BYTES_FP32,
        step_seconds=step_seconds,
        days=step_seconds * recipe.steps / 86400,
    )


def hardware(name: str) -> Hardware:
    """A device by name.

    Raises:
        UsageError: there is none; the message has the names that exist.
    """
    if name not in HARDWARE:
        raise UsageError(f"there is no hardware {name!r}; there are {listing([*HARDWARE, 'this'])}.")
    return HARDWARE[name]

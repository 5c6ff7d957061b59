"""Where the model runs and with what arithmetic.

bf16 means autocast: matrix products in bfloat16, weights, optimiser and reductions in float32. It pays where the
hardware multiplies bfloat16 and the matrices are large; elsewhere it costs conversions and is emulated.
"""

from __future__ import annotations

from typing import Literal

import torch

from contract.errors import UsageError

WIDE_ENOUGH = 512
"""Hidden size from which bf16 is chosen on a CPU with bfloat16 instructions. Smaller matrices do not repay the
conversions."""

Precision = Literal["fp32", "bf16"]


def training_device() -> torch.device:
    """The GPU if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def multiplies_bf16(device: torch.device) -> bool:
    """Whether the device has bfloat16 matrix instructions (AMX or AVX512_BF16; Ampere and later)."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    # torch has no public test for these two
    return bool(torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported())


def choose_precision(wanted: str, device: torch.device, hidden_size: int) -> Precision:
    """``auto`` as a precision: bf16 where it pays.

    Raises:
        UsageError: bf16 is wanted and the device would emulate it.
    """
    if wanted == "fp32":
        return "fp32"
    if wanted == "bf16":
        if not multiplies_bf16(device):
            raise UsageError(
                f"--dtype is 'bf16' and this {device.type.upper()} cannot multiply bfloat16; pass --dtype fp32 or auto."
            )
        return "bf16"
    worth_it = device.type == "cuda" or hidden_size >= WIDE_ENOUGH
    return "bf16" if worth_it and multiplies_bf16(device) else "fp32"


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """The context that a forward pass runs in; it does nothing for fp32."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")

"""What a forward pass should take, from counts and two speeds of the machine: a roofline (Williams et al., 2009).

A block of the encoder either computes or waits for its weights, whichever takes longer. Weights that are used again
while they are still in the cache, as those of a shared block are by the next block, need not come from memory. That is
the whole difference between ALBERT and RoBERTa at inference: the operations are the same.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loadtests.costs import block_parameters, blocks

BYTES = {"fp32": 4, "int8": 1}
"""Of a weight."""
CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
PROBE_BYTES = 256 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Speeds that a prediction needs."""

    bandwidth: float
    """Bytes per second from memory, with the threads of the server."""
    peak: float
    """Operations per second at this precision with these threads."""
    cache_bytes: int
    """Of the last level."""


def predicted_s(
    config: Mapping[str, Any],
    *,
    precision: str,
    unique_blocks: int,
    texts: int,
    length: int,
    machine: Machine,
) -> float:
    """Seconds for the blocks of one call.

    Args:
        config: the shape.
        precision: of the weights.
        unique_blocks: blocks with weights of their own.
        texts: in the call.
        length: tokens of each.
        machine: its speeds.
    """
    size = block_parameters(config) * BYTES[precision]
    operations = texts * length * (2.0 * block_parameters(config) + 4.0 * length * int(config["hidden_size"]))
    compute_s, stream_s = operations / machine.peak, size / machine.bandwidth
    if unique_blocks * size <= machine.cache_bytes:
        streamed = 0  # everything stays, also from call to call
    elif size <= machine.cache_bytes:
        streamed = unique_blocks  # each block's weights come once, and stay for the blocks that share them
    else:
        streamed = blocks(config)
    return streamed * max(compute_s, stream_s) + (blocks(config) - streamed) * compute_s


def unique_blocks(config: Mapping[str, Any], unique_parameters: int) -> int:
    """Blocks with weights of their own, by what is left of the stored parameters beside the embeddings."""
    hidden, narrow = int(config["hidden_size"]), int(config.get("embedding_size", config["hidden_size"]))
    rows = int(config["vocab_size"]) + int(config["max_position_embeddings"]) + int(config["type_vocab_size"])
    left = unique_parameters - rows * narrow - (narrow * hidden if narrow != hidden else 0)
    return max(1, min(blocks(config), round(left / block_parameters(config))))


def cache_bytes() -> int | None:
    """Size of the last cache; None where the system does not tell."""
    try:
        text = CACHE.read_text().strip()
    except OSError:
        return None
    units = {"K": 1 << 10, "M": 1 << 20}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text)


def bandwidth(threads: int) -> float:
    """Bytes per second that so many threads read from memory, the best of five passes."""
    parts = [np.ones(PROBE_BYTES // threads // 4, dtype=np.float32) for _ in range(threads)]
    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(5):
            started = time.perf_counter()
            list(pool.map(np.max, parts))  # lets go of the interpreter, and is quicker than memory
            best = max(best, sum(part.nbytes for part in parts) / (time.perf_counter() - started))
    return best

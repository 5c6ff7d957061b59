"""One process or many: who we are, how gradients are summed, how much was sent.

    robal pretrain run ...                                        one process
    torchrun --nproc-per-node 8 -m robal pretrain run ...         eight, each with its share of every batch

Three ways to hold a model, behind one interface (``Replica``):

    Single    one process
    Ddp       every rank holds everything; gradients are summed while the backward pass still runs
    Fsdp      every rank holds a slice of weights, gradients and moments, and gathers what it needs when it needs it

All three *sum* gradients over ranks and divide nothing: the loss of each rank is already divided by the masked tokens
of all ranks, so a rank with fewer tokens counts for less. Every rank takes part in every update with at least one
micro-batch, an empty one if need be, so that none waits for another that has already finished.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from contract.errors import Failure, UsageError
from encoders.heads import Model

Parallelism = Literal["ddp", "fsdp"]
TIMEOUT = timedelta(minutes=30)
"""A rank that hears nothing for so long gives up; longer than the longest save."""


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """The processes that train together, and which one this is."""

    rank: int
    size: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this rank writes files and talks to the user."""
        return self.rank == 0

    def total(self, numbers: list[int]) -> list[int]:
        """Sums over all ranks, of whole numbers; sums wrap at 64 bits."""
        if self.size == 1:
            return numbers
        tensor = torch.tensor(numbers, dtype=torch.int64, device=self.device)
        dist.all_reduce(tensor)
        return [int(number) for number in tensor.tolist()]

    def total_floats(self, numbers: list[float]) -> list[float]:
        """Sums over all ranks."""
        if self.size == 1:
            return numbers
        tensor = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor)
        return [float(number) for number in tensor.tolist()]

    def largest(self, number: int) -> int:
        """The largest of all ranks' numbers."""
        if self.size == 1:
            return number
        tensor = torch.tensor(number, dtype=torch.int64, device=self.device)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return int(tensor.item())

    def raise_together(self, action: Callable[[], None]) -> None:
        """Let rank 0 do something that may fail; no rank goes on before it is done, or at all if it failed.

        Raises:
            Exception: what the action raised, on rank 0.
            Failure: on the others, if it failed.
        """
        error: Exception | None = None
        if self.leads:
            try:
                action()
            except Exception as caught:  # of every kind: the others must hear of it before it goes on
                error = caught
        failed = self.total([int(error is not None)])[0]
        if error is not None:
            raise error
        if failed:
            raise Failure("rank 0 failed; its message says why.")


@contextmanager
def join(device: torch.device) -> Iterator[World]:
    """The world that torchrun describes in the environment, or a world of one.

    Args:
        device: ``cpu`` or ``cuda``; ranks of one machine take different GPUs.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World(rank=0, size=1, device=device)
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)
    try:
        yield World(rank=dist.get_rank(), size=size, device=device)
        dist.barrier()  # nobody takes the store away while others still speak through it
    finally:
        dist.destroy_process_group()


def end_rank() -> None:
    """End this process at once if it is one of several, when everything it wrote is on disk.

    On the usual way out torch's threads abort a rank now and then ("terminate called without an active exception"), and
    torchrun takes that for a failure of the whole run.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


class Replica:
    """A model in one process; the base of the other two.

    Args:
        model: on its device.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.call: nn.Module = model
        """What to call for a forward pass."""
        self.sent_bytes = 0
        """Gradient bytes that this rank handed to the others so far, counted."""

    def accumulating(self, *, is_last: bool) -> AbstractContextManager[Any]:
        """Around the forward and backward pass of a micro-batch; gradients are exchanged in the last one only."""
        return nullcontext()

    def settle(self) -> None:
        """After forward passes without a backward pass: give back what they gathered."""

    def clip(self, limit: float) -> float:
        """Clip the whole gradient to a norm; returns the norm before. A limit of ``inf`` only measures."""
        norm = clip_grad_norm_(self.model.parameters(), limit)
        return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)


class Ddp(Replica):
    """Every rank holds the whole model."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
        # a lambda, because DDP takes a hook's annotations for wrong if they are strings
        wrapped.register_comm_hook(self, lambda replica, bucket: _sum_and_count(replica, bucket))
        self.call = self._wrapped = wrapped

    def accumulating(self, *, is_last: bool) -> AbstractContextManager[Any]:
        """See ``Replica``."""
        return nullcontext() if is_last else self._wrapped.no_sync()


def _sum_and_count(replica: Ddp, bucket: Any) -> torch.futures.Future[Tensor]:
    """DDP's own exchange without its division by the number of ranks."""
    buffer = bucket.buffer()
    replica.sent_bytes += buffer.numel() * buffer.element_size()
    work = dist.all_reduce(buffer, async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0])  # type: ignore[no-any-return]


class Fsdp(Replica):
    """Every rank holds a slice of each parameter (FSDP2).

    A part that one execution of the schedule uses is gathered for that execution; a shared part would be gathered again
    and again, so it belongs to the root, which is gathered once per forward and backward pass.
    """

    def __init__(self, model: Model, world: World) -> None:
        super().__init__(model)
        mesh = init_device_mesh(world.device.type, (world.size,))
        used = model.encoder.schedule
        for parts, uses in (
            (model.encoder.attention, [block.attention for block in used]),
            (model.encoder.ffn, [block.ffn for block in used]),
        ):
            for index, part in enumerate(parts):
                if uses.count(index) == 1:
                    fully_shard(part, mesh=mesh)
        fully_shard(model, mesh=mesh)
        assert isinstance(model, FSDPModule)
        self._sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
        for module in self._sharded:
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo has no division of its own

    def accumulating(self, *, is_last: bool) -> AbstractContextManager[Any]:
        """See ``Replica``. What is exchanged is every gradient once (``reduce-scatter``)."""
        assert isinstance(self.model, FSDPModule)
        self.model.set_requires_gradient_sync(is_last)
        if is_last:
            gradients = sum(parameter.numel() * parameter.element_size() for parameter in self.model.parameters())
            self.sent_bytes += gradients
        return nullcontext()

    def settle(self) -> None:
        """See ``Replica``."""
        for module in self._sharded:
            module.reshard()


def replicate(model: Model, world: World, parallelism: Parallelism) -> Replica:
    """Hold a model in a world.

    Raises:
        UsageError: FSDP in a world of one.
    """
    if world.size == 1:
        if parallelism == "fsdp":
            raise UsageError(
                "--parallel fsdp slices a model over several processes and there is one; "
                "start it with: torchrun --nproc-per-node N -m robal pretrain run ..."
            )
        return Replica(model)
    return Ddp(model) if parallelism == "ddp" else Fsdp(model, world)


def whole(tensor: Tensor) -> Tensor:
    """A tensor gathered from all ranks if it is sliced, on the CPU. All ranks must ask."""
    full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return full.detach().cpu()


def like(value: Tensor, example: Tensor) -> Tensor:
    """The inverse of ``whole``: a whole tensor, sliced and placed as another one is."""
    value = value.to(example.device)
    if isinstance(example, DTensor):
        return distribute_tensor(value, example.device_mesh, example.placements)
    return value

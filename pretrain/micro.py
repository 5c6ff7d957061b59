"""The samples of a rank as micro-batches: what goes through the model at once, packed without padding or padded.

A micro-batch holds at most so many tokens. Its samples are sorted by length: packed, neighbours of equal length attend
in one call; padded, less is wasted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from encoders.packing import Packing
from pretrain.draws import hashed, key_of
from pretrain.samples import NO_LABEL, Ints, Samples
from pretrain.views import View


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatch:
    """Inputs and answers of one forward and backward pass, on a device."""

    input_ids: Tensor
    """(1, tokens) packed, (batch, seq) padded; int64, as the rest"""
    token_type_ids: Tensor | None
    attention_mask: Tensor | None
    """Padded only."""
    packing: Packing | None
    positions: Tensor
    """(masked,) into the flattened ``input_ids``"""
    targets: Tensor
    """(masked,)"""
    pair_labels: Tensor
    """(batch,) ``NO_LABEL`` where there is none"""
    tokens: int
    """Real ones; ``input_ids.numel()`` counts padding too."""
    samples: int
    attended: int
    """Sum over tokens of the tokens that each attends to."""
    digest: int
    """See ``digest_of``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Batcher:
    """Makes micro-batches from a view.

    Args:
        view: the samples.
        micro_tokens: most tokens of a micro-batch, padding included; a longer sample is alone.
        packed: without padding.
        with_types: whether the model knows segment types.
        device: where tensors go.
    """

    view: View
    micro_tokens: int
    packed: bool
    with_types: bool
    device: torch.device

    def load(self, ids: Ints, epoch: int) -> list[MicroBatch]:
        """Micro-batches of these samples; one that is empty if there are none."""
        if not len(ids):
            return [self.empty()]
        lengths = self.view.lengths(ids, epoch)
        order = np.argsort(lengths, kind="stable")
        groups = self._cut(lengths[order])
        return [self._tensors(self.view.load(ids[group], epoch)) for group in np.split(order, groups)]

    def _cut(self, lengths: Ints) -> list[int]:
        """Where rising lengths are cut into groups that fit."""
        cuts, begin = [], 0
        reached = np.cumsum(lengths)
        for index in range(1, len(lengths)):
            before = reached[begin - 1] if begin else 0
            size = reached[index] - before if self.packed else lengths[index] * (index + 1 - begin)
            if size > self.micro_tokens:
                cuts.append(index)
                begin = index
        return cuts

    def _tensors(self, samples: Samples) -> MicroBatch:
        if self.packed:
            ids, types, mask = samples.input_ids[None], samples.token_type_ids[None], None
            positions, packing = samples.masked_positions, Packing(tuple(samples.lengths.tolist()))
        else:
            padded = samples.padded(self.view.store.vocabulary.pad_id)
            ids, types, mask = padded.input_ids, padded.token_type_ids, padded.attention_mask
            positions, packing = padded.masked_positions, None
        return MicroBatch(
            input_ids=self._to(ids),
            token_type_ids=self._to(types) if self.with_types else None,
            attention_mask=None if mask is None else self._to(mask),
            packing=packing,
            positions=self._to(positions),
            targets=self._to(samples.targets),
            pair_labels=self._to(samples.pair_labels),
            tokens=int(samples.lengths.sum()),
            samples=len(samples.ids),
            attended=int((samples.lengths**2).sum()),
            digest=digest_of(samples),
        )

    def empty(self) -> MicroBatch:
        """One token and nothing to predict: what a rank computes that has no sample in a step."""
        nothing = torch.empty(0, dtype=torch.int64, device=self.device)
        ids = torch.full((1, 1), self.view.store.vocabulary.template.before[0], device=self.device)
        return MicroBatch(
            input_ids=ids,
            token_type_ids=torch.zeros_like(ids) if self.with_types else None,
            attention_mask=None if self.packed else torch.ones_like(ids, dtype=torch.bool),
            packing=Packing((1,)) if self.packed else None,
            positions=nothing,
            targets=nothing,
            pair_labels=torch.full((1,), NO_LABEL, device=self.device),
            tokens=0,
            samples=0,
            attended=0,
            digest=0,
        )

    def _to(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)


def digest_of(samples: Samples) -> int:
    """A 64-bit checksum of samples with their masks, targets and pair labels, to be added up modulo 2^64.

    It does not depend on how samples are divided into batches or ranks, so the sums of two runs agree if and, but for
    luck, only if they trained on the same.
    """
    place = np.arange(len(samples.input_ids)) - np.repeat(samples.starts, samples.lengths)
    tokens = hashed(key_of("tokens"), np.repeat(samples.ids, samples.lengths) << 20 | place)
    pairs = hashed(key_of("pairs"), samples.ids)
    with np.errstate(over="ignore"):
        total = (tokens * (samples.input_ids + 1).astype(np.uint64)).sum(dtype=np.uint64)
        total += (tokens[samples.masked_positions] * (samples.targets + 3).astype(np.uint64)).sum(dtype=np.uint64)
        total += (pairs * (samples.pair_labels + 200).astype(np.uint64)).sum(dtype=np.uint64)
    return int(total)


@dataclass(frozen=True, slots=True)
class Sums:
    """Losses of a micro-batch, summed, never averaged: the caller knows what to divide by."""

    words: Tensor
    """Cross-entropy in nats, summed over masked tokens."""
    pairs: Tensor
    """Cross-entropy summed over labelled pairs; 0 without a sentence task."""
    right_words: Tensor
    """Masked tokens that were guessed right."""
    right_pairs: Tensor


def summed(model: torch.nn.Module, micro: MicroBatch, *, counting: bool = False) -> Sums:
    """Run a model on a micro-batch.

    Every parameter takes part even if nothing is to be predicted, so that no gradient is missing on any rank.

    Args:
        model: a ``MaskedLanguageModel`` or ``PretrainingModel``, possibly wrapped.
        micro: what to compute.
        counting: also count right guesses among the masked tokens, which costs a pass over the scores.
    """
    output = model(
        micro.input_ids,
        micro.attention_mask,
        micro.token_type_ids,
        positions=micro.positions,
        packing=micro.packing,
    )
    words, sentences = output if isinstance(output, tuple) else (output, None)
    words = words.float()
    right = (words.argmax(-1) == micro.targets).sum() if counting else torch.zeros((), device=words.device)
    word_loss = F.cross_entropy(words, micro.targets, reduction="sum")
    if sentences is None:
        return Sums(word_loss, torch.zeros_like(word_loss), right, torch.zeros_like(right))
    sentences = sentences.float()
    pair_loss = F.cross_entropy(sentences, micro.pair_labels, reduction="sum", ignore_index=NO_LABEL)
    right_pairs = (sentences.argmax(-1) == micro.pair_labels).sum()
    return Sums(word_loss, pair_loss, right, right_pairs)

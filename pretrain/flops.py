"""What a training step costs, by arithmetic: parameters, floating-point operations, memory, bytes between ranks.

Counting rules: a multiply-add is two operations; the backward pass costs twice the forward pass; only matrix products
count (norms, activations and lookups are a few per cent and no hardware's peak speaks of them).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from encoders.config import EncoderConfig
from encoders.heads import MaskedLanguageModel, Model, PretrainingModel
from encoders.sharing import schedule
from encoders.training import count_parameters

BYTES_FP32 = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenFlops:
    """Operations per real token, forward and backward."""

    blocks: float
    """Matrices of the executed blocks and the embedding projection."""
    attention: float
    """Scores and weighted sums; grows with the sequence."""
    head: float
    """Masked-LM head, on the masked share of the tokens only."""

    @property
    def total(self) -> float:
        """The sum."""
        return self.blocks + self.attention + self.head


def token_flops(config: EncoderConfig, *, length: float, masked_share: float) -> TokenFlops:
    """Operations per token of a training step.

    Args:
        config: the shape.
        length: tokens that a token attends to: the length of its sequence, averaged over tokens.
        masked_share: share of the tokens that are predicted.
    """
    hidden, narrow = config.hidden_size, config.embedding_size
    executed = len(schedule(config))
    matrices = executed * (4 * hidden * hidden + 2 * hidden * config.intermediate_size)
    if config.embedding_projection:
        matrices += narrow * hidden
    head = hidden * narrow + narrow * config.vocab_size
    return TokenFlops(
        blocks=6.0 * matrices,
        attention=12.0 * executed * length * hidden,
        head=6.0 * masked_share * head,
    )


def build_model(config: EncoderConfig, *, sentence_task: bool) -> Model:
    """The model that an objective needs; without a sentence task there is no pooler, so that none is left untrained."""
    return PretrainingModel(config) if sentence_task else MaskedLanguageModel(config)


def parameters(config: EncoderConfig, *, sentence_task: bool) -> tuple[int, int]:
    """(used, unique) parameters of the pretraining model; see ``encoders.training.count_parameters``."""
    with torch.device("meta"):
        return count_parameters(build_model(config, sentence_task=sentence_task))


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Bytes of a training process, the framework's own not counted."""

    weights: int
    gradients: int
    optimizer: int
    """Two moments."""
    activations: int
    """Kept for the backward pass of one micro-batch."""

    @property
    def total(self) -> int:
        """The sum."""
        return self.weights + self.gradients + self.optimizer + self.activations


def memory(
    config: EncoderConfig,
    *,
    sentence_task: bool,
    micro_tokens: int,
    length: int,
    masked_share: float,
    activation_bytes: int,
    on_cpu: bool,
) -> Memory:
    """What one rank needs, weights and optimizer in float32.

    Args:
        config: the shape.
        sentence_task: whether there is a sentence head.
        micro_tokens: tokens of a micro-batch.
        length: tokens of a sequence.
        masked_share: share of the tokens that are predicted.
        activation_bytes: bytes of one activation: 4, or 2 under bf16 autocast.
        on_cpu: see ``activations``.
    """
    _, unique = parameters(config, sentence_task=sentence_task)
    size = unique * BYTES_FP32
    per_token = activations(config, length=length, masked_share=masked_share, on_cpu=on_cpu)
    return Memory(
        weights=size,
        gradients=size,
        optimizer=2 * size,
        activations=round(micro_tokens * per_token * activation_bytes),
    )


def activations(config: EncoderConfig, *, length: int, masked_share: float, on_cpu: bool) -> float:
    """Numbers that the backward pass needs, per token.

    A block keeps its input, query, key, value, the attention's output, two inputs of layer norms and the input of
    ``up`` (8 x hidden), and the two sides of the activation function (2 x ffn). Dropout keeps its two masks. Dropout of
    attention weights keeps those weights on a CPU, where PyTorch's fused kernel has none and the formula is computed.
    """
    hidden, ffn, narrow = config.hidden_size, config.intermediate_size, config.embedding_size
    block = 8.0 * hidden + 2 * ffn
    if config.hidden_dropout_prob:
        block += 2 * hidden
    if config.attention_probs_dropout_prob and on_cpu:
        block += 2.5 * config.num_attention_heads * length
    head = masked_share * (hidden + 3 * narrow + 2 * config.vocab_size)
    return len(schedule(config)) * block + 3 * narrow + head

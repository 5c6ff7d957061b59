"""Self-attention: every token looks at every real token of its text.

Two paths compute the same: the fused kernel of PyTorch, and the formula written out. Tests compare them; the plain one
is there to be read. Texts that lie packed in one row (``packing.py``) share the projections and attend run by run.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encoders.config import EncoderConfig
from encoders.packing import Packing, join_runs, split_runs


def attend(
    query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, *, dropout: float, fused: bool
) -> Tensor:
    """Weighted means of ``value``: softmax(query key^T / sqrt(head_dim)) value.

    Args:
        query: (batch, heads, seq, head_dim).
        key: as query.
        value: as query.
        attention_mask: bool, broadcastable to (batch, heads, seq, seq); true where a query may look. None: everywhere.
        dropout: probability of dropping an attention weight.
        fused: use PyTorch's fused kernel instead of the formula.

    Returns:
        (batch, heads, seq, head_dim). A query that may look nowhere gets some mean of all values: useless but finite.
    """
    if fused:
        bias = None if attention_mask is None else additive(attention_mask, query.dtype)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout)
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])  # (batch, heads, seq, seq)
    if attention_mask is not None:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    weights = F.dropout(scores.softmax(dim=-1), p=dropout)
    return weights @ value


def additive(attention_mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where attention may look and the lowest finite number elsewhere.

    Not minus infinity, which makes NaN of a row that may look nowhere (in exported graphs and some kernels), and not a
    constant such as -1e9, which half precision cannot hold.
    """
    return torch.zeros_like(attention_mask, dtype=dtype).masked_fill(~attention_mask, torch.finfo(dtype).min)


class SelfAttention(nn.Module):
    """The first part of a block: ``norm(hidden + dropout(output(attention(hidden))))``."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.fused = config.attention == "fused"
        self.attention_dropout = config.attention_probs_dropout_prob
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor, attention_mask: Tensor | None, packing: Packing | None = None) -> Tensor:
        """(batch, seq, hidden) -> (batch, seq, hidden); the mask is (batch, seq) bool or None for no padding.

        With a packing, the batch is one row of several texts and there is no mask.
        """
        query, key, value = self.query(hidden), self.key(hidden), self.value(hidden)
        if packing is None:
            mixed = self._mix(query, key, value, attention_mask)
        else:
            runs = zip(*(split_runs(row, packing) for row in (query, key, value)), strict=True)
            mixed = join_runs([self._mix(q, k, v, None) for q, k, v in runs])
        return self.norm(hidden + self.dropout(self.output(mixed)))

    def _mix(self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None) -> Tensor:
        """(batch, seq, hidden) each -> (batch, seq, hidden), the heads side by side."""
        mixed = attend(
            self._split(query),
            self._split(key),
            self._split(value),
            None if attention_mask is None else attention_mask[:, None, None, :],
            dropout=self.attention_dropout if self.training else 0.0,
            fused=self.fused,
        )
        return mixed.transpose(1, 2).flatten(2)

    def _split(self, projected: Tensor) -> Tensor:
        """(batch, seq, hidden) -> (batch, heads, seq, head_dim)."""
        return projected.unflatten(-1, (self.heads, -1)).transpose(1, 2)

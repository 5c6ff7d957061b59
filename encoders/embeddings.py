"""Token ids to vectors: word + segment type + position, normalised, and projected if the tables are narrow."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from contract.errors import UsageError
from encoders.config import EncoderConfig
from encoders.packing import Packing


class Embeddings(nn.Module):
    """``projection(dropout(norm(word + token_type + position)))``.

    The tables have width E = ``embedding_size``. With ALBERT's factorisation E is small and a linear map takes it to
    ``hidden``: V x E + E x H parameters instead of V x H. Without, there is no map.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        width = config.embedding_size
        # As in transformers, the padding row starts at zero and gets no gradient. RoBERTa pads positions too.
        self.word = nn.Embedding(config.vocab_size, width, padding_idx=config.pad_token_id)
        pads_positions = config.family.first_position(config.pad_token_id) > 0
        self.position = nn.Embedding(
            config.max_position_embeddings, width, padding_idx=config.pad_token_id if pads_positions else None
        )
        self.token_type = nn.Embedding(config.type_vocab_size, width)
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.projection = nn.Linear(width, config.hidden_size) if config.embedding_projection else nn.Identity()

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Tensor:
        """(batch, seq) int64 -> (batch, seq, hidden).

        Args:
            input_ids: (batch, seq).
            token_type_ids: (batch, seq); None means type 0 everywhere.
            position_ids: rows of the position table, broadcastable to (batch, seq); None means the family's numbering.
        """
        if position_ids is None:
            self._check_length(input_ids.shape[1])
            position_ids = self.config.family.number_positions(input_ids, self.config.pad_token_id)
        # The row itself instead of a lookup: cheaper, and the graph of a model without types needs no such input.
        types = self.token_type.weight[0] if token_type_ids is None else self.token_type(token_type_ids)
        vectors = self.word(input_ids) + types + self.position(position_ids)
        return self.projection(self.dropout(self.norm(vectors)))

    def packed_positions(self, packing: Packing, device: torch.device) -> Tensor:
        """(1, tokens) int64: rows of the position table for packed texts, each numbered as if it were alone."""
        self._check_length(max(packing.lengths))
        return packing.positions(device) + self.config.family.first_position(self.config.pad_token_id)

    def _check_length(self, length: int) -> None:
        """Refuse too long texts here: an index error on a GPU stops the process without saying where."""
        if isinstance(length, int) and length > self.config.max_length:  # not an int while the model is traced
            raise UsageError(
                f"the input has {length} tokens and the model has positions for {self.config.max_length}; truncate it."
            )

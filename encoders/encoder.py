"""The encoder: embeddings, then blocks of attention and feed-forward, executed by a schedule.

    input_ids                                     one block
        |                                             hidden ----------.
    [ embeddings ]                                      |              |
        |                                          [ attention ]       |
    [ attention[a0] -> ffn[f0] ]   layer 0              |              |
        |                                          dropout, + <--------'
    [ attention[a1] -> ffn[f1] ]   layer 1              |
        |                                             norm ------------.
       ...        (a, f) from sharing.schedule          |              |
        |                                      [ up -> activation -> down ]
    hidden states                                       |              |
                                                   dropout, + <--------'
                                                        |
                                                      norm -> hidden

The network is that of BERT: each part adds to its input and normalises afterwards ("post-norm"). Parts are stored once
in ``attention`` and ``ffn`` and executed as often as the schedule says, so sharing is a matter of numbers, not classes.
"""

from __future__ import annotations

from torch import Tensor, nn

from encoders.attention import SelfAttention
from encoders.config import EncoderConfig
from encoders.embeddings import Embeddings
from encoders.packing import Packing
from encoders.sharing import schedule


def activation(name: str) -> nn.Module:
    """``gelu`` is exact; ``gelu_new`` and ``gelu_pytorch_tanh`` are two names of its tanh approximation."""
    if name == "relu":
        return nn.ReLU()
    return nn.GELU(approximate="none" if name == "gelu" else "tanh")


class FeedForward(nn.Module):
    """The second part of a block: ``norm(hidden + dropout(down(activation(up(hidden)))))``."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = activation(config.hidden_act)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor) -> Tensor:
        """(batch, seq, hidden) -> (batch, seq, hidden), each token on its own."""
        return self.norm(hidden + self.dropout(self.down(self.activation(self.up(hidden)))))


class Encoder(nn.Module):
    """A contextual vector for every token: BERT, RoBERTa or ALBERT, as the configuration says."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.schedule = schedule(config)
        self.embeddings = Embeddings(config)
        self.attention = nn.ModuleList(SelfAttention(config) for _ in {block.attention for block in self.schedule})
        self.ffn = nn.ModuleList(FeedForward(config) for _ in {block.ffn for block in self.schedule})

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        position_ids: Tensor | None = None,
        packing: Packing | None = None,
        collect: list[Tensor] | None = None,
    ) -> Tensor:
        """Run the blocks.

        Args:
            input_ids: (batch, seq) int64.
            attention_mask: (batch, seq) bool or int64, true or 1 for a real token; None: there is no padding.
            token_type_ids: (batch, seq) int64; None: all of type 0.
            position_ids: rows of the position table, if not the family's own numbering.
            packing: the batch is one row (1, tokens) of several texts that do not see each other; no mask then.
            collect: a list that receives what enters the first block and what leaves each block.

        Returns:
            (batch, seq, hidden). Vectors at padding are arbitrary, but finite.
        """
        assert packing is None or attention_mask is None, "a packed row has no padding to mask"
        mask = None if attention_mask is None else attention_mask.bool()
        if packing is not None and position_ids is None:
            position_ids = self.embeddings.packed_positions(packing, input_ids.device)
        hidden = self.embeddings(input_ids, token_type_ids, position_ids)
        if collect is not None:
            collect.append(hidden)
        for block in self.schedule:
            hidden = self.ffn[block.ffn](self.attention[block.attention](hidden, mask, packing))
            if collect is not None:
                collect.append(hidden)
        return hidden

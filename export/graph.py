"""The classifier as an ONNX graph, written like the model's own definition.

Read it beside ``encoders/``: each function is the ``forward`` of the module it is given, without dropout. Sharing needs
no code: layers that use one module name the same weights.

Two things are done better than in the native module, with the same result:

- Padding is not computed. The interface is the usual rectangle (batch, seq); inside, ``Layout`` takes the real tokens
  out of it, and embeddings, linear layers, norms and activations see (tokens, hidden) only. Attention alone, which
  must know which text a token is in, works on a rectangle again. So whatever loads the graph saves the padding, not
  only our service.
- A classifier reads the first token only, so the last block computes queries, output and feed-forward for that token
  alone (keys and values still for all). For 12 layers that saves about 7 % of the arithmetic, for 6 about 14 %.

Values of two axes have another advantage: onnxruntime fuses their sums and norms less, and its fused
SkipLayerNormalization is slower on a CPU than Add and LayerNormalization (docs/decisions/002).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto
from torch import nn

from contract.manifest import TensorSpec
from encoders.attention import SelfAttention
from encoders.config import EncoderConfig
from encoders.embeddings import Embeddings
from encoders.encoder import Encoder, FeedForward
from encoders.heads import SequenceClassifier
from export.ops import Graph

MASKED = float(np.finfo(np.float32).min)
"""Added to the attention score of padding, which makes its weight exactly 0, and keeps a row of only padding finite."""


def input_specs(config: EncoderConfig) -> tuple[TensorSpec, ...]:
    """int64 (batch, seq) each; segment types only where the model has more than one."""
    names = ("input_ids", "attention_mask", "token_type_ids")[: 3 if config.type_vocab_size > 1 else 2]
    return tuple(TensorSpec(name=name, dtype="int64", axes=("batch", "seq")) for name in names)


def output_specs(config: EncoderConfig) -> tuple[TensorSpec, ...]:
    """``logits``, float32 (batch, labels)."""
    return (TensorSpec(name="logits", dtype="float32", axes=("batch", config.num_labels)),)


def classifier_graph(model: SequenceClassifier, graph: Callable[[nn.Module], Graph] = Graph) -> Graph:
    """The whole model, from ``input_specs`` to ``output_specs``, with the operators and weights of a kind of graph."""
    g = graph(model)
    first = encoder(g, model.encoder)  # (batch, hidden)
    with g.scope("pooler"):
        pooled = g.op("Tanh", g.linear(first, model.pooler.dense))
    with g.scope("classifier"):
        logits = g.linear(pooled, model.classifier)
    g.op("Identity", logits, output="logits")
    return g


def encoder(g: Graph, module: Encoder) -> str:
    """Hidden state of each text's first token after the last block: (batch, hidden)."""
    layout = Layout.of(g, module.config)
    with g.scope("embeddings"):
        hidden = embeddings(g, module.embeddings, layout)  # (tokens, hidden)
    with g.scope("mask"):
        is_padding = g.op("Equal", "attention_mask", g.constant(0))
        bias = g.op("Where", is_padding, g.constant(MASKED, np.float32), g.constant(0.0, np.float32))
        bias = g.op("Unsqueeze", bias, g.constant([1, 2]))  # (batch, 1, 1, seq)
    for index, block in enumerate(module.schedule):
        attends, feeds = module.attention[block.attention], module.ffn[block.ffn]
        assert isinstance(attends, SelfAttention)
        assert isinstance(feeds, FeedForward)
        with g.scope(f"block.{index}"):
            with g.scope("attention"):
                last = index == len(module.schedule) - 1
                attended = attention(g, attends, hidden, bias, layout, first_only=last)
            with g.scope("ffn"):
                hidden = feed_forward(g, feeds, attended)
    return hidden


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Where the tokens are: the computed ones in one row (tokens,), text after text, and the rectangle (batch, seq).

    Computed are all real tokens, and column 0 in any case: BERT and ALBERT read it, even where it is padding, and
    with it no text is empty. As a key it stays masked.
    """

    cells: str
    """(tokens,): the cell of the flattened rectangle that each token is in."""
    tokens: str
    """(batch, seq): the token of each cell; that of an earlier cell where the cell is padding, to be masked."""
    first: str
    """(batch,): the token that the pooler reads: column 0, or for RoBERTa the first real one."""

    @classmethod
    def of(cls, g: Graph, config: EncoderConfig) -> Layout:
        """The nodes that find it from ``attention_mask``; a few dozen integers per text."""
        with g.scope("layout"):
            columns = g.op("Range", g.constant(0), sequence_length(g), g.constant(1))
            computed = g.op(
                "Or", g.op("Cast", "attention_mask", to=TensorProto.BOOL), g.op("Equal", columns, g.constant(0))
            )
            flat = flatten(g, computed)
            cells = flatten(g, g.op("NonZero", flat))
            counted = g.op("CumSum", g.op("Cast", flat, to=TensorProto.INT64), g.constant(0))
            tokens = g.op("Reshape", g.op("Sub", counted, g.constant(1)), g.op("Shape", "attention_mask"))
            column = g.constant([0])
            if config.family.pads_anywhere:
                column = g.op("ArgMax", "attention_mask", axis=1, keepdims=1)  # (batch, 1): the first of the largest
                first = flatten(g, g.op("GatherElements", tokens, column, axis=1))
            else:
                first = flatten(g, g.op("Gather", tokens, column, axis=1))
        return cls(cells=cells, tokens=tokens, first=first)

    def row(self, g: Graph, rectangle: str) -> str:
        """(batch, seq) -> (tokens,)."""
        return g.op("Gather", flatten(g, rectangle), self.cells)


def flatten(g: Graph, value: str) -> str:
    """Any shape -> one axis."""
    return g.op("Reshape", value, g.constant([-1]))


def sequence_length(g: Graph) -> str:
    """``seq`` of the inputs, a scalar."""
    return g.op("Squeeze", g.op("Shape", "input_ids", start=1, end=2))


def embeddings(g: Graph, module: Embeddings, layout: Layout) -> str:
    """Word + position + segment type, normalised, and projected where the tables are narrow: (tokens, hidden)."""
    vectors = g.embedding(module.word.weight, layout.row(g, "input_ids"))
    vectors = g.op("Add", vectors, g.embedding(module.position.weight, positions(g, module, layout)))
    types = g.weight(module.token_type.weight)
    if module.config.type_vocab_size > 1:
        types = g.op("Gather", types, layout.row(g, "token_type_ids"))
    vectors = g.op("Add", vectors, types)
    # Not all of them follow it to here, and onnxruntime fuses nothing after a shape it does not know.
    g.declare(vectors, ("tokens", module.config.embedding_size))
    normed = g.layer_norm(vectors, module.norm)
    return g.linear(normed, module.projection) if isinstance(module.projection, nn.Linear) else normed


def positions(g: Graph, module: Embeddings, layout: Layout) -> str:
    """Row of the position table for each token: (tokens,)."""
    if module.config.model_type != "roberta":
        return g.op("Mod", layout.cells, sequence_length(g))
    # RoBERTa counts tokens from pad_token_id + 1 and skips padding, which it knows by its id.
    pad = g.constant(module.config.pad_token_id)
    real = g.op("Cast", g.op("Not", g.op("Equal", "input_ids", pad)), to=TensorProto.INT64)
    counted = g.op("Mul", g.op("CumSum", real, g.constant(1)), real)
    return g.op("Add", layout.row(g, counted), pad)


def attention(g: Graph, module: SelfAttention, hidden: str, bias: str, layout: Layout, *, first_only: bool) -> str:
    """What tokens learn from all tokens of their text, added to them and normalised.

    Returns:
        (tokens, hidden), or (batch, hidden) for the first token of each text alone.
    """
    width = module.query.out_features
    split = g.constant([0, 0, module.heads, width // module.heads])
    wanted = g.op("Gather", hidden, layout.first) if first_only else hidden

    def heads(rectangle: str, order: tuple[int, ...]) -> str:
        return g.op("Transpose", g.op("Reshape", rectangle, split), perm=order)

    query = g.linear(wanted, module.query)
    key, value = g.linear(hidden, module.key), g.linear(hidden, module.value)
    if first_only:
        query = g.op("Unsqueeze", query, g.constant([1]))  # (batch, 1, hidden)
    else:
        query = g.op("Gather", query, layout.tokens)  # (batch, seq, hidden)
    query = heads(query, (0, 2, 1, 3))  # (batch, heads, seq or 1, head_dim)
    key = heads(g.op("Gather", key, layout.tokens), (0, 2, 3, 1))  # (batch, heads, head_dim, seq)
    value = heads(g.op("Gather", value, layout.tokens), (0, 2, 1, 3))  # (batch, heads, seq, head_dim)
    scores = g.op("Mul", g.op("MatMul", query, key), g.constant(math.sqrt(module.heads / width), np.float32))
    weights = g.op("Softmax", g.op("Add", scores, bias), axis=-1)  # (batch, heads, seq or 1, seq)
    mixed = g.op("Transpose", g.op("MatMul", weights, value), perm=(0, 2, 1, 3))
    mixed = g.op("Reshape", mixed, g.constant([-1, width]))  # the cells of the rectangle, or one row for each text
    if not first_only:
        mixed = g.op("Gather", mixed, layout.cells)
    return g.layer_norm(g.op("Add", wanted, g.linear(mixed, module.output)), module.norm)


def feed_forward(g: Graph, module: FeedForward, hidden: str) -> str:
    """Each token on its own, (tokens, hidden), added to it and normalised."""
    wide = g.linear(hidden, module.up)
    if isinstance(module.activation, nn.ReLU):
        wide = g.op("Relu", wide)
    else:
        assert isinstance(module.activation, nn.GELU)
        wide = g.op("Gelu", wide, approximate=module.activation.approximate)
    return g.layer_norm(g.op("Add", hidden, g.linear(wide, module.down)), module.norm)

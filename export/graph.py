"""The classifier as an ONNX graph, written like the model's own definition.

Read it beside ``encoders/``: each function is the ``forward`` of the module it is given, without dropout. Sharing needs
no code: layers that use one module name the same weights.

One thing is done better than in the native module, with the same result: a classifier reads the first token only, so
the last block computes queries, output and feed-forward for that token alone (keys and values still for all). For 12
layers that saves about 7 % of the arithmetic, for 6 about 14 %.
"""

from __future__ import annotations

import math

import numpy as np
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


def classifier_graph(model: SequenceClassifier) -> Graph:
    """The whole model, from ``input_specs`` to ``output_specs``."""
    g = Graph(model)
    first = encoder(g, model.encoder)  # (batch, 1, hidden)
    with g.scope("pooler"):
        first = g.op("Squeeze", first, g.constant([1]))  # (batch, hidden)
        pooled = g.op("Tanh", g.linear(first, model.pooler.dense))
    with g.scope("classifier"):
        logits = g.linear(pooled, model.classifier)
    g.op("Identity", logits, output="logits")
    return g


def encoder(g: Graph, module: Encoder) -> str:
    """Hidden state of each text's first token after the last block: (batch, 1, hidden)."""
    with g.scope("embeddings"):
        hidden = embeddings(g, module.embeddings)  # (batch, seq, hidden)
    with g.scope("mask"):
        is_padding = g.op("Equal", "attention_mask", g.constant(0))
        bias = g.op("Where", is_padding, g.constant(MASKED, np.float32), g.constant(0.0, np.float32))
        bias = g.op("Unsqueeze", bias, g.constant([1, 2]))  # (batch, 1, 1, seq)
    for index, block in enumerate(module.schedule):
        attends, feeds = module.attention[block.attention], module.ffn[block.ffn]
        assert isinstance(attends, SelfAttention)
        assert isinstance(feeds, FeedForward)
        with g.scope(f"block.{index}"):
            wanted = first_token(g, module.config, hidden) if index == len(module.schedule) - 1 else hidden
            with g.scope("attention"):
                attended = attention(g, attends, wanted, hidden, bias)
            with g.scope("ffn"):
                hidden = feed_forward(g, feeds, attended)
    return hidden


def first_token(g: Graph, config: EncoderConfig, hidden: str) -> str:
    """What the pooler will read: column 0, or for RoBERTa the first real token of each row: (batch, 1, hidden)."""
    if not config.family.pads_anywhere:
        return g.op("Gather", hidden, g.constant([0]), axis=1)
    column = g.op("ArgMax", "attention_mask", axis=1, keepdims=1)  # (batch, 1): the first of the largest
    return g.op("Unsqueeze", g.op("GatherND", hidden, column, batch_dims=1), g.constant([1]))


def embeddings(g: Graph, module: Embeddings) -> str:
    """Word + position + segment type, normalised, and projected where the tables are narrow: (batch, seq, hidden)."""
    vectors = g.op("Gather", g.weight(module.word.weight), "input_ids")
    vectors = g.op("Add", vectors, positions(g, module))
    types = g.weight(module.token_type.weight)
    if module.config.type_vocab_size > 1:
        types = g.op("Gather", types, "token_type_ids")
    vectors = g.op("Add", vectors, types)
    # Not all of them follow it through Slice, and onnxruntime fuses nothing after a shape it does not know.
    g.declare(vectors, ("batch", "seq", module.config.embedding_size))
    normed = g.layer_norm(vectors, module.norm)
    return g.linear(normed, module.projection) if isinstance(module.projection, nn.Linear) else normed


def positions(g: Graph, module: Embeddings) -> str:
    """Position vectors, broadcastable to (batch, seq, E)."""
    table = g.weight(module.position.weight)
    if module.config.model_type != "roberta":
        length = g.op("Shape", "input_ids", start=1, end=2)
        return g.op("Slice", table, g.constant([0]), length)
    # RoBERTa counts tokens from pad_token_id + 1 and skips padding, which it knows by its id.
    pad = g.constant(module.config.pad_token_id)
    real = g.op("Cast", g.op("Not", g.op("Equal", "input_ids", pad)), to=7)  # int64
    counted = g.op("Mul", g.op("CumSum", real, g.constant(1)), real)
    return g.op("Gather", table, g.op("Add", counted, pad))


def attention(g: Graph, module: SelfAttention, wanted: str, hidden: str, bias: str) -> str:
    """What the tokens in ``wanted`` learn from all tokens: (batch, wanted, hidden), added to them and normalised."""
    head_dim = module.query.out_features // module.heads
    split = g.constant([0, 0, module.heads, head_dim])

    def heads(x: str, layer: nn.Linear, order: tuple[int, ...]) -> str:
        return g.op("Transpose", g.op("Reshape", g.linear(x, layer), split), perm=order)

    query = heads(wanted, module.query, (0, 2, 1, 3))  # (batch, heads, wanted, head_dim)
    key = heads(hidden, module.key, (0, 2, 3, 1))  # (batch, heads, head_dim, seq)
    value = heads(hidden, module.value, (0, 2, 1, 3))  # (batch, heads, seq, head_dim)
    scores = g.op("Mul", g.op("MatMul", query, key), g.constant(1 / math.sqrt(head_dim), np.float32))
    weights = g.op("Softmax", g.op("Add", scores, bias), axis=-1)  # (batch, heads, wanted, seq)
    mixed = g.op("Transpose", g.op("MatMul", weights, value), perm=(0, 2, 1, 3))
    mixed = g.op("Reshape", mixed, g.constant([0, 0, module.query.out_features]))
    return g.layer_norm(g.op("Add", wanted, g.linear(mixed, module.output)), module.norm)


def feed_forward(g: Graph, module: FeedForward, hidden: str) -> str:
    """Each token on its own: (batch, seq, hidden), added to it and normalised."""
    wide = g.linear(hidden, module.up)
    if isinstance(module.activation, nn.ReLU):
        wide = g.op("Relu", wide)
    else:
        assert isinstance(module.activation, nn.GELU)
        wide = g.op("Gelu", wide, approximate=module.activation.approximate)
    return g.layer_norm(g.op("Add", hidden, g.linear(wide, module.down)), module.norm)

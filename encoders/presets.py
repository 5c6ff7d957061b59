"""Named shapes: the published ones, and three small ones that train on a laptop and differ only in their design."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from contract.errors import UsageError, listing
from encoders.config import EncoderConfig

# https://github.com/google-research/bert, uncased models
BERT_BASE = EncoderConfig(
    model_type="bert",
    vocab_size=30522,
    hidden_size=768,
    num_hidden_layers=12,
    num_attention_heads=12,
    intermediate_size=3072,
)
BERT_LARGE = replace(
    BERT_BASE,
    hidden_size=1024,
    embedding_size=1024,
    num_hidden_layers=24,
    num_attention_heads=16,
    intermediate_size=4096,
)

# https://github.com/facebookresearch/fairseq/tree/main/examples/roberta; table 9 of the paper for dropout
ROBERTA_CHOICES: dict[str, Any] = {
    "model_type": "roberta",
    "vocab_size": 50265,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
}
ROBERTA_BASE = replace(BERT_BASE, **ROBERTA_CHOICES)
ROBERTA_LARGE = replace(BERT_LARGE, **ROBERTA_CHOICES)

# https://github.com/google-research/albert, version 2: no dropout but in the classification head
ALBERT_BASE = EncoderConfig(
    model_type="albert",
    vocab_size=30000,
    embedding_size=128,
    hidden_size=768,
    num_hidden_layers=12,
    num_attention_heads=12,
    intermediate_size=3072,
    hidden_act="gelu_new",
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    classifier_dropout=0.1,
    layer_sharing="all",
)


def _albert(layers: int, hidden: int) -> EncoderConfig:
    return replace(
        ALBERT_BASE,
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden,
    )


MINI_BERT = EncoderConfig(
    model_type="bert",
    vocab_size=8000,
    hidden_size=256,
    num_hidden_layers=6,
    num_attention_heads=4,
    intermediate_size=1024,
    initializer_range=0.035,  # 0.02 x sqrt(768 / 256); with 0.02 a narrow model learns late to use its context
)
MINI_ROBERTA = replace(MINI_BERT, **(ROBERTA_CHOICES | {"vocab_size": 8000}))
MINI_ALBERT = replace(
    MINI_BERT,
    model_type="albert",
    embedding_size=128,
    embedding_projection=True,
    hidden_act="gelu_new",
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    classifier_dropout=0.1,
    layer_sharing="all",
)

PRESETS: dict[str, EncoderConfig] = {
    "mini-bert": MINI_BERT,
    "mini-roberta": MINI_ROBERTA,
    "mini-albert": MINI_ALBERT,
    "bert-base": BERT_BASE,
    "bert-large": BERT_LARGE,
    "roberta-base": ROBERTA_BASE,
    "roberta-large": ROBERTA_LARGE,
    "albert-base": ALBERT_BASE,
    "albert-large": _albert(layers=24, hidden=1024),
    "albert-xlarge": _albert(layers=24, hidden=2048),
    "albert-xxlarge": _albert(layers=12, hidden=4096),
}


def preset(name: str) -> EncoderConfig:
    """The configuration of a named shape. Raises UsageError with the names that exist."""
    if name not in PRESETS:
        raise UsageError(f"there is no preset {name!r}; there are {listing(PRESETS, limit=len(PRESETS))}.")
    return PRESETS[name]

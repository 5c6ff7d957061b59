"""BERT (Devlin et al. 2018, https://arxiv.org/abs/1810.04805): the encoder that the other two vary.

    [CLS] first text [SEP] second text [SEP]        segment types 0 ... 0 1 ... 1, positions 0, 1, 2, ...

Pretrained on masked tokens and on *next-sentence prediction*: does the second text follow the first? The answer is read
from the pooler, ``tanh(dense(vector of [CLS]))``, which therefore arrives pretrained; classifiers read it too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from encoders.family import Family


def first_position(pad_token_id: int) -> int:
    """The first token reads row 0, whatever the padding id."""
    return 0


def number_positions(input_ids: Tensor, pad_token_id: int) -> Tensor:
    """Columns are counted from 0, padding included: (seq,), the same for each row of the batch."""
    return torch.arange(input_ids.shape[1], device=input_ids.device)


BLOCKS = {
    # One row per part of a block; RoBERTa's files name them alike.
    "encoder.attention.{attention}.query": "encoder.layer.{block}.attention.self.query",
    "encoder.attention.{attention}.key": "encoder.layer.{block}.attention.self.key",
    "encoder.attention.{attention}.value": "encoder.layer.{block}.attention.self.value",
    "encoder.attention.{attention}.output": "encoder.layer.{block}.attention.output.dense",
    "encoder.attention.{attention}.norm": "encoder.layer.{block}.attention.output.LayerNorm",
    "encoder.ffn.{ffn}.up": "encoder.layer.{block}.intermediate.dense",
    "encoder.ffn.{ffn}.down": "encoder.layer.{block}.output.dense",
    "encoder.ffn.{ffn}.norm": "encoder.layer.{block}.output.LayerNorm",
}
EMBEDDINGS = {
    "encoder.embeddings.word": "embeddings.word_embeddings",
    "encoder.embeddings.position": "embeddings.position_embeddings",
    "encoder.embeddings.token_type": "embeddings.token_type_embeddings",
    "encoder.embeddings.norm": "embeddings.LayerNorm",
    "encoder.embeddings.projection": "embeddings.projection",  # only ours: transformers has no factorised BERT
}

BERT = Family(
    name="bert",
    first_position=first_position,
    number_positions=number_positions,
    pads_anywhere=False,
    sentence_task="next-sentence",
    dropout_before_pooler=False,
    masked_lm_activation=None,
    renames={
        **{ours: f"bert.{theirs}" for ours, theirs in (EMBEDDINGS | BLOCKS).items()},
        "pooler.dense": "bert.pooler.dense",
        "classifier": "classifier",
        "masked_lm": "cls.predictions",
        "masked_lm.dense": "cls.predictions.transform.dense",
        "masked_lm.norm": "cls.predictions.transform.LayerNorm",
        "masked_lm.decoder": "cls.predictions.decoder",
        "sentence": "cls.seq_relationship",
    },
    architectures={
        "SequenceClassifier": "BertForSequenceClassification",
        "MaskedLanguageModel": "BertForMaskedLM",
        "PretrainingModel": "BertForPreTraining",
    },
    defaults={"hidden_act": "gelu", "layer_norm_eps": 1e-12, "pad_token_id": 0},
)

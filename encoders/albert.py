"""ALBERT (Lan et al. 2019, https://arxiv.org/abs/1909.11942): BERT with a tenth of the parameters.

    [CLS] first text [SEP] second text [SEP]        as BERT

Both of its savings are properties of our encoder, switched by configuration for any family:

- *Factorised embeddings*: tables of width E = ``embedding_size`` and one E x H projection instead of tables of width H.
- *Shared layers*: ``num_hidden_layers`` executions of ``num_hidden_groups`` stored blocks (``sharing.py``). This saves
  memory, not time: each execution costs what an unshared layer costs.

Only the sentence task is the family's own: *sentence-order prediction*, are these two consecutive texts in their order
(0) or swapped (1)?

Where the implementations disagree, with our choice:

- Released English models use the tanh GELU (``gelu_new``), Chinese ones ReLU: ``hidden_act`` decides, never the family.
- transformers always has the E x H projection, also when E = H; the paper's table counts none there. Files have it, so
  ``embedding_projection`` is true unless a configuration says otherwise.
- Google applies dropout after the feed-forward part, transformers' AlbertLayer forgets it. We apply it, as the paper's
  code does; released v2 models have dropout 0, where the two agree.
- transformers drops out the pooler's output before the sentence-order classifier; Google does not, and neither do we.
"""

from __future__ import annotations

from encoders.bert import first_position, number_positions
from encoders.family import Family

BLOCK = "albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}"

ALBERT = Family(
    name="albert",
    first_position=first_position,
    number_positions=number_positions,
    pads_anywhere=False,
    sentence_task="sentence-order",
    dropout_before_pooler=False,
    masked_lm_activation=None,
    renames={
        "encoder.embeddings.word": "albert.embeddings.word_embeddings",
        "encoder.embeddings.position": "albert.embeddings.position_embeddings",
        "encoder.embeddings.token_type": "albert.embeddings.token_type_embeddings",
        "encoder.embeddings.norm": "albert.embeddings.LayerNorm",
        "encoder.embeddings.projection": "albert.encoder.embedding_hidden_mapping_in",
        "encoder.attention.{attention}.query": f"{BLOCK}.attention.query",
        "encoder.attention.{attention}.key": f"{BLOCK}.attention.key",
        "encoder.attention.{attention}.value": f"{BLOCK}.attention.value",
        "encoder.attention.{attention}.output": f"{BLOCK}.attention.dense",
        "encoder.attention.{attention}.norm": f"{BLOCK}.attention.LayerNorm",
        "encoder.ffn.{ffn}.up": f"{BLOCK}.ffn",
        "encoder.ffn.{ffn}.down": f"{BLOCK}.ffn_output",
        "encoder.ffn.{ffn}.norm": f"{BLOCK}.full_layer_layer_norm",
        "pooler.dense": "albert.pooler",
        "classifier": "classifier",
        "masked_lm": "predictions",
        "masked_lm.dense": "predictions.dense",
        "masked_lm.norm": "predictions.LayerNorm",
        "masked_lm.decoder": "predictions.decoder",
        "sentence": "sop_classifier.classifier",
    },
    architectures={
        "SequenceClassifier": "AlbertForSequenceClassification",
        "MaskedLanguageModel": "AlbertForMaskedLM",
        "PretrainingModel": "AlbertForPreTraining",
    },
    defaults={
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "classifier_dropout": 0.1,
        "embedding_size": 128,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
        "layer_sharing": "all",
    },
    config_names={"classifier_dropout": "classifier_dropout_prob"},
)

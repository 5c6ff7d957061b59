"""RoBERTa (Liu et al. 2019, https://arxiv.org/abs/1907.11692): BERT's network, trained longer and more simply.

    <s> first text </s> </s> second text </s>       one segment type, positions 2, 3, 4, ... and padding at 1

What changed is the training: no sentence task, so no pretrained pooler, a byte-level vocabulary, dynamic masking, more
data. Inside the network three small things are new:

- Positions are counted from ``pad_token_id + 1`` and skip padding, so 514 rows serve 512 tokens, and a text padded on
  the left gets the same vectors as one padded on the right. (fairseq's ``make_positions`` does this.) The pooler
  follows suit and reads the first real token; transformers reads the first column, padding or not.
- The classification head brings its own pooler, with dropout on both sides. fairseq's default is no dropout there;
  transformers uses ``classifier_dropout``, else ``hidden_dropout_prob``, and so do we.
- The masked-LM head uses the exact GELU, whatever ``hidden_act`` says.
"""

from __future__ import annotations

from torch import Tensor

from encoders.bert import BLOCKS, EMBEDDINGS
from encoders.family import Family


def first_position(pad_token_id: int) -> int:
    """Rows up to and including ``pad_token_id`` are not for tokens."""
    return pad_token_id + 1


def number_positions(input_ids: Tensor, pad_token_id: int) -> Tensor:
    """Tokens are counted from ``pad_token_id + 1``; padding reads row ``pad_token_id``: (batch, seq)."""
    real = (input_ids != pad_token_id).long()
    return real.cumsum(dim=1) * real + pad_token_id


ROBERTA = Family(
    name="roberta",
    first_position=first_position,
    number_positions=number_positions,
    pads_anywhere=True,
    sentence_task=None,
    dropout_before_pooler=True,
    masked_lm_activation="gelu",
    renames={
        **{ours: f"roberta.{theirs}" for ours, theirs in (EMBEDDINGS | BLOCKS).items()},
        "pooler.dense": "classifier.dense",
        "classifier": "classifier.out_proj",
        "masked_lm": "lm_head",
        "masked_lm.dense": "lm_head.dense",
        "masked_lm.norm": "lm_head.layer_norm",
        "masked_lm.decoder": "lm_head.decoder",
    },
    architectures={
        "SequenceClassifier": "RobertaForSequenceClassification",
        "MaskedLanguageModel": "RobertaForMaskedLM",
    },
    defaults={"hidden_act": "gelu", "layer_norm_eps": 1e-12, "pad_token_id": 1},
)

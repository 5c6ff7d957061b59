"""What a model family is: a handful of choices around one and the same encoder.

BERT, RoBERTa and ALBERT differ in less than their names suggest. ``bert.py``, ``roberta.py`` and ``albert.py`` each
fill in one ``Family`` record; put them side by side to see every difference there is. What looks like a difference but
is a property of the encoder (factorised embeddings, sharing of layers) is configuration, open to all families.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """The choices of one family."""

    name: str
    """Hugging Face's ``model_type``, and the prefix of the encoder's tensors in its files."""
    first_position: Callable[[int], int]
    """pad_token_id -> row of the position table that the first real token reads."""
    number_positions: Callable[[Tensor, int], Tensor]
    """(input_ids (batch, seq), pad_token_id) -> rows of the position table, broadcastable to (batch, seq), int64."""
    pads_anywhere: bool
    """Whether padding may stand before or between tokens: positions skip it, the pooler looks for a token."""
    sentence_task: Literal["next-sentence", "sentence-order"] | None
    """What the sentence head is pretrained on, if there is one; it reads the pooler."""
    dropout_before_pooler: bool
    """Whether the classification head drops out the first token's vector before the pooler too."""
    masked_lm_activation: str | None
    """Activation of the masked-LM head; None means ``config.hidden_act``."""
    renames: Mapping[str, str]
    """Our module -> the module in Hugging Face's files; ``weights.py`` explains the placeholders."""
    architectures: Mapping[str, str]
    """Our model class -> transformers' class, for ``config.json``."""
    defaults: Mapping[str, Any]
    """Values of configuration fields that a ``config.json`` leaves out, as transformers fills them in."""
    config_names: Mapping[str, str] = field(default_factory=dict)
    """Our configuration field -> its name in ``config.json``, where they differ."""

"""The shape of an encoder, under Hugging Face's field names.

``EncoderConfig`` says everything that decides which tensors a model has and what it computes. ``from_hf`` and
``to_hf`` translate from and to the dictionary in ``config.json``. What transformers has no word for (layer sharing
outside ALBERT, or of one part only) goes under the key ``"robal"``; transformers keeps that key and ignores it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

from contract.errors import CheckpointError, listing
from contract.scores import PROBLEM_TYPES, ProblemType
from encoders.families import FAMILIES
from encoders.family import Family

Sharing: TypeAlias = Literal["all", "attention", "ffn", "none"]
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")
UNKNOWN_TO_TRANSFORMERS = "robal-"
"""Prefix of ``model_type`` for architectures that no transformers class computes, so that none tries to."""

SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
OURS = (
    *("layer_sharing", "num_hidden_layers", "num_hidden_groups", "inner_group_num"),
    *("embedding_size", "embedding_projection"),
)
"""What the ``"robal"`` key of ``config.json`` holds."""
COUNTS = (
    *SIZES,
    *("embedding_size", "max_position_embeddings", "type_vocab_size", "num_hidden_groups", "inner_group_num"),
)
UNSUPPORTED = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
"""Fields of ``config.json`` that must have this value if present."""


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Everything that decides the tensors of a model and what it computes. Names are those of ``config.json``.

    Raises:
        CheckpointError: a value is out of range or contradicts another one.
    """

    model_type: str
    """``bert``, ``roberta`` or ``albert``."""
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    """How many layers are executed; how many are stored depends on ``layer_sharing``."""
    num_attention_heads: int
    intermediate_size: int
    """Width of the feed-forward part (ffn)."""
    embedding_size: int = 0
    """Width E of the embedding tables; 0 means ``hidden_size``."""
    embedding_projection: bool | None = None
    """Whether a learned E x hidden map follows the embeddings. None: if E is not hidden, and always for ALBERT."""
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None
    """Dropout of the classification head; None means ``hidden_dropout_prob``."""
    max_position_embeddings: int = 512
    """Rows of the position table; see ``max_length`` for what they are good for."""
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0
    tie_word_embeddings: bool = True
    """Whether the masked-LM head decodes with the word embeddings; otherwise with a matrix of its own."""
    num_hidden_groups: int = 1
    """Layers are divided into so many runs of neighbours; what is shared is shared within a group."""
    inner_group_num: int = 1
    """Blocks that one layer executes in sequence, with parameters of their own."""
    layer_sharing: Sharing = "none"
    """Which part of a block the layers of a group share; ``sharing.py`` draws it."""
    labels: tuple[str, ...] = ("LABEL_0", "LABEL_1")
    problem_type: ProblemType = "single_label_classification"
    attention: Literal["fused", "plain"] = "fused"
    """How attention is computed, not what: a setting of the process, never stored."""

    def __post_init__(self) -> None:
        if not self.embedding_size:
            object.__setattr__(self, "embedding_size", self.hidden_size)
        if self.embedding_projection is None:
            needed = self.embedding_size != self.hidden_size or self.model_type == "albert"
            object.__setattr__(self, "embedding_projection", needed)
        self._check()

    def _check(self) -> None:
        def require(holds: bool, field: str, expected: str) -> None:
            if not holds:
                raise CheckpointError(f"{field}={getattr(self, field)!r} in the model's configuration; {expected}.")

        require(self.model_type in FAMILIES, "model_type", f"expected one of {listing(FAMILIES)}")
        for name in COUNTS:
            value = getattr(self, name)
            require(type(value) is int and value >= 1, name, "a whole number of at least 1 was expected")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
            value = getattr(self, name)
            allowed = isinstance(value, int | float) and 0 <= value < 1
            require(allowed or (value is None and name == "classifier_dropout"), name, "expected 0 <= p < 1")
        for name in ("initializer_range", "layer_norm_eps"):
            value = getattr(self, name)
            require(isinstance(value, int | float) and value > 0, name, "a number above 0 was expected")
        require(self.hidden_act in ACTIVATIONS, "hidden_act", f"expected one of {listing(ACTIVATIONS)}")
        require(self.layer_sharing in get_args(Sharing), "layer_sharing", f"expected {listing(get_args(Sharing))}")
        require(self.problem_type in PROBLEM_TYPES, "problem_type", f"expected one of {listing(PROBLEM_TYPES)}")
        require(self.attention in ("fused", "plain"), "attention", "expected 'fused' or 'plain'")
        require(
            self.hidden_size % self.num_attention_heads == 0,
            "num_attention_heads",
            f"it must divide hidden_size={self.hidden_size}",
        )
        require(
            self.num_hidden_groups <= self.num_hidden_layers,
            "num_hidden_groups",
            f"there are only {self.num_hidden_layers} layers to divide",
        )
        require(
            bool(self.embedding_projection) or self.embedding_size == self.hidden_size,
            "embedding_projection",
            f"embedding_size={self.embedding_size} needs a map to hidden_size={self.hidden_size}, or the same width",
        )
        require(
            type(self.pad_token_id) is int and 0 <= self.pad_token_id < self.vocab_size,
            "pad_token_id",
            f"an id below vocab_size={self.vocab_size} was expected",
        )
        require(
            self.max_length >= 1, "max_position_embeddings", f"no position is left for the family {self.model_type}"
        )
        distinct = len(set(self.labels)) == len(self.labels) >= 1
        require(distinct, "labels", "at least one label and no name twice were expected")
        if self.problem_type == "regression":
            require(self.num_labels == 1, "labels", "regression has one output")

    @property
    def family(self) -> Family:
        """What this encoder's family does differently."""
        return FAMILIES[self.model_type]

    @property
    def num_labels(self) -> int:
        """Outputs of the classification head."""
        return len(self.labels)

    @property
    def head_dropout(self) -> float:
        """Dropout of the classification head."""
        return self.hidden_dropout_prob if self.classifier_dropout is None else self.classifier_dropout

    @property
    def max_length(self) -> int:
        """Most tokens of a text, special tokens included: RoBERTa's 514 positions hold 512 tokens."""
        return self.max_position_embeddings - self.family.first_position(self.pad_token_id)

    @property
    def fits_transformers(self) -> bool:
        """Whether transformers has a class for this: not for BERT or RoBERTa with a map, nor for ALBERT without."""
        return bool(self.embedding_projection) == (self.model_type == "albert")

    @property
    def stores_groups(self) -> bool:
        """Whether the file holds each group of layers once, ALBERT's layout; otherwise it holds each executed block.

        transformers' AlbertModel cannot run a group of more blocks than layers (it slices its head masks by layers).
        """
        is_albert = self.model_type == "albert" and self.layer_sharing == "all"
        return is_albert and self.inner_group_num <= self.num_hidden_layers // self.num_hidden_groups

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> EncoderConfig:
        """Read the dictionary of a ``config.json``; what it leaves out is filled in as transformers does.

        Raises:
            CheckpointError: an unknown family, a missing size, or an architecture variant that is not supported.
        """
        model_type = str(raw.get("model_type")).removeprefix(UNKNOWN_TO_TRANSFORMERS)
        if model_type not in FAMILIES:
            raise CheckpointError(
                f"model_type={raw.get('model_type')!r} is not a family that robal knows; expected {listing(FAMILIES)}."
            )
        for name, plain in UNSUPPORTED.items():
            if raw.get(name, plain) != plain:
                raise CheckpointError(
                    f"config.json has {name}={raw[name]!r}; robal reads encoders with {plain!r} only."
                )
        family = FAMILIES[model_type]
        values: dict[str, Any] = dict(family.defaults)
        for name in STORED:
            theirs = family.config_names.get(name, name)
            if raw.get(theirs) is not None:
                values[name] = raw[theirs]
        ours = raw.get("robal", {})
        if not isinstance(ours, dict) or not set(ours) <= set(OURS):
            raise CheckpointError(f'"robal" in config.json is {ours!r}; expected an object with {listing(OURS)}.')
        values |= ours
        if missing := [name for name in SIZES if name not in values]:
            raise CheckpointError(f"config.json lacks {listing(missing)}; these sizes cannot be guessed.")
        values["labels"] = _labels(raw)
        if raw.get("problem_type") is not None:
            values["problem_type"] = raw["problem_type"]
        elif len(values["labels"]) == 1:
            values["problem_type"] = "regression"  # what transformers makes of a single output
        return cls(model_type=model_type, **values)

    def to_hf(self) -> dict[str, Any]:
        """The dictionary for ``config.json``: what transformers reads, and under ``"robal"`` how layers are shared.

        transformers has one stored block per layer (BERT, RoBERTa) or per group (ALBERT). Any other sharing is written
        out as copies, a layer for each executed block, and found again through the ``"robal"`` key, which is there only
        if something would be lost without it.
        """
        blocks = self.num_hidden_layers * self.inner_group_num
        raw: dict[str, Any] = {
            "model_type": self.model_type if self.fits_transformers else UNKNOWN_TO_TRANSFORMERS + self.model_type,
            "num_hidden_layers": self.num_hidden_layers if self.stores_groups else blocks,
            "position_embedding_type": "absolute",
            "id2label": {str(index): label for index, label in enumerate(self.labels)},
            "label2id": {label: index for index, label in enumerate(self.labels)},
            "problem_type": self.problem_type,
        }
        for name in STORED:
            if name not in OURS:
                raw[self.family.config_names.get(name, name)] = getattr(self, name)
        if self.model_type == "albert":
            raw["classifier_dropout_prob"] = self.head_dropout  # transformers takes no null here
            raw["embedding_size"] = self.embedding_size
            raw["num_hidden_groups"] = self.num_hidden_groups if self.stores_groups else blocks
            raw["inner_group_num"] = self.inner_group_num if self.stores_groups else 1
        read_back = EncoderConfig.from_hf(raw)
        if any(getattr(read_back, name) != getattr(self, name) for name in OURS):
            raw["robal"] = {name: getattr(self, name) for name in OURS}
        return raw


STORED = tuple(
    field.name
    for field in fields(EncoderConfig)
    if field.name not in ("model_type", "labels", "problem_type", "attention", "layer_sharing", "embedding_projection")
)
"""Fields that are plain values in ``config.json``."""


def generic_labels(count: int) -> tuple[str, ...]:
    """The names that transformers gives to labels without a name."""
    return tuple(f"LABEL_{index}" for index in range(count))


def _labels(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Label names in the order of the logits."""
    names = raw.get("id2label")
    if names is None:
        return generic_labels(2)
    try:
        by_id = {int(index): str(label) for index, label in names.items()}
    except (AttributeError, ValueError):
        raise CheckpointError(
            f"id2label in config.json is {names!r}; expected an object such as {{'0': 'no'}}."
        ) from None
    if sorted(by_id) != list(range(len(by_id))):
        raise CheckpointError(f"id2label in config.json has the ids {listing(by_id)}; expected 0, 1, 2, ...")
    return tuple(by_id[index] for index in range(len(by_id)))

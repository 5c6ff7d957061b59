"""Requests and answers of the HTTP API: the shapes that the OpenAPI document shows; ``parsing.py`` fills them."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from contract.encoding import Text

TIMEOUT_HEADER = "x-timeout-ms"
"""For proxies and clients that set a deadline without knowing the body; the body's own value goes before it."""

TEXT, OBJECT, LIST = "<text>", "<object>", "<list>"
"""Steps that pydantic adds to the path of a fault, for each kind of input."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TextObject(_Strict):
    """A text, or a pair of texts such as a question and an answer."""

    text: str = Field(description="The text. It may be blank; then the model sees only its special tokens.")
    text_pair: str | None = Field(None, description="Second text, for models that were trained on pairs.")


def _kind_of_item(value: object) -> str | None:
    if isinstance(value, str):
        return TEXT
    return OBJECT if isinstance(value, dict | TextObject) else None


def _kind_of_inputs(value: object) -> str | None:
    return LIST if isinstance(value, list) else _kind_of_item(value)


_Item: TypeAlias = Annotated[
    Annotated[str, Tag(TEXT)] | Annotated[TextObject, Tag(OBJECT)],
    Discriminator(
        _kind_of_item,
        custom_error_type="input_kind",
        custom_error_message="must be a string or an object with text and text_pair",
    ),
]
_Inputs: TypeAlias = Annotated[
    Annotated[str, Tag(TEXT)] | Annotated[TextObject, Tag(OBJECT)] | Annotated[list[_Item], Tag(LIST)],
    Discriminator(
        _kind_of_inputs,
        custom_error_type="input_kind",
        custom_error_message="must be a string, an object with text and text_pair, or a list of these",
    ),
]


_Truncation: TypeAlias = Annotated[
    Literal["right", "left", "off"],
    Field(
        description="Which side of a text over the model's limit is cut. With `off` such a request is refused (422)."
    ),
]
_TimeoutMs: TypeAlias = Annotated[
    Annotated[float, Field(gt=0)] | None,
    Field(
        description="How long the answer is of use. A request that cannot be answered in time is refused at once, and "
        "one whose time passes while it waits is not computed (504)."
    ),
]
_Priority: TypeAlias = Annotated[
    Literal["low", "normal", "high"],
    Field(description="A larger or smaller share of the engine, beside other requests that wait."),
]


class ClassifyRequest(_Strict):
    """Texts to classify."""

    inputs: _Inputs = Field(
        description="One text, or a list of texts. A text is a string, or an object with `text` and `text_pair`. "
        "An empty list has an empty answer."
    )
    top_k: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Number of labels in `scores`, best first; all by default."
    )
    raw_scores: bool = Field(False, description="Give the model's raw logits in place of probabilities.")
    threshold: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None,
        description="For models of several labels: the probability from which a label counts as given. By default each "
        "label's own, which the training found, else 0.5.",
    )
    truncation: _Truncation = "right"
    timeout_ms: _TimeoutMs = None
    priority: _Priority = "normal"

    def texts(self) -> list[Text]:
        """The texts in order."""
        items = self.inputs if isinstance(self.inputs, list) else [self.inputs]
        return [_as_text(item) for item in items]


class ExplainRequest(_Strict):
    """One text whose answer is to be explained."""

    inputs: _Item = Field(description="One text: a string, or an object with `text` and `text_pair`.")
    label: str | None = Field(None, description="The label to explain; by default the best one.")
    truncation: _Truncation = "right"
    timeout_ms: _TimeoutMs = None
    priority: _Priority = "low"

    def text(self) -> Text:
        """The text."""
        return _as_text(self.inputs)


def _as_text(item: str | TextObject) -> Text:
    if isinstance(item, str):
        return item
    return item.text if item.text_pair is None else (item.text, item.text_pair)


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class LabelScore(_Answer):
    """One label with its score."""

    label: str
    score: float = Field(
        description="A probability (softmax for one label, sigmoid for several), the value itself for a regression, "
        "or the raw logit if raw_scores was true. Probabilities are calibrated where the model's training found a "
        "temperature; /info has it."
    )


class Result(_Answer):
    """The answer for one text."""

    label: str = Field(description="The best label.")
    score: float = Field(description="Its score.")
    scores: list[LabelScore] = Field(description="Labels, best first, at most top_k of them.")
    given: list[str] | None = Field(
        description="For models of several labels: those whose probability reaches the threshold, in the model's "
        "order; null for other models."
    )
    truncated: bool = Field(description="Whether tokens of the text were cut.")
    tokens: int = Field(description="Tokens that the model read, special tokens included.")


class ItemError(_Answer):
    """Why one text of a list has no result."""

    type: Literal["internal_error"] = Field(description="As in the error table.")
    message: str = Field(description="A sentence for people.")


class FailedResult(_Answer):
    """In place of a result, for a text of a list that could not be computed; the others have theirs."""

    error: ItemError


class ModelName(_Answer):
    """Which model answered."""

    name: str
    family: str = Field(description="bert, roberta or albert.")
    precision: str = Field(description="fp32, int8, ...")


class Usage(_Answer):
    """What the request amounted to."""

    texts: int
    tokens: int = Field(description="Tokens that the model read, special tokens included.")


class ClassifyResponse(_Answer):
    """Results in the order of the texts."""

    model: ModelName
    results: list[Result | FailedResult]
    usage: Usage


class PartEffect(_Answer):
    """What a part of the text does for the label: its score with the part, less its score without."""

    side: Literal["text", "text_pair"] = Field(description="Which text of a pair; `text` if there is one only.")
    start: int = Field(description="First character of the part in that text, counted in Unicode code points from 0.")
    end: int = Field(description="Character after its last.")
    text: str = Field(description="Its characters.")
    score_drop: float = Field(
        description="By how much the label's score falls when the part is left out; negative where it rises."
    )
    logit_drop: float = Field(description="The same for the label's raw logit.")


class ExplainResponse(_Answer):
    """The parts of one text in their order, and what each does for one label."""

    model: ModelName
    label: str = Field(description="The label that is explained.")
    score: float = Field(description="Its score for the text as the model reads it.")
    logit: float = Field(description="Its raw logit.")
    truncated: bool = Field(description="Whether tokens of the text were cut. What was cut has no parts.")
    tokens: int = Field(description="Tokens that the model read, special tokens included.")
    words: int = Field(description="Words that the model read; punctuation and each ideograph count as words.")
    words_per_part: int = Field(
        description="Words left out together: 1, or more where the text has more words than `limits.max_explain_parts` "
        "in /info or the queue allow."
    )
    parts: list[PartEffect]
    usage: Usage


class BundleInfo(_Answer):
    """The files being served."""

    format_version: int
    size_bytes: int = Field(description="Size of the graph being served and its weights.")


class LimitsInfo(_Answer):
    """What a request may ask for, and what the service holds."""

    max_texts: int
    max_explain_parts: int
    max_chars: int
    max_body_bytes: int
    max_requests: int
    max_batch_tokens: int
    max_batch_items: int
    max_queue_tokens: int
    timeout_s: float
    engine_timeout_s: float


class Info(_Answer):
    """The model and the limits."""

    name: str
    family: str
    problem_type: str
    labels: list[str]
    max_length: int = Field(description="Most tokens of a text, special tokens included; the rest is cut.")
    precision: str
    provider: str = Field(description="What computes: cpu, openvino or cuda.")
    temperature: float = Field(description="By which logits are divided before they are probabilities; 1: as they are.")
    parameters: int = Field(description="Parameters, counted once for each time a layer uses them.")
    unique_parameters: int = Field(description="Parameters that are stored.")
    bundle: BundleInfo
    limits: LimitsInfo
    robal_version: str = Field(description="Version that made the bundle.")


class Status(_Answer):
    """Answer of a probe."""

    status: Literal["alive", "ready"]


class ErrorDetail(_Answer):
    """What went wrong."""

    type: str = Field(description="A word for programs, such as `too_large`.")
    message: str = Field(description="A sentence for people.")
    field: str | None = Field(description="Path of the offending value, such as `inputs[3].text`, if there is one.")
    request_id: str = Field(description="The same as the header x-request-id; the service's log has it too.")


class ErrorResponse(_Answer):
    """Body of every answer that is not a success."""

    error: ErrorDetail

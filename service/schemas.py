"""Requests and answers of the HTTP API: the shapes that the OpenAPI document shows, checked strictly.

A request is parsed from its raw bytes, because JSON parsers are more forgiving than an API should be: duplicate
names, NaN, lone surrogates and other encodings than UTF-8 are refused, each with the path of the offending value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from contract.encoding import Text, is_encodable
from contract.errors import InvalidRequest, TooLarge
from service.settings import Settings

TIMEOUT_HEADER = "x-timeout-ms"
"""For proxies and clients that set a deadline without knowing the body; the body's own value goes before it."""

_TEXT, _OBJECT, _LIST = "<text>", "<object>", "<list>"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TextObject(_Strict):
    """A text, or a pair of texts such as a question and an answer."""

    text: str = Field(description="The text. It may be blank; then the model sees only its special tokens.")
    text_pair: str | None = Field(None, description="Second text, for models that were trained on pairs.")


def _kind_of_item(value: object) -> str | None:
    if isinstance(value, str):
        return _TEXT
    return _OBJECT if isinstance(value, dict | TextObject) else None


def _kind_of_inputs(value: object) -> str | None:
    return _LIST if isinstance(value, list) else _kind_of_item(value)


_Item: TypeAlias = Annotated[
    Annotated[str, Tag(_TEXT)] | Annotated[TextObject, Tag(_OBJECT)],
    Discriminator(
        _kind_of_item,
        custom_error_type="input_kind",
        custom_error_message="must be a string or an object with text and text_pair",
    ),
]
_Inputs: TypeAlias = Annotated[
    Annotated[str, Tag(_TEXT)] | Annotated[TextObject, Tag(_OBJECT)] | Annotated[list[_Item], Tag(_LIST)],
    Discriminator(
        _kind_of_inputs,
        custom_error_type="input_kind",
        custom_error_message="must be a string, an object with text and text_pair, or a list of these",
    ),
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
    truncation: Literal["right", "left", "off"] = Field(
        "right",
        description="Which side of a text over the model's limit is cut. With `off` such a request is refused (422).",
    )
    timeout_ms: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="How long the answer is of use. A request that cannot be answered in time is refused at once, and "
        "one whose time passes while it waits is not computed (504).",
    )
    priority: Literal["low", "normal", "high"] = Field(
        "normal", description="A larger or smaller share of the engine, beside other requests that wait."
    )

    def texts(self) -> list[Text]:
        """The texts in order."""
        items = self.inputs if isinstance(self.inputs, list) else [self.inputs]
        return [_as_text(item) for item in items]


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


class BundleInfo(_Answer):
    """The files being served."""

    format_version: int
    size_bytes: int = Field(description="Size of the graph being served and its weights.")


class LimitsInfo(_Answer):
    """What a request may ask for, and what the service holds."""

    max_texts: int
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


def parse_classify(body: bytes, settings: Settings) -> ClassifyRequest:
    """Read and check a request body.

    Raises:
        InvalidRequest: the body is not one JSON object of the schema; ``field`` is the path of the first fault.
        TooLarge: too many texts, or a text with too many characters.
    """
    value = _parse_json(body)
    inputs = value.get("inputs")
    if isinstance(inputs, list) and len(inputs) > settings.max_texts:  # before looking at each of them
        raise TooLarge(
            f"the request has {len(inputs)} texts and the limit is {settings.max_texts}; send several requests.",
            field="inputs",
        )
    try:
        request = ClassifyRequest.model_validate(value)
    except ValidationError as error:
        raise _as_error(error) from None
    for path, text in _parts(request):
        if len(text) > settings.max_chars:
            raise TooLarge(
                f"the text has {len(text)} characters and the limit is {settings.max_chars}; shorten it.", field=path
            )
        if not is_encodable(text):
            raise InvalidRequest(f"the text {_HALF_A_CHARACTER}.", field=path)
    return request


def parse_timeout(header: str) -> float:
    """Milliseconds of the header. Raises InvalidRequest for what is not a positive number."""
    try:
        value = float(header)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InvalidRequest("must be a positive number of milliseconds.", field=TIMEOUT_HEADER)
    return value


def _parts(request: ClassifyRequest) -> Iterator[tuple[str, str]]:
    """Each string of a request with its path."""
    several = isinstance(request.inputs, list)
    for index, item in enumerate(request.inputs if isinstance(request.inputs, list) else [request.inputs]):
        path = f"inputs[{index}]" if several else "inputs"
        if isinstance(item, str):
            yield path, item
        else:
            yield f"{path}.text", item.text
            if item.text_pair is not None:
                yield f"{path}.text_pair", item.text_pair


_EXAMPLE = 'a JSON object such as {"inputs": "a text"}'


def _parse_json(body: bytes) -> dict[str, Any]:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the body is not UTF-8 (byte {error.start} cannot be decoded).") from None
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except InvalidRequest:
        raise
    except json.JSONDecodeError as error:
        problem = "empty" if not text.strip() else f"not valid JSON ({error.msg}, character {error.pos})"
        raise InvalidRequest(f"the body is {problem}; send {_EXAMPLE}.") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply.") from None
    except ValueError:  # the only other one: an integer of more digits than Python converts
        raise InvalidRequest("the body has a number with too many digits.") from None
    if not isinstance(value, dict):
        raise InvalidRequest(f"the body must be {_EXAMPLE}.")
    return value


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRequest("the name occurs twice in one object.", field=_shown(twice))
    return value


def _no_constant(name: str) -> Any:
    raise InvalidRequest(f"the body holds {name}, which is not JSON.")


_HALF_A_CHARACTER = "holds half of a surrogate pair (a cut emoji?); send whole characters"
_SENTENCES = {
    "extra_forbidden": "unknown field",
    "missing": "the field is required",
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "bool_type": "must be true or false",
    "string_unicode": f"the name {_HALF_A_CHARACTER}",
}
_SHOWN_FAULTS = 3


def _as_error(error: ValidationError) -> InvalidRequest:
    """The first fault's path, and a sentence for each of the first few."""
    faults = error.errors(include_url=False, include_input=False)
    sentences = []
    for fault in faults[:_SHOWN_FAULTS]:
        sentence = _SENTENCES.get(fault["type"], fault["msg"].replace("Input should", "must"))
        sentences.append(f"{_path(fault['loc'])}: {sentence}" if len(faults) > 1 else sentence)
    if len(faults) > _SHOWN_FAULTS:
        sentences.append(f"and {len(faults) - _SHOWN_FAULTS} more")
    return InvalidRequest("; ".join(sentences) + ".", field=_path(faults[0]["loc"]) or None)


def _path(location: Sequence[int | str]) -> str:
    """``('inputs', '<list>', 3, '<object>', 'text')`` as ``inputs[3].text``."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part not in (_TEXT, _OBJECT, _LIST):
            path += f".{_shown(part)}" if path else _shown(part)
    return path


def _shown(name: str) -> str:
    """A client's own name as an answer may show it: printable, and not longer than a line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name[:60])

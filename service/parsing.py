"""From the raw bytes of a request body to a checked request.

JSON parsers are more forgiving than an API should be: duplicate names, NaN, lone surrogates and other encodings than
UTF-8 are refused here, each with the path of the offending value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from contract.encoding import is_encodable
from contract.errors import InvalidRequest, TooLarge
from service.schemas import LIST, OBJECT, TEXT, TIMEOUT_HEADER, ClassifyRequest, ExplainRequest
from service.settings import Settings

Request = TypeVar("Request", ClassifyRequest, ExplainRequest)


def parse_classify(body: bytes, settings: Settings) -> ClassifyRequest:
    """Read and check the body of a request to classify.

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
    return _checked(ClassifyRequest, value, settings)


def parse_explain(body: bytes, settings: Settings) -> ExplainRequest:
    """Read and check the body of a request to explain; raises as ``parse_classify``."""
    return _checked(ExplainRequest, _parse_json(body), settings)


def _checked(kind: type[Request], value: dict[str, Any], settings: Settings) -> Request:
    try:
        request = kind.model_validate(value)
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


def _parts(request: ClassifyRequest | ExplainRequest) -> Iterator[tuple[str, str]]:
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
        elif part not in (TEXT, OBJECT, LIST):
            path += f".{_shown(part)}" if path else _shown(part)
    return path


def _shown(name: str) -> str:
    """A client's own name as an answer may show it: printable, and not longer than a line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name[:60])

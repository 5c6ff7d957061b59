"""Who may ask: keys, probes without one, and that nothing but the key's hash is needed."""

import hashlib
from pathlib import Path

import pytest

from contract.errors import UsageError
from service.keys import Keys
from tests.service.inprocess import Client, make_api, problem

KEY = "a1b2c3"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.txt"
    digests = [hashlib.sha256(key.encode()).hexdigest() for key in ("other", KEY)]
    path.write_text(f"# who may ask\n\n{digests[0]}\n{digests[1]} billing team\n")
    return path


def test_only_known_keys_may_ask_and_probes_need_none(words: Path, keys: Path) -> None:
    body = {"inputs": "good"}
    with Client(make_api(words, api_keys=keys)) as client:
        for headers in ({"authorization": f"Bearer {KEY}"}, {"authorization": "bearer other"}, {"x-api-key": KEY}):
            assert client.post("/classify", json=body, headers=headers).status_code == 200
            assert client.get("/info", headers=headers).status_code == 200
        digest = hashlib.sha256(KEY.encode()).hexdigest()
        wrong = [
            {},
            {"x-api-key": "wrong"},
            {"authorization": "Bearer"},
            {"authorization": f"Basic {KEY}"},
            {"authorization": f"Bearer {digest}"},  # what the file holds opens nothing
        ]
        for headers in wrong:
            for path in ("/info", "/metrics", "/docs", "/openapi.json", "/nope"):
                answer = client.get(path, headers=headers)
                problem(answer, 401, "unauthorized")
                assert answer.headers["www-authenticate"] == "Bearer"
            problem(client.post("/classify", json=body, headers=headers), 401, "unauthorized")
        for path in ("/livez", "/readyz", "/", "/page/app.js"):
            assert client.get(path).status_code == 200


def test_without_a_file_everybody_may_ask(words: Path) -> None:
    with Client(make_api(words)) as client:
        assert client.post("/classify", json={"inputs": "good"}).status_code == 200


def test_every_answer_tells_browsers_to_be_careful(words: Path) -> None:
    with Client(make_api(words)) as client:
        for path in ("/docs", "/info", "/nope"):
            headers = client.get(path).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert not [name for name in headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("secret\n", r"keys\.txt, line 1: a sha256 of 64 hexadecimal digits was expected"),
        ("# nobody\n", r"keys\.txt has no key, so that nobody could ask"),
        (None, r"keys\.txt cannot be read"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, content: str | None, sentence: str) -> None:
    path = tmp_path / "keys.txt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=sentence):
        Keys.read(path)

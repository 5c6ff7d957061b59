"""Settings travel through the environment unchanged."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import BundleError, UsageError
from contract.manifest import load_manifest
from service.settings import Settings, available_cpus

positive = st.integers(1, 10**9)


@given(
    st.builds(
        Settings,
        bundle=st.just(Path("/a b/c")),
        precision=st.sampled_from(["fp32", "int8"]),
        threads=st.none() | positive,
        max_batch_tokens=positive,
        max_texts=positive,
        timeout_s=st.floats(0.001, 1e6),
        verify=st.booleans(),
    )
)
def test_the_environment_brings_back_what_it_was_given(settings: Settings) -> None:
    environment = settings.to_environment()
    assert all(name.startswith("ROBAL_") for name in environment)
    assert Settings.from_environment({"PATH": "/bin", **environment}) == settings


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, "ROBAL_BUNDLE="),
        ({"ROBAL_BUNDLE": "b", "ROBAL_MAX_TEXTS": "many"}, "ROBAL_MAX_TEXTS=many"),
        ({"ROBAL_BUNDLE": "b", "ROBAL_THREADS": "0"}, "ROBAL_THREADS=0"),
    ],
)
def test_a_bad_environment_is_one_sentence(environment: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Settings.from_environment(environment)


def test_limits_smaller_than_one_text_are_refused(words: Path) -> None:
    manifest = load_manifest(words)
    Settings(bundle=words, max_batch_tokens=16, max_queue_tokens=16).check(manifest)
    for name in ("max_batch_tokens", "max_queue_tokens"):
        with pytest.raises(UsageError, match=f"--{name.replace('_', '-')} 15 is less than the 16 tokens"):
            Settings(bundle=words, **{name: 15}).check(manifest)  # type: ignore[arg-type]
    with pytest.raises(BundleError, match="no int8 graph"):
        Settings(bundle=words, precision="int8").check(manifest)


def test_processors_are_counted() -> None:
    assert available_cpus() >= 1


def shown(arguments: list[str], environment: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Value and origin of each setting, as ``--print-settings`` prints them."""
    command = [sys.executable, "-m", "robal", "serve", *arguments, "--print-settings"]
    run = subprocess.run(
        command, env=os.environ | {"COLUMNS": "200"} | environment, capture_output=True, text=True, check=True
    )
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in run.stdout.splitlines() if "│" in line]
    return {name: (value, origin) for name, value, origin in rows}


def test_a_flag_goes_before_a_variable_and_that_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "robal.toml"
    file.write_text("max-texts = 1\nmax_chars = 2\ntimeout_s = 3\nport = 4\nverify = false\n")
    table = shown(
        ["bundle", "--settings", str(file), "--max-texts", "7"], {"ROBAL_MAX_TEXTS": "8", "ROBAL_MAX_CHARS": "9"}
    )
    assert table["max_texts"] == ("7", "flag")
    assert table["max_chars"] == ("9", "variable")
    assert table["timeout_s"] == ("3", str(file))
    assert table["port"] == ("4", str(file))
    assert table["verify"] == ("False", str(file))
    assert table["max_requests"] == ("256", "default")
    assert table.keys() == {*Settings.model_fields, "host", "port"} - {"bundle"}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("max_texts = [", "cannot be read as TOML"),
        ("max_text = 5", "has 'max_text', which is no setting; there are 'api_keys'"),
        ("max_texts = 0", "max_texts = 0 (.*robal.toml): input should be greater than or equal to 1"),
        ("bundle = 'x'", "has 'bundle', which is no setting"),
    ],
)
def test_a_wrong_settings_file_is_one_sentence(tmp_path: Path, content: str, sentence: str) -> None:
    file = tmp_path / "robal.toml"
    file.write_text(content)
    command = [sys.executable, "-m", "robal", "serve", "bundle", "--settings", str(file)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert re.search(sentence.replace("(.*", r"\(.*").replace("toml)", r"toml\)"), run.stderr)
    assert "Traceback" not in run.stderr

"""Settings travel through the environment unchanged."""

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

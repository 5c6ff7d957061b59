import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import BundleError, DataError
from contract.storage import read_json, recover_folder, replace_folder, sha256_file, write_atomic, write_json

ROOT = Path(__file__).parents[2]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def fill(target: Path, content: str) -> None:
    with replace_folder(target) as fresh:
        (fresh / "a.txt").write_text(content)


def killed(target: Path, patch: str, content: str = "new") -> None:
    """Run ``replace_folder`` in a process that kills itself where ``patch`` says."""
    code = f"""
        import os, signal, pathlib
        from contract import storage
        target = pathlib.Path({str(target)!r})
        def die(*_, **__):
            os.kill(os.getpid(), signal.SIGKILL)
        {patch}
        with storage.replace_folder(target) as fresh:
            (fresh / "a.txt").write_text({content!r})
            inside()
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, check=False)
    assert result.returncode == -signal.SIGKILL


# Each stage of the swap at which the process dies, and what a reader must find afterwards.
STAGES = {
    "while filling": ("inside = die", "old"),
    "before the first rename": ("inside = lambda: setattr(storage.os, 'rename', die)", "old"),
    "between the renames": (
        "real = os.rename\n"
        "        def second(a, b):\n"
        "            die() if str(b) == str(target) else real(a, b)\n"
        "        inside = lambda: setattr(storage.os, 'rename', second)",
        "old",
    ),
    "before the old folder is gone": ("inside = lambda: setattr(storage.shutil, 'rmtree', die)", "new"),
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_kill_at_any_moment_leaves_one_whole_folder(tmp_path: Path, stage: str) -> None:
    target = tmp_path / "out"
    fill(target, "old")
    patch, expected = STAGES[stage]
    killed(target, patch)
    recover_folder(target)
    assert (target / "a.txt").read_text() == expected
    assert not (tmp_path / ".out.old").exists()
    fill(target, "newest")  # and the next writer works
    assert (target / "a.txt").read_text() == "newest"


def test_replace_folder_swaps_the_whole_content(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "out"
    with replace_folder(target) as fresh:
        (fresh / "only-in-old").touch()
    with replace_folder(target) as fresh:
        assert names(fresh) == set()
        assert names(target) == {"only-in-old"}
        (fresh / "only-in-new").touch()
    assert names(target) == {"only-in-new"}
    assert names(target.parent) == {"out"}
    assert stat.S_IMODE(target.stat().st_mode) == 0o755


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_while_filling_keeps_the_old_folder(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "out"
    fill(target, "old")

    def write_half() -> None:
        with replace_folder(target) as fresh:
            (fresh / "a.txt").write_text("half")
            raise error

    with pytest.raises(error):
        write_half()
    assert (target / "a.txt").read_text() == "old"
    assert names(tmp_path) == {"out"}


def test_an_error_on_the_first_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="stop"), replace_folder(tmp_path / "out"):
        raise ValueError("stop")
    assert names(tmp_path) == set()


def test_an_interrupt_between_the_renames_keeps_the_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out"
    fill(target, "old")
    rename = os.rename

    def interrupted(source: Path, destination: Path) -> None:
        if destination == target and source.name.endswith(".new"):
            raise KeyboardInterrupt
        rename(source, destination)

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), replace_folder(target) as fresh:
        (fresh / "a.txt").write_text("new")
    assert (target / "a.txt").read_text() == "old"
    assert names(tmp_path) == {"out"}


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "disk" / "real", tmp_path / "out"
    fill(real, "old")
    link.symlink_to(real)
    fill(link, "new")
    assert link.is_symlink()
    assert (real / "a.txt").read_text() == "new"
    assert names(tmp_path) == {"disk", "out"}


def test_write_atomic_keeps_the_old_file_when_the_write_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "a.txt"
    write_atomic(path, "old")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert names(path.parent) == {"a.txt"}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(value=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), json_values, max_size=4))
def test_json_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, value: dict[str, object]) -> None:
    path = tmp_path_factory.getbasetemp() / "value.json"
    try:
        write_json(path, value)
    except UnicodeEncodeError:  # half of a surrogate pair has no UTF-8
        return
    assert read_json(path, DataError) == value


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_json_cannot_carry_is_not_written(tmp_path: Path, value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"loss": value})
    assert names(tmp_path) == set()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        (b"", "not valid JSON"),
        (b'{"a": 1', "not valid JSON"),
        (b'{"a": "\xff"}', "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[1, 2]", "JSON list"),
        (b"null", "JSON NoneType"),
        (b'"text"', "JSON str"),
    ],
)
def test_bad_json_is_one_sentence_with_the_file_name(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "robal.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BundleError, match=message) as caught:
        read_json(path, BundleError)
    assert str(path) in str(caught.value)


def test_a_folder_in_place_of_a_json_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "robal.json").mkdir()
    with pytest.raises(BundleError, match=r"robal\.json cannot be read"):
        read_json(tmp_path / "robal.json", BundleError)


def test_a_bom_before_json_is_not_content(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xef\xbb\xbf" + json.dumps({"a": 1}).encode())
    assert read_json(tmp_path / "config.json", BundleError) == {"a": 1}


def test_sha256_is_the_published_value(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")  # the first test vector of FIPS 180
    assert sha256_file(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

"""Files that are whole or absent: write beside the target, fsync, rename. A kill at any moment loses nothing."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from contract.errors import UserError


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replace ``path`` by ``content`` (text as UTF-8) in one step."""
    with open_atomic(path) as handle:
        handle.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of ``path`` when the block ends without an error; for content in pieces."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _fsync(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON in one step. Raises ValueError for NaN and infinities."""
    write_atomic(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path, kind: type[UserError]) -> dict[str, Any]:
    """Read a JSON object; a missing, broken or non-object file raises ``kind`` with the file's name."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise kind(f"{path} does not exist.") from None
    except OSError as error:
        raise kind(f"{path} cannot be read ({error.strerror}).") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise kind(f"{path} is not valid JSON ({error}).") from None
    if not isinstance(value, dict):
        raise kind(f"{path} holds a JSON {type(value).__name__}; an object was expected.")
    return value


@contextmanager
def replace_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside ``target`` that takes its place when the block ends without an error.

    An existing target stays untouched until then; a link to a folder stays a link. The swap is two renames, so a
    kill between them leaves the old folder under ``.NAME.old``; ``recover_folder`` (called here and by readers)
    puts it back.
    """
    target = target.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    recover_folder(target)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".new", dir=target.parent))
    fresh.chmod(0o755)
    try:
        yield fresh
        for path in sorted(fresh.rglob("*")):
            _fsync(path)
        _fsync(fresh)
        old = _old(target)
        if target.exists():
            os.rename(target, old)
        os.rename(fresh, target)
        _fsync(target.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        recover_folder(target)


def _old(target: Path) -> Path:
    return target.parent / f".{target.name}.old"


def recover_folder(target: Path) -> None:
    """End a swap that stopped between its steps: put the old folder back, or remove it if the new one is there."""
    target = target.resolve()
    old = _old(target)
    if old.exists():
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.rename(old, target)


def sha256_file(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()

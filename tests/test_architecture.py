"""The import table of docs/architecture.md, held by parsing every import and by importing every module alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# room: (rooms it may import, other packages it may import beside the standard library)
TABLE: dict[str, tuple[set[str], set[str]]] = {
    "contract": (set(), {"numpy", "tokenizers"}),
    "labelled": ({"contract"}, {"numpy", "pyarrow", "sklearn"}),
    "encoders": ({"contract"}, {"torch", "safetensors", "numpy"}),
    "pretrain": (
        {"contract", "encoders"},
        {"torch", "numpy", "tokenizers", "pyarrow", "datasketch", "sentencepiece", "matplotlib", "typer", "rich"},
    ),
    "finetune": (
        {"contract", "labelled", "encoders"},
        {"torch", "numpy", "tokenizers", "pyarrow", "sklearn", "onnxruntime", "typer", "rich"},
    ),
    "export": (
        {"contract", "labelled", "encoders"},
        {"torch", "numpy", "onnx", "onnxruntime", "tokenizers", "typer", "rich"},
    ),
    "service": (
        {"contract"},
        {
            *("bentoml", "fastapi", "starlette", "pydantic", "onnxruntime", "numpy", "tokenizers"),
            *("prometheus_client", "psutil", "typer", "rich"),
            "circus",  # BentoML's process manager, whose signal handlers the supervisor takes away
        },
    ),
    "loadtests": ({"contract"}, {"locust", "gevent", "numpy", "matplotlib", "psutil", "typer", "rich"}),
}
BANNED_NAMES = {"utils.py", "helpers.py", "common.py", "misc.py", "manager.py"}
MODULES = sorted(path for room in TABLE for path in (ROOT / room).rglob("*.py"))


def module_name(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


def imports(path: Path) -> list[tuple[str, int]]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute and start at the room"
            found.append((node.module or "", node.lineno))
    return found


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_each_room_imports_only_what_the_table_allows(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    rooms, others = TABLE[room]
    for name, line in imports(path):
        top = name.partition(".")[0]
        allowed = top in {room, *rooms, *others} or top in sys.stdlib_module_names
        assert allowed, f"{path}:{line}: {room} may not import {name}"


def test_only_what_runs_in_the_child_process_of_the_load_tests_may_import_locust() -> None:
    users = {p.name for p in (ROOT / "loadtests").rglob("*.py") if any(n.startswith("locust") for n, _ in imports(p))}
    assert users <= {"locustfile.py", "openloop.py", "recorder.py"}, (
        f"gevent patches the standard library; locust stays in its child process: {users}"
    )


@pytest.mark.parametrize("path", [p for p in MODULES if p.name != "locustfile.py"], ids=module_name)
def test_each_module_imports_alone(path: Path) -> None:
    subprocess.run([sys.executable, "-c", f"import {module_name(path)}"], cwd=ROOT, check=True)


@pytest.mark.parametrize("module", ["robal", "service.app", "service.cli", "loadtests.cli"])
def test_serving_and_load_testing_never_load_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_no_file_has_a_banned_name() -> None:
    names = {path for path in MODULES if path.name in BANNED_NAMES}
    assert not names
    assert not (ROOT / "service" / "service.py").exists(), "BentoML would load it without its package"


def test_every_room_is_this_checkout() -> None:
    for room in TABLE:
        module = __import__(room)
        assert module.__file__ is not None
        assert Path(module.__file__).is_relative_to(ROOT), f"{room} comes from {module.__file__}"

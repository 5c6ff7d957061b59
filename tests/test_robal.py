"""The command line as a user meets it: real processes, their output and exit codes."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from contract.errors import OUTCOMES, BundleError, Interrupted, TextTooLong, listing, outcome
from robal import COMMANDS
from tests.test_architecture import TABLE

ROOT = Path(__file__).parent.parent


def robal(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "robal", *arguments], cwd=ROOT, capture_output=True, text=True)


def test_the_overview_lists_every_command_and_imports_no_room() -> None:
    code = (
        "import sys, robal\n"
        "sys.argv = ['robal', '--help']\n"
        "try: robal.main()\n"
        "except SystemExit: pass\n"
        "rooms = {'encoders', 'pretrain', 'finetune', 'export', 'service', 'loadtests'} & set(sys.modules)\n"
        "sys.exit(f'imported {rooms}' if rooms or 'torch' in sys.modules else 0)"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert all(name in run.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    run = robal(name, "--help")
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) > 8


@pytest.mark.parametrize("arguments", [["nope"], ["serve"], ["serve", "--nope"], ["serve", "no/such/folder"]])
def test_a_usage_mistake_is_exit_code_2_without_a_traceback(arguments: list[str]) -> None:
    run = robal(*arguments)
    assert run.returncode == 2
    assert run.stderr.strip()
    assert "Traceback" not in run.stderr


def test_a_missing_extra_names_the_install_line() -> None:
    code = (
        "import sys\n"
        "sys.modules['torch'] = None  # as if it were not installed\n"
        "import robal\n"
        "sys.argv = ['robal', 'export', 'x', '--out', 'y']\n"
        "robal.main()"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 2, run.stderr
    assert "pip install 'robal[export]'" in run.stderr


def test_the_nearest_listed_ancestor_decides_the_outcome() -> None:
    assert outcome(BundleError("x")).exit_code == 2
    assert outcome(TextTooLong("x")).http_status == 422
    assert outcome(Interrupted("x")).exit_code == 130
    assert outcome(KeyError("a bug")) == outcome(RuntimeError("a bug"))
    assert outcome(KeyError("a bug")).http_status == 500
    assert {row.exit_code for row in OUTCOMES.values()} == {1, 2, 130}


def test_long_listings_are_cut_with_a_count() -> None:
    assert listing(["b", "a"]) == "'a', 'b'"
    assert listing(range(12)).endswith("and 2 more")


def test_the_wheel_holds_every_file_of_the_product(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = [path for room in TABLE for path in (ROOT / room).rglob("*") if path.is_file()]
    product = {str(path.relative_to(ROOT)) for path in files if path.suffix != ".pyc"}
    assert packed == product | {"robal.py"}

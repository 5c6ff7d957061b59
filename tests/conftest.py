"""What every test relies on, whoever started the run, and files for tests of several rooms."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[1].parent / "shared"


def pytest_configure() -> None:
    """Let Ctrl-C reach the processes that tests start: a run started in the background inherits an ignored SIGINT."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    """Write a file of the test's own folder, text as UTF-8 with the line ends as given."""

    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of collected broken files."""
    folder = SHARED / "cases" / "open"
    if not folder.is_dir():
        pytest.skip("the collected broken files are not beside this checkout")
    return folder

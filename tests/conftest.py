"""What every test relies on, whoever started the run."""

import signal


def pytest_configure() -> None:
    """Let Ctrl-C reach the processes that tests start: a run started in the background inherits an ignored SIGINT."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

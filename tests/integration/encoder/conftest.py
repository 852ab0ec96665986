"""A small random model that needs no download, and the end of each model that a test has loaded."""

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.heavy import sentence_transformers
from tests.integration.encoder import folders


@pytest.fixture(autouse=True)
def _key_leak_check() -> None:
    """Instead of the one for all integration tests: models need no Redis."""


@pytest.fixture(scope="session", autouse=True)
def _libraries() -> None:
    """Imported before our own code asks for them, where coverage would trace the import.

    On a processor with AMX, OpenVINO in bfloat16 divides by zero for tiny heads of 8 numbers, and the process dies.
    """
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    _ = sentence_transformers.SentenceTransformer


@pytest.fixture(scope="module", autouse=True)
def _models_freed() -> Iterator[None]:
    """The models of a file are gone before the next file: some are parts of circles, which wait for the collector.

    torch.jit keeps every class that it traced, 10 MB of a tiny model; OpenVINO's own examples empty it like this.
    """
    yield
    import torch  # noqa: PLC0415 - each process of a run imports this file

    torch._C._jit_clear_class_registry()
    torch.jit._recursive.concrete_type_store = torch.jit._recursive.ConcreteTypeStore()
    torch.jit._state._clear_class_state()
    gc.collect()


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT with all its files, 64 tokens, mean."""
    return folders.save(tmp_path_factory.mktemp("whole") / "model", window=64)


@pytest.fixture
def broken(whole: Path, tmp_path: Path) -> Callable[[folders.Edit], Path]:
    """A copy of it, after an edit."""

    def make(edit: folders.Edit) -> Path:
        folder = Path(shutil.copytree(whole, tmp_path / "model"))
        edit(folder)
        return folder

    return make

"""Where a model is, and which version of it."""

from pathlib import Path

import pytest

from tasks.model.encoder import ModelLoadError
from tasks.model.location import locate, revision_of
from worker_config.settings import DEFAULT_MODEL


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = tmp_path / "model"
    (model / "1_Pooling").mkdir(parents=True)
    (model / "modules.json").write_text("[]")
    (model / "1_Pooling" / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(bytes(100_000))
    return model


def test_a_folder_is_itself(folder: Path) -> None:
    assert locate(str(folder)) == str(folder)


def test_the_default_model_comes_from_the_installed_package() -> None:
    assert (Path(locate(DEFAULT_MODEL)) / "modules.json").is_file()


def test_another_hub_id_is_left_to_the_library() -> None:
    assert locate("somebody/some-model") == "somebody/some-model"


@pytest.mark.parametrize("path", ["/no/such/folder", "./nowhere", "~/models/x", "a/b/c"])
def test_a_path_without_a_folder_says_so(path: str) -> None:
    with pytest.raises(ModelLoadError, match=f"EMBEDQ_MODEL={path}: there is no such folder"):
        locate(path)


def test_a_folder_without_a_model_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="holds no embedding model"):
        locate(str(tmp_path))


def test_the_revision_is_of_the_content(folder: Path, tmp_path: Path) -> None:
    revision = revision_of(str(folder))
    assert len(revision) == 12
    assert revision_of(str(folder.rename(tmp_path / "elsewhere"))) == revision


@pytest.mark.parametrize("changed", ["model.safetensors", "1_Pooling/config.json", "modules.json"])
def test_what_changes_vectors_changes_the_revision(folder: Path, changed: str) -> None:
    before = revision_of(str(folder))
    content = bytearray((folder / changed).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / changed).write_bytes(content)
    assert revision_of(str(folder)) != before


@pytest.mark.parametrize("beside", ["README.md", "onnx/model.safetensors", "pytorch_model.bin"])
def test_what_is_not_loaded_does_not(folder: Path, beside: str) -> None:
    before = revision_of(str(folder))
    (folder / beside).parent.mkdir(exist_ok=True)
    (folder / beside).write_bytes(b"x")
    assert revision_of(str(folder)) == before


def test_a_snapshot_of_the_hub_has_the_revision_of_its_commit(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--a--b" / "snapshots" / "c9745ed1d9f207416be6d2e6f8de32d1f16199bf"
    snapshot.mkdir(parents=True)
    assert revision_of(str(snapshot)) == "c9745ed1d9f2"


@pytest.mark.parametrize("name", ["config.json", "modules.json"])  # a static model may have only the second
def test_a_model_in_the_cache_of_the_hub_has_the_revision_of_its_commit(name: str, tmp_path: Path) -> None:
    commit = "c9745ed1d9f207416be6d2e6f8de32d1f16199bf"
    repository = tmp_path / "models--sentence-transformers--static"
    for folder in (repository / "refs", repository / "snapshots" / commit):
        folder.mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    (repository / "snapshots" / commit / name).write_text("{}")
    for hub_id in ("sentence-transformers/static", "static"):
        assert revision_of(hub_id, cache=tmp_path) == "c9745ed1d9f2"


def test_a_hub_id_that_is_not_cached_has_no_known_revision() -> None:
    assert revision_of("somebody/not-in-any-cache") == "unknown"

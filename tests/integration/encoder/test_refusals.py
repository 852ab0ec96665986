"""A worker whose model cannot be served: exit code 78, and one line that names the setting."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.integration.encoder.tiny_model import TinyModel
from tests.processes import PATIENCE_S, Roles
from worker_config.process_exit_codes import CONFIGURATION_EXIT_CODE

pytestmark = pytest.mark.model

Break = Callable[[Path], None]


def with_code_of_its_own(folder: Path) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    modules[-1]["type"] = "custom_pooling.CustomPooling"
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "custom_pooling.py").write_text("raise SystemExit('code of a model ran without consent')\n")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shutil.rmtree, "there is no such folder"),
        (with_code_of_its_own, "set EMBEDQ_TRUST_REMOTE_CODE=true"),
    ],
)
def test_a_model_that_cannot_be_served_stops_the_worker(
    damage: Break, message: str, tiny_folders: Mapping[TinyModel, Path], tmp_path: Path, roles: Roles
) -> None:
    folder = Path(shutil.copytree(tiny_folders[TinyModel.CLS], tmp_path / "model"))
    damage(folder)
    worker = roles.worker(start=False, compute="auto", device="cpu", model=str(folder))
    worker.launch()
    assert worker.wait(PATIENCE_S) == CONFIGURATION_EXIT_CODE
    assert f"EMBEDQ_MODEL={folder}" in worker.log()
    assert message in worker.log()
    assert "Traceback" not in worker.log()


def test_an_unavailable_precision_asked_for_by_name_stops_the_worker(
    tiny_folders: Mapping[TinyModel, Path], roles: Roles
) -> None:
    settings = {"compute": "torch", "device": "cpu", "precision": "bfloat16"}
    worker = roles.worker(start=False, model=str(tiny_folders[TinyModel.CLS]), **settings)
    worker.launch()
    assert worker.wait(PATIENCE_S) == CONFIGURATION_EXIT_CODE
    assert "EMBEDQ_PRECISION=bfloat16 is not available" in worker.log()


LOAD_IN_LITTLE_MEMORY = """
import resource
from pathlib import Path
import sentence_transformers
from tasks.encoder.interface import ModelLoadError
from tasks.encoder.load import load
from worker_config.settings import load_settings

status = Path("/proc/self/status").read_text().split()
used = 1024 * int(status[status.index("VmData:") + 1])
resource.setrlimit(resource.RLIMIT_DATA, (used + 4 * 2**20,) * 2)
try:
    load(load_settings(compute="torch", device="cpu"))
except ModelLoadError as error:
    print(error)
"""


@pytest.mark.thorough
def test_a_model_larger_than_the_memory_left_is_refused_with_the_reason() -> None:
    # Its exit code is that of every ModelLoadError, above; a limit on a whole worker would end it before the model.
    command = [sys.executable, "-c", LOAD_IN_LITTLE_MEMORY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "not enough memory to load it. Give the worker more, or set a smaller model." in done.stdout

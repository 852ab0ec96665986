"""A local stack as a child process; here a small program in its place."""

import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from embedq.cli.demo import running_stack
from embedq.cli.exit_codes import UsageError

COMES_UP = """
import os, pathlib, signal, sys
def stop(*_):
    pathlib.Path("stopped").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("starting", flush=True)
print("ready", os.getcwd(), *sorted(name for name in os.environ if name.startswith("EMBEDQ_")), flush=True)
signal.pause()
"""
GIVES_UP = "import sys; print('the model cannot load', file=sys.stderr); sys.exit(78)"


@pytest.mark.parametrize("failure", [None, KeyboardInterrupt])
def test_it_runs_as_long_as_the_block_and_knows_nothing_of_another_service(
    failure: type[BaseException] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("API_KEYS", "REDIS_URL", "REDIS_SENTINELS", "STORAGE_URL", "DATASETS", "PORT", "COMPUTE", "FAKE_X"):
        monkeypatch.setenv(f"EMBEDQ_{name}", "x")
    with (
        pytest.raises(failure) if failure else nullcontext(),
        running_stack([sys.executable, "-c", COMES_UP], tmp_path / "log") as said,
    ):
        assert said == f"{tmp_path} EMBEDQ_COMPUTE EMBEDQ_FAKE_X"
        assert not (tmp_path / "stopped").exists()
        if failure:
            raise failure
    assert (tmp_path / "stopped").exists()


def test_one_that_gives_up_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="did not come up:\nthe model cannot load"),
        running_stack([sys.executable, "-c", GIVES_UP], tmp_path / "log"),
    ):
        pytest.fail("it came up")

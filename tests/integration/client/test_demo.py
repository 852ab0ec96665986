"""`embedq demo`: the whole path, with the fake encoder."""

import os
import subprocess
import sys
from pathlib import Path

from embedq.cli.demo import QUESTIONS
from tests.harness import CHECKOUT


def test_the_demo_runs_and_leaves_nothing(tmp_path: Path) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("EMBEDQ_")}
    settings = {"PYTHONPATH": str(CHECKOUT), "EMBEDQ_COMPUTE": "fake", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "embedq", "demo"],
        cwd=tmp_path,
        env={**inherited, **settings},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for question in QUESTIONS:
        after = done.stdout.split(question)[1].splitlines()
        assert all(".md  " in line for line in after[1:4])
    assert list(tmp_path.iterdir()) == []

"""What the audit says of reports: a comparison that did not take place is never taken for a clean one."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.source_tree import CHECKOUT

GOOD = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"], "aliases": []}]}
SKIPPED = {"name": "c", "skip_reason": "Dependency not found on PyPI and could not be audited: c (1)"}
AWAY = "requests.exceptions.ConnectionError: Failed to resolve"


@pytest.mark.parametrize(
    ("pypi", "osv", "code", "said"),
    [
        ([GOOD, BAD], AWAY, 1, "b 2: PYSEC-1, mended in 3"),
        ([GOOD, SKIPPED], AWAY, 1, "not compared: Dependency not found on PyPI"),
        ([SKIPPED, SKIPPED], [GOOD, BAD], 1, "PYSEC-1"),
        (AWAY, AWAY, 77, "NOT AUDITED"),
        (AWAY, [], 1, "the report names no version"),
        (AWAY, [GOOD], 0, "1 versions compared, 0 advisories fit"),
        ("TypeError: a defect", AWAY, 1, "a defect"),
    ],
)
def test_a_report_is_judged(tmp_path: Path, pypi: Any, osv: Any, code: int, said: str) -> None:
    for service, outcome in (("pypi", pypi), ("osv", osv)):
        failed = isinstance(outcome, str)
        (tmp_path / f"{service}.log").write_text(outcome if failed else "")
        if not failed:
            (tmp_path / f"{service}.json").write_text(json.dumps({"dependencies": outcome, "fixes": []}))
    script = CHECKOUT / ".ci/audit_report.py"
    ran = subprocess.run([sys.executable, "-I", script, tmp_path], capture_output=True, text=True, check=False)
    assert ran.returncode == code
    assert said in ran.stdout + ran.stderr

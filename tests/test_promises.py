"""Each promise names a test that exists: whoever deletes the test must say what becomes of the promise."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.source_tree import CHECKOUT

pytestmark = pytest.mark.untraced  # runs nothing of ours

PROMISES = Path(__file__).with_name("PROMISES.md")
_ROW = re.compile(r"^\| .+? \| (?P<tests>`.+`|none) \|$")
_HEADS = {"| promise | test from outside |", "| promise | inside test today |", "|---|---|"}


@cache
def _functions(path: str) -> set[str]:
    file = CHECKOUT / path
    if not file.is_file():
        return set()
    return set(re.findall(r"^ *(?:async def|def|class) (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE))


def test_each_promise_names_tests_that_exist() -> None:
    lines = [line for line in PROMISES.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    rows = [(line, _ROW.match(line)) for line in lines if line not in _HEADS]
    assert [line for line, row in rows if not row] == []
    assert len(rows) > 100
    tests = {test for _, row in rows if row for test in re.findall(r"`([^`]+)`", row["tests"])}
    assert [test for test in sorted(tests) if test.partition("::")[2] not in _functions(test.partition("::")[0])] == []

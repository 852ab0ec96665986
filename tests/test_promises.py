"""Each promise names a test that exists: whoever deletes the test must say what becomes of the promise."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.source_tree import CHECKOUT

pytestmark = pytest.mark.untraced  # runs nothing of ours

PROMISES = Path(__file__).with_name("PROMISES.md")
_ROW = re.compile(r"^\| (?P<promise>.+?) \| (?P<tests>`.+`|none) \|$")


def _rows() -> list[tuple[str, list[str]]]:
    lines = PROMISES.read_text(encoding="utf-8").splitlines()
    found = [_ROW.match(line) for line in lines]
    return [(row["promise"], re.findall(r"`([^`]+)`", row["tests"])) for row in found if row]


@cache
def _functions(path: str) -> set[str]:
    file = CHECKOUT / path
    if not file.is_file():
        return set()
    return set(re.findall(r"^ *(?:async def|def|class) (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE))


def test_each_promise_names_tests_that_exist() -> None:
    missing = []
    for promise, tests in _rows():
        for test in tests:
            path, _, name = test.partition("::")
            if not name or name.rpartition("::")[2] not in _functions(path):
                missing.append(f"{test}: {promise}")
    assert not missing, "\n".join(missing)


def test_each_line_of_a_table_is_a_promise_with_a_test() -> None:
    lines = [line for line in PROMISES.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    heads = {"| promise | test from outside |", "| promise | inside test today |", "|---|---|"}
    assert [line for line in lines if line not in heads and not _ROW.match(line)] == []
    assert len(_rows()) > 100

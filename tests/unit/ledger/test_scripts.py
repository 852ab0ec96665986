"""How the text of a script is put together, and that the scripts keep to its rules."""

import re
from pathlib import Path

import pytest

from tasks.ledger.scripts import SCRIPTS, constants, source

NAMES = sorted(path.stem for path in SCRIPTS.glob("*.lua"))
PARTS = sorted(path.stem for path in SCRIPTS.glob("shared/*.lua"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    parts = {"base": "-- base", "one": "-- one", "two": "-- uses: one three", "three": "-- uses: one\n-- three"}
    for name, text in parts.items():
        (tmp_path / f"shared/{name}.lua").write_text(text)
    return tmp_path


def test_a_script_has_each_part_once_and_before_those_that_use_it(folder: Path) -> None:
    (folder / "script.lua").write_text("-- uses: two one\nreturn 1")
    assert source("script", folder).splitlines() == [
        "-- base",
        "-- one",
        "-- uses: one",
        "-- three",
        "-- uses: one three",
        "-- uses: two one",
        "return 1",
    ]


def test_constants_are_written_into_the_text(folder: Path) -> None:
    (folder / "shared/one.lua").write_text(
        "local FIRST, LAST = 1, 20  -- places\nlocal MANY = 64\nlocal other = FIRST\n"
    )
    (folder / "script.lua").write_text("-- uses: one\nreturn {FIRST, LAST, MANY, FIRSTS}")
    text = source("script", folder)
    assert text.splitlines() == ["-- base", "local other = 1", "", "-- uses: one", "return {1, 20, 64, FIRSTS}"]
    assert constants("local A, B = 1, 2\nlocal c = 3\n") == {"A": "1", "B": "2"}


def uses(text: str) -> list[str]:
    line = re.search(r"^-- uses: (.+)$", text, re.MULTILINE)
    return line[1].split() if line else []


@pytest.mark.parametrize("file", [*NAMES, *(f"shared/{part}" for part in PARTS)])
def test_what_a_script_calls_comes_with_the_parts_that_it_names(file: str) -> None:
    texts = {path.stem: path.read_text() for path in SCRIPTS.glob("shared/*.lua")}
    defined = {
        name: part
        for part, text in texts.items()
        for found in re.findall(r"^local (?:function (\w+)|([\w, ]+?)(?: =|$))", text, re.MULTILINE)
        for name in "".join(found).replace(",", " ").split()
    }
    text = (SCRIPTS / f"{file}.lua").read_text()
    code = re.sub(r"'[^']*'", "", re.sub(r"--.*", "", text))
    own = set(re.findall(r"\w+", " ".join(re.findall(r"local (?:function )?([\w, ]+)", code))))
    needed = {defined[word] for word in set(re.findall(r"(?<![.\w])\w+", code)) - own if word in defined}
    there, found = [*uses(text), "base", file.removeprefix("shared/")], set()
    while there:
        found.add(part := there.pop())
        there += uses(texts.get(part, ""))
    assert needed <= found

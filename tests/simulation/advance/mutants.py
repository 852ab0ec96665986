"""Breaks the driver by rule, and shows that the walks notice: `python -m tests.simulation.advance`."""

import ast
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tasks.ingestion import advance as driven
from tests.simulation.advance import walks
from tests.simulation.advance.world import DRIVEN, KINDS
from tests.simulation.mutants import Rule, swap

SEEDS = 60
_SOURCE = Path(driven.__file__).read_text()


@dataclass(frozen=True)
class DriverMutant:
    """One line, changed by a rule."""

    line: int
    rule: str
    old: str
    new: str
    of: str

    @property
    def name(self) -> str:
        """It stays when lines move."""
        return f"{self.of}: {self.rule}: {self.old.strip()} -> {self.new.strip()}"

    @property
    def source(self) -> str:
        """The whole module with it."""
        lines = _SOURCE.split("\n")
        lines[self.line] = self.new
        return "\n".join(lines)


def _one_more(code: str) -> Iterator[str]:
    for found in re.finditer(r"\b\d+\b", code):
        yield f"{code[: found.start()]}{int(found[0]) + 1}{code[found.end() :]}"


_OF_LINES: dict[str, Rule] = {
    "equal": swap(" == ", " != "),
    "is": swap(r" is (?!not)", " is not "),
    "is not": swap(" is not ", " is "),
    "at the edge": swap(" <= ", " < "),
    "from the edge": swap(" >= ", " > "),
    "beyond the edge": swap(" < ", " <= "),
    "more": swap(" > ", " >= "),
    "and": swap(" and ", " or "),
    "or": swap(" or ", " and "),
    "not": swap(r"\bnot (?!in\b)", ""),
    "plus": swap(r" \+ ", " - "),
    "minus": swap(" - ", " + "),
    "one more": _one_more,
    "load": swap(r"Stage\.LOAD", "Stage.PARSE"),
    "stage": swap(r"Stage\.(?!LOAD)[A-Z]+", "Stage.LOAD"),
}
_CONDITIONS = {"never": "False", "always": "True"}
RULES = ("left out", *_CONDITIONS, *_OF_LINES)


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Those without which the next one can be reached."""
    if isinstance(node, ast.Assign):
        yield from () if isinstance(node.targets[0], ast.Name | ast.Tuple) else (node,)
    elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield node


def _conditions(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.If | ast.IfExp):
        yield node.test
    elif isinstance(node, ast.comprehension):
        yield from node.ifs


@cache
def mutants() -> Sequence[DriverMutant]:
    """All of them, in the order of lines."""
    found = list[DriverMutant]()
    for function in ast.parse(_SOURCE).body:
        if isinstance(function, ast.FunctionDef):
            found += [mutant for mutant in _of_function(function) if _parses(mutant, function)]
    return sorted(found, key=lambda mutant: mutant.line)


def _of_function(function: ast.FunctionDef) -> Iterator[DriverMutant]:
    lines = _SOURCE.split("\n")
    for node in ast.walk(function):
        changes: list[tuple[ast.stmt | ast.expr, str, str]] = [(part, "left out", "pass") for part in _statements(node)]
        changes += [(part, rule, new) for part in _conditions(node) for rule, new in _CONDITIONS.items()]
        for part, rule, new in changes:
            old = lines[part.lineno - 1]
            text = old[: part.col_offset] + new + old[part.end_col_offset :]
            yield DriverMutant(part.lineno - 1, rule, old, text, function.name)
    first = function.body[0]
    start = first.end_lineno if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) else None
    for number in range(start or first.lineno - 1, function.end_lineno or 0):
        code = lines[number].split("  #")[0]
        for rule, change in _OF_LINES.items():
            yield from (DriverMutant(number, rule, code, new, function.name) for new in change(code))


def sample(every: int) -> list[DriverMutant]:
    """Every so manieth: others with each change of the driver."""
    first = zlib.crc32(_SOURCE.encode()) % every
    return list(mutants()[first::every])


def _parses(mutant: DriverMutant, function: ast.FunctionDef) -> bool:
    lines = mutant.source.split("\n")[function.lineno - 1 : function.end_lineno]
    try:
        ast.parse("\n".join(lines))
    except SyntaxError:
        return False
    return True


def killer(mutant: DriverMutant, seeds: int = SEEDS) -> str:
    """What noticed it; "": nothing."""
    names: dict[str, Any] = {"__name__": driven.__name__}
    exec(compile(mutant.source, "mutant", "exec"), names)  # noqa: S102 - our own text
    before, DRIVEN[0] = DRIVEN[0], names["advance"]
    try:
        for seed in range(seeds):
            for kind in KINDS:
                walks.walk_with_faults(kind, seed)
                if seed < seeds // 3:
                    walks.walk_well(kind, seed)
                    walks.walk_again(kind, seed)
    except Exception as error:  # noqa: BLE001 - whatever a broken driver leads to
        return f"{type(error).__name__}: {error}"[:120]
    finally:
        DRIVEN[0] = before
    return ""

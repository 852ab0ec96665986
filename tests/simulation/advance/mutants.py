"""Breaks the driver by rule, and shows that the walks notice: `python -m tests.simulation driver`."""

import ast
import re
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tasks.ingestion import advance as driven
from tests.simulation.advance import walks
from tests.simulation.advance.world import DRIVEN, KINDS
from tests.simulation.breaking import Mutant, Rule, mutants_of, swap, without

SEEDS = 60
_SOURCE = Path(driven.__file__).read_text()


def _one_more(code: str) -> Iterator[str]:
    for found in re.finditer(r"\b\d+\b", code):
        yield f"{code[: found.start()]}{int(found[0]) + 1}{code[found.end() :]}"


RULES: dict[str, Rule] = {
    "step left out": without(r"[\w.]+\(.*\)", "pass"),
    "assignment left out": without(r"\w+[.\[][^=]* [-+|]?= .*[^(\[{,]", "pass"),
    "never": swap(r"(?<=\bif ).+?(?=:$| else )", "False"),
    "always": swap(r"(?<=\bif ).+?(?=:$| else )", "True"),
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


def mutants() -> list[Mutant]:
    """All of them, in the functions of the driver."""
    inside = set[int]()
    for function in ast.parse(_SOURCE).body:
        if isinstance(function, ast.FunctionDef):
            first = function.body[0]
            told = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            inside |= set(range(first.end_lineno or 0 if told else first.lineno - 1, function.end_lineno or 0))
    found = mutants_of("advance.py", _SOURCE, RULES, "  #")
    return [mutant for mutant in found if mutant.line in inside and _parses(mutant)]


def _parses(mutant: Mutant) -> bool:
    try:
        ast.parse(mutant.broken(_SOURCE))
    except SyntaxError:
        return False
    return True


def killer(mutant: Mutant, seeds: int = SEEDS) -> str | None:
    """What noticed it; None: nothing."""
    names: dict[str, Any] = {"__name__": driven.__name__}
    exec(compile(mutant.broken(_SOURCE), "mutant", "exec"), names)  # noqa: S102 - our own text
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
    return None


def judged(chosen: Sequence[Mutant], jobs: int) -> Iterator[tuple[Mutant, str | None]]:
    """Each mutant and what noticed it."""
    with get_context("fork").Pool(jobs) as pool:
        yield from zip(chosen, pool.imap(killer, chosen), strict=True)

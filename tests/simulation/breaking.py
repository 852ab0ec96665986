"""Breaks a text by rule, one place at a time: what mutants of the scripts and of the driver have in common."""

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Rule = Callable[[str], Iterator[str]]


@dataclass(frozen=True)
class Mutant:
    """One line of a file, changed by a rule."""

    file: str
    line: int
    rule: str
    old: str
    new: str

    @property
    def name(self) -> str:
        """It stays when lines move."""
        return f"{self.file}: {self.rule}: {self.old.strip()}" + (f" -> {self.new.strip()}" if self.new.strip() else "")

    def broken(self, text: str) -> str:
        """The text of the file with it."""
        lines = text.split("\n")
        lines[self.line] = self.new
        return "\n".join(lines)


def swap(old: str, new: str) -> Rule:
    """Each place where `old` is found becomes `new`."""

    def changed(code: str) -> Iterator[str]:
        for found in re.finditer(old, code):
            yield code[: found.start()] + found.expand(new) + code[found.end() :]

    return changed


def without(pattern: str, instead: str = "") -> Rule:
    """Lines that are so and nothing else are left out."""

    def changed(code: str) -> Iterator[str]:
        if re.fullmatch(pattern, code.strip()):
            yield code[: len(code) - len(code.lstrip())] + instead

    return changed


def mutants_of(file: str, text: str, rules: Mapping[str, Rule], comment: str) -> Iterator[Mutant]:
    """Each rule at each place where it fits."""
    for number, line in enumerate(text.split("\n")):
        code = "" if line.startswith(comment.strip()) else line.split(comment, maxsplit=1)[0].rstrip()
        for rule, change in rules.items():
            yield from (Mutant(file, number, rule, code, new) for new in change(code))


def listed(file: Path) -> frozenset[str]:
    """Mutants that change nothing that anybody could see, by name. The file says why."""
    return frozenset(line for line in file.read_text().splitlines() if not line.startswith("#"))


def sample(mutants: Sequence[Mutant], number: int) -> list[Mutant]:
    """Some of them."""
    return random.Random(1).sample(mutants, min(number, len(mutants)))  # noqa: S311 - the same ones each time

"""The project's own source as syntax trees: what each file imports, names and contains. Reads, never imports."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGES = ("api", "embedq", "stack", "tasks", "worker_config")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module. `from a import b` counts as `a.b`, because `b` may be a module."""

    module: str
    line: int
    at_run_time: bool
    """Inside a function: it happens when that is called, not when the file is imported."""

    def is_of(self, package: str) -> bool:
        """Whether this is `package` or something inside it."""
        return self.module == package or self.module.startswith(f"{package}.")


@dataclass(frozen=True)
class SourceFile:
    """One Python file; `path` is relative to the checkout."""

    path: Path
    text: str

    @property
    def module(self) -> str:
        """Dotted name: `tasks.ledger.keys`; a package's `__init__` is the package."""
        parts = self.path.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def tree(self) -> ast.Module:
        """The parsed file. Not kept: all trees together make each collection of garbage here take seconds."""
        return ast.parse(self.text, str(self.path))

    @cached_property
    def imports(self) -> list[Import]:
        """Everything it imports, at the top or later."""
        return list(self._imports(self.tree, at_run_time=False))

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def functions(self) -> list[Function]:
        """All functions and methods."""
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    @property
    def strings(self) -> list[ast.Constant]:
        """String constants, docstrings left out; those inside f-strings count."""
        nodes = list(ast.walk(self.tree))
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        return [
            node
            for node in nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
        ]

    def attributes(self, owner: str) -> list[ast.Attribute]:
        """Uses of `owner.something`."""
        return [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == owner
        ]

    def code_lines(self, function: Function) -> int:
        """Lines of a function without its docstring, comments and blank lines."""
        first = function.body[0]
        documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        docstring = range(first.lineno, (first.end_lineno or 0) + 1) if documented else range(0)
        return sum(
            bool(self._lines[number - 1].strip()) and not self._lines[number - 1].strip().startswith("#")
            for number in range(function.lineno, (function.end_lineno or 0) + 1)
            if number not in docstring
        )

    def _imports(self, node: ast.AST, *, at_run_time: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, child.lineno, at_run_time)
            elif isinstance(child, ast.ImportFrom):
                for alias in child.names:
                    yield Import(f"{self._absolute(child)}.{alias.name}", child.lineno, at_run_time)
            else:
                yield from self._imports(child, at_run_time=at_run_time or isinstance(child, Function | ast.Lambda))

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = list(self.path.parent.parts)
        base = package[: len(package) - node.level + 1]
        return ".".join([*base, *([node.module] if node.module else [])])


def source_files(*packages: str) -> list[SourceFile]:
    """The Python files of the given packages, of all of ours when none is given."""
    paths = sorted(path for package in packages or PACKAGES for path in (CHECKOUT / package).rglob("*.py"))
    return [_source_file(path) for path in paths]


@cache
def _source_file(path: Path) -> SourceFile:
    return SourceFile(path.relative_to(CHECKOUT), path.read_text())

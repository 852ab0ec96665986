"""The project's own source: what each file imports, names and calls. Reads, never imports."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGES = ("api", "embedq", "stack", "tasks", "worker_config")

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Import(NamedTuple):
    """One imported module. `from a import b` counts as `a.b`, because `b` may be a module."""

    module: str
    line: int
    at_run_time: bool
    """Inside a function: it happens when that is called, not when the file is imported."""

    def is_of(self, package: str) -> bool:
        """Whether this is `package` or something inside it."""
        return self.module == package or self.module.startswith(f"{package}.")


class Field(NamedTuple):
    """A field of a dataclass or NamedTuple that its repr shows."""

    of: str
    name: str
    line: int


@dataclass(frozen=True)
class SourceFile:
    """One Python file; `path` is relative to the checkout.

    Trees are not kept: all of them together make each collection of garbage here take seconds.
    """

    path: Path
    text: str

    @property
    def module(self) -> str:
        """Dotted name: `tasks.ledger.keys`; a package's `__init__` is the package."""
        parts = self.path.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def imports(self) -> list[Import]:
        """Everything it imports, at the top or later."""
        return list(_imports(ast.parse(self.text), list(self.path.parent.parts), at_run_time=False))

    @property
    def strings(self) -> list[tuple[int, str]]:
        """String constants and their lines, docstrings left out; those inside f-strings count."""
        return self._facts.strings

    @property
    def calls(self) -> dict[str, set[str]]:
        """The string that is the first argument of calls, by what is called: `f`, and `.f` of an object.

        Of a choice both, of a dict the keys.
        """
        return self._facts.calls

    @property
    def classes(self) -> list[str]:
        """Names of those at the top."""
        return self._facts.classes

    @property
    def shown_fields(self) -> list[Field]:
        """What the repr of its values shows."""
        return self._facts.shown

    @property
    def documented(self) -> bool:
        """It says first what it is."""
        return self._facts.documented

    def attributes(self, owner: str) -> list[tuple[int, str]]:
        """Uses of `owner.something`: line and name."""
        return self._facts.attributes[owner]

    @cached_property
    def _facts(self) -> "_Facts":
        return _Facts(self.text)


class _Facts:
    def __init__(self, text: str) -> None:
        tree = ast.parse(text)
        self.strings: list[tuple[int, str]] = []
        self.calls: dict[str, set[str]] = defaultdict(set)
        self.attributes: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self.shown: list[Field] = []
        self.classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        self.documented = ast.get_docstring(tree) is not None
        docstrings = set[int]()
        for node in ast.walk(tree):  # an expression comes before its value
            if isinstance(node, ast.Expr):
                docstrings.add(id(node.value))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                self.strings.append((node.lineno, node.value))
            elif isinstance(node, ast.Call) and node.args:
                place = "." if isinstance(node.func, ast.Attribute) else ""
                self.calls[place + _named(node)] |= set(_strings(node.args[0]))
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                self.attributes[node.value.id].append((node.lineno, node.attr))
            elif isinstance(node, ast.ClassDef):
                self.shown += _shown(node)


def _imports(block: ast.AST, package: list[str], *, at_run_time: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(block):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, at_run_time)
        elif isinstance(child, ast.ImportFrom):
            base = package[: len(package) - child.level + 1] if child.level else []
            module = ".".join([*base, *([child.module] if child.module else [])])
            for alias in child.names:
                yield Import(f"{module}.{alias.name}", child.lineno, at_run_time)
        elif isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _imports(child, package, at_run_time=at_run_time or isinstance(child, _FUNCTIONS))


def _named(node: ast.expr) -> str:
    """`dataclass` of `@dataclass`, of `@dataclass(frozen=True)` and of `@dataclasses.dataclass`."""
    called = node.func if isinstance(node, ast.Call) else node
    return called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""


def _strings(value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.IfExp):
        yield from (*_strings(value.body), *_strings(value.orelse))
    elif isinstance(value, ast.Dict):
        yield from (name for key in value.keys if key for name in _strings(key))
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value


def _shown(kind: ast.ClassDef) -> Iterator[Field]:
    if "NamedTuple" not in map(_named, kind.bases) and "dataclass" not in map(_named, kind.decorator_list):
        return
    unshown = [each for each in kind.decorator_list if isinstance(each, ast.Call) and _named(each) == "unshown"]
    hidden = {name for each in unshown for argument in each.args for name in _strings(argument)}
    for field in kind.body:
        if isinstance(field, ast.AnnAssign) and not (field.value and "repr=False" in ast.unparse(field.value)):
            name = _named(field.target)
            if name not in hidden:
                yield Field(kind.name, name, field.lineno)


def source_files(*packages: str) -> list[SourceFile]:
    """The Python files of the given packages, of all of ours when none is given."""
    paths = sorted(path for package in packages or PACKAGES for path in (CHECKOUT / package).rglob("*.py"))
    return [_source_file(path) for path in paths]


@cache
def _source_file(path: Path) -> SourceFile:
    return SourceFile(path.relative_to(CHECKOUT), path.read_text())

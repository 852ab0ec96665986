"""The rules of docs/architecture.md as tests: who may import whom, and what no value may show.

ruff knows the rest (pyproject.toml): who reads the environment, and that nothing executes data.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch

import pytest

from tests.source_tree import CHECKOUT, PACKAGES, source_files

pytestmark = pytest.mark.untraced  # runs nothing of ours, and syntax trees are slow to walk when that is traced

_FILES = ("chunk", "document_error", "errors", "item", "lines", "model", "pieces", "unshown")
_LEAVES = f"worker_config {' '.join(f'tasks.{name}' for name in _FILES)}"
_STORED = f"tasks.ledger tasks.records tasks.storage {_LEAVES}"
_LOOP = "tasks.worker.claim_loop tasks.worker.idle_wait tasks.worker.process"
_JOBS = f"tasks.batches tasks.datasets tasks.ingestion tasks.wire {_LOOP} {_STORED}"

# room -> what of this project it may import beside itself. The longest matching name decides.
MAY_IMPORT = {
    "api": f"tasks.datasets tasks.ingestion.skip_unchanged tasks.wire {_STORED}",
    "bench": "api embedq stack tasks tests.link tests.processes worker_config",
    "embedq": "",
    "stack": "worker_config",
    "tasks": f"tasks {_LEAVES}",
    **dict.fromkeys((f"tasks.{name}" for name in _FILES), ""),
    "tasks.batches": _JOBS,
    "tasks.datasets": _LEAVES,
    "tasks.encoder": _LEAVES,
    "tasks.ingestion": _JOBS,
    "tasks.ledger": _LEAVES,
    "tasks.lines": "tasks.unshown",
    "tasks.records": f"tasks.ledger tasks.storage {_LEAVES}",
    "tasks.storage": _LEAVES,
    "tasks.storage.__main__": _STORED,
    "tasks.storage.sweep": f"tasks.datasets {_STORED}",
    "tasks.storage.purged_owners": f"tasks.datasets {_STORED}",
    "tasks.wire": _LEAVES,
    "tasks.worker": f"tasks.encoder tasks.wire {_STORED}",
    "worker_config": "",
}

# third party -> where it may be imported.
ONLY_IN = {
    "fastapi starlette": "api/*",
    "uvicorn": "api/__main__.py api/head_and_body_limits.py",
    "httptools": "api/head_and_body_limits.py",
    "celery billiard": "worker_config/* tasks/worker/process/*",
    "redis": "api/* tasks/ledger/* tasks/worker/* worker_config/redis_connection.py",
    "asyncpg": "tasks/datasets/postgresql/*",
    "sqlite3": "tasks/datasets/sqlite/*",
    "pyarrow": "tasks/datasets/export.py tasks/ingestion/sources/*",
    "torch sentence_transformers transformers openvino": "tasks/encoder/*",
    "pypdfium2 lxml python_calamine charset_normalizer": "tasks/ingestion/parsing/*",
    "tokenizers": "tasks/ingestion/chunking/* tasks/encoder/*",
    "opentelemetry": "worker_config/telemetry.py worker_config/logs.py",
    "fsspec": "tasks/ingestion/sources/*",
    "obstore": "tasks/storage/bucket.py tasks/ingestion/sources/*",
}

HEAVY = ["torch", "sentence_transformers", "transformers", "openvino"]
"""Imported inside functions only: they cost seconds and hundreds of megabytes, and a process that forks must not."""

SUBMITTED = {"text", "texts", "headings", "metadata", "ref", "record", "features", "data", "payload"}
SECRET = {"url", "redis_url", "environment"}
SHOWN = {
    *("FieldMap.text", "FieldMap.metadata"),  # names of fields
    "Prompts.texts",  # the model's own
}


def imports(path: str, text: str) -> Iterator[str]:
    """Modules, also those that functions import. `from a import b` counts as `a.b`, because `b` may be a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = path.split("/")[: -node.level] if node.level else []
            yield from (".".join([*base, *filter(None, [node.module]), alias.name]) for alias in node.names)


def is_of(module: str, packages: str) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages.split())


def wrong_imports(path: str, text: str) -> list[str]:
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    room = max((name for name in MAY_IMPORT if is_of(module, name)), key=len)
    found = set(imports(path, text))
    ours = {name for name in found if is_of(name, f"{' '.join(PACKAGES)} tests bench")}
    theirs = {
        name
        for libraries, places in ONLY_IN.items()
        for name in found
        if is_of(name, libraries) and room != "bench" and not any(fnmatch(path, place) for place in places.split())
    }
    wrong = theirs | {name for name in ours if not is_of(name, f"{room} {MAY_IMPORT[room]}")}
    return [f"{path} imports {name}" for name in sorted(wrong)]


def test_rooms_and_libraries_are_imported_where_the_architecture_allows() -> None:
    assert [one for file in source_files(*PACKAGES, "bench").items() for one in wrong_imports(*file)] == []


def test_redis_keys_are_named_in_the_ledger_only() -> None:
    named = re.compile(r"""["']eq:|:q:|redis_keys import .*\b(ROOT|queue_key)\b""")
    elsewhere = {path: text for path, text in source_files().items() if not path.startswith("tasks/ledger/")}
    assert [path for path, text in elsewhere.items() if named.search(text)] == []


def shown(text: str) -> Iterator[str]:
    """Fields of dataclasses and NamedTuples that are in a repr, and hold what belongs into no log and no error."""
    for kind in ast.walk(ast.parse(text)):
        if isinstance(kind, ast.ClassDef):
            made_by = [ast.unparse(each) for each in (*kind.decorator_list, *kind.bases)]
            if any(re.match(r"NamedTuple|dataclass", each) for each in made_by):
                hidden = re.findall(r"'(\w+)'", " ".join(each for each in made_by if each.startswith("unshown")))
                fields = {ast.unparse(f.target): ast.unparse(f) for f in kind.body if isinstance(f, ast.AnnAssign)}
                names = {name for name, field in fields.items() if "repr=False" not in field} - {*hidden}
                yield from (f"{kind.name}.{name}" for name in sorted(names & (SUBMITTED | SECRET)))


def test_no_value_shows_what_somebody_submitted_nor_a_secret() -> None:
    server = source_files("api", "stack", "tasks", "worker_config").values()
    assert {one for text in server for one in shown(text)} == SHOWN


def test_importing_loads_no_model_library_and_the_client_needs_httpx_and_numpy_alone() -> None:
    """Nor does a web tier that reads no dataset load pyarrow."""
    of_client = loaded_by("embedq", first=["httpx", "numpy"], absent=["rich"]) - sys.stdlib_module_names
    assert {"embedq"} <= of_client <= {"embedq", "httpx", "numpy"}
    assert "api" in loaded_by("api", "stack", "worker_config", absent=[*HEAVY, "pyarrow"])
    assert "tasks" in loaded_by("tasks", absent=HEAVY)


def loaded_by(*packages: str, first: list[str] | None = None, absent: list[str]) -> set[str]:
    """Top-level names that a new interpreter loads for all of these, beyond `first`; `absent` cannot load."""
    files = [path for path in source_files(*packages) if not path.endswith("__main__.py")]
    script = f"""
import importlib, json, sys
for name in {absent}: sys.modules[name] = None
for name in {first or []}: importlib.import_module(name)
before = set(sys.modules)
for path in {files}: importlib.import_module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
print(json.dumps(sorted({{name.partition(".")[0] for name in set(sys.modules) - before}})))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_the_rules_see_what_they_forbid() -> None:
    bad = "from tasks import encoder\nfrom ..errors import x\ndef f():\n    import torch.nn\n"
    assert list(imports("api/routes/bad.py", bad)) == ["tasks.encoder", "api.errors.x", "torch.nn"]
    assert wrong_imports("api/routes/bad.py", bad) == [
        f"api/routes/bad.py imports {n}" for n in ("tasks.encoder", "torch.nn")
    ]
    values = "@unshown('text')\nclass A(NamedTuple):\n    text: str\n    ref: str\n@dataclass(frozen=True)\nclass B:\n"
    values += "    data: bytes\n    url: str = field(repr=False)\nclass C:\n    text: str\n"
    assert list(shown(values)) == ["A.ref", "B.data"]

"""The rules of docs/architecture.md as tests: who may import whom, what may not exist, how large things may grow."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.source_tree import CHECKOUT, PACKAGES, SourceFile, source_files

pytestmark = pytest.mark.untraced  # runs nothing of ours, and syntax trees are slow to walk when that is traced

_LEAVES = (
    *(
        "tasks.chunk",
        "tasks.document_error",
        "tasks.errors",
        "tasks.item",
        "tasks.lines",
        "tasks.model",
        "tasks.pieces",
        "tasks.unshown",
    ),
    "worker_config",
)

_JOBS = (
    "tasks.batches",
    "tasks.datasets",
    "tasks.ingestion",
    "tasks.ledger",
    "tasks.records",
    "tasks.storage",
    "tasks.wire",
    *("tasks.worker.claim_loop", "tasks.worker.idle_wait", "tasks.worker.process"),
    *_LEAVES,
)

# room -> what of this project it may import beside itself. The longest matching name decides.
MAY_IMPORT = {
    "api": (
        *("tasks.datasets", "tasks.ingestion.skip_unchanged", "tasks.ledger", "tasks.records", "tasks.storage"),
        *("tasks.wire", *_LEAVES),
    ),
    "bench": ("api", "embedq", "stack", "tasks", "tests.link", "tests.processes", "worker_config"),
    "embedq": (),
    "stack": ("worker_config",),
    "tasks": ("tasks", *_LEAVES),
    "tasks.batches": _JOBS,
    "tasks.chunk": (),
    "tasks.document_error": (),
    "tasks.datasets": _LEAVES,
    "tasks.errors": (),
    "tasks.ingestion": _JOBS,
    "tasks.item": (),
    "tasks.lines": ("tasks.unshown",),
    "tasks.model": (),
    "tasks.pieces": (),
    "tasks.unshown": (),
    "tasks.storage": _LEAVES,
    "tasks.storage.__main__": ("tasks.ledger", "tasks.records", "tasks.storage", *_LEAVES),
    "tasks.storage.sweep": ("tasks.datasets", "tasks.ledger", "tasks.records", "tasks.storage", *_LEAVES),
    "tasks.storage.purged_owners": ("tasks.datasets", "tasks.ledger", "tasks.records", "tasks.storage", *_LEAVES),
    "tasks.wire": _LEAVES,
    "tasks.ledger": _LEAVES,
    "tasks.encoder": _LEAVES,
    "tasks.records": ("tasks.ledger", "tasks.storage", *_LEAVES),
    "tasks.worker": (
        "tasks.encoder",
        "tasks.ledger",
        "tasks.records",
        "tasks.storage",
        "tasks.wire",
        *_LEAVES,
    ),
    "worker_config": (),
}

# third party -> where it may be imported. "tasks/*" is the entry files of tasks, not its rooms.
ONLY_IN = {
    "fastapi": ("api/**",),
    "starlette": ("api/**",),
    "uvicorn": ("api/__main__.py", "api/head_and_body_limits.py"),
    "httptools": ("api/head_and_body_limits.py",),
    "celery": ("worker_config/**", "tasks/worker/process/**"),
    "billiard": ("worker_config/**", "tasks/worker/process/**"),
    "redis": (
        "api/**",
        "tasks/ledger/**",
        "tasks/worker/**",
        "worker_config/redis_connection.py",
    ),
    "asyncpg": ("tasks/datasets/postgresql/**",),
    "sqlite3": ("tasks/datasets/sqlite/**",),
    "pyarrow": ("tasks/datasets/export.py", "tasks/ingestion/sources/**"),
    "torch": ("tasks/encoder/**",),
    "sentence_transformers": ("tasks/encoder/**",),
    "transformers": ("tasks/encoder/**",),
    "openvino": ("tasks/encoder/**",),
    "pypdfium2": ("tasks/ingestion/parsing/**",),
    "lxml": ("tasks/ingestion/parsing/**",),
    "python_calamine": ("tasks/ingestion/parsing/**",),
    "charset_normalizer": ("tasks/ingestion/parsing/**",),
    "tokenizers": ("tasks/ingestion/chunking/**", "tasks/encoder/**"),
    "opentelemetry": ("worker_config/telemetry.py", "worker_config/logs.py"),
    "fsspec": ("tasks/ingestion/sources/**",),
    "obstore": ("tasks/storage/bucket.py", "tasks/ingestion/sources/**"),
}

ENVIRONMENT = {Path("worker_config/settings.py"), Path("tasks/storage/bucket.py")}
"""The second reads what Amazon's own tools read, where the driver does not."""

HEAVY = ("torch", "sentence_transformers", "transformers", "openvino")
"""Imported inside functions only: they cost seconds and hundreds of megabytes, and a process that forks must not."""

PRIVATE = {
    "lxml.etree._Element",  # the type of what its functions take and return
    "_pytest.faulthandler.fault_handler_stderr_fd_key",  # for tests
}
"""Names of libraries that have an underscore in front and no other name."""

CODE_EXECUTION = ("pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve")
NAMES_OF_NOTHING = {"utils", "util", "common", "helpers", "misc", "manager", "managers", "base"}

SUBMITTED = {"text", "texts", "headings", "metadata", "ref", "record", "features", "data", "payload"}
SECRET = {"url", "redis_url", "environment"}
SHOWN = {
    *("FieldMap.text", "FieldMap.metadata"),  # names of fields
    "Fetched.ref",  # which hides what it holds
    "Prompts.texts",  # the model's own
}

SMALL = 40
"""Lines. A file below them that one other file uses is a part of that file."""
ENTRIES = {
    Path("tasks/worker/__main__.py"),
    Path("tasks/ingestion/__main__.py"),
    *(Path("tasks/ingestion/stages") / name for name in ("finish.py", "list_documents.py")),  # a stage is a file
    Path("tasks/probe.py"),
    Path("tasks/ledger/give_back.py"),  # a file has the name of its script
    Path("api/written_together.py"),  # another subject than the deadlines of the protocol that uses it
    Path("api/redis_command.py"),  # a process of its own, for `embedq doctor`
}

_REDIS_KEY = re.compile(r"^eq(:|$)|:q:")


def at(file: SourceFile, line: int, what: str) -> str:
    return f"{file.path}:{line} {what}"


def ours_but_not_allowed(file: SourceFile) -> list[str]:
    package = max((name for name in MAY_IMPORT if f"{file.module}.".startswith(f"{name}.")), key=len)
    allowed = (package, *MAY_IMPORT[package])
    return [
        at(file, found.line, f"imports {found.module}")
        for found in file.imports
        if any(found.is_of(name) for name in (*PACKAGES, "tests", "bench"))
        and not any(found.is_of(name) for name in allowed)
    ]


def in_wrong_place(file: SourceFile) -> list[str]:
    return [
        at(file, found.line, f"imports {found.module}")
        for library, places in ONLY_IN.items()
        for found in file.imports
        if found.is_of(library) and not any(_matches(file.path, place) for place in places)
    ]


def private_of_others(file: SourceFile) -> list[str]:
    """Imported names with an underscore in front. ruff (SLF001) sees the attributes, and also those of ours."""
    return [
        at(file, found.line, f"imports {found.module}")
        for found in file.imports
        if not any(found.is_of(name) for name in (*PACKAGES, "tests", "bench", "__future__"))
        if found.module not in PRIVATE
        if any(part.startswith("_") for part in found.module.split("."))
    ]


def reads_environment(file: SourceFile) -> list[str]:
    names = {"environ", "environb", "getenv", "getenvb", "putenv"}
    uses = [at(file, line, f"os.{name}") for line, name in file.attributes("os") if name in names]
    imported = {f"os.{name}" for name in names}
    return uses + [at(file, found.line, found.module) for found in file.imports if found.module in imported]


def shows_contents(file: SourceFile) -> list[str]:
    """Fields of dataclasses and NamedTuples that are in a repr, and hold what belongs into no log and no error."""
    return [
        at(file, field.line, f"{field.of} shows {field.name}")
        for field in file.shown_fields
        if field.name in SUBMITTED | SECRET and f"{field.of}.{field.name}" not in SHOWN
    ]


def names_redis_keys(file: SourceFile) -> list[str]:
    makers = {f"tasks.ledger.redis_keys.{name}" for name in ("ROOT", "queue_key")}
    spelled = [at(file, line, repr(text)) for line, text in file.strings if _REDIS_KEY.search(text)]
    return spelled + [at(file, found.line, found.module) for found in file.imports if found.module in makers]


def test_rooms_import_only_what_the_architecture_allows() -> None:
    assert _all(ours_but_not_allowed(file) for file in source_files(*PACKAGES, "bench")) == []


def test_no_file_imports_itself_in_a_circle() -> None:
    assert circles(list(source_files(*PACKAGES, "bench", "tests"))) == []


def test_no_test_imports_a_test() -> None:
    assert [
        at(file, found.line, f"imports {found.module}")
        for file in source_files("tests")
        for found in file.imports
        if re.search(r"^tests\..*\btest_", found.module)
    ] == []


def test_libraries_stay_where_they_belong() -> None:
    assert _all(in_wrong_place(file) for file in source_files()) == []


def test_no_private_name_of_a_library_is_imported() -> None:
    assert _all(private_of_others(file) for file in [*source_files(), *source_files("bench", "tests")]) == []


def test_the_server_reads_the_environment_in_one_file() -> None:
    server = source_files("api", "stack", "tasks", "worker_config")
    assert _all(reads_environment(f) for f in server if f.path not in ENVIRONMENT) == []


def test_the_client_reads_the_environment_in_one_file() -> None:
    assert len([file.path for file in source_files("embedq") if reads_environment(file)]) <= 1


def test_redis_keys_are_named_in_the_ledger_only() -> None:
    elsewhere = [file for file in source_files() if not file.module.startswith("tasks.ledger")]
    assert _all(names_redis_keys(file) for file in elsewhere) == []


def test_nothing_can_execute_data() -> None:
    assert [
        at(file, found.line, found.module)
        for file in source_files()
        for found in file.imports
        if any(found.is_of(name) for name in CODE_EXECUTION)
    ] == []


def test_no_value_shows_what_somebody_submitted_nor_a_secret() -> None:
    assert _all(shows_contents(file) for file in source_files("api", "stack", "tasks", "worker_config")) == []


def test_every_file_is_named_for_what_it_holds() -> None:
    assert [str(file.path) for file in source_files(*PACKAGES, "tests") if file.path.stem in NAMES_OF_NOTHING] == []


def test_every_file_says_first_what_it_is() -> None:
    assert [str(file.path) for file in source_files() if file.text and not file.documented] == []


def test_a_small_file_has_two_users_or_a_reason() -> None:
    files = source_files()
    modules = {file.module for file in files}
    importers = Counter(name for file in files for name in _imported_files(file, modules))
    assert [
        f"{file.path} has {lines} lines and {importers[file.module]} users: put it where it is used"
        for file in files
        if (lines := len(file.text.splitlines())) < SMALL and importers[file.module] < 2
        if file.path.stem not in {"__init__", "__main__"} and file.path not in ENTRIES
        if file.path.parent.name != "routes"  # one for each resource, whatever its size
    ] == []


def test_a_class_name_stands_for_one_thing_in_a_package() -> None:
    names = Counter(
        (file.path.parts[0], name) for file in source_files() for name in file.classes if not name.startswith("_")
    )
    assert [name for name, times in names.items() if times > 1] == []


@pytest.mark.parametrize(
    ("packages", "absent"), [(("api", "stack", "worker_config"), (*HEAVY, "pyarrow")), (("tasks", "embedq"), HEAVY)]
)
def test_importing_loads_no_model_library(packages: tuple[str, ...], absent: tuple[str, ...]) -> None:
    """Nor does a web tier that reads no dataset load pyarrow."""
    modules = [file.module for file in source_files(*packages) if file.path.stem != "__main__"]
    assert modules
    assert _loaded_by(modules).isdisjoint(absent)


def test_the_client_needs_httpx_and_numpy_alone() -> None:
    modules = [file.module for file in source_files("embedq") if file.path.stem != "__main__"]
    allowed = {"embedq", "httpx", "numpy", *sys.stdlib_module_names}
    assert _loaded_by(modules, first=("httpx", "numpy"), absent=("rich",)) - allowed == set()


def test_the_rules_see_what_they_forbid() -> None:
    bad = SourceFile(
        Path("api/routes/bad.py"),
        "import os\nfrom tasks import encoder\nfrom ..errors import x\ndef f():\n    import torch.nn\n"
        "    return os.environ['A'], f'eq:task:{x}'\n",
    )
    assert ours_but_not_allowed(bad) == ["api/routes/bad.py:2 imports tasks.encoder"]
    assert in_wrong_place(bad) == ["api/routes/bad.py:5 imports torch.nn"]
    assert circles([bad, SourceFile(Path("api/errors.py"), "from api.routes import bad\n")]) == [
        {"api.routes.bad", "api.errors"}
    ]
    assert reads_environment(bad) == ["api/routes/bad.py:6 os.environ"]
    private = SourceFile(Path("api/bad.py"), "from __future__ import annotations\nfrom uvicorn._types import Scope\n")
    assert private_of_others(private) == ["api/bad.py:2 imports uvicorn._types.Scope"]
    assert names_redis_keys(bad) == ["api/routes/bad.py:6 'eq:task:'"]
    assert [(found.module, found.at_run_time) for found in bad.imports[2:]] == [
        ("api.errors.x", False),
        ("torch.nn", True),
    ]
    values = SourceFile(
        Path("tasks/values.py"),
        "@unshown('text')\nclass A(NamedTuple):\n    text: str\n    ref: str\n"
        "@dataclass(frozen=True)\nclass B:\n    data: bytes\n    url: str = field(repr=False)\n"
        "class C:\n    text: str\n",
    )
    assert shows_contents(values) == ["tasks/values.py:4 A shows ref", "tasks/values.py:7 B shows data"]


def _imported_files(file: SourceFile, modules: set[str]) -> set[str]:
    """Those of `modules` that a file imports, each once."""
    names = {found.module if found.module in modules else found.module.rpartition(".")[0] for found in file.imports}
    return names & modules


def circles(files: list[SourceFile]) -> list[set[str]]:
    """Sets of files of which each imports another one of the set, also inside functions."""
    names = {file.module for file in files}
    graph = {
        file.module: {
            name
            for found in file.imports
            # `from a import b`: the file `b` where there is one, else something in the file `a`.
            for name in [found.module if found.module in names else found.module.rpartition(".")[0]]
            if name in names and name != file.module
        }
        for file in files
    }
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return [set(error.args[1])]
    return []


def _all(lists: Iterable[list[str]]) -> list[str]:
    return [problem for problems in lists for problem in problems]


def _matches(path: Path, place: str) -> bool:
    folder, _, depth = place.rpartition("/")
    if depth not in {"*", "**"}:
        return path == Path(place)
    return path.is_relative_to(folder) if depth == "**" else path.parent == Path(folder)


def _loaded_by(modules: list[str], *, first: tuple[str, ...] = (), absent: tuple[str, ...] = ()) -> set[str]:
    """Top-level names that a new interpreter loads for `modules`, beyond what `first` loads; `absent` cannot load."""
    script = f"""
import importlib, json, sys
for name in {absent!r}: sys.modules[name] = None
for name in {first!r}: importlib.import_module(name)
before = set(sys.modules)
for name in {modules!r}: importlib.import_module(name)
print(json.dumps(sorted({{name.partition(".")[0] for name in set(sys.modules) - before}})))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))

"""The documentation against the code: what exists is described, and what is described exists."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from api.app import READABLE, create_app
from embedq.cli import parser
from tasks import errors
from tasks.encoder.fake import FakeSettings
from tasks.ledger.overview import Queue, RedisUse
from tests.integration.encoder import architectures
from tests.source_tree import CHECKOUT, source_files
from worker_config.settings import PREFIX, Settings, load_settings

DOCUMENTS = sorted([*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/**/*.md")])
LUA = "\n".join(file.read_text() for file in (CHECKOUT / "tasks/ledger/lua").rglob("*.lua"))

CLIENT_SETTINGS = {f"{PREFIX}URL", f"{PREFIX}API_KEY"}
MUST_NOT_EXIST = "utils.py"
MAKE_FAILURES = {"DocumentFailed", "DocumentError", "refused", "bad", "_failed", "_unlisted"}
PLACES = (".", "docs", "tests", "tests/integration", "tasks/ledger")
FAMILIES_OF_SERIES = {"embedq_http_", "embedq_submitted_", "embedq_bell", "embedq_loop_"}


def text(name: str) -> str:
    return (CHECKOUT / name).read_text(encoding="utf-8")


def rows(name: str, heading: str | None = None) -> Iterator[list[str]]:
    """Cells of every line of a table, in the whole document or up to the next heading behind this one."""
    page = text(name)
    if heading is not None:
        page = re.split(r"^#+ ", page.split(f"## {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    for line in page.splitlines():
        if line.startswith("|"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def code_spans(document: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", document, flags=re.DOTALL | re.MULTILINE))


def fenced(document: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document, flags=re.DOTALL | re.MULTILINE)


def commands(document: str, program: str) -> set[str]:
    """First arguments of `program` in code spans and in shell blocks."""
    lines = [*code_spans(document), *"\n".join(fenced(document, "sh")).splitlines()]
    return {found[1] for line in lines if (found := re.match(rf"(?:\w+=\S+ )*{program} ([a-z][a-z-]*)", line))}


# ---- failures of documents -------------------------------------------------------------------------------------------


def failures_in_code() -> set[str]:
    """Codes that are written where a document is made to fail."""
    files = source_files("tasks/ingestion")
    return {code for file in files for name in MAKE_FAILURES for code in file.calls.get(name, ())}


def test_every_failure_of_a_document_is_described_and_nothing_else() -> None:
    described = {
        code
        for cells in rows("docs/ingestion.md")
        if len(cells) == 2
        for code in re.findall(r"`([a-z]+_?[a-z_]*)`", cells[0])
    } - {"code", "mode", "chunking", "source", "files", "urls", "documents"}
    raised = failures_in_code()
    assert len(raised) > 10
    assert sorted(raised - described) == []
    code = "\n".join(file.read_text() for file in (CHECKOUT / "tasks").glob("**/*.py"))
    assert [one for one in sorted(described) if f'"{one}"' not in code] == []


# ---- settings --------------------------------------------------------------------------------------------------------


def shown_default(name: str) -> str:
    default: Any = Settings.model_fields[name].default
    if default in (None, (), ""):
        return "none"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def bounds(name: str) -> Iterator[str]:
    for rule in Settings.model_fields[name].metadata:
        for kind in ("ge", "gt", "le", "min_length", "max_length"):
            if (bound := getattr(rule, kind, None)) is not None:
                yield f"{bound:,}"


@pytest.fixture(scope="module")
def settings_rows() -> dict[str, list[str]]:
    return {row[0].strip("`"): row for row in rows("docs/settings.md") if row[0].startswith(f"`{PREFIX}")}


def test_every_setting_is_described_and_nothing_else(settings_rows: dict[str, list[str]]) -> None:
    assert set(settings_rows) == {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}


@pytest.mark.parametrize("name", sorted(set(Settings.model_fields) - {"run_dir"}))
def test_a_setting_shows_its_default_and_its_range(name: str, settings_rows: dict[str, list[str]]) -> None:
    _, default, allowed, meaning, _ = settings_rows[f"{PREFIX}{name.upper()}"]
    choices = [choice for choice in get_args(Settings.model_fields[name].annotation) if isinstance(choice, str)]
    assert default == shown_default(name)
    assert [bound for bound in bounds(name) if not re.search(rf"(?<!\d)(?<!\d,){bound}(?!,?\d)", allowed)] == []
    assert [choice for choice in choices if f"`{choice}`" not in allowed] == []
    assert meaning


def test_no_document_names_a_setting_that_does_not_exist() -> None:
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields} | CLIENT_SETTINGS
    known |= {f"{PREFIX}FAKE_{name.upper()}" for name in FakeSettings.model_fields}
    named = {name for file in DOCUMENTS for name in re.findall(rf"\b{PREFIX}[A-Z_]+\b", file.read_text())}
    assert named - known == set()


# ---- HTTP ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(load_settings()).openapi()


@pytest.fixture(scope="module")
def routes(document: dict[str, Any]) -> set[str]:
    return {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}


def test_the_table_of_models_is_made_from_those_that_are_compared() -> None:
    page = text("docs/models.md")
    assert architectures.with_table(page) == page, "run python -m tests.integration.encoder.architectures"


def test_every_header_of_a_route_is_described(document: dict[str, Any]) -> None:
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    parameters = [one for operation in operations for one in operation.get("parameters", ())]
    answers = [answer for operation in operations for answer in operation["responses"].values()]
    names = {one["name"] for one in parameters if one["in"] == "header"} | {*READABLE}
    names |= {name for answer in answers for name in answer.get("headers", ())}
    families = {re.sub("^x-ratelimit-.*", "x-ratelimit-…", name.lower()) for name in names}
    explained = " ".join(row[0].lower() for row in rows("docs/http.md"))
    assert {name for name in families if name not in explained} == set()


def test_a_route_tells_the_scopes_that_it_needs(document: dict[str, Any]) -> None:
    told = {path: methods["get"]["description"] for path, methods in document["paths"].items() if "get" in methods}
    assert told["/v1/batches"].endswith("Scope of the key: `bulk` or `read`.")
    assert not [path for path in ("/v1/key", "/health/live") if "Scope" in told[path]]


def test_no_route_is_described_that_does_not_exist(routes: set[str]) -> None:
    named = [span for span in code_spans(text("docs/http.md")) if re.match(r"(GET|POST|PUT|DELETE) /", span)]
    assert {span.partition("?")[0] for span in named} - routes == {
        "GET /openapi.json",
    }


def error_codes(kind: type[errors.EmbedqError] = errors.EmbedqError) -> Iterator[tuple[str, int]]:
    """Every code with its status."""
    if "code" in vars(kind):
        yield kind.code, kind.status
    for code, meaning in kind.codes.items() if issubclass(kind, errors.CodedError) else ():
        yield code, meaning.status or kind.status
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from error_codes(below)


OF_TEXTS = {("input_too_long", "400"), ("encoding_failed", "422")}
"""Codes of one text that are answers, too."""
IN_NO_ANSWER = {one.code for one in (errors.RequestError, errors.Unavailable, errors.NotStored, errors.SchemaMismatch)}
"""Families, and what only the server itself meets."""


def test_the_table_of_errors_is_the_list_of_codes() -> None:
    table = [row for row in rows("docs/http.md", "Errors") if row[0].startswith("`")]
    described = {(code, row[1]) for row in table for code in code_spans(row[0])}
    own = {(code, str(status)) for code, status in error_codes() if code not in IN_NO_ANSWER}
    assert described == own | OF_TEXTS


def codes_made(kind: str) -> set[str]:
    """Codes with which this class is called by name in the source."""
    return set[str]().union(*(file.calls.get(kind, ()) for file in source_files("api", "tasks")))


def test_an_error_is_raised_with_each_code_that_it_has_and_no_other() -> None:
    kinds = errors.CodedError.__subclasses__()
    assert {kind.__name__: codes_made(kind.__name__) for kind in kinds} == {k.__name__: {*k.codes} for k in kinds}


def test_every_error_of_a_text_is_described() -> None:
    codes = codes_made("TextError") | set(re.findall(r'\[%d,"(\w+)"', LUA))  # the second: what scripts write
    assert {"input_too_long", "worker_lost", "cancelled"} <= codes, "the search finds nothing any more"
    assert codes - set(code_spans(text("docs/http.md"))) == set()


# ---- metrics ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def series() -> set[str]:
    exposed = create_app(load_settings()).state.metrics.render().decode()
    counters = {*counted_by_scripts(), *counted_by_workers(), *summed_by_the_overview()}
    return {
        *re.findall(r"^# HELP (embedq_\w+)", exposed, re.MULTILINE),
        *(f"embedq_ledger_{n}_total" for n in counters),
    }


def counted_by_scripts() -> set[str]:
    """Whole names; those that scripts put together are series with labels."""
    found = set(re.findall(r"\bcount\(\w+, '(\w+)', ", LUA))
    assert "lost_leases" in found, "the search finds nothing any more"
    return found


def counted_by_workers() -> set[str]:
    """What they tell with their heartbeat."""
    counted = set[str]().union(*(file.calls.get(".count", ()) for file in source_files("tasks")))
    found = {name for name in counted if re.fullmatch(r"[a-z_]{3,}", name)}  # others are counted in texts
    assert {"claims", "padded_tokens", "stale_units"} <= found, "the search finds nothing any more"
    return found


def summed_by_the_overview() -> set[str]:
    counts = [b"items_online_completed", 1, b"items_bulk_failed", 1]
    seen = Queue.from_reply([b"", b"", b"", counts, 0, [-1, -1], [], [], 0], RedisUse())
    return seen.counters.keys() - {"items_online_completed", "items_bulk_failed"}


def test_every_series_is_described(series: set[str]) -> None:
    assert series - set(code_spans(text("docs/metrics.md"))) == set()


def test_no_document_names_a_series_that_does_not_exist(series: set[str]) -> None:
    spans = [span for file in DOCUMENTS for span in code_spans(file.read_text())]
    named = {name for span in spans for name in re.findall(r"\bembedq_\w+", span)}
    assert named - series - FAMILIES_OF_SERIES == set()


# ---- commands --------------------------------------------------------------------------------------------------------


def subcommands() -> set[str]:
    (choices,) = (action.choices for action in parser()._actions if action.choices)
    return set(choices)


def test_every_command_is_described() -> None:
    described = {
        found for span in code_spans(text("docs/client.md")) for found in re.findall(r"embedq ([a-z-]+)", span)
    }
    assert subcommands() - described == set()


def test_no_document_names_a_command_that_does_not_exist() -> None:
    used = {name for file in DOCUMENTS for name in commands(file.read_text(), "embedq")}
    assert {"up", "submit"} <= used, "the search finds nothing any more"
    assert used - subcommands() == set()


def test_no_document_names_a_make_target_that_does_not_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", text("Makefile"), re.MULTILINE))
    used = {name for file in DOCUMENTS for name in commands(file.read_text(), "make")}
    assert {"demo", "up", "test"} <= commands(text("README.md"), "make")
    assert used - targets == set()


def test_every_trigger_of_the_fake_encoder_is_described() -> None:
    trigger = re.compile(r"!![a-z-]+!!")
    assert set(trigger.findall(text("docs/testing.md"))) == set(trigger.findall(text("tasks/encoder/fake.py")))


# ---- links and examples ----------------------------------------------------------------------------------------------


def anchors(document: str) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#{1,6} (.+)$", document, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(file: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", file.read_text()):
        if re.match(r"[a-z]+://", target):
            continue
        path, _, anchor = target.partition("#")
        there = (file.parent / path).resolve() if path else file
        if not there.exists() or (anchor and anchor not in anchors(there.read_text())):
            yield target


def test_relative_links_lead_somewhere() -> None:
    assert [f"{file}: {target}" for file in DOCUMENTS for target in broken_links(file)] == []


def exists(name: str) -> bool:
    """A path from one of the places that documents count from, or a bare name of a file of the server or its tests."""
    if any((CHECKOUT / place / name).exists() for place in PLACES):
        return True
    return "/" not in name and any(path for part in ("tasks", "tests") for path in (CHECKOUT / part).rglob(name))


def test_files_that_are_named_exist() -> None:
    named = {
        span
        for file in DOCUMENTS
        for span in code_spans(file.read_text())
        if re.fullmatch(r"[\w./-]*\w(\.(py|lua|md|yml)|/)", span)
    }
    assert [span for span in sorted(named - {MUST_NOT_EXIST}) if not exists(span)] == []


def test_examples_in_python_can_be_parsed() -> None:
    for file in DOCUMENTS:
        for example in fenced(file.read_text(), "python"):
            compile(example, str(file), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)


def test_the_index_leads_to_every_document() -> None:
    assert [
        file.name for file in DOCUMENTS if file.parent.name == "docs" and file.name not in text("docs/README.md")
    ] == []


def test_the_pythons_that_are_named_are_those_that_are_tried() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    prefix = "Programming Language :: Python :: "
    named = [name.removeprefix(prefix) for name in project["classifiers"] if name.startswith(prefix)]
    listed = f"{', '.join(named[:-1])} or {named[-1]}"
    script = (CHECKOUT / ".ci/pythons").read_text()
    assert project["requires-python"] == f">={named[0]}"
    assert f"Python {listed}" in (CHECKOUT / "README.md").read_text()
    assert f"oldest={named[0]}\nnewest={named[-1]}\n" in script

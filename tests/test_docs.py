"""The documentation against the code: what exists is described, and what is described exists."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from api.app import create_app
from embedq.cli import parser
from tasks import errors
from tasks.encoder.fake import FakeSettings
from tasks.ledger.overview import Queue, RedisUse
from tests.integration.encoder import architectures
from tests.source_tree import CHECKOUT, source_files
from worker_config.settings import PREFIX, Settings, load_settings

DOCUMENTS = sorted([*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/**/*.md")])
CLIENT_SETTINGS = {f"{PREFIX}URL", f"{PREFIX}API_KEY"}
MUST_NOT_EXIST = "utils.py"
PLACES = (".", "docs", "tests", "tests/integration", "tasks/ledger")
FAMILIES_OF_SERIES = {"embedq_http_", "embedq_submitted_", "embedq_bell", "embedq_loop_"}


def text(name: str) -> str:
    return (CHECKOUT / name).read_text(encoding="utf-8")


def rows(page: str) -> Iterator[list[str]]:
    for line in page.splitlines():
        if line.startswith("|"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def code_spans(document: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", document, flags=re.DOTALL | re.MULTILINE))


def in_documents(pattern: str, *, spans: bool = False) -> set[str]:
    pages = [file.read_text(encoding="utf-8") for file in DOCUMENTS]
    return {found for page in pages for found in re.findall(pattern, "\n".join(code_spans(page)) if spans else page)}


def commands(program: str) -> set[str]:
    """First arguments of a program in code spans and in shell blocks."""
    call = rf"(?m)^(?:\w+=\S+ )*{program} ([a-z][a-z-]*)"
    blocks = in_documents(r"(?ms)^```sh\n(.*?)^```")
    return in_documents(call, spans=True).union(*(re.findall(call, block) for block in blocks))


def shown_default(default: Any) -> str:
    if default in (None, (), ""):
        return "none"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def test_every_setting_is_described_with_its_default_and_its_range() -> None:
    described = {row[0].strip("`"): row for row in rows(text("docs/settings.md")) if row[0].startswith(f"`{PREFIX}")}
    assert set(described) == {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    for name in Settings.model_fields.keys() - {"run_dir"}:
        field = Settings.model_fields[name]
        _, default, allowed, meaning, _ = described[f"{PREFIX}{name.upper()}"]
        kinds = ("ge", "gt", "le", "min_length", "max_length")
        limits = [getattr(rule, kind, None) for rule in field.metadata for kind in kinds]
        bounds = [rf"(?<!\d)(?<!\d,){limit:,}(?!,?\d)" for limit in limits if limit is not None]
        choices = [f"`{choice}`" for choice in get_args(field.annotation) if isinstance(choice, str)]
        assert (default, bool(meaning)) == (shown_default(field.default), True), name
        assert [one for one in (*bounds, *choices) if not re.search(one, allowed)] == [], name


def test_no_document_names_a_setting_that_does_not_exist() -> None:
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields} | CLIENT_SETTINGS
    known |= {f"{PREFIX}FAKE_{name.upper()}" for name in FakeSettings.model_fields}
    assert in_documents(rf"\b{PREFIX}[A-Z_]+\b") - known == set()


def test_no_route_is_described_that_does_not_exist() -> None:
    paths = create_app(load_settings()).openapi()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    named = [span for span in code_spans(text("docs/http.md")) if re.match(r"(GET|POST|PUT|DELETE) /", span)]
    assert {span.partition("?")[0] for span in named} - routes == {"GET /openapi.json"}


def error_codes(kind: type[errors.EmbedqError] = errors.EmbedqError) -> Iterator[tuple[str, int]]:
    """Every code with its status, but of families, and of what only the server itself meets."""
    if "code" in vars(kind) and kind not in {errors.RequestError, errors.Unavailable, errors.NotStored}:
        yield kind.code, kind.status
    for code, meaning in kind.codes.items() if issubclass(kind, errors.CodedError) else ():
        yield code, meaning.status or kind.status
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__ and below is not errors.SchemaMismatch:
            yield from error_codes(below)


def test_the_table_of_errors_has_every_code_with_its_status() -> None:
    section = text("docs/http.md").split("## Errors\n", 1)[1].partition("\n#")[0]
    described = {(code, row[1]) for row in rows(section) for code in code_spans(row[0])}
    assert {(code, str(status)) for code, status in error_codes()} - described == set()


@pytest.fixture(scope="module")
def series() -> set[str]:
    """Those of the API, and what scripts and workers count; whole names alone, others are series with labels."""
    exposed = create_app(load_settings()).state.metrics.render().decode()
    scripts = "\n".join(file.read_text() for file in (CHECKOUT / "tasks/ledger/lua").rglob("*.lua"))
    counted = {*re.findall(r"\bcount\(\w+, '(\w+)', ", scripts)}
    for source in source_files("tasks").values():
        for names in re.findall(r"\.count\(\s*\{(.*?)\}", source, re.DOTALL):
            counted |= {*re.findall(r'"(\w+)":', names)}
    assert {"lost_leases", "claims", "padded_tokens", "stale_units"} <= counted, "the search finds nothing any more"
    counts = [b"items_online_completed", 1, b"items_bulk_failed", 1]
    summed = Queue.from_reply([b"", b"", b"", counts, 0, [-1, -1], [], [], 0], RedisUse()).counters.keys()
    counted |= summed - {"items_online_completed", "items_bulk_failed"}
    own = re.findall(r"^# HELP (embedq_\w+)", exposed, re.MULTILINE)
    return {*own, *(f"embedq_ledger_{name}_total" for name in counted)}


def test_every_series_is_described_and_no_other_is_named(series: set[str]) -> None:
    assert series - set(code_spans(text("docs/metrics.md"))) == set()
    assert in_documents(r"\bembedq_\w+", spans=True) - series - FAMILIES_OF_SERIES == set()


def test_every_command_is_described_and_no_other_is_named() -> None:
    (known,) = (set(action.choices) for action in parser()._actions if action.choices)
    assert known - set(re.findall(r"embedq ([a-z-]+)", "\n".join(code_spans(text("docs/client.md"))))) == set()
    assert {"up", "submit"} <= commands("embedq"), "the search finds nothing any more"
    assert commands("embedq") - known == set()
    assert {"demo", "up", "test"} <= commands("make")
    assert commands("make") - set(re.findall(r"^([a-z]+):", text("Makefile"), re.MULTILINE)) == set()


def anchors(document: str) -> set[str]:
    headings = re.findall(r"^#{1,6} (.+)$", document, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(file: Path) -> Iterator[str]:
    for target in re.findall(r"\]\((?![a-z]+://)([^)\s]+)\)", file.read_text()):
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
    named = in_documents(r"(?m)^[\w./-]*\w(?:\.(?:py|lua|md|yml)|/)$", spans=True)
    assert [span for span in sorted(named - {MUST_NOT_EXIST}) if not exists(span)] == []


def test_the_table_of_models_is_made_from_those_that_are_compared() -> None:
    page = text("docs/models.md")
    assert architectures.with_table(page) == page, "run python -m tests.integration.encoder.architectures"

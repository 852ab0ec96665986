"""Spans as they are made and sent, by a process without a service around it."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.collector import Collector
from tests.integration.observed.conftest import TEXT, new_trace
from tests.processes import CHECKOUT

OPEN = """
from worker_config.logs import configure_logging
from worker_config.telemetry import close_traces, describe_request, open_traces, request_span, span, traceparent
configure_logging("info", "text", "api")
provider = open_traces(role="api", instance="test")

def call(route, parent=""):
    with request_span(route, parent) as request:
        with span("submit"):
            said = traceparent()
        if request.is_recording():
            describe_request(request, "POST", route, 200, {})
    return said
"""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


def run(url: str, code: str, **variables: str) -> tuple[list[str], str]:
    """What a process prints that traces its calls to a collector, and its log. A provider is for a process's life."""
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "PYTHONPATH": str(CHECKOUT), **variables}
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"{OPEN}\n{code}\nclose_traces(provider)"],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    return done.stdout.split(), done.stderr


def names(collector: Collector) -> set[str]:
    return {span.name for span in collector.spans}


def test_a_stop_sends_the_last_spans(collector: Collector) -> None:
    _, log = run(collector.url, "call('/last')")
    assert names(collector) == {"submit", "POST /last"}
    assert log == ""


def test_a_collector_that_takes_nothing_is_said_and_costs_nothing_else(collector: Collector) -> None:
    collector.refuses = True
    _, log = run(collector.url, "for _ in range(9):\n    call('/lost')")
    (line,) = log.splitlines()
    assert "Failed to export span" in line


def test_a_wrong_address_of_a_collector_is_said_without_its_password() -> None:
    _, log = run("nonsense://user:secret@collector", "call('/lost')")
    assert "export" in log
    assert "secret" not in log


def test_the_sampler_is_opentelemetrys_own(collector: Collector) -> None:
    (_, sampled), (_, unsampled) = new_trace(), new_trace(sampled=False)
    parents = ["", sampled["traceparent"], unsampled["traceparent"]]
    said, _ = run(
        collector.url,
        f"print(*(bool(call('/v1/tasks', parent)) for parent in {parents}))",
        OTEL_TRACES_SAMPLER="parentbased_traceidratio",
        OTEL_TRACES_SAMPLER_ARG="0",
    )
    assert said == ["False", "True", "False"]


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:1"])
def test_without_the_extra_there_are_no_traces_and_the_log_says_so(url: str) -> None:
    exporter = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    code = f"import sys\nsys.modules['{exporter}'] = None\nprint(open_traces(role='api'))"
    said, log = run(url, f"del provider\n{code}\nprovider = None")
    assert said == ["None"]
    assert ("pip install 'embedq[traces]'" in log) is bool(url)


def test_probes_begin_no_trace(collector: Collector) -> None:
    parent = new_trace()[1]["traceparent"]
    said, _ = run(
        collector.url, f"print(*map(bool, [call('/health/live'), call('/metrics'), call('/health/live', '{parent}')]))"
    )
    assert said == ["False", "False", "True"]


def test_a_span_of_work_that_fails_has_the_type_of_the_error_and_not_its_text(collector: Collector) -> None:
    code = f"""
try:
    with request_span('/v1/tasks', ''), span('submit'):
        raise ValueError('{TEXT}')
except ValueError:
    pass
with request_span('/v1/tasks', '') as request:
    describe_request(request, 'POST', '/v1/tasks', 500, {{}})
"""
    run(collector.url, code)
    assert {span.name: span.attributes.get("error.type") for span in collector.spans} == {
        "submit": "ValueError",
        "request": "ValueError",
        "POST /v1/tasks": "500",
    }
    assert all(span.failed for span in collector.spans)
    assert TEXT not in str(collector.spans)


def test_only_a_traceparent_that_is_one_continues_a_trace(collector: Collector) -> None:
    ids = f"{'a' * 32}-{'b' * 16}"
    theirs = [f"00-{ids}-01", f"cc-{ids}-01", f"cc-{ids}-01-what-a-later-version-says"]
    wrong = ["", f"00-{ids}-01-more", f"ff-{ids}-01", f"00-{'0' * 32}-{'b' * 16}-01", f"00-{'a' * 32}-{'0' * 16}-01"]
    said, _ = run(
        collector.url,
        f"print(*(call('/v1/tasks', parent)[3:35] == 'a' * 32 for parent in {[*theirs, *wrong]} + ['a' * 60_000]))",
    )
    assert said == ["True"] * len(theirs) + ["False"] * (len(wrong) + 1)

"""Spans as they are made and sent, by a process without a service around it."""

import subprocess
import sys

from tests.integration.observed.conftest import TEXT, Collector
from tests.source_tree import CHECKOUT

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


def run(url: str, code: str, **variables: str) -> tuple[list[str], str]:
    """What a process prints that traces its calls to a collector, and its log. A provider is for a process's life."""
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "PYTHONPATH": str(CHECKOUT), **variables}
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"{OPEN}\n{code}\nclose_traces(provider)"],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    return done.stdout.split(), done.stderr


def test_what_begins_and_continues_a_trace_and_what_a_failure_tells(collector: Collector) -> None:
    """A stop sends the last spans; probes begin no trace; of an error there is the type and not its text."""
    ids = f"{'a' * 32}-{'b' * 16}"
    theirs = [f"00-{ids}-01", f"cc-{ids}-01", f"cc-{ids}-01-what-a-later-version-says"]
    wrong = ["", f"00-{ids}-01-more", f"ff-{ids}-01", f"00-{'0' * 32}-{'b' * 16}-01", f"00-{'a' * 32}-{'0' * 16}-01"]
    code = f"""
print(*(call('/v1/tasks', parent)[3:35] == 'a' * 32 for parent in {[*theirs, *wrong]} + ['a' * 60_000]))
print(*map(bool, [call('/health/live'), call('/metrics'), call('/health/live', '00-{ids}-01')]))
try:
    with request_span('/v1/tasks', ''), span('fails'):
        raise ValueError('{TEXT}')
except ValueError:
    pass
with request_span('/v1/tasks', '') as request:
    describe_request(request, 'POST', '/v1/fails', 500, {{}})
"""
    said, log = run(collector.url, code)
    assert said == ["True"] * len(theirs) + ["False"] * (len(wrong) + 1) + ["False", "False", "True"]
    assert "export" not in log
    assert {span.name: span.attributes.get("error.type") for span in collector.spans if span.failed} == {
        "fails": "ValueError",
        "request": "ValueError",
        "POST /v1/fails": "500",
    }
    assert {span.name for span in collector.spans if not span.failed} >= {"submit", "POST /v1/tasks"}
    assert TEXT not in str(collector.spans)


def test_a_collector_that_takes_nothing_is_said_and_costs_nothing_else(collector: Collector) -> None:
    collector.refuses = True
    _, log = run(collector.url, "for _ in range(9):\n    call('/lost')")
    (line,) = log.splitlines()
    assert "Failed to export span" in line
    _, log = run("nonsense://user:secret@collector", "call('/lost')")
    assert "export" in log
    assert "secret" not in log


def test_without_the_extra_there_are_no_traces_and_the_log_says_so() -> None:
    exporter = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    code = f"import sys\nsys.modules['{exporter}'] = None\nprint(open_traces(role='api'))"
    for url in ("", "http://127.0.0.1:1"):
        said, log = run(url, f"del provider\n{code}\nprovider = None")
        assert said == ["None"]
        assert ("pip install 'embedq[traces]'" in log) is bool(url)

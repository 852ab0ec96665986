"""Spans as they are made and sent, without a service around them."""

import sys
from collections.abc import Iterator
from functools import partial

import pytest

from tests.collector import Collector
from tests.integration.observed.conftest import TEXT, new_trace
from tests.processes import wait_until
from worker_config.traces import Traces, open_traces


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture
def traces(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Iterator[Traces]:
    """Of a process that samples everything."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    traces = open_traces(role="api", instance="test")
    assert traces is not None
    yield traces
    traces.close()


def trace_request(traces: Traces, route: str) -> None:
    request = traces.begin(route, "")
    assert request is not None
    with request.child("submit"):
        pass
    request.end("POST", route, 200, {})


def has_refused(collector: Collector, number: int) -> bool:
    return collector.refused >= number


def test_a_collector_that_takes_nothing_is_logged_once(
    collector: Collector, traces: Traces, caplog: pytest.LogCaptureFixture
) -> None:
    collector.refuses = True
    for number in (1, 2):
        trace_request(traces, "/lost")
        wait_until(partial(has_refused, collector, number))
    collector.refuses = False
    trace_request(traces, "/kept")
    wait_until(lambda: len(caplog.records) > 1)
    assert [record.getMessage().split(" spans")[0] for record in caplog.records] == [
        "the collector does not take",
        "the collector takes",
    ]
    assert {span.name for span in collector.spans} == {"submit", "POST /kept"}


def test_a_stop_sends_the_last_spans(collector: Collector, traces: Traces) -> None:
    trace_request(traces, "/last")
    traces.close()
    assert {span.name for span in collector.spans} == {"submit", "POST /last"}


def test_what_is_no_address_of_a_collector_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "nonsense://user:secret@collector")
    traces = open_traces(role="api")
    assert traces is not None
    trace_request(traces, "/lost")
    traces.close()
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in caplog.text
    assert "secret" not in caplog.text


def test_the_sampler_is_opentelemetrys_own(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    traces = open_traces(role="api")
    assert traces is not None
    assert traces.begin("/v1/tasks", "") is None
    assert traces.begin("/v1/tasks", new_trace()[1]["traceparent"]) is not None
    assert traces.begin("/v1/tasks", new_trace(sampled=False)[1]["traceparent"]) is None
    traces.close()


@pytest.mark.parametrize("missing", ["opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"])
def test_without_the_extra_there_are_no_traces_and_the_log_says_so(
    missing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    assert open_traces(role="api") is None
    assert not caplog.records
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    assert open_traces(role="api") is None
    assert "pip install 'embedq[traces]'" in caplog.text


def test_probes_begin_no_trace(traces: Traces) -> None:
    assert traces.begin("/health/live", "") is None
    assert traces.begin("/metrics", "") is None
    assert traces.begin("/health/live", new_trace()[1]["traceparent"]) is not None


def test_a_span_of_work_that_fails_says_so(collector: Collector, traces: Traces) -> None:
    request = traces.begin("/v1/tasks", "")
    assert request is not None
    with pytest.raises(ValueError, match=TEXT), request.child("submit"):
        raise ValueError(TEXT)
    request.end("POST", "/v1/tasks", 500, {})
    traces.close()
    assert {span.name: span.attributes.get("error.type") for span in collector.spans} == {
        "submit": "ValueError",
        "POST /v1/tasks": "500",
    }
    assert all(span.failed for span in collector.spans)
    assert TEXT not in str(collector.spans)


def test_only_a_traceparent_that_is_one_continues_a_trace(traces: Traces) -> None:
    ids = f"{'a' * 32}-{'b' * 16}"
    theirs = [f"00-{ids}-01", f"00-{ids}-03", f"cc-{ids}-01", f"cc-{ids}-01-what-a-later-version-says"]
    wrong = [f"cc-{ids}-01what", f"00-{ids}-01-more", f"00-{ids}-01\n", f"ff-{ids}-01", f"00-{ids.upper()}-01"]
    wrong += [f"00-{'0' * 32}-{'b' * 16}-01", f"00-{'a' * 32}-{'0' * 16}-01", "a" * 60_000]
    for traceparent in (*theirs, *wrong):
        request = traces.begin("/v1/tasks", traceparent)
        assert request is not None
        assert (request.trace_id == "a" * 32) is (traceparent in theirs), traceparent

"""What `wrk` is told, and what its script prints."""

from pathlib import Path

import pytest

from bench.load.plan import Load
from bench.load.wrk import WrkError, parse, script

OUTPUT = """Running 2s test @ http://127.0.0.1:1/v1/embeddings
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     2.00ms    1.00ms  13.99ms   70.00%
  Non-2xx or 3xx responses: 5
embedq-bench {"requests":105,"errors":5,"lost":2,"us":2000000,"p50":3099,"p90":6325,"p99":9908,"max":13987}
"""


def test_the_line_of_the_script_is_found() -> None:
    result = parse(OUTPUT)
    assert (result.requests, result.errors, result.seconds) == (100, 7, 2.0)
    assert (result.p50_ms, result.p90_ms, result.p99_ms, result.max_ms) == (3.099, 6.325, 9.908, 13.987)
    assert result.rate_per_s == 50


def test_no_line_is_an_error_that_shows_what_there_was() -> None:
    with pytest.raises(WrkError, match="unable to connect"):
        parse("unable to connect to 127.0.0.1:1 Connection refused\n")


def test_the_script_quotes_what_it_is_given() -> None:
    load = Load("http://127.0.0.1:1/", ["{}"], headers={"Authorization": 'Bearer "k"'})
    lua = script(load, Path("/tmp/bodies of mine.jsonl"))  # noqa: S108 - a name, no file
    assert 'wrk.headers["Authorization"] = "Bearer \\"k\\""' in lua
    assert 'io.lines("/tmp/bodies of mine.jsonl")' in lua
    assert "{{" not in lua

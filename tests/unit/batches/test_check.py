"""What is wrong with the lines of a batch, case by case, and how the texts of good ones are cut into units."""

import json
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.batches.check_lines import MAX_FAULTS, FileCheck, FileLimits, FileLine, KnownModels, split_lines
from tasks.batches.line_rows import Line, LineError, answered, rows_of_line
from tasks.ingestion.rows_writer import writing_rows
from tasks.item import Vector
from tasks.ledger import task
from tasks.ledger.overview import Queue
from tasks.model import Model
from tasks.storage.storage import Storage
from tasks.wire.embeddings_body import EmbeddingsBody
from tasks.wire.json_limits import MAX_PARTS

MODEL, ALIAS, OTHER = "own/model", "text-embedding-3-small", "other/model"
DROP: Any = object()
LIMITS = FileLimits(
    max_lines=50,
    max_inputs=100,
    max_line_bytes=5000,
    max_line_inputs=8,
    max_input_bytes=100,
)


def models() -> KnownModels:
    model = Model(MODEL, "r", 16, 32, ("query",), "cpu", "fake", "float32", id=MODEL)
    return KnownModels((MODEL, ALIAS), {name: Queue(name, model, rate=160.0) for name in (MODEL, OTHER)})


def line(custom_id: object = "a", *, body: object = None, **changed: Any) -> str:
    """A good line, with some of it changed or dropped."""
    fields = {"custom_id": custom_id, "method": "POST", "url": "/v1/embeddings", "body": body or good_body()}
    return json.dumps({name: value for name, value in (fields | changed).items() if value is not DROP})


def good_body(**changed: Any) -> dict[str, Any]:
    fields = {"model": MODEL, "input": "some text"} | changed
    return {name: value for name, value in fields.items() if value is not DROP}


def check(*lines: str | bytes, limits: FileLimits = LIMITS) -> FileCheck:
    data = b"\n".join(text if isinstance(text, bytes) else text.encode() for text in lines)
    found = FileCheck(models(), limits)
    for each in split_lines([data], limits.max_line_bytes):
        found.add(each)
        if found.full:
            break
    found.finish()
    return found


def refusal_of(rows: list[tuple[bytes, int]]) -> tuple[Line, LineError]:
    """Of a line that is answered without work."""
    [(line, outcome)] = answered((0, row, Vector(None, 0, truncated=False)) for row, _ in rows)
    assert isinstance(outcome, LineError)
    return line, outcome


def faults(*lines: str | bytes) -> list[tuple[str, str | None, int | None]]:
    return [(fault.code, fault.param, fault.line) for fault in check(*lines).faults]


LINES: list[tuple[str, str | bytes, list[tuple[str, str | None]]]] = [
    ("good", line(), []),
    ("other words", line(body=good_body(output_dimension=8, truncation=False, embedding_type="float")), []),
    ("foreign fields", line(extra=1, body=good_body(user="x", task="y")), []),
    ("nulls", line(body=good_body(dimensions=None, encoding_format=None, truncate=None, prompt_name=None)), []),
    ("all fields", line(body=good_body(dimensions=8, encoding_format="base64", normalize=False, truncate=False)), []),
    ("several texts", line(body=good_body(input=["a", " "])), []),
    ("prompt", line(body=good_body(prompt_name="query")), []),
    ("no JSON", "{not json", [("invalid_json_line", None)]),
    ("cut off", line()[:-5], [("invalid_json_line", None)]),
    ("not UTF-8", b'{"custom_id": "\xff"}', [("invalid_json_line", None)]),
    ("half a surrogate", line().replace("some", "\\ud800"), [("invalid_json_line", None)]),
    ("nested deeply", '{"custom_id":' + "[" * 2000 + "]" * 2000 + "}", [("invalid_json_line", None)]),
    ("a number", "5", [("invalid_request", None)]),
    ("a list", "[]", [("invalid_request", None)]),
    ("too long", line(body=good_body(user="x" * 5000)), [("line_too_large", None)]),
    ("no custom_id", line(DROP), [("missing_required_parameter", "custom_id")]),
    ("custom_id a number", line(7), [("invalid_request", "custom_id")]),
    ("no method", line(method=DROP), [("missing_required_parameter", "method")]),
    ("GET", line(method="GET"), [("invalid_method", "method")]),
    ("no url", line(url=DROP), [("missing_required_parameter", "url")]),
    ("chat", line(url="/v1/chat/completions"), [("invalid_url", "url")]),
    ("url a list", line(url=["/v1/embeddings"]), [("invalid_url", "url")]),
    ("no body", line().replace('"body"', '"bod"'), [("missing_required_parameter", "body")]),
    ("body a list", line(body=["x"]), [("invalid_type", "body")]),
    ("no model", line(body=good_body(model=DROP)), [("missing_required_parameter", "body.model")]),
    ("model a number", line(body=good_body(model=3)), [("invalid_type", "body.model")]),
    ("unknown model", line(body=good_body(model="nobody/knows")), [("model_not_found", "body.model")]),
    ("truncate END", line(body=good_body(truncate="END")), []),
    ("truncate none", line(body=good_body(truncate="none")), []),
    ("format empty", line(body=good_body(encoding_format="")), []),
    ("input_type", line(body=good_body(input_type="query")), []),
    ("input_type 3", line(body=good_body(input_type=3)), []),
    (
        "several faults",
        line(DROP, method="GET", url="x", body=good_body(model=DROP, input="")),
        [
            ("missing_required_parameter", "custom_id"),
            ("invalid_method", "method"),
            ("invalid_url", "url"),
            ("missing_required_parameter", "body.model"),
        ],
    ),
]


REFUSED: list[tuple[str, str, str, str]] = [
    ("other bytes", line(body=good_body(output_dtype="int8")), "invalid_value", "output_dtype"),
    ("no input", line(body=good_body(input=DROP)), "missing_required_parameter", "input"),
    ("input null", line(body=good_body(input=None)), "missing_required_parameter", "input"),
    ("empty text", line(body=good_body(input="")), "empty_input", "input[0]"),
    ("no texts", line(body=good_body(input=[])), "empty_input", "input"),
    ("an empty text", line(body=good_body(input=["a", ""])), "empty_input", "input[1]"),
    ("tokens", line(body=good_body(input=[1, "a"])), "invalid_type", "input[1]"),
    ("token lists", line(body=good_body(input=[[1], [-2]])), "invalid_value", "input[1][0]"),
    ("input a number", line(body=good_body(input=5)), "invalid_type", "input"),
    ("nine texts", line(body=good_body(input=["x"] * 9)), "too_many_inputs", "input"),
    ("large text", line(body=good_body(input="é" * 51)), "input_too_large", "input[0]"),
    ("dimensions 0", line(body=good_body(dimensions=0)), "invalid_value", "dimensions"),
    ("dimensions -1", line(body=good_body(dimensions=-1)), "invalid_value", "dimensions"),
    ("dimensions true", line(body=good_body(dimensions=True)), "invalid_type", "dimensions"),
    ("dimensions 17", line(body=good_body(dimensions=17)), "invalid_value", "dimensions"),
    ("md5", line(body=good_body(encoding_format="md5")), "invalid_value", "encoding_format"),
    ("format a list", line(body=good_body(encoding_format=["float"])), "invalid_value", "encoding_format"),
    ("normalize 1", line(body=good_body(normalize=1)), "invalid_type", "normalize"),
    ("truncate START", line(body=good_body(truncate="START")), "invalid_value", "truncate"),
    ("truncate 1", line(body=good_body(truncate=1)), "invalid_type", "truncate"),
    ("no such prompt", line(body=good_body(prompt_name="x")), "invalid_value", "prompt_name"),
]


@pytest.mark.parametrize(("text", "expected"), [case[1:] for case in LINES], ids=[case[0] for case in LINES])
def test_one_line(text: str | bytes, expected: list[tuple[str, str | None]]) -> None:
    assert faults(line("first"), text) == [(code, param, 2) for code, param in expected]


@pytest.mark.parametrize(("text", "code", "param"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_a_body_that_the_endpoint_would_refuse_is_none_of_the_file_s_faults(text: str, code: str, param: str) -> None:
    found = FileCheck(models(), LIMITS)
    good, bad = (FileLine(n, data.encode()) for n, data in enumerate((line("first"), text)))
    assert len(found.add(good)) == 1
    refused, error = refusal_of(found.add(bad))
    found.finish()
    assert (refused.custom_id, error.code, error.param) == ("a", code, param)
    assert error.status == 400
    assert param in error.message
    assert (found.faults, found.lines) == ([], 2)


def test_every_bad_line_is_named_and_blank_ones_count() -> None:
    found = faults("{", line("a"), "", line("b", method="GET"), "[]", line("c"))
    assert found == [("invalid_json_line", None, 1), ("invalid_method", "method", 4), ("invalid_request", None, 5)]


def test_a_custom_id_is_unique() -> None:
    found = check(line("same"), line("other"), line("same"))
    assert [(f.code, f.param, f.line) for f in found.faults] == [("duplicate_custom_id", "custom_id", 3)]
    assert "line 1" in found.faults[0].message


def test_all_lines_name_one_model() -> None:
    assert check(line("a", body=good_body(model=ALIAS)), line("b")).model == MODEL  # two names of one model
    found = faults(line("a"), line("b", body=good_body(model=OTHER)), line("c"))
    assert found == [("mismatched_model", "body.model", 2)]


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([], "empty_file"),
        (["", "  "], "empty_file"),
        ([line(f"{n}") for n in range(51)], "too_many_tasks"),
        ([line(f"{n}", body=good_body(input=["x"] * 8)) for n in range(13)], "too_many_inputs"),
    ],
)
def test_files_as_a_whole(lines: list[str], code: str) -> None:
    assert faults(*lines) == [(code, None, None)]


def test_no_message_repeats_what_was_sent() -> None:
    secret = "s3cr3t"
    bodies = [good_body(input=[secret, 7]), good_body(encoding_format=secret), good_body(prompt_name=secret)]
    lines = [line(secret, body=body, url=secret, method=secret) for body in bodies]
    assert not any(secret in fault.message for fault in check(*lines, f"{{{secret}").faults)
    checked = FileCheck(models(), LIMITS)
    refusals = [refusal_of(checked.add(FileLine(n, line(f"{n}", body=b).encode()))) for n, b in enumerate(bodies)]
    assert not any(secret in error.message for _, error in refusals)


def test_faults_have_a_limit() -> None:
    limits = FileLimits(10**6, 10**6, 5000, 8, 100)
    assert len(check(*["{"] * 1500, limits=limits).faults) == MAX_FAULTS


def test_pieces_have_a_limit_of_texts_and_of_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "PIECE_TEXTS", 4)
    short = [line(f"s{n}", body=good_body(input="x")) for n in range(6)]  # 1 token each
    long = [line(f"l{n}", body=good_body(input="x" * 80)) for n in range(3)]  # 20 tokens each
    huge = [line("h", body=good_body(input=["x" * 80] * 5))]
    found, storage = FileCheck(models(), LIMITS), Storage.open("memory://pieces")
    with writing_rows(storage, "anonymous/batch_1/rows") as writer:
        for number, text in enumerate([*short, *long, *huge]):
            for row, cost in found.add(FileLine(number, text.encode())):
                writer.add(row, cost, found.piece_cost)
    assert (found.faults, found.lines, writer.rows) == ([], 10, 14), "each text of the last line is one"
    assert writer.pieces[0][:2] == (4, 4)
    assert sum(rows for rows, _, _, _ in writer.pieces) == 14
    assert all(rows <= 4 and (cost <= 40 or rows == 1) for rows, cost, _, _ in writer.pieces)


@pytest.mark.parametrize("dear", [[[]] * MAX_PARTS, {str(n): n for n in range(MAX_PARTS)}], ids=["lists", "fields"])
def test_a_line_of_too_many_parts_is_not_parsed(dear: object) -> None:
    limits = replace(LIMITS, max_line_bytes=2**21)
    many, brackets = line(body=good_body(user=dear)), line(body=good_body(input="[:" * MAX_PARTS))

    assert [fault.code for fault in check(brackets, many, limits=limits).faults] == ["line_too_large"]


def lines_of(data: bytes, chunk: int = 2**20, limit: int = 1000) -> list[FileLine]:
    return list(split_lines((data[at : at + chunk] for at in range(0, len(data), chunk)), limit))


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
def test_of_a_line_that_is_too_long_only_the_number_is_kept(chunk: int) -> None:
    data = b"short\n" + b"x" * 50 + b"\nlast"
    assert lines_of(data, chunk, limit=10)[2] == FileLine(3, b"last")
    assert [line.data for line in lines_of(data, chunk, limit=10)] == [b"short", None, b"last"]


RAW_LINES = st.binary(max_size=20).filter(lambda data: b"\n" not in data and not data.startswith(b"\xef\xbb\xbf"))


@given(st.lists(RAW_LINES, max_size=10), st.integers(1, 30))
def test_every_line_is_given_under_its_number(parts: list[bytes], chunk: int) -> None:
    bare = [part.removesuffix(b"\r") for part in parts]
    expected = [FileLine(number, line) for number, line in enumerate(bare, 1) if line.strip()]
    assert lines_of(b"\n".join(parts), chunk) == expected


def test_a_row_has_one_text_and_what_is_asked_of_it_and_the_first_says_whose_it_is() -> None:
    body = EmbeddingsBody(input=["a", "b"], dimensions=2, user="eve", encoding_format="base64")
    assert [orjson.loads(row) for row in rows_of_line("id", body)] == [
        {"text": "a", "options": {"dimensions": 2}, "line": ["id", True]},
        {"text": "b", "options": {"dimensions": 2}},
    ]

"""What is wrong with the lines of a batch, case by case, and how the texts of good ones are cut into units."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.batches.check_lines import MAX_FAULTS, FileCheck, FileLimits, FileLine, KnownModels, split_lines
from tasks.batches.line_rows import Line, LineError, answered
from tasks.item import Vector
from tasks.ledger.overview import Queue
from tasks.model import Model
from tasks.wire.json_limits import MAX_PARTS

MODEL, ALIAS, OTHER = "own/model", "text-embedding-3-small", "other/model"
DROP: Any = object()
LIMITS = FileLimits(max_lines=50, max_inputs=100, max_line_bytes=5000, max_line_inputs=8, max_input_bytes=100)


def models() -> KnownModels:
    model = Model(MODEL, "r", 16, 32, ("query",), "cpu", "fake", "float32", id=MODEL)
    return KnownModels((MODEL, ALIAS), {name: Queue(name, model, rate=160.0) for name in (MODEL, OTHER)})


def with_body(custom_id: object = "a", **changed: Any) -> str:
    fields = {"model": MODEL, "input": "some text"} | changed
    return line(custom_id, body={name: value for name, value in fields.items() if value is not DROP})


def line(custom_id: object = "a", **changed: Any) -> str:
    body = {"model": MODEL, "input": "some text"}
    fields = {"custom_id": custom_id, "method": "POST", "url": "/v1/embeddings", "body": body} | changed
    return json.dumps({name: value for name, value in fields.items() if value is not DROP})


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


MISSING = "missing_required_parameter"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (with_body(dimensions=None, encoding_format=None, truncate=None, prompt_name=None), []),
        (with_body(dimensions=8, encoding_format="base64", normalize=False, truncate="END"), []),
        ("{not json", [("invalid_json_line", None)]),
        (b'{"custom_id": "\xff"}', [("invalid_json_line", None)]),
        (line().replace("some", "\\ud800"), [("invalid_json_line", None)]),
        ('{"custom_id":' + "[" * 2000 + "]" * 2000 + "}", [("invalid_json_line", None)]),
        ("[]", [("invalid_request", None)]),
        (with_body(user="x" * 5000), [("line_too_large", None)]),
        (line(7), [("invalid_request", "custom_id")]),
        (line(method=DROP), [(MISSING, "method")]),
        (line(url="/v1/chat/completions"), [("invalid_url", "url")]),
        (line(body=["x"]), [("invalid_type", "body")]),
        (with_body(model="nobody/knows"), [("model_not_found", "body.model")]),
        (
            line(DROP, method="GET", url="x", body={"input": ""}),
            [(MISSING, "custom_id"), ("invalid_method", "method"), ("invalid_url", "url"), (MISSING, "body.model")],
        ),
    ],
)
def test_one_line(text: str | bytes, expected: list[tuple[str, str | None]]) -> None:
    assert faults(line("first"), text) == [(code, param, 2) for code, param in expected]


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"input": ["a", ""]}, "empty_input", "input[1]"),
    ({"input": [[1], [-2]]}, "invalid_value", "input[1][0]"),
    ({"input": ["x"] * 9}, "too_many_inputs", "input"),
    ({"prompt_name": "x"}, "invalid_value", "prompt_name"),
]


def test_a_body_that_the_endpoint_would_refuse_is_none_of_the_file_s_faults() -> None:
    found = FileCheck(models(), LIMITS)
    for number, (changed, code, param) in enumerate(REFUSED):
        refused, error = refusal_of(found.add(FileLine(number, with_body(f"{number}", **changed).encode())))
        assert (refused.custom_id, error.code, error.param, error.status) == (f"{number}", code, param, 400)
        assert param in error.message
    found.finish()
    assert (found.faults, found.lines) == ([], 4)


def test_files() -> None:
    assert faults("{", line("a"), "", line("b", method="GET"), "[]", line("c")) == [
        ("invalid_json_line", None, 1),
        ("invalid_method", "method", 4),
        ("invalid_request", None, 5),
    ]
    assert faults(line("same"), line("other"), line("same")) == [("duplicate_custom_id", "custom_id", 3)]
    models = with_body("a", model=ALIAS), line("b"), with_body("c", model=OTHER)
    assert faults(*models) == [("mismatched_model", "body.model", 3)]
    assert check(models[0]).model == MODEL
    dear = check(with_body(user=[[]] * MAX_PARTS), limits=replace(LIMITS, max_line_bytes=2**21))
    assert [fault.code for fault in dear.faults] == ["line_too_large"]
    assert faults("", "  ") == [("empty_file", None, None)]
    assert faults(*(line(f"{n}") for n in range(51))) == [("too_many_tasks", None, None)]
    assert faults(*(with_body(f"{n}", input=["x"] * 8) for n in range(13))) == [("too_many_inputs", None, None)]
    assert len(check(*["{"] * 1500, limits=replace(LIMITS, max_lines=10**6)).faults) == MAX_FAULTS


def test_no_message_repeats_what_was_sent() -> None:
    secret = "s3cr3t"
    bodies: list[dict[str, Any]] = [{"input": [secret, 7]}, {"encoding_format": secret}, {"prompt_name": secret}]
    assert secret not in str(check(line(secret, url=secret, method=secret), f"{{{secret}").faults)
    checked = FileCheck(models(), LIMITS)
    for number, body in enumerate(bodies):
        _, error = refusal_of(checked.add(FileLine(number, with_body(f"{number}", **body).encode())))
        assert secret not in error.message


def lines_of(data: bytes, chunk: int, limit: int = 1000) -> list[FileLine]:
    return list(split_lines((data[at : at + chunk] for at in range(0, len(data), chunk)), limit))


def test_of_a_line_that_is_too_long_only_the_number_is_kept() -> None:
    for chunk in (1, 7, 100):
        found = lines_of(b"short\n" + b"x" * 50 + b"\nlast", chunk, limit=10)
        assert found == [FileLine(1, b"short"), FileLine(2, None), FileLine(3, b"last")]


RAW_LINES = st.binary(max_size=20).filter(lambda data: b"\n" not in data and not data.startswith(b"\xef\xbb\xbf"))


@settings(max_examples=40)
@given(st.lists(RAW_LINES, max_size=10), st.integers(1, 30))
def test_every_line_is_given_under_its_number(parts: list[bytes], chunk: int) -> None:
    bare = [part.removesuffix(b"\r") for part in parts]
    expected = [FileLine(number, line) for number, line in enumerate(bare, 1) if line.strip()]
    assert lines_of(b"\n".join(parts), chunk) == expected

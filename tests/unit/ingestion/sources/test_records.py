"""Records: JSON lines, Parquet, uploads and documents in the request. Pages, fields, ranges, and what is wrong."""

import io
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.schemas.new_ingestion import SOURCE_KINDS, NewIngestion
from tasks.document_error import DocumentFailed, FailureStage
from tasks.ingestion.parsing.extracted import clean
from tasks.ingestion.parsing.limits import ParseLimits
from tasks.ingestion.parsing.sandbox import ChildFailed, Sandbox
from tasks.ingestion.sources import parquet_table, ranges
from tasks.ingestion.sources.open_source import RECORD_FORMATS, SOURCES, open_source
from tasks.ingestion.sources.page import PageLimits
from tasks.ingestion.sources.record import Described, Range
from tasks.ingestion.sources.source import divided, holds
from tests.unit.ingestion.sources.reading import (
    STORAGE,
    ask,
    below,
    fetched,
    jsonl,
    lines_of,
    outcome,
    outcomes,
    pages,
    parquet,
    read,
    table,
    uploaded,
)

T = TypeVar("T")
LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0\r")
TEXTS = st.text(LETTERS, min_size=1, max_size=20).map(lambda text: clean(text).strip()).filter(bool)
ROWS = st.lists(TEXTS, min_size=1, max_size=12)


@pytest.mark.parametrize("kind", ["jsonl", "csv", "utf16", "tsv", "parquet"])
@settings(max_examples=20, deadline=None)
@given(rows=ROWS, records=st.integers(1, 5), sizes=st.tuples(st.integers(1, 40), st.integers(1, 5)))
def test_every_record_comes_once_whatever_the_sizes(
    kind: str, *, rows: list[str], records: int, sizes: tuple[int, int]
) -> None:
    listed = [{"id": str(n), "text": text} for n, text in enumerate(rows)]
    cells = [["id", "text"], *([one["id"], one["text"]] for one in listed)]
    name, data = {
        "jsonl": ("a.jsonl", jsonl(*listed)),
        "csv": ("a.csv", table(cells)),
        "utf16": ("a.csv", table(cells, "utf-16")),
        "tsv": ("a.tsv", table(cells, delimiter="\t")),
        "parquet": ("a.parquet", parquet(listed, sizes[1])),
    }[kind]
    spec, access = {"files": [name]}, uploaded({name: data}, page=PageLimits(records=records))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "_BLOCK_BYTES", sizes[0])
        patch.setattr(parquet_table, "_BATCH_ROWS", records + 1)
        found = pages(spec, access)
        came = outcomes(spec, access)
    assert list(came.items()) == [(str(n), row) for n, row in enumerate(rows)]
    assert all(one.documents <= records for one in found)
    assert sum(one.documents for one in found) == len(rows)


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_pages_over_several_files_and_documents_between_them(kind: str) -> None:
    rows = [{"text": "one"}, {"text": "two"}, {"text": "three"}]
    data = {"jsonl": jsonl(*rows), "csv": b"text\none\ntwo\nthree\n", "parquet": parquet(rows)}[kind]
    made = {f"a.{kind}": data, "b.txt": b"plain", f"c.{kind}": data}
    spec, access = {"files": [*made]}, uploaded(made, page=PageLimits(records=2))
    assert [one.documents for one in pages(spec, access) if one.lines] == [2, 3, 2]
    found = fetched(spec, access)
    assert [outcome(one) for one in found] == ["one", "two", "three", "plain", "one", "two", "three"]
    assert found[0].ref.uri == f"file:a.{kind}/a.{kind}#1"


MAPPING = {"id": "key", "text": ["title", "none", "body"], "metadata": ["year", "absent"]}
ROW = {"key": 7, "title": "Title", "body": "Body", "none": None, "year": 2020, "tags": ["a"]}
MOMENT = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)
ODD = pa.Table.from_pylist([
    {"text": "t", "when": MOMENT, "much": Decimal("1.5"), "raw": b"\0", "odd": float("nan"), "image": [{"bytes": b"x"}]}
])  # fmt: skip
COLUMNS = pa.table([["a"], ["b"], ["t"]], names=["n", "n", "text"])
ALL = {"metadata": "*"}
FIRST = "a.parquet#1"


@pytest.mark.parametrize(
    ("row", "fields", "expected"),
    [
        (ROW, MAPPING, ("7", "Title\n\nBody", {"year": 2020})),
        (ROW, {**MAPPING, "separator": " | ", **ALL}, ("7", "Title | Body", {"year": 2020, "tags": ["a"]})),
        ({"id": None, "body": "t"}, {}, ("a.jsonl#1", "t", {})),
        ({"text": "t", "metadata": "no object", "other": 1}, {}, ("a.jsonl#1", "t", {})),
        ({"id": "a", "text": "a\0b", "metadata": {"a": "x\0y", "c": "\\\0"}}, {}, ("a", "ab", {"a": "xy", "c": "\\"})),
        (ODD, ALL, (FIRST, "t", {"when": "2020-01-02T03:04:05+00:00", "much": "1.5", "odd": None})),
        (COLUMNS, {}, (FIRST, "t", {})),
        (pa.table({"text": ["t"], "metadata": [{"id": [1]}]}), {}, (FIRST, "t", {"id": [1]})),
        (pa.table({"id": [b"a"], "text": ["t"]}), {}, "The column 'id' holds bytes"),
        (pa.table({"text": ["t"], "tag": [b"x"]}), {"metadata": ["tag"]}, "The column 'tag' holds bytes"),
        (pa.table({"text": ["t"], "metadata": [{"a": [b"x"]}]}), {}, "The column 'metadata' holds bytes"),
        (COLUMNS.rename_columns(["id", "text", "text"]), {}, "Columns 2 and 3 have the same name"),
        (COLUMNS, ALL, "Columns 1 and 2 have the same name"),
    ],
)
def test_fields_and_columns(row: Any, fields: dict[str, Any], expected: Any) -> None:
    made = {"a.jsonl": jsonl(row)} if isinstance(row, dict) else {"a.parquet": parquet(row)}
    [found] = fetched({"files": [*made], "fields": fields}, uploaded(made))
    if found.error:
        assert (found.error.code, found.ref.part) == ("invalid_header", "*")
        assert expected in found.error.message
    else:
        assert (found.ref.id, found.text, found.ref.metadata) == expected


BIG = "123456789012345678901234567890"


def test_numbers_as_ids_and_a_missing_field_is_not_an_empty_one() -> None:
    ids = {BIG: BIG, f"-{BIG}": f"-{BIG}", f"{BIG}.0": BIG, "-3.00": "-3", "1.5": "1.5", '"1.0"': "1.0"}
    for literal, expected in ids.items():
        assert read({"a.jsonl": f'{{"id": {literal}, "text": "x"}}\n'.encode()}) == {expected: "x"}
    rows = [{"title": None, "body": ""}, {"title": None}, {"title": " ", "other": "t"}, {"title": "t"}]
    found = read({"a.jsonl": jsonl(*rows)}, fields={"text": ["title", "body"]})
    assert list(found.values()) == ["", "<missing_field>", "<missing_field>", "t"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"text": "cut', "<malformed_record>"),
        (b"[1]", "<malformed_record>"),
        (b'{"other": "x"}', "<missing_field>"),
        (b'{"text": 5}', "<invalid_field>"),
        (b'{"id": "a\\u0000", "text": "x"}', "<invalid_id>"),
        (orjson.dumps({"id": "x" * 1025, "text": "x"}), "<invalid_id>"),
        (orjson.dumps({"text": "x", "metadata": {"page": "<" * 65_600}}), "<invalid_metadata>"),
        (b'{"text": "' + b"x" * 300_000 + b'"}', "<document_too_large>"),
        (b'{"text": "\\u0000"}', "<no_text>"),
        (b'{"body": " \\n\\t"}', " \n\t"),
        (b'{"text": NaN, "score": [-Infinity]}', ""),
    ],
)
@pytest.mark.parametrize("piece", [7, 100_000])
def test_a_bad_line_is_named_and_its_neighbours_stay(
    monkeypatch: pytest.MonkeyPatch, line: bytes, expected: str, piece: int
) -> None:
    monkeypatch.setattr(ranges, "_BLOCK_BYTES", piece)
    data = b'\xef\xbb\xbf{"id":"first","text":"a"}\r\n\n' + line + b'\n{"id":"last","text":"b"}'
    assert read({"a.jsonl": data}, limit=200_000) == {"first": "a", "a.jsonl#3": expected, "last": "b"}


def test_damaged_parquet_is_one_fault_and_gives_what_can_be_read() -> None:
    fine = parquet([{"text": "fine"}])
    for data in (b"", b"PAR1", b"not parquet at all", fine[:-9] + b"\xff" * 9):
        assert read({"a.parquet": data, "b.parquet": fine}) == {
            "a.parquet": "<corrupt_document>",
            "b.parquet#1": "fine",
        }
    good = parquet([{"text": f"{n} {'text ' * 50}"} for n in range(60)], row_group=20)
    second = pq.ParquetFile(io.BytesIO(good)).metadata.row_group(1).column(0)
    start = second.dictionary_page_offset or second.data_page_offset
    found = read({"a.parquet": good[:start] + b"\xff" * 200 + good[start + 200 :]})
    assert len(found) == 41
    assert [name for name, text in found.items() if text == "<corrupt_document>"] == ["a.parquet#21"]


def test_an_upload_that_was_deleted_is_a_fault() -> None:
    access = uploaded({"a.txt": b"a", "b.jsonl": b'{"text":"b"}', "c.txt": b"c", "d.jsonl": b'{"text":"d"}'})
    spec = {"files": ["nowhere", *access.files]}
    refs = lines_of(open_source(spec, access).page(None))
    for name in ("a.txt", "b.jsonl"):
        STORAGE.delete(access.files[name].stored)
    without_c = replace(access, files={name: file for name, file in access.files.items() if name != "c.txt"})
    assert [outcome(one) for one in open_source(spec, without_c).read(refs)] == ["<gone>", "<gone>", "<gone>", "d"]
    assert outcomes(spec, access)["nowhere"] == "<gone>"


def test_inline_documents_and_what_is_wrong_with_them() -> None:
    good = [{"id": "a", "text": "A", "metadata": {"k": 1}}, {"id": 2, "text": "B"}, {"id": "c", "text": "C"}]
    STORAGE.write("inline", jsonl(*good, {"id": "d"}, {"id": "e", "text": 5}, "f", {"text": "no id"}))
    spec: Mapping[str, Any] = {"documents": 7}
    access = replace(uploaded({}, page=PageLimits(records=2)), listed="inline")
    found = fetched(spec, access)
    codes = ["<missing_field>", "<invalid_field>", "<malformed_record>", "<missing_field>"]
    assert sorted(map(outcome, found)) == sorted([*codes, "A", "B", "C"])
    assert sorted(one.ref.id for one in found) == ["#6", "#7", "2", "a", "c", "d", "e"]
    assert (found[0].ref.uri, found[0].ref.metadata) == ("inline:a#1", {"k": 1})
    assert len(pages(spec, access)) == 4


def test_a_request_may_name_what_can_be_opened() -> None:
    assert set(SOURCE_KINDS) == set(SOURCES)
    for kind in RECORD_FORMATS:
        assert NewIngestion.model_validate({"source": {"urls": ["/a"], "format": kind}}).source.format == kind


def test_a_record_file_that_changes_is_not_read_at_places_that_no_longer_hold(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text":"one"}\n{"text":"two"}\n')
    (tmp_path / "b.jsonl").write_text('{"text":"fine"}')
    access, spec = below(tmp_path, records=1), {"urls": [f"{tmp_path}/*.jsonl"]}
    first = open_source(spec, access).page(None)
    path.write_text('{"text":"another one"}\n{"text":"two"}\n')
    assert [outcome(one) for one in open_source(spec, access).read(lines_of(first))] == ["<changed>"]
    second = open_source(spec, access).page(first.cursor)
    assert [(fault.id, fault.code) for fault in second.lines] == [(f"{tmp_path.name}/a.jsonl", "changed")]
    third = open_source(spec, access).page(second.cursor)
    assert [ref.id for ref in third.lines] == [f"{tmp_path.name}/b.jsonl#1"]


RANGED = [{"id": str(n), "text": f"text {n}"} for n in range(10)]
MADE = {
    "jsonl": jsonl(*RANGED[:5]) + b"\n\nbad\n" + jsonl(*RANGED[5:]),
    "csv": b"id,text\n" + b"".join(f"{r['id']},{r['text']}\n".encode() for r in RANGED),
    "parquet": parquet(RANGED, 4),
}


@pytest.mark.parametrize("kind", MADE)
def test_what_is_left_of_a_range_is_read_from_where_it_was_left(kind: str) -> None:
    source = open_source({"files": [f"a.{kind}"]}, uploaded({f"a.{kind}": MADE[kind]}))
    lines = lines_of(source.page(None))
    whole = list(source.read(lines))
    for number in range(1, 11):
        last = Range(*whole[number - 1].ref.record)
        there = next(line for line in lines if last.end <= Range(*line.record).end and line.record[3:] == [last.group])
        parts = [divided(line, Range(*there.record).behind(last)) for line in lines]
        assert [one.ref for one in source.read([rest for _, rest in parts if rest])] == [
            one.ref for one in whole[number:]
        ]
        assert list(source.read([front for front, _ in parts if front])) == whole[:number]
        assert all(holds(line, whole[number - 1].ref) == (line is there) for line in lines)


TRUE: dict[str, Any] = {**Range(0, 1, 1)._asdict(), **Described("x", "t", named=True)._asdict()}
"""Of the first record; what a lie has in its place is wrong."""
LIES: list[tuple[str, Any]] = [
    ("records", 5), ("records", [[]]), ("records", {}), ("records", [[*TRUE.values(), 1]]),
    *(("records", [[*(TRUE | lie).values()]]) for lie in (
        {"start": None}, {"start": -1}, {"length": 999}, {"length": 0}, {"number": 0}, {"number": True}, {"group": 1},
        {"id": "\0"}, {"id": 1}, {"text": 7}, {"text": "t\0"}, {"metadata": None}, {"named": 1},
        {"error": "ab"}, {"error": ["code", 5]}, {"error": ["code"]},
    )),
    ("cut", {}), ("cut", {"start": -1}),
    ("cut", {"start": 0, "length": 0, "numbers": 0, "records": 0, "skip": False}),
    ("cut", {"start": 0, "length": 99, "numbers": 0, "records": 0, "skip": False}),
]  # fmt: skip


def answered(what: str, answer: Any) -> dict[str, str]:
    """What became of a record and a document where the sandbox answers so."""

    def lying(header: Any, body: bytes, read: Callable[..., T], *, stage: FailureStage) -> T:
        if header["type"] != what:
            return ask(header, body, read, stage=stage)
        try:
            return read(answer, b"") if what == "cut" else read({}, orjson.dumps(answer))
        except ChildFailed:
            raise DocumentFailed("parser_crashed", "It lies.", stage) from None

    access = replace(uploaded({"a.jsonl": jsonl({"text": "a"}), "b.txt": b"b"}), ask=lying)
    return outcomes({"files": ["a.jsonl", "b.txt"]}, access)


@pytest.mark.parametrize(("what", "answer"), LIES)
def test_no_answer_is_trusted(what: str, answer: Any) -> None:
    assert answered("records", [[*TRUE.values()]]) == {"x": "t", "b.txt": "b"}, "else no lie would show anything"
    assert [*answered(what, answer).values()] in (["<parser_crashed>", "b"], ["b", "<parser_crashed>"])


BOMB = f"""
import sys, pyarrow as pa, pyarrow.parquet as pq
table = pa.table({{"text": ["y" * {300 * 2**20}]}})
pq.write_table(table, sys.stdout.buffer, compression="zstd", dictionary_pagesize_limit={2**26})
"""


@pytest.mark.thorough
def test_a_file_that_needs_more_memory_fails_alone() -> None:
    # Written by a process of its own, because writing takes more than a gigabyte.
    bomb = subprocess.run([sys.executable, "-c", BOMB], capture_output=True, check=True).stdout
    made = {"a.parquet": bomb, "b.parquet": parquet([{"text": "fine"}])}
    with Sandbox(ParseLimits(timeout_s=30, memory_bytes=600 * 2**20)) as sandbox:  # the libraries map two thirds of it
        access = replace(uploaded(made, limit=2**24), ask=sandbox.ask)
        assert outcomes({"files": [*made]}, access) == {"a.parquet#1": "<parse_memory>", "b.parquet#1": "fine"}

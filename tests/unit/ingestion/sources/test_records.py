"""Files with many documents in them: JSON lines, CSV, Parquet. Places, pages, fields, and what is wrong in them."""

import csv
import io
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.ingestion.parsing.extracted import clean
from tasks.ingestion.sources import parquet_table, ranges
from tasks.ingestion.sources.page import PageLimits
from tests.unit.ingestion.sources.reading import (
    codes,
    contents,
    documents,
    faults_of,
    fetched,
    files,
    jsonl,
    pages,
    parquet,
    table,
    texts,
    uploaded,
)

LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0\r")
TEXTS = st.text(LETTERS, min_size=1, max_size=20).filter(lambda text: bool(clean(text).strip()))
ROWS = st.lists(TEXTS, min_size=1, max_size=12)


# ---- every record comes exactly once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["jsonl", "csv", "utf16_csv", "tsv", "parquet"])
@settings(max_examples=25, deadline=None)
@given(rows=ROWS, records=st.integers(1, 5), sizes=st.tuples(st.integers(1, 40), st.integers(1, 5)))
def test_every_record_comes_once_whatever_the_sizes(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    *,
    rows: list[str],
    records: int,
    sizes: tuple[int, int],
) -> None:
    block, group = sizes
    listed = [{"id": str(n), "text": text} for n, text in enumerate(rows)]
    cells = [["id", "text"], *([one["id"], one["text"]] for one in listed)]
    made = {
        "jsonl": lambda: {"a_jsonl": jsonl(*listed)},
        "csv": lambda: {"a_csv": table(cells)},
        "utf16_csv": lambda: {"a_csv": table(cells, "utf-16")},
        "tsv": lambda: {"a_tsv": table(cells, delimiter="\t")},
        "parquet": lambda: {"a_parquet": parquet(listed, group)},
    }[kind]()
    access = uploaded(tmp_path_factory.mktemp("records"), made, page=PageLimits(records=records))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "_BLOCK_BYTES", block)
        patch.setattr(parquet_table, "_BATCH_ROWS", records + 1)
        found = pages(files(*made), access)
        read = contents(files(*made), access)
    assert [fault for one in found for fault in faults_of(one)] == []
    assert [one.ref.id for one in read] == [one["id"] for one in listed]
    if kind not in {"jsonl", "parquet"}:  # blanks behind a separator are no part of what follows, unless it is quoted
        written = table(cells, delimiter="\t" if kind == "tsv" else ",").decode()
        delimited = io.StringIO(written, newline="")
        _, *cells = csv.reader(delimited, delimiter="\t" if kind == "tsv" else ",", skipinitialspace=True)
        rows = [text for _, text in cells]
    assert [one.text for one in read] == [clean(row) for row in rows]
    assert all(one.documents <= records for one in found)
    assert sum(one.documents for one in found) == len(rows)


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_pages_over_several_files_and_documents_between_them(tmp_path: Path, kind: str) -> None:
    rows = [{"text": "one"}, {"text": "two"}, {"text": "three"}]
    data = {"jsonl": jsonl(*rows), "csv": b"text\none\ntwo\nthree\n", "parquet": parquet(rows)}[kind]
    made = {f"a_{kind}": data, "b_txt": b"plain", f"c_{kind}": data}
    access = uploaded(tmp_path, made, page=PageLimits(records=2))
    found = pages(files(*made), access)
    assert [one.documents for one in found if one.lines] == [2, 3, 2]
    assert [one.text or one.data for one in contents(files(*made), access)] == [
        "one", "two", "three", b"plain", "one", "two", "three"
    ]  # fmt: skip
    assert contents(files(*made), access)[0].ref.uri == f"file:a_{kind}/a.{kind}#1"


# ---- fields ----------------------------------------------------------------------------------------------------------


def test_fields_are_mapped(tmp_path: Path) -> None:
    row = {"key": 7, "title": "Title", "body": "Body", "none": None, "year": 2020, "tags": ["a"]}
    access = uploaded(tmp_path, a_jsonl=jsonl(row))
    mapping = {"id": "key", "text": ["title", "none", "body"], "metadata": ["year", "absent"]}
    [found] = contents(files("a_jsonl", fields=mapping), access)
    assert (found.ref.id, found.text, found.ref.metadata) == ("7", "Title\n\nBody", {"year": 2020})
    [found] = contents(files("a_jsonl", fields={**mapping, "separator": " | ", "metadata": "*"}), access)
    assert (found.text, found.ref.metadata) == ("Title | Body", {"year": 2020, "tags": ["a"]})


def test_a_text_of_which_a_field_is_missing_is_not_an_empty_one(tmp_path: Path) -> None:
    rows = [{"title": None, "body": ""}, {"title": None}, {"title": " ", "other": "t"}, {"title": "t"}]
    access = uploaded(tmp_path, a_jsonl=jsonl(*rows))
    spec = files("a_jsonl", fields={"text": ["title", "body"]})
    assert texts(spec, access) == {"a.jsonl#1": "", "a.jsonl#4": "t"}
    assert codes(spec, access) == {"a.jsonl#2": "missing_field", "a.jsonl#3": "missing_field"}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"_id": "x", "text": "t"}, ("x", "t", {})),
        ({"doc_id": 3, "content": "t"}, ("3", "t", {})),
        ({"id": None, "body": "t"}, ("a.jsonl#1", "t", {})),
        ({"text": "t", "metadata": {"k": [1]}}, ("a.jsonl#1", "t", {"k": [1]})),
        ({"text": "t", "metadata": "no object", "other": 1}, ("a.jsonl#1", "t", {})),
    ],
)
def test_fields_by_default(tmp_path: Path, row: Any, expected: Any) -> None:
    [found] = contents(files("a_jsonl"), uploaded(tmp_path, a_jsonl=jsonl(row)))
    assert (found.ref.id, found.text, found.ref.metadata) == expected


def test_parquet_values_become_json_and_bytes_are_left_out(tmp_path: Path) -> None:
    moment = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)
    row = {"text": "t", "when": moment, "much": Decimal("1.5"), "raw": b"\0", "list": [1], "odd": float("nan")}
    [found] = documents(files("a_parquet", fields={"metadata": "*"}), uploaded(tmp_path, a_parquet=parquet([row])))
    assert found.metadata == {"when": "2020-01-02T03:04:05+00:00", "much": "1.5", "list": [1], "odd": None}


TWO_TEXTS = pa.table([["1"], ["a"], ["b"]], names=["id", "text", "text"])


@pytest.mark.parametrize(
    ("table", "fields", "said"),
    [
        (pa.table({"id": [b"a"], "text": ["t"]}), {}, "The column 'id' holds bytes"),
        (pa.table({"id": [b"a"], "text": ["t"]}), {"id": "id"}, "The column 'id' holds bytes"),
        (pa.table({"id": pa.array([b"0" * 16], pa.binary(16)), "text": ["t"]}), {}, "The column 'id' holds bytes"),
        (pa.table({"text": pa.array([b"t"], pa.large_binary())}), {}, "The column 'text' holds bytes"),
        (pa.table({"text": pa.array([b"t"]).dictionary_encode()}), {}, "The column 'text' holds bytes"),
        (pa.table({"text": ["t"], "tag": [b"x"]}), {"metadata": ["tag"]}, "The column 'tag' holds bytes"),
        (pa.table({"text": ["t"], "metadata": [{"a": [b"x"]}]}), {}, "The column 'metadata' holds bytes"),
        (TWO_TEXTS, {}, "Columns 2 and 3 have the same name"),
        (pa.table([["a"], ["b"], ["c"]], names=["text", "n", "n"]), {"metadata": "*"}, "Columns 2 and 3"),
    ],
)
def test_a_column_of_parquet_that_cannot_be_used_is_named(
    tmp_path: Path, table: pa.Table, fields: dict[str, Any], said: str
) -> None:
    [fault] = fetched(files("a_parquet", fields=fields), uploaded(tmp_path, a_parquet=parquet(table)))
    assert fault.error
    assert (fault.error.code, fault.ref.part) == ("invalid_header", "*")
    assert said in fault.error.message


@pytest.mark.parametrize(
    ("table", "fields", "expected"),
    [
        (pa.table([["a"], ["b"], ["t"]], names=["n", "n", "text"]), {}, ("t", {})),
        (pa.table({"raw": [b"x"], "text": ["t"], "n": [1]}), {"metadata": "*"}, ("t", {"n": 1})),
        (pa.table({"text": ["t"], "image": [{"bytes": b"x", "path": "p"}]}), {"metadata": "*"}, ("t", {})),
        (pa.table({"text": ["t"], "content": [b"x"]}), {}, ("t", {})),
        (pa.table({"text": pa.array(["t"]).dictionary_encode()}), {}, ("t", {})),
        (
            pa.table({"text": pa.array(["t"], pa.large_string()), "metadata": [{"a": {"b": [1]}}]}),
            {},
            ("t", {"a": {"b": [1]}}),
        ),
        (pa.table({"text": ["t"], "metadata": [{"text": "x", "id": "y"}]}), {}, ("t", {"text": "x", "id": "y"})),
    ],
)
def test_columns_of_parquet_that_can_be_used(
    tmp_path: Path, table: pa.Table, fields: dict[str, Any], expected: tuple[str, dict[str, Any]]
) -> None:
    [found] = contents(files("a_parquet", fields=fields), uploaded(tmp_path, a_parquet=parquet(table)))
    assert (found.text, found.ref.metadata) == expected
    assert found.ref.id == "a.parquet#1"


# ---- what is wrong in records ----------------------------------------------------------------------------------------

BAD_LINES = [
    (b'{"text": "cut', "malformed_record"),
    (b"[1]", "malformed_record"),
    (b'"text"', "malformed_record"),
    (b'{"text": "\xff"}', "malformed_record"),
    (b'{"text": "\\ud800"}', "malformed_record"),
    (b'{"other": "x"}', "missing_field"),
    (b'{"text": 5}', "invalid_field"),
    (b'{"id": [1], "text": "x"}', "invalid_id"),
    (b'{"id": true, "text": "x"}', "invalid_id"),
    (b'{"id": "", "text": "x"}', "invalid_id"),
    (b'{"id": "a\\u0000", "text": "x"}', "invalid_id"),
    (orjson.dumps({"id": "x" * 1025, "text": "x"}), "invalid_id"),
    (b'{"text": "' + b"x" * 3000 + b'"}', "document_too_large"),
]


def test_metadata_is_bounded_as_each_chunk_gets_a_copy(tmp_path: Path) -> None:
    lines = [{"id": n, "text": "x", "page": "<" * size} for n, size in enumerate((65_000, 65_600))]
    access = uploaded(tmp_path, a_jsonl=b"\n".join(map(orjson.dumps, lines)))
    spec = files("a_jsonl") | {"fields": {"metadata": "*"}}
    assert texts(spec, access) == {"0": "x"}
    assert codes(spec, access) == {"1": "invalid_metadata"}


@pytest.mark.parametrize(("line", "code"), BAD_LINES)
@pytest.mark.parametrize("piece", [7, 100_000])
def test_a_bad_line_is_named_and_its_neighbours_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes, code: str, piece: int
) -> None:
    monkeypatch.setattr(ranges, "_BLOCK_BYTES", piece)
    data = b'\xef\xbb\xbf{"id":"first","text":"a"}\r\n\n' + line + b'\n{"id":"last","text":"b"}'
    access = uploaded(tmp_path, limit=2000, a_jsonl=data)
    assert texts(files("a_jsonl"), access) == {"first": "a", "last": "b"}
    assert codes(files("a_jsonl"), access) == {"a.jsonl#3": code}


@pytest.mark.parametrize("data", [b"", b"PAR1", b"not parquet at all", parquet([{"text": "x"}])[:-9] + b"\xff" * 9])
def test_damaged_parquet_is_one_fault_and_others_go_on(tmp_path: Path, data: bytes) -> None:
    access = uploaded(tmp_path, a_parquet=data, b_parquet=parquet([{"text": "fine"}]))
    assert codes(files("a_parquet", "b_parquet"), access) == {"a.parquet": "corrupt_document"}
    assert texts(files("a_parquet", "b_parquet"), access) == {"b.parquet#1": "fine"}


def test_parquet_damaged_in_the_middle_gives_what_can_be_read(tmp_path: Path) -> None:
    good = parquet([{"text": f"{n} {'text ' * 50}"} for n in range(60)], row_group=20)
    second = pq.ParquetFile(io.BytesIO(good)).metadata.row_group(1).column(0)
    start = second.dictionary_page_offset or second.data_page_offset
    access = uploaded(tmp_path, a_parquet=good[:start] + b"\xff" * 200 + good[start + 200 :])
    assert len(texts(files("a_parquet"), access)) == 40
    assert codes(files("a_parquet"), access) == {"a.parquet#21": "corrupt_document"}


@pytest.mark.parametrize("line", [b'{"text": null}', b'{"text": ""}', b'{"text": " \\n\\t"}', b'{"body": null}'])
def test_a_record_without_text_is_a_blank_document(tmp_path: Path, line: bytes) -> None:
    access = uploaded(tmp_path, a_jsonl=line)
    assert [(text or "").strip() for text in texts(files("a_jsonl"), access).values()] == [""]
    assert codes(files("a_jsonl"), access) == {}

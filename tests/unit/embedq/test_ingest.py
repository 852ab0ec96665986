"""The course of `embedq ingest` against a server that plays its part from a script."""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from embedq.cli import main, uploads
from embedq.cli.exit_codes import OK, SOME_FAILED, UsageError
from embedq.cli.ingest import Plan, Show, Sink, ingest
from embedq.cli.ingest_report import SHOWN_FAILURES
from embedq.cli.output import Output
from embedq.cli.progress import Progress, Sample, showing
from embedq.cli.uploads import UPLOADS_IN_FLIGHT
from embedq.errors import BadInputError, RefusedError
from embedq.ingestions import Ingestions
from embedq.output_folder import OutputFolder
from tasks.ingestion.sources import open_source
from tests.unit.embedq.scripted import Answer, Request, problem, scripted

BODY = {"mode": "skip_unchanged", "chunking": {"type": "auto"}}
PART_NAME = "part-000000.parquet"
PAGES = [*range(2, 11), 14, 99, 100]
FORM = {"code": "xfa_form", "message": "It is a form.", "pages": []}
SAID = "pages_without_text: pages 2-10, 14, 99-100: Run OCR. xfa_form: It is a form."
PART = {"name": PART_NAME, "rows": 1}


@dataclass
class Server:
    """Answers like the real one; `files` are the uploads it holds.

    When the first upload comes, `removes` goes away and `interrupts` is cancelled.
    """

    failed: int = 0
    warned: int = 0
    resumable: bool = False
    refuses: str = ""
    stage: str = "parsing"
    message: str = "Run OCR first."
    room: int = 100
    known: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    started: list[Any] = field(default_factory=list)
    held_at_start: int = 0
    sent: int = 0
    removes: Path | None = None
    dataset_id: str | None = "an id"
    ends: str = "completed"
    parts: list[Mapping[str, Any]] = field(default_factory=lambda: [PART])
    changes: int = 0
    interrupts: "asyncio.Task[int] | None" = None

    def __call__(self, request: Request) -> Answer:  # noqa: PLR0911 - a route each
        path = request.target.partition("?")[0]
        if request.method == "DELETE":
            return Answer(200, {"deleted": self.files.pop(path.rpartition("/")[2]) is not None})
        if path == "/v1/ingestions/files/known":
            asked = [file["document_id"] for file in request.json()["source"]["files"]]
            return Answer(200, {"data": [name for name in asked if name in self.known]})
        if path == "/v1/files":
            return self._upload(request)
        if path.endswith("/documents"):
            return self._documents("after=0-0" in request.target, warned="filter=warned" in request.target)
        if path.endswith("/output"):
            return Answer(200, {"dataset_id": "an id", "data": self.parts})
        if "/datasets/" in path:
            return (
                Answer(200, {"id": self.dataset_id}) if self.dataset_id else problem(404, "dataset_not_found", "None.")
            )
        if path.endswith(PART_NAME):
            self.changes -= 1
            return Answer(200, b"PAR1") if self.changes < 0 else problem(410, "part_changed", "List it anew.")
        if request.method == "POST":
            if self.refuses:
                return problem(400, self.refuses, self.message)
            self.started.append(request.json())
            self.held_at_start = len(self.files)
            return Answer(202, self.ingestion("queued"))
        if self.waits:
            return Answer(200, self.ingestion("in_progress") | {"waiting_for": self.waits.pop(), "eta_s": 9.0})
        return Answer(200, self.ingestion(self.ends))

    def ingestion(self, status: str) -> dict[str, Any]:
        counts = {"total": 2, "completed": 2 - self.failed, "failed": self.failed, "cancelled": 0, "unchanged": 1}
        counts["warned"] = self.warned
        return {
            "id": "ing_1",
            "status": status,
            "file_counts": counts,
            "chunks": {"total": 5, "embedded": 5, "tokens": 50},
            "listing_complete": True,
            "resumable": self.resumable,
        }

    def _documents(self, second: bool, *, warned: bool) -> Answer:
        if not second:  # as for an ingestion of many pages, of which the first ones hold nothing that failed
            return Answer(200, {"data": [], "last_id": "0-0", "has_more": True})
        if warned:
            warnings = [{"code": "pages_without_text", "message": "Run OCR.", "pages": PAGES}, FORM]
            listed = [{"id": f"h/{number}.pdf", "warnings": warnings} for number in range(self.warned)]
            return Answer(200, {"data": listed, "last_id": "1-0", "has_more": False})
        failed = {
            "id": "h/b.md",
            "source_uri": "file:file-2/b.md",
            "stage": self.stage,
            "last_error": {"code": "no_text", "message": self.message},
        }
        return Answer(200, {"data": [failed] * self.failed, "last_id": "1-0", "has_more": False})

    def _upload(self, request: Request) -> Answer:
        self.sent += 1
        if self.interrupts and self.sent == 1:
            self.interrupts.cancel()
        if self.removes:
            self.removes.unlink(missing_ok=True)
        if b"unwanted" in request.body:
            return problem(413, "file_too_large", "The file is too large.")
        if len(self.files) == self.room:
            return problem(403, "quota_exceeded", "You have 2 files, as many as you may.")
        file_id = f"file-{self.sent}"
        self.files[file_id] = request.body
        return Answer(200, {"id": file_id})


@pytest.fixture
def handbook(tmp_path: Path) -> Path:
    folder = tmp_path / "h"
    folder.mkdir()
    for name in ("a.md", "b.md"):
        (folder / name).write_text(f"text of {name}")
    return folder


async def run(
    server: Server,
    out: Path,
    *sources: Path | str,
    body: Mapping[str, Any] = BODY,
    fields: Mapping[str, Any] | None = None,
    show: Show = showing,
    **more: Any,
) -> int:
    async with scripted(server) as script, Ingestions(script.url) as client:
        folder = OutputFolder(out, script.url)
        sink = Sink({"type": "dataset", "dataset": folder.dataset}, folder, str(out))
        plan = Plan([str(source) for source in sources], fields or {}, body, sink, **more)
        return await ingest(client, plan, Output(json_lines=False), show)


async def test_files_go_up_parts_come_down_and_uploads_go(
    tmp_path: Path, handbook: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server()
    assert await run(server, tmp_path / "out", handbook, fields={"text": ["body"]}) == OK
    (request,) = server.started
    assert [file["document_id"] for file in request["source"]["files"]] == ["h/a.md", "h/b.md"]
    assert request["source"]["fields"] == {"text": ["body"]}
    assert request["mode"] == "skip_unchanged"
    assert (server.held_at_start, server.files) == (2, {})
    assert (tmp_path / "out" / PART_NAME).read_bytes() == b"PAR1"
    assert request["sink"]["dataset"] == json.loads((tmp_path / "out" / "_embedq.json").read_text())["dataset"]
    shown = capsys.readouterr()
    assert "ing_1 completed: 2/2 documents, 1 unchanged, 5 chunks" in shown.out


@pytest.mark.parametrize("now", ["another id", None], ids=["another server", "deleted"])
async def test_a_folder_of_another_dataset_stops_the_command_before_anything_is_sent(
    tmp_path: Path, handbook: Path, now: str | None
) -> None:
    out = tmp_path / "out"
    assert await run(Server(), out, handbook) == OK
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    server = Server(dataset_id=now)
    with pytest.raises(BadInputError, match="was changed"):
        await run(server, out, handbook)
    assert (server.sent, server.started) == (0, [])
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before


async def test_a_run_that_fails_leaves_the_folder_as_it_was(
    tmp_path: Path, handbook: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert await run(Server(), out, handbook) == OK
    assert await run(Server(ends="failed", parts=[]), out, handbook) == SOME_FAILED
    assert (out / PART_NAME).read_bytes() == b"PAR1"
    assert (
        f"out is as it was; to fetch what was loaded: embedq ingest --status ing_1 --out {out}"
        in capsys.readouterr().err
    )


async def test_failed_documents_are_named_and_the_exit_code_says_so(
    tmp_path: Path, handbook: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(Server(failed=1), tmp_path / "out", handbook) == SOME_FAILED
    assert "h/b.md failed: no_text: Run OCR first." in capsys.readouterr().err


async def test_documents_that_were_read_in_part_are_named_and_have_not_failed(
    tmp_path: Path, handbook: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(Server(warned=1), tmp_path / "out", handbook) == OK
    shown = capsys.readouterr()
    assert "ing_1 completed: 2/2 documents, 1 unchanged, 1 with warnings, 5 chunks" in shown.out
    assert f"embedq: h/0.pdf: {SAID}\n" in shown.err
    await run(Server(warned=12), tmp_path / "out", handbook)
    shown = capsys.readouterr()
    assert shown.err.count(SAID) == SHOWN_FAILURES == 10
    assert "2 more documents have warnings; all of them: embedq ingest --errors ing_1" in shown.err


@pytest.mark.parametrize(("failed", "code"), [(0, OK), (1, SOME_FAILED)])
async def test_what_failed_and_what_was_read_in_part_is_listed(
    capsys: pytest.CaptureFixture[str], failed: int, code: int
) -> None:
    async with scripted(Server(failed=failed, warned=2)) as script:
        asked = ["ingest", "--errors", "ing_1", "--url", script.url]
        assert await asyncio.to_thread(main, asked) == code
        lines = capsys.readouterr().out.splitlines()
        assert lines[:failed] == ["h/b.md failed: no_text: Run OCR first."][:failed]
        assert lines[failed:] == [f"h/{n}.pdf: {SAID}" for n in (0, 1)]
        assert await asyncio.to_thread(main, [*asked, "--json"]) == code
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()][-1]
    scanned = {"code": "pages_without_text", "message": "Run OCR.", "pages": PAGES}
    assert told == {"document": "h/1.pdf", "warnings": [scanned, FORM]}


async def test_uploads_of_what_can_go_on_stay_and_the_way_is_told(
    tmp_path: Path, handbook: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(failed=1, resumable=True)
    assert await run(server, tmp_path / "out", handbook) == SOME_FAILED
    assert list(server.files) == ["file-1", "file-2"]
    assert "embedq ingest --retry ing_1" in capsys.readouterr().err


@pytest.mark.parametrize(("stage", "left"), [("parsing", []), ("embedding", ["file-2"]), ("loading", ["file-2"])])
async def test_what_may_do_better_another_time_stays_for_it(
    tmp_path: Path, handbook: Path, stage: str, left: list[str]
) -> None:
    server = Server(failed=1, stage=stage)
    assert await run(server, tmp_path / "out", handbook) == SOME_FAILED
    assert list(server.files) == left


async def test_an_upload_ends_some_day_whoever_is_killed(tmp_path: Path, handbook: Path) -> None:
    server = Server()
    await run(server, tmp_path / "out", handbook, detach=True)
    for sent in server.files.values():
        assert b'name="expires_after[seconds]"\r\n\r\n604800\r\n' in sent


async def test_fields_are_named_as_options(tmp_path: Path, handbook: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = "Name it in source.fields.text. Rename source.fields.id2."
    await run(Server(failed=1, message=message), tmp_path / "out", handbook)
    assert "h/b.md failed: no_text: Name it in --text-field. Rename source.fields.id2." in capsys.readouterr().err
    message = "chunking.static.max_chunk_size_tokens must be 16, chunk_overlap_tokens 8."
    with pytest.raises(RefusedError, match=r"^--chunk-tokens must be 16, --overlap 8\.$"):
        await run(Server(refuses="invalid_value", message=message), tmp_path / "out", handbook)


async def test_a_file_that_cannot_be_sent_stops_no_other(
    tmp_path: Path, handbook: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (handbook / "large.md").write_text("unwanted")
    server = Server()
    assert await run(server, tmp_path / "out", handbook) == SOME_FAILED
    assert len(server.started[0]["source"]["files"]) == 2
    captured = capsys.readouterr()
    assert "h/large.md failed: file_too_large" in captured.err
    assert "2/2 documents, 1 unchanged, 5 chunks, and 1 more not sent" in captured.out


@pytest.mark.parametrize("mode", ["skip_unchanged", "upsert", "sync"])
async def test_an_empty_file_is_sent_as_it_may_have_been_emptied(tmp_path: Path, handbook: Path, mode: str) -> None:
    (handbook / "__init__.py").touch()
    server = Server()
    assert await run(server, tmp_path / "out", handbook, body=BODY | {"mode": mode}) == 0
    assert "h/__init__.py" in [file["document_id"] for file in server.started[0]["source"]["files"]]


async def test_a_file_that_cannot_be_read_stops_no_other(
    tmp_path: Path, handbook: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(UPLOADS_IN_FLIGHT):
        (handbook / f"c{number}.md").write_text("text")
    server = Server(removes=handbook / f"c{UPLOADS_IN_FLIGHT - 1}.md")
    assert await run(server, tmp_path / "out", handbook) == SOME_FAILED
    assert len(server.started[0]["source"]["files"]) == UPLOADS_IN_FLIGHT + 1
    last = f"h/c{UPLOADS_IN_FLIGHT - 1}.md failed: unreadable: The file cannot be read: No such file or directory."
    assert last in capsys.readouterr().err


async def test_sync_does_not_begin_without_all_files(tmp_path: Path, handbook: Path) -> None:
    (handbook / "large.md").write_text("unwanted")
    server = Server()
    with pytest.raises(UsageError, match="it would be deleted"):
        await run(server, tmp_path / "out", handbook, body=BODY | {"mode": "sync"})
    assert (server.started, server.files) == ([], {})


async def test_after_a_refusal_no_upload_is_left_and_no_trace_of_it_in_the_folder(
    tmp_path: Path, handbook: Path
) -> None:
    server, out = Server(refuses="invalid_value"), tmp_path / "out"
    with pytest.raises(RefusedError):
        await run(server, out, handbook)
    assert server.files == {}
    assert not out.exists()

    server.refuses = ""
    assert await run(server, out, handbook) == OK
    dataset = json.loads((out / "_embedq.json").read_text())["dataset"]
    server.refuses = "invalid_value"
    with pytest.raises(RefusedError):
        await run(server, out, handbook)
    assert json.loads((out / "_embedq.json").read_text())["dataset"] == dataset
    assert (out / PART_NAME).exists()


async def test_a_part_that_has_changed_is_listed_anew(tmp_path: Path, handbook: Path) -> None:
    assert await run(Server(changes=2), tmp_path / "out", handbook) == OK
    assert (tmp_path / "out" / PART_NAME).read_bytes() == b"PAR1"


async def test_more_files_than_one_ingestion_takes_are_counted_before_the_first_is_sent(
    tmp_path: Path, handbook: Path
) -> None:
    server = Server()
    with pytest.raises(UsageError, match=r"2 files.*EMBEDQ_INGEST_ROOTS.*file:///srv/docs.*same --out"):
        await run(server, tmp_path / "out", handbook, max_files=1)
    assert server.sent == 0
    assert not (tmp_path / "out").exists()


async def test_a_full_quota_says_what_needs_none(tmp_path: Path, handbook: Path) -> None:
    server = Server(room=1)
    with pytest.raises(RefusedError, match=r"as many as you may\. .* room for 2\. .*EMBEDQ_INGEST_ROOTS"):
        await run(server, tmp_path / "out", handbook)
    assert server.files == {}


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("disk_full", "room in the server's storage"),
        ("model", "a worker that has loaded the model"),
        ("sink", "the sink, which"),
        ("worker", "another try, as its workers died"),
        ("moon", "the moon"),
    ],
)
async def test_what_it_waits_for_is_shown_while_it_waits(what: str, words: str, tmp_path: Path) -> None:
    shown: list[Sample] = []

    def show(label: str, total: int | None, **_: object) -> contextlib.nullcontext[Progress]:
        return contextlib.nullcontext(Progress(label, total, shown.append))

    server = Server(waits=[what])
    assert await run(server, tmp_path / "out", "file:///srv/docs", show=show) == OK
    waiting, after = (sample.details for sample in shown)
    assert waiting
    assert after
    assert f"waiting for {words}" in waiting.text
    assert (waiting.fields["waiting_for"], waiting.eta_s, after.fields["waiting_for"]) == (what, None, None)
    assert "waiting" not in after.text


async def test_interrupted_while_it_sends_it_leaves_no_upload(tmp_path: Path, handbook: Path) -> None:
    server = Server()
    server.interrupts = asyncio.create_task(run(server, tmp_path / "out", handbook))
    with pytest.raises(asyncio.CancelledError):
        await server.interrupts
    assert (server.sent > 0, server.started, server.files) == (True, [], {})


async def test_what_the_server_knows_is_not_sent(
    tmp_path: Path, handbook: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (handbook / "c.JSONL").write_text("{}")
    server = Server(known=["h/a.md", "h/c.JSONL"])
    assert await run(server, tmp_path / "out", handbook) == OK
    digest = hashlib.sha256((handbook / "a.md").read_bytes()).hexdigest()
    [first, *sent] = server.started[0]["source"]["files"]
    assert first == {"sha256": digest, "document_id": "h/a.md"}
    assert [file["document_id"] for file in sent if "id" in file] == ["h/b.md", "h/c.JSONL"]
    assert "1 known, 2 sent" in capsys.readouterr().err


def test_files_of_records_are_those_of_the_server() -> None:
    assert set(uploads.RECORD_ENDINGS) == set(open_source.RECORD_ENDINGS)


async def test_detached_it_prints_the_id_and_leaves_the_uploads(
    tmp_path: Path, handbook: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server()
    assert await run(server, tmp_path / "out", handbook, detach=True) == OK
    assert len(server.files) == 2
    assert capsys.readouterr().out == "ing_1\n"


async def test_a_dry_run_makes_no_folder(tmp_path: Path, handbook: Path) -> None:
    assert await run(Server(), tmp_path / "out", handbook, body=BODY | {"dry_run": True}) == OK
    assert not (tmp_path / "out").exists()


async def test_a_folder_that_cannot_be_made_is_said_before_anything_is_sent(handbook: Path) -> None:
    server = Server()
    with pytest.raises(OSError, match="/proc/nothing"):
        await run(server, Path("/proc/nothing/out"), handbook)
    assert server.sent == 0


async def test_urls_are_read_by_the_server(tmp_path: Path, handbook: Path) -> None:
    server = Server()
    assert await run(server, tmp_path / "out", "s3://bucket/a", "file:///srv/docs") == OK
    assert server.started[0]["source"] == {"urls": ["s3://bucket/a", "file:///srv/docs"]}
    with pytest.raises(UsageError, match="cannot be mixed"):
        await run(server, tmp_path / "out", "s3://bucket/a", handbook)


def test_a_table_as_sink() -> None:
    assert Sink.from_option("postgresql:store/chunks", "x").body == {
        "type": "postgresql",
        "name": "store",
        "table": "chunks",
    }
    for wrong in ("postgresql:", "postgresql:store", "postgresql:/chunks"):
        with pytest.raises(UsageError, match="postgresql:NAME/TABLE"):
            Sink.from_option(wrong, "x")

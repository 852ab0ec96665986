"""The course of `embedq ingest` against a server that plays its part from a script."""

import asyncio
import hashlib
import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from embedq.cli import main, uploads
from embedq.cli.ingest import ingest
from embedq.cli.ingest_report import SHOWN_FAILURES, describe
from embedq.cli.output import Output
from embedq.cli.uploads import UPLOADS_IN_FLIGHT
from embedq.errors import EmbedqClientError
from embedq.ingestions import Ingestions
from embedq.local_files import local_files
from embedq.output_folder import OutputFolder
from embedq.responses import Job
from tasks.ingestion.sources import open_source
from tests.unit.embedq.scripted import HANG_UP, Answer, Request, problem, scripted

NAME = "part-000000.parquet"
PAGES = [*range(2, 11), 14, 99, 100]
FORM = {"code": "xfa_form", "message": "It is a form.", "pages": []}
SAID = "pages_without_text: pages 2-10, 14, 99-100: Run OCR. xfa_form: It is a form."


def listed(items: list[Any], *, more: bool = False) -> Answer:
    return Answer(200, {"object": "list", "data": items, "last_id": "0-0", "has_more": more})


@dataclass
class Server:
    """Answers like the real one; `files` are the uploads it holds.

    When the first upload comes, `removes` goes away and `interrupts` is cancelled.
    """

    failed: int = 0
    warned: int = 0
    resumable: bool = False
    refuses: str = ""
    refuses_before: str = ""
    stage: str = "parsing"
    room: int = 100
    known: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    started: list[Any] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)
    held_at_start: int = 0
    sent: int = 0
    removes: Path | None = None
    dataset_id: str | None = "an id"
    ends: str = "completed"
    parts: list[Any] = field(default_factory=lambda: [{"name": NAME, "rows": 1}])
    changes: int = 0
    interrupts: "asyncio.Task[int] | None" = None

    def __call__(self, request: Request) -> Answer:  # noqa: PLR0911 - a route each
        path = request.target.partition("?")[0]
        if request.method == "DELETE":
            return Answer(200, {"object": "file", "deleted": self.files.pop(path.rpartition("/")[2]) is not None})
        if path == "/v1/ingestions/files/known":
            if self.refuses_before:
                return problem(404, self.refuses_before, "There is none.")
            self.asked.append(request.json())
            names = [file["document_id"] for file in request.json()["source"]["files"]]
            return listed([name for name in names if name in self.known])
        if path == "/v1/files":
            return self._upload(request)
        if path.endswith("/documents"):
            return self._documents("after=0-0" in request.target, warned="filter=warned" in request.target)
        if path.endswith("/output"):
            return Answer(200, {"object": "list", "dataset_id": "an id", "data": self.parts})
        if "/datasets/" in path:
            found = Answer(200, {"object": "dataset", "id": self.dataset_id})
            return found if self.dataset_id else problem(404, "dataset_not_found", "None.")
        if path.endswith(NAME):
            self.changes -= 1
            return Answer(200, b"PAR1") if self.changes < 0 else problem(410, "part_changed", "List it anew.")
        if request.method == "POST":
            if self.refuses:
                return problem(400, self.refuses, "No.")
            self.started.append(request.json())
            self.held_at_start = len(self.files)
            return Answer(202, self.ingestion("queued"))
        if self.waits:
            waiting = {"code": "sink_unavailable", "message": self.waits.pop()}
            return Answer(200, self.ingestion("in_progress", waiting=waiting, eta_s=9.0))
        return Answer(200, self.ingestion(self.ends))

    def ingestion(self, status: str, **changed: Any) -> Job:
        asked = self.started[-1] if self.started else {"mode": "sync", "sink": {"type": "dataset", "dataset": "d"}}
        of_asked = {name: asked[name] for name in ("mode", "sink")} | {"dry_run": asked.get("dry_run", False)}
        return ingestion(status, self.failed, self.warned, error=None, resumable=self.resumable, **of_asked, **changed)

    def _documents(self, second: bool, *, warned: bool) -> Answer:
        if not second:  # as for an ingestion of many pages, of which the first ones hold nothing that failed
            return listed([], more=True)
        if warned:
            warnings = [{"code": "pages_without_text", "message": "Run OCR.", "pages": PAGES}, FORM]
            return listed([{"id": f"h/{number}.pdf", "warnings": warnings} for number in range(self.warned)])
        error = {"code": "no_text", "message": "Run OCR first."}
        failed = {"id": "h/b.md", "source_uri": "file:file-2/b.md", "stage": self.stage, "last_error": error}
        return listed([failed] * self.failed)

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
        return Answer(200, {"object": "file", "id": file_id})


def ingestion(status: str, failed: int = 0, warned: int = 0, **changed: Any) -> Job:
    zero = dict.fromkeys(("replaced", "emptied", "deleted", "cancelled"), 0)
    counts = {"total": 2, "completed": 2 - failed, "failed": failed, "unchanged": 1, "warned": warned, **zero}
    of_all: dict[str, Any] = {
        "rate": None,
        "eta_s": None,
        "estimate_s": None,
        "waiting": None,
        "warnings": [],
        "dry_run": False,
    }
    chunks = {"total": 5, "embedded": 5, "tokens": 50}
    known = {"id": "ing_1", "object": "ingestion", "status": status, "listing_complete": True, "chunks": chunks}
    return Job({**known, "counts": counts, "file_counts": counts, **of_all, **changed})


@pytest.fixture(autouse=True)
def handbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "h"
    folder.mkdir()
    for name in ("a.md", "b.md"):
        (folder / name).write_text(f"text of {name}")
    return folder


async def run(server: Server, *words: str) -> int:
    """`embedq ingest` with these words; without a source with the folder."""
    sources = [] if any(word in {"-", "--errors"} or "://" in word for word in words) else ["h"]
    async with scripted(server) as script:
        return await asyncio.to_thread(main, ["ingest", *sources, *words, "--url", script.url])


async def test_files_go_up_parts_come_down_and_uploads_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = Server()
    assert await run(server, "--out", "out", "--text-field", "body") == 0
    (request,) = server.started
    assert [file["document_id"] for file in request["source"]["files"]] == ["h/a.md", "h/b.md"]
    assert (request["source"]["fields"], request["mode"]) == ({"text": ["body"]}, "skip_unchanged")
    assert (server.held_at_start, server.files) == (2, {})
    assert (tmp_path / "out" / NAME).read_bytes() == b"PAR1"
    dataset = json.loads((tmp_path / "out" / "_embedq.json").read_text())["dataset"]
    assert request["sink"]["dataset"] == dataset
    shown = capsys.readouterr()
    assert "ing_1 completed: 2/2 documents, 1 unchanged, 5 chunks" in shown.out
    assert f"embedq search QUERY --dataset {dataset}" in shown.err
    assert "chunks 5/5, 2/2 documents" in shown.err


async def test_the_password_of_an_address_is_in_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with scripted(Server()) as script:
        address = script.url.replace("//", "//user:hunter2@")
        assert await asyncio.to_thread(main, ["ingest", "h", "--out", "out", "--url", address]) == 0
    assert json.loads((tmp_path / "out" / "_embedq.json").read_text())["server"] == script.url
    assert "hunter2" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("now", ["another id", None], ids=["another server", "deleted"])
async def test_a_folder_of_another_dataset_stops_the_command_before_anything_is_sent(
    tmp_path: Path, now: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(Server(), "--out", "out") == 0
    before = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    server = Server(dataset_id=now)
    assert await run(server, "--out", "out") == 2
    assert "was changed" in capsys.readouterr().err
    assert (server.sent, server.started) == (0, [])
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == before


async def test_what_the_server_would_refuse_is_said_before_anything_is_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for mode in ("skip_unchanged", "upsert"):
        server = Server(refuses_before="model_not_found")
        assert await run(server, "--out", "out", "--mode", mode, "--model", "none") == 3
        assert "model_not_found: There is none." in capsys.readouterr().err
        assert (server.sent, server.started) == (0, [])
        assert not (tmp_path / "out").exists()


async def test_a_run_that_fails_leaves_the_folder_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await run(Server(), "--out", "out") == 0
    assert await run(Server(ends="failed", parts=[]), "--out", "out") == 6
    assert (tmp_path / "out" / NAME).read_bytes() == b"PAR1"
    assert "to fetch what was loaded: embedq ingest --status ing_1 --out out" in capsys.readouterr().err


@pytest.mark.parametrize(("failed", "code"), [(1, 1), (2, 6)])
async def test_failed_documents_are_named_and_the_exit_code_says_whether_all_have(
    failed: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(Server(failed=failed), "--out", "out") == code
    assert "h/b.md failed: no_text: Run OCR first." in capsys.readouterr().err


async def test_documents_that_were_read_in_part_are_named_and_have_not_failed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await run(Server(warned=12), "--out", "out") == 0
    shown = capsys.readouterr()
    assert "ing_1 completed: 2/2 documents, 1 unchanged, 12 with warnings, 5 chunks" in shown.out
    assert f"embedq: h/0.pdf: {SAID}\n" in shown.err
    assert shown.err.count(SAID) == SHOWN_FAILURES == 10
    assert "2 more documents have warnings; all of them: embedq ingest --errors ing_1" in shown.err


@pytest.mark.parametrize("failed", [0, 1])
async def test_what_failed_and_what_was_read_in_part_is_listed(failed: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert await run(Server(failed=failed, warned=2), "--errors", "ing_1") == failed
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["h/b.md failed: no_text: Run OCR first."] * failed + [f"h/{n}.pdf: {SAID}" for n in (0, 1)]
    assert await run(Server(failed=failed, warned=2), "--errors", "ing_1", "--json") == failed
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()][-1]
    scanned = {"code": "pages_without_text", "message": "Run OCR.", "pages": PAGES}
    assert told == {"document": "h/1.pdf", "warnings": [scanned, FORM]}


@pytest.mark.parametrize(("stage", "left"), [("parsing", []), ("embedding", ["file-2"]), ("loading", ["file-2"])])
async def test_what_may_do_better_another_time_stays_for_it(stage: str, left: list[str]) -> None:
    server = Server(failed=1, stage=stage)
    assert await run(server, "--out", "out") == 1
    assert list(server.files) == left


async def test_detached_it_prints_the_id_and_leaves_the_uploads(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server()
    assert await run(server, "--out", "out", "--detach") == 0
    assert len(server.files) == 2
    assert capsys.readouterr().out == "ing_1\n"
    for sent in server.files.values():  # whoever is killed
        assert b'name="expires_after[seconds]"\r\n\r\n604800\r\n' in sent


async def test_a_file_that_cannot_be_sent_stops_no_other(handbook: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (handbook / "large.md").write_text("unwanted")
    (handbook / "__init__.py").touch()  # it may have been emptied
    server = Server()
    assert await run(server, "--out", "out") == 1
    assert [file["document_id"] for file in server.started[0]["source"]["files"]] == [
        "h/__init__.py", "h/a.md", "h/b.md",
    ]  # fmt: skip
    captured = capsys.readouterr()
    assert "h/large.md failed: file_too_large" in captured.err
    assert "2/2 documents, 1 unchanged, 5 chunks, and 1 more not sent" in captured.out
    server = Server()
    assert await run(server, "--out", "out", "--mode", "sync") == 2
    assert "it would be deleted" in capsys.readouterr().err
    assert (server.started, server.files) == ([], {})


async def test_a_file_that_cannot_be_read_stops_no_other(handbook: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(UPLOADS_IN_FLIGHT):
        (handbook / f"c{number}.md").write_text("text")
    last = f"c{UPLOADS_IN_FLIGHT - 1}.md"
    server = Server(removes=handbook / last)
    assert await run(server, "--out", "out") == 1
    assert len(server.started[0]["source"]["files"]) == UPLOADS_IN_FLIGHT + 1
    assert f"h/{last} failed: unreadable: The file cannot be read: No such file" in capsys.readouterr().err


async def test_after_a_refusal_no_upload_is_left_and_no_trace_of_it_in_the_folder(tmp_path: Path) -> None:
    server, out = Server(refuses="invalid_value"), tmp_path / "out"
    assert await run(server, "--out", "out") == 3
    assert (server.files, out.exists()) == ({}, False)
    assert await run(Server(room=1), "--out", "out") == 3
    assert not out.exists()

    server.refuses = ""
    assert await run(server, "--out", "out") == 0
    dataset = json.loads((out / "_embedq.json").read_text())["dataset"]
    server.refuses = "invalid_value"
    assert await run(server, "--out", "out") == 3
    assert json.loads((out / "_embedq.json").read_text())["dataset"] == dataset
    assert (out / NAME).exists()


async def test_what_it_waits_for_is_shown_while_it_waits(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server(waits=["The sink does not answer; next try in 30 s."])
    assert await run(server, "file:///srv/docs", "--out", "out", "--json") == 0
    assert server.started[0]["source"] == {"urls": ["file:///srv/docs"]}
    progress = [json.loads(line) for line in capsys.readouterr().err.splitlines() if '"progress"' in line]
    assert progress[-1]["waiting"] is None


@pytest.mark.parametrize(
    ("waiting", "embedded", "shown"),
    [
        ({"code": "sink_unavailable", "message": "The sink does not answer."}, 3, ", The sink does not answer"),
        ({"code": "in_line", "message": "Third in the bulk lane."}, 0, ", Third in the bulk lane"),
        ({"code": "in_line", "message": "Third in the bulk lane."}, 3, ""),
        ({"code": "working", "message": "Being worked on."}, 0, ""),
    ],
    ids=["away", "in line at first", "in line again", "working"],
)
def test_the_sentence_of_the_server_is_shown(waiting: dict[str, Any], embedded: int, shown: str) -> None:
    chunks = {"total": 5, "embedded": embedded, "tokens": 50}
    now = ingestion("in_progress", waiting=waiting, chunks=chunks)
    assert describe(now) == f"ing_1 in_progress: 2/2 documents, 1 unchanged, {embedded} of 5 chunks embedded{shown}"


async def test_interrupted_while_it_sends_it_leaves_no_upload(
    handbook: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server()
    async with scripted(server) as script, Ingestions(script.url) as client:
        body = {"mode": "sync", "source": {}, "sink": {"type": "dataset", "dataset": "d"}}
        work = ingest(client, local_files([handbook]), body, None, Output(json_lines=False))
        server.interrupts = asyncio.create_task(work)
        with pytest.raises(asyncio.CancelledError):
            await server.interrupts
    assert (server.sent > 0, server.started, server.files) == (True, [], {})
    assert "nothing was started" in capsys.readouterr().err


@pytest.mark.parametrize("unreachable", [False, True])
async def test_interrupted_while_it_fetches_it_says_how_to_go_on(
    unreachable: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server()
    async with scripted(server) as script, Ingestions(script.url, patience_s=0) as client:
        body = {"mode": "sync", "source": {"urls": []}, "sink": {"type": "dataset", "dataset": "d"}}
        folder = OutputFolder(tmp_path / "out", client.address, "d")
        work = asyncio.create_task(ingest(client, [], body, folder, Output(json_lines=False)))

        def answer(request: Request) -> Answer:
            if not request.target.endswith(NAME):
                return server(request)
            if not unreachable:
                work.cancel()
            return HANG_UP

        script.answers = [answer]
        with pytest.raises(EmbedqClientError if unreachable else asyncio.CancelledError):
            await work
    assert f"to fetch its files: embedq ingest --status ing_1 --out {folder.folder}" in capsys.readouterr().err


async def test_what_the_server_knows_is_not_sent(handbook: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (handbook / "c.JSONL").write_text("{}")
    server = Server(known=["h/a.md", "h/c.JSONL"])
    assert await run(server, "--out", "out") == 0
    digest = hashlib.sha256((handbook / "a.md").read_bytes()).hexdigest()
    [first, *sent] = server.started[0]["source"]["files"]
    assert first == {"sha256": digest, "document_id": "h/a.md"}
    assert [file["document_id"] for file in sent if "id" in file] == ["h/b.md", "h/c.JSONL"]
    assert "1 known, 2 sent" in capsys.readouterr().err
    assert server.asked[0]["sink"] == server.started[0]["sink"]


def test_files_of_records_are_those_of_the_server() -> None:
    assert set(uploads.RECORD_ENDINGS) == set(open_source.RECORD_ENDINGS)


async def test_some_of_a_folder(handbook: Path) -> None:
    (handbook / "c.txt").write_text("text")
    server = Server()
    assert await run(server, "--include", "*.md", "--exclude", "b.*", "--dataset", "d") == 0
    assert [file["document_id"] for file in server.started[0]["source"]["files"]] == ["h/a.md"]
    assert await run(server, "--exclude", "h", "--dataset", "d") == 2


async def test_standard_input_is_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b'{"text": "a"}\n'), isatty=lambda: False))
    server = Server()
    assert await run(server, "-", "--stdin-name", "posts.jsonl", "--dataset", "d", "--detach") == 0
    [sent] = server.files.values()
    assert b'filename="posts.jsonl"' in sent
    assert b'{"text": "a"}\n' in sent
    assert server.started[0]["source"]["files"][0]["document_id"] == "posts.jsonl"


async def test_a_folder_that_cannot_be_made_is_said_before_anything_is_sent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = Server()
    assert await run(server, "--out", "/proc/nothing/out") == 2
    assert "/proc/nothing" in capsys.readouterr().err
    assert server.sent == 0

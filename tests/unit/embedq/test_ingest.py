"""The course of `embedq ingest` against a server that plays its part from a script."""

import asyncio
import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from embedq.cli import main
from embedq.cli.ingest import ingest
from embedq.cli.ingest_report import SHOWN, describe
from embedq.cli.output import Output
from embedq.ingestions import Ingestions
from embedq.local_files import local_files
from embedq.output_folder import NOTES, OutputFolder
from embedq.transport import Job
from tests.unit.embedq.scripted import Answer, Request, problem, scripted, serving

ONE, TWO, THREE = (f"part-00000000{n}-1.parquet" for n in (1, 2, 3))
REFUSED = "part-refused.parquet"
PAGES = [*range(2, 11), 14, 99, 100]
FORM = {"code": "xfa_form", "message": "It is a form.", "pages": []}
SAID = "pages_without_text: pages 2-10, 14, 99-100: Run OCR. xfa_form: It is a form."


def listed(items: list[Any], *, more: bool = False, **others: Any) -> Answer:
    return Answer(200, {"object": "list", "data": items, "last_id": "0-0", "has_more": more, **others})


@dataclass
class Server:
    """Answers like the real one; `files` are the uploads it holds, `parts` those of the dataset.

    When the first upload comes, `interrupts` is cancelled. A part that is in `changed` is gone
    when it is asked for, and `parts` are those that `changed` says.
    """

    failed: int = 0
    warned: int = 0
    refuses: str = ""
    known: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    started: list[Any] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    sent: int = 0
    dataset_id: str | None = "an id"
    ends: str = "completed"
    parts: list[str] = field(default_factory=lambda: [ONE])
    changed: dict[str, list[str]] = field(default_factory=dict)
    interrupts: "asyncio.Task[int] | None" = None

    def __call__(self, request: Request) -> Answer:  # noqa: PLR0911 - a route each
        path = request.target.partition("?")[0]
        if request.method == "DELETE":
            return Answer(200, {"object": "file", "deleted": self.files.pop(path.rpartition("/")[2]) is not None})
        if path == "/v1/ingestions/files/known":
            self.asked.append(request.json())
            names = [file["document_id"] for file in request.json()["source"]["files"]]
            return listed([name for name in names if name in self.known])
        if path == "/v1/files":
            return self._upload(request)
        if path.endswith("/documents"):
            return self._documents("after=0-0" in request.target, warned="filter=warned" in request.target)
        if path.endswith("/output"):
            return listed([{"name": name} for name in self.parts], dataset_id=self.dataset_id)
        if "/output/" in path:
            return self._part(path.rpartition("/")[2])
        if "/datasets/" in path:
            found = Answer(200, {"object": "dataset", "id": self.dataset_id})
            return found if self.dataset_id else problem(404, "dataset_not_found", "None.")
        if request.method == "POST":
            if self.refuses:
                return problem(400, self.refuses, "No.")
            self.started.append(request.json())
            return Answer(202, self.ingestion("queued"))
        return Answer(200, self.ingestion(self.ends))

    def ingestion(self, status: str) -> Job:
        asked = self.started[-1] if self.started else {"mode": "sync", "sink": {"type": "dataset", "dataset": "d"}}
        of_asked = {name: asked[name] for name in ("mode", "sink")} | {"dry_run": asked.get("dry_run", False)}
        return ingestion(status, self.failed, self.warned, error=None, resumable=False, **of_asked)

    def _documents(self, second: bool, *, warned: bool) -> Answer:
        if not second:  # as for an ingestion of many pages, of which the first ones hold nothing that failed
            return listed([], more=True)
        if warned:
            warnings = [{"code": "pages_without_text", "message": "Run OCR.", "pages": PAGES}, FORM]
            return listed([{"id": f"h/{number}.pdf", "warnings": warnings} for number in range(self.warned)])
        error = {"code": "no_text", "message": "Run OCR first."}
        failed = {"id": "h/b.md", "source_uri": "file:file-2/b.md", "stage": "embedding", "last_error": error}
        return listed([failed] * self.failed)

    def _upload(self, request: Request) -> Answer:
        self.sent += 1
        if self.interrupts and self.sent == 1:
            self.interrupts.get_loop().call_soon_threadsafe(self.interrupts.cancel)
        file_id = f"file-{self.sent}"
        self.files[file_id] = request.body
        return Answer(200, {"object": "file", "id": file_id})

    def _part(self, name: str) -> Answer:
        self.fetched.append(name)
        if name == REFUSED:
            return problem(403, "scope_missing", "It needs read.")
        if name in self.changed:
            self.parts = self.changed[name]
            return problem(410, "part_changed", "List it anew.")
        return Answer(200, name.encode())


def ingestion(status: str, failed: int = 0, warned: int = 0, **changed: Any) -> Job:
    zero = dict.fromkeys(("replaced", "emptied", "deleted", "cancelled"), 0)
    counts = {"total": 2, "completed": 2 - failed, "failed": failed, "unchanged": 1, "warned": warned, **zero}
    chunks = {"total": 5, "embedded": 5, "tokens": 50}
    known = {"id": "ing_1", "object": "ingestion", "status": status, "listing_complete": True, "chunks": chunks}
    unknown = dict.fromkeys(("rate", "eta_s", "estimate_s", "waiting"))
    return Job(
        {**known, **unknown, "counts": counts, "file_counts": counts, "warnings": [], "dry_run": False, **changed}
    )


@pytest.fixture(autouse=True)
def handbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "h"
    folder.mkdir()
    for name in ("a.md", "b.md"):
        (folder / name).write_text(f"text of {name}")
    return folder


def run(server: Server, *words: str) -> int:
    """`embedq ingest` with these words; without a source with the folder."""
    sources = [] if "--errors" in words else ["h"]
    with serving(server) as script:
        return main(["ingest", *sources, *words, "--url", script.url.replace("//", "//user:hunter2@")])


def contents(folder: Path) -> dict[str, str]:
    """Of the files of an output folder, beside its notes."""
    return {file.name: file.read_text() for file in folder.iterdir() if file.name != NOTES}


def notes(folder: Path) -> Any:
    return json.loads((folder / NOTES).read_text())


# The course.


def test_files_go_up_parts_come_down_and_uploads_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = Server(known=["h/a.md"])
    assert run(server, "--out", "out", "--text-field", "body") == 0
    [request] = server.started
    digest = hashlib.sha256(b"text of a.md").hexdigest()
    assert request["source"]["files"] == [
        {"sha256": digest, "document_id": "h/a.md"}, {"id": "file-1", "document_id": "h/b.md"},
    ]  # fmt: skip
    assert (request["source"]["fields"], request["mode"]) == ({"text": ["body"]}, "skip_unchanged")
    assert server.asked[0]["sink"] == request["sink"]
    assert (server.sent, server.files) == (1, {})
    assert contents(tmp_path / "out") == {ONE: ONE}
    dataset = notes(tmp_path / "out")["dataset"]
    assert request["sink"]["dataset"] == dataset
    shown = capsys.readouterr()
    assert "ing_1 completed: 2/2 documents, 1 unchanged, 5 chunks" in shown.out
    for said in (f"embedq search QUERY --dataset {dataset}", "chunks 5/5, 2/2 documents", "1 known, 1 sent"):
        assert said in shown.err
    assert "hunter2" not in shown.out + shown.err + (tmp_path / "out" / NOTES).read_text()


def test_after_a_refusal_no_upload_is_left() -> None:
    server = Server(refuses="invalid_value")
    assert run(server, "--out", "out") == 3
    assert (server.sent, server.files) == (2, {})


@pytest.mark.parametrize("failed", [0, 1])
def test_what_was_read_in_part_is_named_and_has_not_failed(failed: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Server(warned=12), "--out", "out") == 0
    shown = capsys.readouterr()
    assert "ing_1 completed: 2/2 documents, 1 unchanged, 12 with warnings, 5 chunks" in shown.out
    assert shown.err.count(SAID) == SHOWN == 10
    assert "2 more documents have warnings; all of them: embedq ingest --errors ing_1" in shown.err

    assert run(Server(failed=failed, warned=2), "--errors", "ing_1") == failed
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["h/b.md failed: no_text: Run OCR first."] * failed + [f"h/{n}.pdf: {SAID}" for n in (0, 1)]
    assert run(Server(failed=failed, warned=2), "--errors", "ing_1", "--json") == failed
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()][-1]
    scanned = {"code": "pages_without_text", "message": "Run OCR.", "pages": PAGES}
    assert told == {"document": "h/1.pdf", "warnings": [scanned, FORM]}


@pytest.mark.parametrize(
    ("code", "embedded", "shown"),
    [("sink_unavailable", 3, ", Why"), ("in_line", 0, ", Why"), ("in_line", 3, ""), ("working", 0, "")],
)
def test_the_sentence_of_the_server_is_shown(code: str, embedded: int, shown: str) -> None:
    chunks = {"total": 5, "embedded": embedded, "tokens": 50}
    now = ingestion("in_progress", waiting={"code": code, "message": "Why."}, chunks=chunks)
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


# The folder.


def test_it_holds_the_parts_and_later_fetches_the_changed_ones_only(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert run(Server(parts=[ONE, TWO]), "--out", "out") == 0
    (folder / "mine.parquet").write_text("mine")
    server = Server(parts=[TWO, THREE])
    assert run(server, "--out", "out") == 0
    assert server.fetched == [THREE]
    assert contents(folder) == {TWO: TWO, THREE: THREE, "mine.parquet": "mine"}
    # What changes while it is fetched is listed anew, and what was fetched by then is kept.
    server = Server(parts=[ONE, THREE, "part-4.parquet"], changed={"part-4.parquet": [ONE, TWO]})
    assert run(server, "--out", "out") == 0
    assert sorted(server.fetched) == [ONE, "part-4.parquet"]
    assert contents(folder) == {ONE: ONE, TWO: TWO, "mine.parquet": "mine"}


def test_after_a_failure_the_folder_is_as_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Server(), "--out", "out") == 0
    dataset = notes(tmp_path / "out")["dataset"]
    for server, code, said in (
        (Server(ends="failed", parts=[]), 6, "to fetch what was loaded: embedq ingest --status ing_1 --out out"),
        (Server(parts=[TWO, THREE], changed={THREE: [TWO, THREE]}), 2, "has changed 20 times"),
        (Server(parts=[TWO, REFUSED]), 3, "to fetch its files: embedq ingest --status ing_1 --out out"),
        (Server(parts=[TWO, "../x.parquet"]), 2, "leads out of the folder"),
        (Server(dataset_id="another id"), 2, "was changed. Name the server that has it (--url)"),
        (Server(dataset_id=None), 2, "it was deleted, or this is another server"),
    ):
        assert run(server, "--out", "out") == code
        assert said in capsys.readouterr().err
        assert contents(tmp_path / "out") == {ONE: ONE}
        now = notes(tmp_path / "out")
        assert (now["dataset"], now["dataset_id"], now["parts"]) == (dataset, "an id", [ONE])
    assert server.sent == 0


def test_a_folder_of_another_dataset_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Server(), "--out", "out", "--dataset", "mine") == 0
    server = Server()
    assert run(server, "--out", "out", "--dataset", "yours") == 2
    assert "holds the dataset 'mine', not 'yours'" in capsys.readouterr().err
    assert (server.asked, contents(tmp_path / "out")) == ([], {ONE: ONE})


def test_a_killed_run_leaves_the_name_of_its_dataset(tmp_path: Path) -> None:
    folder = OutputFolder(tmp_path / "new", "http://a")
    folder.claim()
    (folder.folder / ".fetching-x").mkdir()
    (folder.folder / ".fetching-x" / ONE).write_text("of another time")
    os.utime(folder.folder / ".fetching-x", (0, 0))
    server = Server()
    assert run(server, "--out", "new") == 0
    assert server.started[0]["sink"]["dataset"] == folder.dataset == notes(folder.folder)["dataset"]
    assert contents(folder.folder) == {ONE: ONE}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"parts": ["../x"]}', '{"parts": [7]}', "\xff"])
def test_damaged_notes_are_said(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / NOTES).write_text(text, encoding="latin-1")
    assert run(Server(), "--out", ".") == 2
    assert "delete it" in capsys.readouterr().err

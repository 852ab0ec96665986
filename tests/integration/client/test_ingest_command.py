"""`embedq ingest`, `search` and `dataset` as commands, against the real web tier and real workers."""

import json
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.integration.client.command import Command
from tests.processes import PATIENCE_S, ApiProcess, Roles, wait_until

REFUNDS = "Refunds take three days."
WHOLE = f"# Shop\n\n## Money\n\n{REFUNDS}"


@pytest.fixture(scope="module", autouse=True)
def _documents_worker(server: tuple[Roles, ApiProcess]) -> Iterator[None]:
    worker = server[0].documents()
    yield
    worker.stop()


@pytest.fixture
def handbook(command: Command) -> Path:
    folder = command.folder / "handbook"
    folder.mkdir()
    (folder / "refunds.md").write_text(f"{WHOLE}\n")
    (folder / "hours.txt").write_text("We open at nine.\n")
    return folder


def texts(folder: Path) -> list[str]:
    """Of the chunks that an output folder holds."""
    files = sorted(folder.glob("*.parquet"))
    return sorted(text for file in files for text in pq.read_table(file, columns=["text"])["text"].to_pylist())


def uploads(api: ApiProcess) -> list[Any]:
    with api.client() as client:
        return [file["filename"] for file in client.get("/v1/files").json()["data"]]


def test_a_folder_goes_in_is_searched_and_costs_nothing_again(
    command: Command, handbook: Path, api: ApiProcess
) -> None:
    others = uploads(api)
    first = command("ingest", "handbook", "--dataset", "shop", "--out", "out")
    assert first.code == 0, first.err
    assert first.lines[-1].endswith(" completed: 2/2 documents, 2 chunks")
    for said in ("out holds 1 Parquet file, 1 of them new", "chunks 2/2, ", "0 known, 2 sent"):
        assert said in first.err

    found = command("search", REFUNDS, "--dataset", "shop")
    assert (found.code, found.err) == (0, "")
    assert {line.split("  ", 1)[1] for line in found.lines} == {
        "handbook/refunds.md > Shop  # Shop ## Money Refunds take three days.",
        "handbook/hours.txt  We open at nine.",
    }
    [best] = command("search", REFUNDS, "--dataset", "shop", "-k", "1", "--mode", "text", "--json").json
    assert (best["document_id"], best["text"], best["chunk"]) == ("handbook/refunds.md", WHOLE, 0)

    def again(end: str, said: str, *more: str) -> None:
        ran = command("ingest", "handbook", "--out", "out", *more)
        assert ran.lines[-1].partition(": ")[2] == end
        assert said in ran.err

    again("2/2 documents, 2 unchanged, 0 chunks", "2 known, 0 sent")
    (handbook / "hours.txt").write_text("We open at ten.\n")
    again("2/2 documents, 1 unchanged, 1 replaced, 1 chunks", "1 took the place of other content under the same id")
    assert texts(command.folder / "out") == [WHOLE, "We open at ten."]
    (handbook / "hours.txt").write_text("")
    emptied = "1 have no text any more, and their chunks were deleted"
    again("2/2 documents, 1 unchanged, 1 replaced, 1 emptied, 0 chunks", emptied, "--mode", "sync")
    (handbook / "hours.txt").unlink()
    again("1/1 documents, 1 unchanged, 1 deleted, 0 chunks", "1 known, 0 sent", "--mode", "sync")
    assert texts(command.folder / "out") == [WHOLE]
    (handbook / "refunds.md").write_text("")
    again("1/1 documents, 1 replaced, 1 emptied, 0 chunks", "out holds 0 Parquet files, 0 of them new")
    assert command("search", "x", "--dataset", "shop").lines == []
    assert uploads(api) == others, "the uploads are deleted"


def test_only_what_the_server_does_not_have_is_sent(command: Command, handbook: Path) -> None:
    (handbook / "prices.csv").write_text("id,text\n1,one\n")

    def ingest(*more: str) -> str:
        ran = command("ingest", "handbook", "--out", "out", *more)
        assert ran.code == 0, ran.err
        [note] = [line for line in ran.err.splitlines() if line.endswith(" sent")]
        return note.removeprefix("embedq: ")

    assert ingest() == "0 known, 3 sent"
    assert ingest() == "2 known, 1 sent", "a file of records is always sent"
    (handbook / "prices.csv").unlink()
    assert ingest("--chunk-tokens", "100") == "0 known, 2 sent"
    assert ingest("--chunk-tokens", "100", "--mode", "upsert") == "0 known, 2 sent"
    assert ingest("--chunk-tokens", "100", "--dry-run") == "2 known, 0 sent"


def test_a_document_that_fails_is_named_and_the_status_says_so_again(
    command: Command, handbook: Path, api: ApiProcess
) -> None:
    (handbook / "book.bin").write_bytes(bytes(range(256)) * 4)
    ran = command("ingest", "handbook", "--out", "out")
    assert ran.code == 1
    assert "handbook/book.bin failed: binary_file: " in ran.err
    ingestion_id = ran.lines[-1].split()[0]
    assert ran.lines[-1] == f"{ingestion_id} completed: 3/3 documents, 1 failed, 2 chunks"
    assert uploads(api).count("book.bin") == 1, "it stays for another try"
    looked = command("ingest", "--status", ingestion_id, "--out", "copy")
    assert (looked.code, looked.lines) == (1, ran.lines)
    assert "copy holds 1 Parquet file, 1 of them new" in looked.err
    assert len(texts(command.folder / "copy")) == 2
    listed = command("ingest", "--errors", ingestion_id)
    assert (listed.code, len(listed.lines)) == (1, 1)
    assert listed.lines[0].startswith("handbook/book.bin failed: binary_file: ")
    again = command("ingest", "--retry", ingestion_id)
    assert (again.code, again.lines) == (1, ran.lines)
    assert command("ingest", "--cancel", ingestion_id).code == 3
    alone = command("ingest", "handbook", "--include", "*.bin", "--dataset", "bin")
    assert alone.code == 6, "nothing came of it"
    assert command("ingest", "handbook", "--exclude", "*.bin", "--dataset", "bin").code == 0


def test_a_file_that_cannot_be_sent_fails_alone_and_detached_it_prints_the_id(
    command: Command, handbook: Path, another_api: Callable[..., ApiProcess]
) -> None:
    command = Command(another_api(max_file_bytes=1000).base_url, command.folder)
    (handbook / "large.md").write_text("more " * 1000)
    (handbook / "unreadable.md").symlink_to("/proc/self/mem")
    detached = command("ingest", "handbook", "--dataset", "some", "--mode", "sync", "--detach")
    assert (detached.code, len(detached.lines)) == (0, 1), detached.err
    assert "handbook/large.md cannot be sent: file_too_large: " in detached.err
    assert "handbook/unreadable.md cannot be sent: Input/output error" in detached.err

    def ended() -> Any:
        ran = command("ingest", "--status", *detached.lines)
        return "completed" in ran.lines[0] and ran

    ran = wait_until(ended)
    assert (ran.code, ran.lines[-1].partition(": ")[2]) == (1, "4/4 documents, 2 failed, 2 chunks")
    assert "handbook/large.md failed: not_sent: " in ran.err


def test_an_ingestion_without_a_dataset_of_its_own_name_is_fetched_too(
    command: Command, handbook: Path, api: ApiProcess
) -> None:
    with api.client() as client:
        made = client.post("/v1/ingestions", json={"source": {"documents": [{"id": "a", "text": REFUNDS}]}})
        assert made.status_code == 202, made.text
        ingestion_id = made.json()["id"]
        assert "dataset" not in made.json()["sink"]
        wait_until(lambda: client.get(f"/v1/ingestions/{ingestion_id}").json()["status"] == "completed")
    fetched = command("ingest", "--status", ingestion_id, "--out", "copy")
    assert fetched.code == 0, fetched.err
    assert "copy holds 1 Parquet file, 1 of them new" in fetched.err
    again = command("ingest", str(handbook), "--out", "copy")
    assert again.code == 3
    assert "must not be the id of an ingestion" in again.err
    assert texts(command.folder / "copy") == [REFUNDS]


def test_datasets_are_listed_and_deleted(command: Command, handbook: Path) -> None:
    assert command("ingest", "handbook", "--dataset", "mine", "--out", "mine").code == 0
    [line] = [line for line in command("dataset", "list").lines if line.startswith("mine: 2 rows, 2 documents, ")]
    assert " dimensions" in line
    near = command("search", "x", "--dataset", "mine", "--filter", "document_id=handbook/refunds.md", "--json").json
    assert [(row["document_id"], row["chunk"]) for row in near] == [("handbook/refunds.md", 0)]
    assert command("search", "x", "--dataset", "mine", "--filter", "year=2024", "--filter", "team=sales").lines == []
    assert command("search", "x", "--dataset", "nothing").code == 3

    gone = command("dataset", "delete", "mine")
    assert (gone.code, gone.lines) == (0, ["mine deleted"])
    assert "mine" not in [dataset["name"] for dataset in command("dataset", "list", "--json").json]
    assert command("dataset", "delete", "mine").code == 3
    again = command("ingest", str(handbook), "--out", "mine")
    assert again.code == 2
    assert "it was deleted, or this is another server, API key or --data folder" in again.err
    assert len(texts(command.folder / "mine")) == 2


def test_a_dry_run_counts(command: Command, handbook: Path) -> None:
    ran = command("ingest", str(handbook), "--dry-run", "--json")
    assert ran.code == 0, ran.err
    [dry_run] = ran.json
    assert (dry_run["file_counts"]["total"], dry_run["chunks"]["total"], dry_run["chunks"]["loaded"]) == (2, 2, 0)
    assert dry_run["estimate_s"] >= 0
    assert not (command.folder / "vectors").exists()


def test_standard_input_is_a_source(command: Command) -> None:
    ran = command("ingest", "-", "--stdin-name", "posts.jsonl", "--dataset", "posts", stdin='{"text": "a"}\n' * 2)
    assert ran.code == 0, ran.err
    assert ran.lines[-1].endswith(" completed: 2/2 documents, 2 chunks")
    found = command("search", "a", "--dataset", "posts", "--json").json
    assert {row["document_id"] for row in found} == {"posts.jsonl#1", "posts.jsonl#2"}


def test_ctrl_c_detaches_and_cancel_ends_it(command: Command, slow_model: str) -> None:
    (command.folder / "long.txt").write_text("one two three four five six seven eight nine ten " * 2000)
    with command.started("ingest", "long.txt", "--dataset", "slow", "--model", slow_model) as ingesting:
        assert ingesting.stderr
        overdue = threading.Timer(PATIENCE_S, ingesting.kill)
        overdue.start()
        line = next((line for line in ingesting.stderr if "started ing_" in line), "")
        overdue.cancel()
        ingestion_id = line.split()[-1]
        ingesting.send_signal(signal.SIGINT)
        assert ingesting.wait(PATIENCE_S) == 130
        rest = ingesting.stderr.read()
    assert f"{ingestion_id} goes on; look again with: embedq ingest --status {ingestion_id}\n" in rest
    status = command("ingest", "--status", ingestion_id)
    assert status.code == 0, status.err
    assert not status.lines[0].split()[1].startswith(("completed", "failed", "cancelled"))
    assert command("ingest", "--cancel", ingestion_id).code == 0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("nowhere", 2, "nowhere does not exist"),
        ("handbook --out /proc/nothing/out", 2, "/proc/nothing"),
        ("file:///etc/passwd", 3, "EMBEDQ_INGEST_ROOTS"),
        ("--status ing_nonsense", 3, "ingestion_not_found"),
        ("handbook --out postgresql:store/t", 3, "EMBEDQ_SINKS"),
        ("handbook --model none", 3, "model_not_found"),
        ("handbook --mode upsert --chunk-tokens 9000", 3, "the model reads 256 tokens"),
        ("handbook --chunk-tokens 20 --overlap 11", 3, "chunk_overlap_tokens"),
        ("", 2, "name either sources"),
    ],
)
@pytest.mark.usefixtures("handbook")
def test_what_cannot_be_is_said(command: Command, words: str, code: int, message: str) -> None:
    ran = command("ingest", *words.split(), "--json")
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err
    assert "known" not in ran.err, "before anything is sent"
    assert json.loads(ran.err.splitlines()[-1])["event"] == "error"

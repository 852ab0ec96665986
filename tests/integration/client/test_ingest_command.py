"""`embedq ingest`, `search` and `dataset` as commands, against the real web tier and real workers."""

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.client.command import Command
from tests.processes import PATIENCE_S, ApiProcess, Roles, wait_until

REFUNDS = "Refunds take three days."
WHOLE = f"# Shop\n\n## Money\n\n{REFUNDS}"
WORDS = "one two three four five six seven eight nine ten "


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


def test_a_folder_goes_in_is_searched_and_costs_nothing_again(
    command: Command, handbook: Path, api: ApiProcess
) -> None:
    first = command("ingest", "handbook", "--dataset", "shop", "--out", "out")
    assert first.code == 0, first.err
    assert first.lines[-1].endswith(" completed: 2/2 documents, 2 chunks")
    assert "out holds 1 Parquet file, 1 of them new" in first.err
    assert "chunks 2/2, " in first.err

    found = command("search", REFUNDS, "--dataset", "shop")
    assert (found.code, found.err) == (0, "")
    assert {line.split("  ", 1)[1] for line in found.lines} == {
        "handbook/refunds.md > Shop  # Shop ## Money Refunds take three days.",
        "handbook/hours.txt  We open at nine.",
    }
    (best,) = command("search", REFUNDS, "--dataset", "shop", "-k", "1", "--mode", "text", "--json").json
    assert (best["document_id"], best["text"], best["chunk"]) == ("handbook/refunds.md", WHOLE, 0)

    again = command("ingest", "handbook", "--out", "out")
    assert again.lines[-1].endswith(" completed: 2/2 documents, 2 unchanged, 0 chunks")
    (handbook / "hours.txt").write_text("We open at ten.\n")
    changed = command("ingest", "handbook", "--out", "out")
    assert changed.lines[-1].endswith(" completed: 2/2 documents, 1 unchanged, 1 replaced, 1 chunks")
    assert "1 took the place of other content under the same id" in changed.err
    assert texts(command.folder / "out") == [WHOLE, "We open at ten."]
    (handbook / "hours.txt").write_text("")
    emptied = command("ingest", "handbook", "--out", "out", "--mode", "sync")
    assert emptied.lines[-1].endswith(" completed: 2/2 documents, 1 unchanged, 1 replaced, 1 emptied, 0 chunks")
    assert "1 have no text any more, and their chunks were deleted" in emptied.err
    (handbook / "hours.txt").unlink()
    synced = command("ingest", "handbook", "--out", "out", "--mode", "sync")
    assert synced.lines[-1].endswith(" completed: 1/1 documents, 1 unchanged, 1 deleted, 0 chunks")
    assert texts(command.folder / "out") == [WHOLE]
    (handbook / "refunds.md").write_text("")
    assert "out holds 0 Parquet files, 0 of them new" in command("ingest", "handbook", "--out", "out").err
    assert command("search", "x", "--dataset", "shop").lines == []
    with api.client() as client:
        left = {file["filename"] for file in client.get("/v1/files").json()["data"]}
    assert left.isdisjoint({"refunds.md", "hours.txt"}), "the uploads are deleted"


def test_a_document_that_fails_is_named_and_the_status_says_so_again(command: Command, handbook: Path) -> None:
    (handbook / "book.bin").write_bytes(bytes(range(256)) * 4)
    ran = command("ingest", "handbook", "--out", "out")
    assert ran.code == 1
    assert "handbook/book.bin failed: binary_file: " in ran.err
    ingestion_id = ran.lines[-1].split()[0]
    assert ran.lines[-1] == f"{ingestion_id} completed: 3/3 documents, 1 failed, 2 chunks"
    looked = command("ingest", "--status", ingestion_id, "--out", "copy")
    assert (looked.code, looked.lines) == (1, ran.lines)
    assert "copy holds 1 Parquet file, 1 of them new" in looked.err
    assert len(texts(command.folder / "copy")) == 2
    listed = command("ingest", "--errors", ingestion_id)
    assert (listed.code, len(listed.lines)) == (1, 1)
    assert listed.lines[0].startswith("handbook/book.bin failed: binary_file: ")
    assert command("ingest", "--cancel", ingestion_id).code == 3
    alone = command("ingest", "handbook", "--include", "*.bin", "--dataset", "bin")
    assert alone.code == 6, "nothing came of it"
    assert command("ingest", "handbook", "--exclude", "*.bin", "--dataset", "bin").code == 0


def test_an_ingestion_without_a_dataset_of_its_own_name_is_fetched_too(
    command: Command, handbook: Path, api: ApiProcess
) -> None:
    with api.client() as client:
        source = {"documents": [{"id": "a", "text": REFUNDS}]}
        made = client.post("/v1/ingestions", json={"source": source})
        assert made.status_code == 202, made.text
        ingestion_id = made.json()["id"]
        assert "dataset" not in made.json()["sink"]
        wait_until(lambda: client.get(f"/v1/ingestions/{ingestion_id}").json()["status"] == "completed")
    fetched = command("ingest", "--status", ingestion_id, "--out", "copy")
    assert fetched.code == 0, fetched.err
    assert "copy holds 1 Parquet file, 1 of them new" in fetched.err
    again = command("ingest", "handbook", "--out", "copy")
    assert again.code == 3
    assert "must not be the id of an ingestion" in again.err
    assert texts(command.folder / "copy") == [REFUNDS]


def test_datasets_are_listed_and_deleted(command: Command, handbook: Path) -> None:
    assert command("ingest", "handbook", "--dataset", "mine", "--out", "mine").code == 0
    (line,) = [line for line in command("dataset", "list").lines if line.startswith("mine: 2 rows, 2 documents, ")]
    assert " dimensions" in line
    near = command("search", "x", "--dataset", "mine", "--filter", "document_id=handbook/refunds.md", "--json").json
    assert [(row["document_id"], row["chunk"]) for row in near] == [("handbook/refunds.md", 0)]
    assert command("search", "x", "--dataset", "mine", "--filter", "year=2024", "--filter", "team=sales").lines == []
    assert command("search", "x", "--dataset", "nothing").code == 3

    gone = command("dataset", "delete", "mine")
    assert (gone.code, gone.lines) == (0, ["mine deleted"])
    assert "mine" not in [dataset["name"] for dataset in command("dataset", "list", "--json").json]
    assert command("dataset", "delete", "mine").code == 3
    again = command("ingest", "handbook", "--out", "mine")
    assert again.code == 2
    assert "it was deleted, or this is another server, API key or --data folder" in again.err
    assert len(texts(command.folder / "mine")) == 2


def test_only_what_the_server_does_not_have_is_sent(command: Command, handbook: Path, api: ApiProcess) -> None:
    (handbook / "prices.csv").write_text("id,text\n1,one\n")
    (handbook / "again").mkdir()
    (handbook / "again" / "hours.txt").write_text("We open at nine.\n")

    def uploaded() -> float:
        with api.client() as client:
            series = [
                sample.value
                for family in text_string_to_metric_families(client.get("/metrics").text)
                for sample in family.samples
                if sample.name == "embedq_http_requests_total"
                and (sample.labels["method"], sample.labels["route"]) == ("POST", "/v1/files")
            ]
        return sum(series)

    def ingest(*more: str) -> tuple[str, str]:
        ran = command("ingest", "handbook", "--out", "out", *more)
        assert ran.code == 0, ran.err
        [note] = [line for line in ran.err.splitlines() if line.endswith(" sent")]
        return note.removeprefix("embedq: "), ran.lines[-1].partition(": ")[2]

    before = uploaded()
    assert ingest() == ("0 known, 4 sent", "4/4 documents, 4 chunks")
    (handbook / "prices.csv").unlink()
    assert ingest() == ("3 known, 0 sent", "3/3 documents, 3 unchanged, 0 chunks")
    (handbook / "refunds.md").write_text("# Shop\n\nNo refunds.\n")
    assert ingest() == ("2 known, 1 sent", "3/3 documents, 2 unchanged, 1 replaced, 1 chunks")
    (handbook / "again" / "hours.txt").unlink()
    # the record of the table is gone as well
    assert ingest("--mode", "sync") == ("2 known, 0 sent", "2/2 documents, 2 unchanged, 2 deleted, 0 chunks")
    assert ingest("--chunk-tokens", "100")[0] == "0 known, 2 sent"
    assert ingest("--chunk-tokens", "100", "--mode", "upsert")[0] == "0 known, 2 sent"
    assert ingest("--chunk-tokens", "100", "--dry-run")[0] == "2 known, 0 sent"
    wait_until(lambda: uploaded() - before == 4 + 1 + 2 + 2, message="the server counts as many files")


def test_a_dry_run_counts(command: Command, handbook: Path) -> None:
    ran = command("ingest", str(handbook), "--dry-run", "--json")
    assert ran.code == 0, ran.err
    (dry_run,) = ran.json
    assert (dry_run["file_counts"]["total"], dry_run["chunks"]["total"], dry_run["chunks"]["loaded"]) == (2, 2, 0)
    assert dry_run["estimate_s"] >= 0
    assert not (command.folder / "vectors").exists()


def test_standard_input_is_a_source(command: Command) -> None:
    ran = command("ingest", "-", "--stdin-name", "posts.jsonl", "--dataset", "posts", stdin='{"text": "a"}\n' * 2)
    assert ran.code == 0, ran.err
    assert ran.lines[-1].endswith(" completed: 2/2 documents, 2 chunks")
    assert {row["document_id"] for row in command("search", "a", "--dataset", "posts", "--json").json} == {
        "posts.jsonl#1", "posts.jsonl#2",
    }  # fmt: skip


def test_ctrl_c_detaches_and_cancel_ends_it(command: Command, slow_model: str) -> None:
    (command.folder / "long.txt").write_text(WORDS * 2000)
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
    ("arguments", "code", "message"),
    [
        (["nowhere"], 2, "nowhere does not exist"),
        (["file:///etc/passwd"], 3, "EMBEDQ_INGEST_ROOTS"),
        (["--status", "ing_nonsense"], 3, "ingestion_not_found"),
        (["handbook", "--out", "postgresql:store/t"], 3, "EMBEDQ_SINKS"),
        (["handbook", "--model", "none"], 3, "model_not_found"),
        (["handbook", "--chunk-tokens", "9000"], 3, "the model reads 256 tokens"),
        (["handbook", "--chunk-tokens", "20", "--overlap", "11"], 3, "chunk_overlap_tokens"),
        ([], 2, "name either sources"),
    ],
)
def test_what_cannot_be_is_said(
    command: Command, handbook: Path, arguments: list[str], code: int, message: str
) -> None:
    ran = command("ingest", *arguments, "--json")
    assert ran.code == code
    assert message in ran.err
    assert "known" not in ran.err, "before anything is sent"
    assert (ran.out, handbook.exists()) == ("", True)
    assert json.loads(ran.err.splitlines()[-1])["event"] == "error"

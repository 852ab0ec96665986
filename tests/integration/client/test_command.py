"""The `embedq` command against the real web tier and a real worker."""

import json
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.datasets.sqlite.dataset_file import DatasetFile
from tasks.datasets.upkeep_command import main
from tests.integration.client.command import Command
from tests.processes import PATIENCE_S, ApiProcess, RedisServer, Roles, free_port, wait_until

TEXTS = [f"text number {number}" for number in range(3000)]


def write(command: Command, name: str, lines: list[str]) -> str:
    command.folder.joinpath(name).write_text("\n".join(lines) + "\n")
    return name


def json_lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_file_is_split_submitted_waited_for_and_fetched(command: Command) -> None:
    submitted = command("submit", write(command, "texts.txt", TEXTS))
    assert submitted.code == 0
    assert [line[:5] for line in submitted.lines] == ["task_"] * 2
    waited = command("wait", *submitted.lines)
    assert waited.code == 0
    assert [line.split()[1:] for line in waited.lines] == [["completed", "2,048/2,048"], ["completed", "952/952"]]
    assert "3,000/3,000" in waited.err

    for suffix in ("npy", "jsonl"):
        assert command("result", submitted.lines[-1], "-o", f"out.{suffix}").code == 0
    vectors, lines = np.load(command.folder / "out.npy"), json_lines(command.folder / "out.jsonl")
    assert vectors.shape == (952, 384)
    np.testing.assert_array_equal(vectors, np.array([line["embedding"] for line in lines], dtype=np.float32))
    assert command("result", submitted.lines[-1]).json == lines

    rows = [json.dumps({"text": text, "id": f"doc-{number}"}) for number, text in enumerate(TEXTS)]
    made = command("submit", write(command, "texts.jsonl", rows), "--out", "made", "--json")
    assert made.code == 0
    assert [(line["first_line"], line["texts"]) for line in made.json] == [(1, 2048), (2049, 952)]
    assert {path.name for path in (command.folder / "made").iterdir()} == {"embeddings.npy", "texts.jsonl"}
    line = json_lines(command.folder / "made" / "texts.jsonl")[2500]
    assert line == {"row": 2500, "line": 2501, "text": "text number 2500", "id": "doc-2500"}
    of_folder = np.load(command.folder / "made" / "embeddings.npy")
    np.testing.assert_array_equal(of_folder[2048:], vectors)
    progress = json.loads(made.err.splitlines()[-2])
    assert (progress["event"], progress["done"], progress["total"]) == ("progress", 3000, 3000)


def test_a_server_with_lower_limits_gets_smaller_tasks(another_api: Callable[..., ApiProcess], tmp_path: Path) -> None:
    api = another_api(max_inputs=100, max_body_bytes=4096, max_input_bytes=4096)
    command = Command(api.base_url, tmp_path)
    made = command("submit", write(command, "texts.txt", TEXTS[:1000]), "--out", "made", "--json")
    assert made.code == 0, made.err
    assert len(made.lines) == 16
    assert [line["first_line"] for line in made.json][:3] == [1, 63, 126]
    assert [row["text"] for row in json_lines(tmp_path / "made" / "texts.jsonl")] == TEXTS[:1000]


def test_what_was_submitted_before_a_refusal_is_printed(command: Command) -> None:
    name = write(command, "texts.txt", [*TEXTS[:2048], "x" * (2**20 + 1)])
    ran = command("submit", name)
    assert ran.code == 1, "done in part"
    assert "line 2049: " in ran.err
    assert f"embedq wait {ran.lines[0]}" in ran.err
    assert command("wait", *ran.lines).lines == [f"{ran.lines[0]} completed 2,048/2,048"]


def test_a_few_texts_are_embedded_at_once_and_texts_come_from_stdin_too(command: Command) -> None:
    printed = command("embed", "first", "second")
    assert printed.code == 0
    vectors = np.array(printed.json, dtype=np.float32)
    assert vectors.shape == (2, 384)
    assert command("embed", "first", "second", "-o", "v.npy").out == ""
    np.testing.assert_array_equal(np.load(command.folder / "v.npy"), vectors)
    short = command("embed", "first", "--dimensions", "3", "--no-normalize").json[0]
    np.testing.assert_allclose(short, vectors[0][:3], rtol=1e-6)
    embedded = command("embed", "-", "--json", stdin="a\nb\n")
    assert [line["text"] for line in embedded.json] == ["a", "b"]
    waited = command("submit", "-", "--wait", stdin="a\n\nb\n")
    assert (waited.code, len(waited.lines)) == (0, 1)
    assert "embedding 2/2" in waited.err


def test_failed_texts_keep_their_place_and_are_1(command: Command) -> None:
    name = write(command, "texts.txt", ["short", "long " * 1000, "also short"])
    made = command("submit", name, "--out", "made", "--no-truncate")
    assert made.code == 1
    assert "line 2 has no vector" in made.err
    vectors = np.load(command.folder / "made" / "embeddings.npy")
    assert np.isnan(vectors).all(axis=1).tolist() == [False, True, False]
    assert json_lines(command.folder / "made" / "texts.jsonl")[1]["error"]["code"] == "input_too_long"

    task_id = made.lines[0]
    assert command("wait", task_id).code == 1
    fetched = command("result", task_id)
    assert fetched.code == 1
    assert [[*line][1] for line in fetched.json] == ["embedding", "error", "embedding"]
    none = command("submit", write(command, "none.txt", ["long " * 1000]), "--wait", "--no-truncate")
    assert none.code == 6
    assert command("result", none.lines[0]).code == 6


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("wait task_nonsense", "task_not_found"),
        ("result task_nonsense", "task_not_found"),
        ("cancel task_nonsense", "task_not_found"),
        ("embed x --model unheard/of", "model_not_found"),
        ("embed x --prompt-name unheard-of", "invalid_value"),
        ("embed x --dimensions 9999", "invalid_value"),
    ],
)
def test_a_refusal_is_3_and_says_why(command: Command, words: str, code: str) -> None:
    ran = command(*words.split(), "--json")
    assert (ran.code, ran.out) == (3, "")
    error = json.loads(ran.err)
    assert (error["event"], error["code"], bool(error["request_id"])) == ("error", code, True)


def test_the_doctor_is_content_with_a_server_that_works(
    command: Command, api: ApiProcess, server: tuple[Roles, ApiProcess]
) -> None:
    worker = server[0].documents()
    with api.client() as client:
        wait_until(lambda: 'embedq_workers{model="@documents"} 1.0' in client.get("/metrics").text)
    ran = command("doctor", "--json")
    worker.stop()
    found = {line["name"]: line["fine"] for line in ran.json}
    of_redis = ["version", "mode", "appendonly", "maxmemory-policy", "appendfsync", "replicas", "clock", "memory"]
    of_service = {"server", "storage", "model sentence-transformers/all-MiniLM-L6-v2", "documents worker"}
    assert found.keys() - {"model slow/model"} == {*of_service, *(f"redis {name}" for name in of_redis)}
    assert (ran.code, all(found.values())) == (0, True)


def test_the_doctor_names_the_missing_worker_and_a_full_redis(private_redis: RedisServer, tmp_path: Path) -> None:
    with Roles(tmp_path, private_redis.url) as roles:
        api = roles.api()
        with private_redis.client() as redis, api.client() as client:
            redis.config_set("maxmemory", int(redis.info("memory")["used_memory"] * 1.2))
            wait_until(lambda: client.get("/v1/service").json()["redis"]["memory_percent"] > 70)
        ran = Command(api.base_url, tmp_path)("doctor", "--json")
    assert ran.code == 1
    wrong = {line["name"]: line for line in ran.json if not line["fine"]}
    assert wrong.keys() == {"redis memory", "model sentence-transformers/all-MiniLM-L6-v2", "documents worker"}
    assert "queries and tasks are refused now" in wrong["redis memory"]["detail"]
    assert "embedq documents-worker" in wrong["documents worker"]["advice"]


def test_the_doctor_asks_the_redis_that_keeps_a_server_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = RedisServer(tmp_path / "redis", options=("--maxmemory-policy", "allkeys-lru")).start()
    monkeypatch.setenv("EMBEDQ_REDIS_URL", server.url)
    try:
        ran = Command(f"http://127.0.0.1:{free_port()}", tmp_path)("doctor", "--json")
    finally:
        server.stop()
    assert ran.code == 1
    assert [line["name"] for line in ran.json] == ["server", "redis maxmemory-policy"]
    assert "noeviction" in ran.json[1]["advice"]


def test_a_running_task_times_out_is_interrupted_and_cancelled(command: Command, slow_model: str) -> None:
    name = write(command, "texts.txt", TEXTS[:1000])
    with command.started("submit", name, "--out", "made", "--model", slow_model) as submitting:
        assert submitting.stdout
        assert submitting.stderr
        task_id = submitting.stdout.readline().strip()
        submitting.send_signal(signal.SIGINT)
        assert submitting.wait(PATIENCE_S) == 130
        stderr = submitting.stderr.read()
    assert f"embedq wait {task_id}\n" in stderr
    assert "embedq result ID -o NAME.npy" in stderr
    assert [*(command.folder / "made").iterdir()] == []

    late = command("wait", task_id, "--timeout", "0.5")
    assert late.code == 5
    assert "goes on" in late.err

    with command.started("wait", task_id) as waiting:
        cancelled = command("cancel", task_id)
        assert (cancelled.code, cancelled.lines) == (0, [f"{task_id} cancelled"])
        waiting.wait(PATIENCE_S)
        partial = command("result", task_id, "-o", "part.npy")
        assert waiting.returncode == partial.code in {1, 6}, "some texts may be done"
    assert np.isnan(np.load(command.folder / "part.npy")).any()


@pytest.mark.parametrize("role", ["api", "worker", "up"])
def test_a_role_is_the_servers_own_wherever_it_is_started(role: str, tmp_path: Path) -> None:
    for decoy in ("api", "tasks", "stack", "worker_config"):
        (tmp_path / decoy).mkdir()
        (tmp_path / decoy / "__init__.py").write_text("raise SystemExit('a folder of the caller was imported')")
    with Command("", tmp_path).started(role, EMBEDQ_PORT="not-a-number") as ended:
        assert ended.stderr
        assert "EMBEDQ_PORT=not-a-number" in ended.stderr.read()
        assert ended.wait(PATIENCE_S) == 78


# What an operator does with the files of datasets.


def test_a_dataset_is_copied_checked_shrunk_and_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMBEDQ_REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("EMBEDQ_DATASETS", str(tmp_path / "datasets"))
    made = DatasetFile(tmp_path / "datasets", "anonymous", "handbook")
    with made.locked():
        made.made()

    def upkeep(what: str, *names: str, owner: str = "anonymous") -> tuple[int, str]:
        code = main([what, f"--owner={owner}", *names])
        return code, "".join(capsys.readouterr())

    copy = str(tmp_path / "copy.sqlite")
    assert upkeep("backup", "handbook", copy)[0] == upkeep("vacuum", "handbook")[0] == 0
    assert sqlite3.connect(copy).execute("SELECT count(*) FROM documents").fetchone() == (0,)
    assert upkeep("check", "handbook") == (0, "handbook is whole\n")
    assert upkeep("rename", "handbook", "manual") == (0, "handbook is manual now\n")
    [file] = tmp_path.glob("datasets/anonymous/manual.dataset/*.sqlite")
    file.write_bytes(b"no database at all" * 1000)
    for (code, said), expected in (
        (upkeep("backup", "manual", copy), "exists; name a new file"),
        (upkeep("check", "manual"), "damaged"),
        (upkeep("check", "nowhere"), "anonymous has no dataset nowhere"),
        (upkeep("rename", "nowhere", "b"), "anonymous has no dataset nowhere"),
        (upkeep("rename", "manual", "a b"), "cannot be the name"),
        (upkeep("rename", "manual", "ing_" + "0" * 32), "cannot be the name"),
        (upkeep("backup", "manual", "/nowhere/copy"), "/nowhere/copy cannot be written: No such file"),
        (upkeep("check", "manual", owner=".."), "no id of an owner"),
    ):
        assert code == 1
        assert expected in said
    pytest.importorskip("asyncpg")
    monkeypatch.setenv("EMBEDQ_DATASETS", "postgresql://127.0.0.1:1/none")
    code, said = upkeep("vacuum", "handbook")
    assert (code, "pg_dump" in said) == (1, True), "PostgreSQL has its own tools"

"""Every example of README.md and docs/client.md runs as it is printed, in the order of the document.

Only the address is another one, and the id of a task the one that the server has just given. `make` and `docker` do
nothing here: the demo, the local stack and the images have tests of their own.
"""

import ast
import asyncio
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from embedq import EmbeddingService
from tests.document_files import pdf
from tests.pg_server import PgServer
from tests.processes import CHECKOUT, RedisServer, Roles
from tests.s3_server import S3Server

PRINTED_ADDRESS = "http://127.0.0.1:8000"
TASK_ID = re.compile(r"task_[0-9a-f]{32}")
PRELUDE = 'make() { :; }; docker() { :; }; curl() { command curl --fail "$@"; }\n'
NOT_RUN = {"", "mermaid"}
"""Outputs, and drawings."""


@dataclass(frozen=True)
class Block:
    """One fenced block and the line on which its text begins."""

    language: str
    text: str
    line: int


def blocks(document: str) -> Iterator[Block]:
    text = (CHECKOUT / document).read_text()
    for block in re.finditer(r"^```(\w*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE):
        yield Block(block[1], block[2], text.count("\n", 0, block.start()) + 2)


@pytest.fixture(scope="module")
def address(
    start_redis: Callable[[Path], RedisServer],
    tmp_path_factory: pytest.TempPathFactory,
    s3_server: S3Server,
    pg_server: PgServer,
) -> Iterator[str]:
    """Of a stack with the bucket and the database that the examples name."""
    folder = tmp_path_factory.mktemp("examples")
    bucket = f"{s3_server.endpoint}/bucket"
    httpx.put(bucket).raise_for_status()
    httpx.put(f"{bucket}/docs/team/plan.md", content=b"# Plan\n\nMore of the same.\n").raise_for_status()
    settings: dict[str, Any] = {
        "ingest_roots": "s3://bucket",
        "sinks": f"store={pg_server.url()}",
        "storage_url": str(folder / "storage"),
    }
    redis = start_redis(folder / "redis")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_server.environment().items():
            patch.setenv(name, value)
        try:
            with Roles(folder, redis.url) as roles:
                roles.worker(**settings)
                roles.documents(**settings)
                api = roles.api(**settings)
                api.wait_ready()
                yield api.base_url
        finally:
            redis.stop()


@pytest.fixture
def folder(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a reader has: a checkout's documents, and files of the names that the examples take."""
    shutil.copytree(CHECKOUT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("*.svg"))
    (tmp_path / "handbook").mkdir()
    (tmp_path / "handbook" / "refunds.md").write_text("# Refunds\n\nRefunds take three days.\n")
    (tmp_path / "manual.pdf").write_bytes(pdf(["Press the button."]))
    (tmp_path / "posts.jsonl").write_text('{"title": "One", "body": "First."}\n{"title": "Two", "body": "Second."}\n')
    (tmp_path / "passages.txt").write_text("Every request needs a key.\nThe cat sat on the mat.\n")
    request = (
        '{"custom_id": "%d", "method": "POST", "url": "/v1/embeddings", "body": {"model": "%s", "input": "text"}}\n'
    )
    model = "sentence-transformers/all-MiniLM-L6-v2"
    (tmp_path / "requests.jsonl").write_text("".join(request % (number, model) for number in range(3)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMBEDQ_URL", address)
    return tmp_path


class Reader:
    """Pastes one block after the other."""

    def __init__(self, address: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._address = address
        self._capsys = capsys
        self._task_id = ""
        self.names: dict[str, Any] = {"app": FastAPI(), "SentenceTransformer": lambda _: None}

    def run(self, block: Block) -> str:
        """What it prints."""
        text = block.text.replace(PRINTED_ADDRESS, self._address)
        return self._python(text) if block.language == "python" else self._shell(TASK_ID.sub(self._task_id, text))

    def _python(self, text: str) -> str:
        code = compile(text, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(self._within_a_service(code))
        else:
            exec(code, self.names)  # noqa: S102 - what it is for
        return self._capsys.readouterr().out

    async def _within_a_service(self, code: Any) -> None:
        async with EmbeddingService() as service:
            await eval(code, self.names | {"service": service})  # noqa: S307 - what it is for

    def _shell(self, text: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", PRELUDE + text],
            env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self._task_id = next(iter(TASK_ID.findall(done.stdout)), self._task_id)
        return done.stdout


@pytest.mark.parametrize("document", ["README.md", "docs/client.md"])
def test_examples_run_as_they_are_printed(
    document: str, address: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = Reader(address, capsys)
    printed = {}
    for block in blocks(document):
        assert block.language in {"python", "sh", *NOT_RUN}, f"{document}:{block.line}"
        if block.language in NOT_RUN:
            continue
        try:
            printed[block.line] = reader.run(block)
        except Exception as error:
            error.add_note(f"in the example at {document}:{block.line}")
            raise
    assert len(printed) >= 4
    if "client" in reader.names:
        reader.names["client"].close()
    if document == "README.md":
        assert "2 384 Usage(prompt_tokens=7, total_tokens=7)\n" in printed.values()
        assert reader.names["vectors"].count('"status_code":200') == 3
        assert any(text.endswith("  The cat sat on the mat.\n") for text in printed.values())
    else:
        assert {path.name for path in (folder / "passages").iterdir()} == {"embeddings.npy", "texts.jsonl"}

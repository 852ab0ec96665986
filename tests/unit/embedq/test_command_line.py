"""The command without a server, or with one that follows a script: usage, exit codes, forms of output."""

import asyncio
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import embedq
from embedq import EmbedqClientError, RefusedError, UnavailableError, UnreachableError, WaitTimeoutError
from embedq.cli import dataset, keys, main, parser, serve
from embedq.cli.exit_codes import HELP, UsageError, exit_code
from embedq.cli.options import within
from embedq.cli.output import Output, digits
from tests.processes import PATIENCE_S
from tests.source_tree import CHECKOUT
from tests.unit.embedq.scripted import HANG_UP, Answer, Request, Scripted, array, embeddings, problem, task


@pytest.fixture
def closed_url() -> Iterator[str]:
    """The address of a port that is taken and that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize(
    "arguments",
    [
        ["fly"],
        ["embed"],
        ["embed", "x", "--dimensions", "0"],
        ["embed", "x", "--timeout", "0"],
        ["embed", "x", "--timeout", "inf"],
        ["search", "x"],
        ["search", "x", "--dataset", "d", "-k", "0"],
        ["search", "x", "--dataset", "d", "--filter", "team"],
        ["search", "x", "--dataset", "d", "--mode", "fuzzy"],
        ["dataset", "backup", "d"],
        ["submit", "f", "--lane", "fast"],
        ["keys"],
        ["keys", "create"],
        ["keys", "create", "a", "--scopes", "root"],
        ["keys", "create", "a", "--expires", "soon"],
        ["keys", "rotate", "a", "--grace", "none"],
        ["keys", "limits", "a", "--open-jobs", "many"],
        ["up", "--port", "65536"],
        ["up", "--workers", "0"],
        ["--url", "http://x", "up"],
        ["--json", "up"],
        ["--json", "version"],
        ["version", "--json"],
        ["--json", "dataset", "check", "d"],
        ["keys", "export", "--timeout", "5"],
        ["--timeout", "5", "keys", "export"],
        ["completion", "tcsh"],
        ["help", "fly"],
    ],
)
def test_wrong_usage_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    assert "usage: embedq" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["embed", ""], "empty text"),
        (["embed", "x", "--url", "redis://localhost"], "address"),
        (["doctor", "--url", "nonsense"], "address"),
        (["submit", "missing.txt"], "missing.txt: No such file"),
        (["result", "task_1", "-o", "out.csv"], ".npy or .jsonl"),
        (["embed", "x", "-o", "x.txt"], "x.txt: the name must end with .npy"),
        (["ingest", "x", "--overlap", "11"], "--overlap needs --chunk-tokens"),
        (["ingest", "x", "--no-chunking", "--chunk-tokens", "20"], "--no-chunking has no use"),
        (["ingest", "x", "--out", "postgresql:store"], "postgresql:NAME/TABLE"),
        (["ingest", "x", "--out", "postgresql:store/t", "--dataset", "d"], "without --dataset"),
        (["ingest", "s3://b/a", "x", "--out", "/proc/none"], "cannot be mixed"),
        (["ingest", "s3://b/a", "--include", "*.md", "--out", "/proc/none"], "--include and --exclude are for local"),
        (["ingest", "-", "x", "--out", "/proc/none"], "a source of its own"),
    ],
)
def test_what_cannot_be_done_says_why(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["embed", ""], "usage"),
        (["submit", "missing.txt"], "system"),
        (["ingest", "missing", "--out", "/proc/none"], "input"),
    ],
)
def test_what_is_no_usage_is_not_called_so(arguments: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert not capsys.readouterr().err.startswith("embedq: usage")
    assert main([*arguments, "--json"]) == 2
    assert json.loads(capsys.readouterr().err)["code"] == code


@pytest.mark.parametrize("command", ["embed", "search --dataset x", "jobs --kind", "jobs --status"])
def test_an_argument_that_is_not_utf8_is_said_to_be_that(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*command.split(), os.fsdecode(b"Gr\xfc\xdfe")])
    assert "it is not UTF-8" in capsys.readouterr().err


def test_alone_it_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    whole = capsys.readouterr().out
    assert whole.startswith("usage: embedq")
    for words in (["help"], ["--help"], ["help", "keys", "create"]):
        with pytest.raises(SystemExit, match="0"):
            main(words)
        assert capsys.readouterr().out.startswith("usage: embedq keys create" if len(words) > 1 else whole)


@pytest.mark.parametrize("word", ["-V", "--version", "version"])
def test_it_says_its_version(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with nullcontext() if word == "version" else pytest.raises(SystemExit, match="0"):
        assert main([word]) == 0
    assert capsys.readouterr().out == f"embedq {metadata.version('embedq')}\n"


@pytest.mark.parametrize(
    "words",
    ["--url URL --json cancel task_1", "cancel --url URL task_1 --json", "--json cancel task_1 --url URL"],
)
def test_options_of_all_commands_stand_before_or_after(
    words: str, elsewhere: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere.answers = [task()]
    assert main(words.replace("URL", elsewhere.url).split()) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "task_1"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["jo"], ["jobs"]),
        (["keys", "re"], ["revoke"]),
        (["--json", "keys", "cr"], ["create"]),
        (["ingest", "--mode", ""], ["skip_unchanged", "upsert", "sync"]),
        (["ingest", "--mode", "sync", "--ex"], ["--exclude"]),
        (["keys", "create", "--tok"], ["--tokens-per-minute"]),
        (["ingest", ""], []),
        (["submit", "--out", ""], []),
        (["completion", ""], ["bash", "fish", "zsh"]),
    ],
)
def test_words_are_completed(words: list[str], found: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "--of", *words]) == 0
    assert capsys.readouterr().out.split() == found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_completes(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    ask = {
        "bash": 'COMP_WORDS=(embedq keys cr); COMP_CWORD=2; _embedq; printf "%s\\n" "${COMPREPLY[@]}"',
        "zsh": "words=(embedq keys cr); CURRENT=3; _embedq",
        "fish": 'complete -C "embedq keys cr"',
    }[shell]
    stubs = "compdef() { :; }; compadd() { print -l ${(P)2}; }\n" if shell == "zsh" else ""
    command = tmp_path / "embedq"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m embedq "$@"\n')
    command.chmod(0o755)
    done = subprocess.run(
        [shell, "-c", f"{stubs}{script}\n{ask}"],
        env=os.environ
        | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(CHECKOUT), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["create"], done.stderr


@pytest.mark.parametrize("more", ["--wait", "--json"])
def test_a_file_without_a_text_is_said_to_be_that(
    more: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "empty.txt"
    file.write_text("\n \n")
    assert main(["submit", str(file), more, "--url", "http://127.0.0.1:9"]) == 0
    assert "no text in" in capsys.readouterr().err


def run(code: str, *arguments: str, python_path: str = str(CHECKOUT)) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["sh", "-c", code, sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": python_path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--version"]])
def test_the_help_loads_nothing_that_is_slow(arguments: list[str]) -> None:
    heavy = "{'httpx', 'numpy', 'rich', 'asyncio', 'urllib.request'}"
    script = f"""
import sys
from embedq.cli import main
try:
    main({arguments!r})
except SystemExit:
    pass
assert not {heavy} & sys.modules.keys(), {heavy} & sys.modules.keys()
"""
    assert run('"$0" -P -c "$1"', script).stderr == ""


def test_ctrl_c_while_it_is_still_loading_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "httpx.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    ran = run('"$0" -P -m embedq embed hi', python_path=f"{tmp_path}{os.pathsep}{CHECKOUT}")
    assert (ran.returncode, ran.stderr) == (130, "embedq: interrupted\n")


def test_a_closed_output_is_said_in_words(elsewhere: Scripted) -> None:
    elsewhere.answers = [task()]
    ran = run('"$0" -P -m embedq cancel task_1 --url "$1" >&-', elsewhere.url)
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
    assert "standard output is closed" in ran.stderr
    assert run('"$0" -P -m embedq cancel task_1 --url "$1" 2>&-', elsewhere.url).stdout == "task_1 completed\n"
    assert run('"$0" -P -m embedq wait task_1 --url "$1" 2>&-', elsewhere.url).returncode == 0


def test_every_public_name_is_there() -> None:
    assert [name for name in embedq.__all__ if not isinstance(getattr(embedq, name), type)] == []
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = embedq.nothing_of_the_kind


@pytest.mark.parametrize("command", [["embed", "x"], ["wait", "task_1"]])
def test_nobody_there_is_4(command: list[str], closed_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--url", closed_url]) == 4
    assert "`embedq up` starts one" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["embed x", "doctor", "ingest x"])
def test_a_key_that_cannot_be_sent_is_not_printed(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMBEDQ_API_KEY", "sécret")
    assert main(command.split()) == 2
    stderr = capsys.readouterr().err
    assert "EMBEDQ_API_KEY" in stderr
    assert "sécret" not in stderr


def test_the_doctor_finds_that_nobody_is_there(closed_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--url", closed_url, "--json"]) == 1
    finding = json.loads(capsys.readouterr().out)
    assert (finding["name"], finding["fine"]) == ("server", False)
    assert "embedq up" in finding["advice"]


@pytest.mark.parametrize(
    ("key", "hint"), [("", "EMBEDQ_API_KEY is not set"), ("k", "the key that is in EMBEDQ_API_KEY")]
)
def test_a_refused_key_names_the_variable(
    key: str, hint: str, elsewhere: Scripted, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMBEDQ_API_KEY", key)
    elsewhere.answers = [problem(401, "invalid_api_key", "An API key is needed.")]
    assert main(["jobs", "--url", elsewhere.url]) == 3
    assert f"An API key is needed. {hint}" in capsys.readouterr().err.replace("The command sends the", "the")


@pytest.mark.parametrize("lost", [HANG_UP, problem(503, "overloaded", retry_after="0")])
@pytest.mark.parametrize("what", ["create", "rotate"])
def test_a_key_whose_text_may_be_lost_is_said_to_be_that(
    what: str, lost: Answer, elsewhere: Scripted, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMBEDQ_API_KEY", "k")
    elsewhere.answers = [lost]
    assert main(["keys", what, "ops", "--url", elsewhere.url]) == 4
    assert "nobody knows its" in capsys.readouterr().err
    assert len(elsewhere.requests) == 1
    elsewhere.answers = [problem(409, "key_exists")]
    assert main(["keys", what, "ops", "--url", elsewhere.url]) == 3
    assert "nobody knows" not in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["--owner", "owner_1"]])
def test_a_key_for_another_server_is_not_made_in_the_redis_here(
    more: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(keys, "command_for", lambda *_: pytest.fail("it asked the Redis here"))
    monkeypatch.setenv("EMBEDQ_URL", "https://prod.example")
    assert main(["keys", "create", "ops", *more]) == 2
    assert "EMBEDQ_URL" in capsys.readouterr().err


def test_without_a_home_it_works(elsewhere: Scripted) -> None:
    elsewhere.answers = [embeddings([1.0])]
    ran = run('unset HOME; "$0" -P -m embedq embed hi --url "$1"', elsewhere.url)
    assert (ran.returncode, ran.stdout) == (0, "[1.0]\n")


def job(number: int = 1, **changed: Any) -> dict[str, Any]:
    counts = {"total": 2048, "completed": 0, "failed": 0}
    return {"id": f"task_{number}", "status": "queued", "counts": counts, "waiting": None} | changed


def test_jobs_are_read_page_by_page_up_to_the_limit(elsewhere: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    why = {"code": "in_line", "message": "Third in the bulk lane."}
    pages = [([job(1, waiting=why)], "task_1"), ([job(2), job(3)], "task_3")]
    elsewhere.answers = [
        Answer(200, {"object": "list", "data": data, "last_id": last, "has_more": True}) for data, last in pages
    ]
    assert main(["jobs", "--limit", "2", "--kind", "task,batch", "--url", elsewhere.url]) == 0
    assert capsys.readouterr().out == "task_1 queued 0/2,048: Third in the bulk lane.\ntask_2 queued 0/2,048\n"
    assert [request.target for request in elsewhere.requests] == [
        "/v1/jobs?limit=2&kind=task%2Cbatch", "/v1/jobs?limit=2&kind=task%2Cbatch&after=task_1",
    ]  # fmt: skip


def test_waiting_says_first_why(elsewhere: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    queued = task("queued", total=2, completed=0)
    queued.body["waiting"] = {"code": "no_worker", "message": "No worker serves this model since 14:02 UTC."}
    elsewhere.answers = [queued, task(total=2, completed=2)]
    assert main(["wait", "task_1", "--url", elsewhere.url]) == 0
    assert "embedq: No worker serves this model since 14:02 UTC.\n" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["cancel", "wait", "dataset delete"])
@pytest.mark.parametrize(("names", "code"), [("gone task_1", 1), ("task_1 gone", 1), ("gone gone", 3)])
def test_what_the_server_refuses_of_several_stops_no_other(
    command: str, names: str, code: int, elsewhere: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere.answers = [lambda request: problem(404, "not_found") if "gone" in request.target else task()]
    assert main([*command.split(), *names.split(), "--url", elsewhere.url]) == code
    shown = capsys.readouterr()
    assert shown.out.count("task_1") == names.count("task_1")
    assert shown.err.count("not_found: gone: Text.") == names.count("gone")


@pytest.mark.parametrize("command", ["wait", "dataset delete", "ingest --status", "keys limits", "search x --dataset"])
@pytest.mark.parametrize("name", [".", os.fsdecode(b"\xff")])
def test_what_is_no_name_is_refused_and_not_sent(
    command: str, name: str, elsewhere: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), name, "--url", elsewhere.url]) == 3
    assert f"{name!r} is no id and no name" in capsys.readouterr().err
    assert elsewhere.requests == []


def test_a_bad_line_names_itself_before_anything_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text('{"text": "a"}\n{"txt": "b"}\n')
    assert main(["submit", str(file), "--url", "http://127.0.0.1:9"]) == 2
    assert f"{file}, line 2: " in capsys.readouterr().err


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A file of two tasks, of which the second has a line that is not UTF-8."""
    file = tmp_path / "many.txt"
    file.write_bytes(b"a\n" * 2049 + b"\xff\n")
    return file


@pytest.mark.parametrize("more", [[], ["--wait"], ["--out"]])
def test_after_a_bad_line_it_says_what_was_submitted(
    more: list[str], many: Path, elsewhere: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere.answers = [task()]
    if "--out" in more:
        more = ["--out", str(many.parent / "out")]
        elsewhere.answers = [task(), task(), array([[1.0]] * 2048)]
    assert main(["submit", str(many), *more, "--url", elsewhere.url]) == 1
    shown = capsys.readouterr()
    assert shown.out == "task_1\n"
    assert f"{many}, line 2050: not UTF-8" in shown.err
    assert "embedq wait task_1" in shown.err


def test_a_later_refusal_is_a_part_and_a_reader_that_leaves_is_no_success(many: Path, elsewhere: Scripted) -> None:
    many.write_text("a\n" * 5000)
    elsewhere.answers = [task(), problem(400, "invalid_value")]
    ran = run('"$0" -P -m embedq submit "$1" --url "$2"', str(many), elsewhere.url)
    assert (ran.returncode, ran.stdout) == (1, "task_1\n")
    assert "embedq wait task_1" in ran.stderr
    elsewhere.answers = [task()]
    ran = run('("$0" -P -m embedq submit "$1" --url "$2"; echo $? >&2) | true', str(many), elsewhere.url)
    assert ran.stderr.endswith("\n141\n")
    assert "embedq wait task_1" in ran.stderr


@pytest.mark.parametrize("more", [[], ["--wait"]])
def test_ctrl_c_ends_the_wait_for_a_line(more: list[str], elsewhere: Scripted) -> None:
    elsewhere.answers = [task()]
    command = [sys.executable, "-P", "-m", "embedq", "submit", "-", *more, "--url", elsewhere.url]
    environ = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environ) as child:
        assert child.stdin
        assert child.stdout
        assert child.stderr
        child.stdin.write(b"a\n" * 2049)
        child.stdin.flush()
        assert child.stdout.readline() == b"task_1\n"
        child.send_signal(signal.SIGINT)
        assert b"embedq wait task_1" in child.stderr.read()
        assert child.wait(PATIENCE_S) == 130


class Input(io.BytesIO):
    """Standard input that notes whether it is read where an event loop waits for it."""

    waits = False

    def read(self, size: int | None = -1, /) -> bytes:
        self._note()
        return super().read(size)

    def __next__(self) -> bytes:
        self._note()
        return super().__next__()

    def _note(self) -> None:
        self.waits |= asyncio._get_running_loop() is not None


@pytest.mark.parametrize("command", ["embed -", "ingest - --dataset d"])
def test_no_loop_waits_for_standard_input(command: str, elsewhere: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    given = Input(b"a\n")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=given, isatty=lambda: False))
    elsewhere.answers = [problem(400, "nope")]
    assert main([*command.split(), "--url", elsewhere.url]) == 3
    assert not given.waits


@pytest.mark.parametrize("command", ["embed -", "submit -", "ingest - --dataset d"])
def test_a_closed_input_is_said_in_words(command: str) -> None:
    ran = run(f'"$0" -P -m embedq {command} <&-')
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
    assert "standard input is closed" in ran.stderr


def test_a_role_starts_without_an_output(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr(os, "execve", lambda *given: started.append(given))
    monkeypatch.setattr("sys.stdout", None)
    main(["storage", "unknown"])
    assert started


def test_ids_are_printed_in_the_order_of_the_file_whatever_the_server_takes_first(
    elsewhere: Scripted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = [problem(503, "backlog_full", retry_after="0")] * 3

    def answer(request: Request) -> Answer:
        if request.method != "POST":
            return task()
        if request.json()["input"][0] == "1" and busy:
            return busy.pop()
        return task("queued", completed=0)

    elsewhere.answers = [answer]
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(str(number) for number in range(1, 5000)))
    assert main(["submit", str(file), "--wait", "--json", "--url", elsewhere.url]) == 0
    assert [json.loads(line)["first_line"] for line in capsys.readouterr().out.splitlines()] == [1, 2049, 4097]
    assert not busy


@pytest.mark.parametrize(
    ("kind", "code"),
    [(RefusedError, 3), (UnavailableError, 4), (UnreachableError, 4), (WaitTimeoutError, 5)],
)
def test_exit_codes_of_errors(kind: type[EmbedqClientError], code: int) -> None:
    assert exit_code(kind("Text.", code="x")) == code
    assert f"\n  {code}  " in HELP


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    (commands,) = (action.choices for action in parser()._actions if action.choices)
    for command in commands:
        with pytest.raises(SystemExit) as raised:
            parser().parse_args([command, "--help"])
        assert raised.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: embedq {command}")


def test_output_for_people_and_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    error = RefusedError("No.", code="nope", status=404, request_id="r-1")
    for output in (Output(json_lines=False), Output(json_lines=True)):
        output.result("Ä text", {"text": "Ä"})
        output.error(error)
        output.retry(error, 0.25)
        output.retry(error, 0.5)
    captured = capsys.readouterr()
    assert captured.out.splitlines() == ["Ä text", '{"text": "Ä"}']
    plain_error, plain_retry, json_error, json_retry = captured.err.splitlines()
    assert plain_error == "embedq: nope: No. (request r-1)"
    assert plain_retry == "embedq: nope, trying again"
    assert json.loads(json_error) == {
        "event": "error", "code": "nope", "message": "No.", "param": None, "status": 404, "request_id": "r-1",
    }  # fmt: skip
    assert json.loads(json_retry)["event"] == "note"


def test_what_others_wrote_gives_a_terminal_no_orders(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "a\x1b]0;own\x07b\x9b2J\nc \u200c\u00a0d"
    output = Output(json_lines=False)
    output.result(hostile, {})
    output.note(hostile)
    output.error(RefusedError(hostile, code="nope", status=404))
    captured = capsys.readouterr()
    assert captured.out == "a?]0;own?b?2J\nc \u200c\u00a0d\n"
    assert captured.err == f"embedq: {captured.out}embedq: nope: {captured.out}"


def test_numbers_have_the_digits_of_32_bits_and_all_of_them() -> None:
    vector = np.array([-0.9129559993743896, 1 / 3, 1e-7, 16777217, 0], dtype=np.float32)
    assert json.dumps(digits(vector.tolist())) == "[-0.912955999, 0.333333343, 1.00000001e-07, 16777216.0, 0.0]"
    assert np.array_equal(np.array(digits(vector.tolist()), dtype=np.float32), vector)


async def test_the_limit_of_a_command_is_told_apart_from_other_timeouts() -> None:
    async def for_ever() -> int:
        await asyncio.Event().wait()
        return 0

    async def fails() -> int:
        raise TimeoutError

    with pytest.raises(WaitTimeoutError, match=r"0\.01 s of --timeout"):
        await within(0.01, for_ever())
    with pytest.raises(TimeoutError):
        await within(60, fails())


def test_a_client_alone_has_no_server() -> None:
    with pytest.raises(UsageError, match="clone the repository"):
        serve.command_for("no_such_part")


@pytest.mark.parametrize(
    ("words", "passed"),
    [
        (("backup", "d", "f"), ("backup", "--owner=anonymous", "--", "d", "f")),
        (("check", "-d", "--owner=o"), None),
        (("vacuum", "d", "--data=x", "--owner=o"), ("vacuum", "--owner=o", "--data=x", "--", "d")),
        (("rename", "--", "-d", "e"), ("rename", "--owner=anonymous", "--", "-d", "e")),
    ],
)
def test_upkeep_of_datasets_is_the_servers(
    words: Sequence[str], passed: Sequence[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    became: list[Sequence[str]] = []
    monkeypatch.setattr(dataset, "become", lambda *arguments: became.append(arguments))
    if passed is None:
        with pytest.raises(SystemExit):
            parser().parse_args(["dataset", *words])
        return
    args = parser().parse_args(["dataset", *words])
    args.run(args)
    assert became == [("tasks.datasets.upkeep_command", *passed)]


def test_a_filter_has_texts_numbers_and_booleans_and_ids_of_documents_are_texts() -> None:
    fields = ["n=7", "n=true", 's="7"', "s=a=b", "s=NaN", "document_id=7"]
    words = [word for field in fields for word in ("--filter", field)]
    parsed = parser().parse_args(["search", "x", "--dataset", "d", *words]).filter
    assert parsed == [("n", 7), ("n", True), ("s", "7"), ("s", "a=b"), ("s", "NaN"), ("document_id", "7")]

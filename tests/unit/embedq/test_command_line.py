"""The command without a server, or with one that follows a script: usage, exit codes, forms of output."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embedq import EmbedqClientError, RefusedError, UnavailableError, UnreachableError, WaitTimeoutError
from embedq.cli import dataset, keys, main, parser
from embedq.cli.exit_codes import HELP, exit_code
from embedq.cli.output import Output, digits
from embedq.cli.progress import Progress, shown_left
from tests.processes import PATIENCE_S, free_port
from tests.source_tree import CHECKOUT
from tests.unit.embedq.scripted import HANG_UP, SILENCE, Answer, Scripted, array, problem, task


def run(code: str, *arguments: str, python_path: str = str(CHECKOUT)) -> "subprocess.CompletedProcess[str]":
    """Runs a shell's command in which `$0` is Python, and `$1` and so on are the arguments."""
    return subprocess.run(
        ["sh", "-c", code, sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": python_path},
        capture_output=True,
        text=True,
        check=False,
    )


# Usage.


@pytest.mark.parametrize(
    "words",
    [
        *("fly", "embed x --dimensions 0", "embed x --timeout inf", "search x", "search x --dataset d -k 0"),
        *("search x --dataset d --filter team", "dataset check -d --owner=o", "keys", "keys rotate a --grace none"),
        *("keys create a --expires soon", "keys limits a --open-jobs many", "ingest x --no-chunking --chunk-tokens 20"),
        *("up --port 65536", "up --workers 0", "--url http://x up", "--json up", "help fly", "version --json"),
        *("--json dataset check d", "keys export --timeout 5", "--timeout 5 keys export", "completion tcsh"),
    ],
)
def test_wrong_usage_is_2(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(words.split())
    assert raised.value.code == 2
    assert "usage: embedq" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["embed", ""], "usage", "empty text"),
        (["embed", "x", "--url", "redis://localhost"], "usage", "address"),
        (["doctor", "--url", "127.0.0.1:8000"], "usage", "address"),
        (["search", "x", "--dataset", "d", "--url", "http://host:port"], "usage", "address"),
        (["submit", "missing.txt"], "system", "missing.txt: No such file"),
        (["submit", "BAD"], "input", "bad.jsonl, line 2: "),
        (["result", "task_1", "-o", "out.csv"], "usage", ".npy or .jsonl"),
        (["embed", "x", "-o", "x.txt"], "usage", "x.txt: the name must end with .npy"),
        (["ingest", "missing", "--out", "/proc/none"], "input", "missing does not exist"),
        (["ingest", "x", "--overlap", "11"], "usage", "--overlap needs --chunk-tokens"),
        (["ingest", "x", "--out", "postgresql:store"], "usage", "postgresql:NAME/TABLE"),
        (["ingest", "x", "--out", "postgresql:store/t", "--dataset", "d"], "usage", "without --dataset"),
        (["ingest", "s3://b/a", "x", "--out", "/proc/none"], "usage", "cannot be mixed"),
        (["ingest", "s3://b/a", "--include", "*.md", "--out", "/proc/none"], "usage", "--include and --exclude are"),
        (["ingest", "-", "x", "--out", "/proc/none"], "usage", "a source of its own"),
    ],
    ids=range(15),
)
def test_what_cannot_be_done_says_why(
    arguments: list[str], code: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text('{"text": "a"}\n{"txt": "b"}\n')
    arguments = [str(file) if word == "BAD" else word for word in arguments]
    assert main([*arguments, "--json"]) == 2
    shown = capsys.readouterr()
    assert (json.loads(shown.err)["code"], shown.out) == (code, "")
    assert message in json.loads(shown.err)["message"]


@pytest.mark.parametrize("command", ["embed", "search --dataset x", "jobs --kind"])
def test_an_argument_that_is_not_utf8_is_said_to_be_that(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*command.split(), os.fsdecode(b"Gr\xfc\xdfe")])
    assert "it is not UTF-8" in capsys.readouterr().err


def test_it_has_help_and_a_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    whole = capsys.readouterr().out
    [commands] = (action.choices for action in parser()._actions if action.choices)
    pages = [(["help"], whole), (["--help"], whole), (["help", "keys", "create"], "usage: embedq keys create")]
    for words, page in (*pages, *(([name, "--help"], f"usage: embedq {name}") for name in commands)):
        with pytest.raises(SystemExit, match="0"):
            main(words)
        assert capsys.readouterr().out.startswith(page)
    for word in ("-V", "--version", "version"):
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
        (["--json", "keys", "re"], ["revoke"]),
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
    told = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(CHECKOUT), "HOME": str(tmp_path)}
    words = [shell, "-c", f"{stubs}{script}\n{ask}"]
    done = subprocess.run(words, env=os.environ | told, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["create"], done.stderr


def test_the_help_loads_nothing_that_is_slow() -> None:
    heavy = "{'httpx', 'numpy', 'rich', 'asyncio', 'urllib.request'}"
    script = f"import sys, embedq.cli; embedq.cli.main([]); print({heavy} & sys.modules.keys(), file=sys.stderr)"
    assert run('"$0" -P -c "$1"', script).stderr == "set()\n"


@pytest.mark.parametrize(
    ("words", "passed"),
    [
        ("backup d f", "backup --owner=anonymous -- d f"),
        ("vacuum d --data=x --owner=o", "vacuum --owner=o --data=x -- d"),
        ("rename -- -d e", "rename --owner=anonymous -- -d e"),
    ],
)
def test_upkeep_of_datasets_is_the_servers(words: str, passed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[Sequence[str]] = []
    monkeypatch.setattr(dataset, "become", lambda *arguments: became.append(arguments))
    main(["dataset", *words.split()])
    assert became == [("tasks.datasets.upkeep_command", *passed.split())]


def test_a_filter_has_texts_numbers_and_booleans_and_ids_of_documents_are_texts() -> None:
    fields = ["n=7", "n=true", 's="7"', "s=a=b", "s=NaN", "document_id=7"]
    words = [word for field in fields for word in ("--filter", field)]
    parsed = parser().parse_args(["search", "x", "--dataset", "d", *words]).filter
    assert parsed == [("n", 7), ("n", True), ("s", "7"), ("s", "a=b"), ("s", "NaN"), ("document_id", "7")]


# Errors, and what is printed.


@pytest.mark.parametrize(
    ("kind", "code"),
    [(RefusedError, 3), (UnavailableError, 4), (UnreachableError, 4), (WaitTimeoutError, 5)],
)
def test_exit_codes_of_errors(kind: type[EmbedqClientError], code: int) -> None:
    assert exit_code(kind("Text.", code="x")) == code
    assert f"\n  {code}  " in HELP


def test_nobody_there_is_4_silence_5_and_the_doctor_finds_it(
    elsewhere: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    closed_url = f"http://127.0.0.1:{free_port()}"
    assert main(["embed", "x", "--url", closed_url]) == 4
    assert "`embedq up` starts one" in capsys.readouterr().err
    assert main(["doctor", "--url", closed_url, "--json"]) == 1
    finding = json.loads(capsys.readouterr().out)
    assert (finding["name"], finding["fine"], "embedq up" in finding["advice"]) == ("server", False, True)
    elsewhere.answers = [SILENCE]
    assert main(["wait", "task_1", "--url", elsewhere.url, "--timeout", "0.2"]) == 5
    assert "embedq: timeout: " in capsys.readouterr().err


@pytest.mark.parametrize("command", ["embed x", "doctor", "ingest x"])
def test_a_key_that_cannot_be_sent_is_not_printed(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMBEDQ_API_KEY", "sécret")
    assert main(command.split()) == 2
    stderr = capsys.readouterr().err
    assert "EMBEDQ_API_KEY" in stderr
    assert "sécret" not in stderr


@pytest.mark.parametrize(
    ("key", "hint"), [("", "EMBEDQ_API_KEY is not set"), ("k", "The command sends the key that is in EMBEDQ_API_KEY")]
)
def test_a_refused_key_names_the_variable(
    key: str, hint: str, elsewhere: Scripted, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMBEDQ_API_KEY", key)
    elsewhere.answers = [problem(401, "invalid_api_key", "An API key is needed.")]
    assert main(["jobs", "--url", elsewhere.url]) == 3
    assert f"An API key is needed. {hint}" in capsys.readouterr().err


@pytest.mark.parametrize("lost", [HANG_UP, problem(503, "overloaded", retry_after="0")])
@pytest.mark.parametrize("what", ["create", "rotate"])
def test_a_key_whose_text_may_be_lost_is_said_to_be_that(
    what: str, lost: Answer, elsewhere: Scripted, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMBEDQ_API_KEY", "k")
    for answer, code in ((lost, 4), (problem(409, "key_exists"), 3)):
        elsewhere.answers, elsewhere.requests = [answer], []
        assert main(["keys", what, "ops", "--url", elsewhere.url]) == code
        assert ("nobody knows its" in capsys.readouterr().err) == (answer is lost)
        assert len(elsewhere.requests) == 1


@pytest.mark.parametrize("more", [[], ["--owner", "owner_1"]])
def test_a_key_for_another_server_is_not_made_in_the_redis_here(
    more: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(keys, "command_for", lambda *_: pytest.fail("it asked the Redis here"))
    monkeypatch.setenv("EMBEDQ_URL", "https://prod.example")
    assert main(["keys", "create", "ops", *more]) == 2
    assert "EMBEDQ_URL" in capsys.readouterr().err


def test_jobs_are_read_page_by_page_up_to_the_limit(elsewhere: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    def job(number: int, **changed: Any) -> dict[str, Any]:
        counts = {"total": 2048, "completed": 0, "failed": 0}
        return {"id": f"task_{number}", "status": "queued", "counts": counts, "waiting": None} | changed

    why = {"code": "in_line", "message": "Third in the bulk lane."}
    pages = [([job(1, waiting=why)], "task_1"), ([job(2), job(3)], "task_3")]
    elsewhere.answers = [
        Answer(200, {"object": "list", "data": data, "last_id": last, "has_more": True}) for data, last in pages
    ]
    assert main(["jobs", "--limit", "2", "--kind", "task,batch", "--url", elsewhere.url]) == 0
    assert capsys.readouterr().out == "task_1 queued 0/2,048: Third in the bulk lane.\ntask_2 queued 0/2,048\n"
    asked = "/v1/jobs?limit=2&kind=task%2Cbatch"
    assert [request.target for request in elsewhere.requests] == [asked, f"{asked}&after=task_1"]


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


# Progress.


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_files_get_a_line_at_the_end_and_who_knows_better_says_when_that_is() -> None:
    plain, programs = io.StringIO(), io.StringIO()
    for stream in (plain, programs):
        with Progress("chunks", json_lines=stream is programs, stream=stream) as progress:
            progress.update(5, total=100, text="7 of 9 documents", eta_s=12, documents=9)
        with Progress("texts", json_lines=stream is programs, stream=stream) as progress:
            progress.update(0, total=2000)
            progress.update(1500, 2, total=2000)
    theirs, own = plain.getvalue().splitlines()
    assert theirs == "chunks 5/100, 12 s left, 7 of 9 documents"
    assert re.fullmatch(r"texts 1,500/2,000, 2 failed, (\d+ s left, )?[\d,]+/s", own)
    line = json.loads(programs.getvalue().splitlines()[0])
    assert (line["eta_s"], line["documents"], "text" in line) == (12, 9, False)


@pytest.mark.parametrize(
    ("eta_s", "text"),
    [(0.4, "0 s left"), (599, "599 s left"), (600, "10 min left"), (3599, "1 h 0 min left"), (9000, "2 h 30 min left")],
)
def test_the_time_left_has_one_form(eta_s: float, text: str) -> None:
    assert shown_left(eta_s) == text


@pytest.mark.parametrize("stdout", [True, False])
def test_a_narrow_terminal_shows_a_bar_with_count_and_end_on_one_line(
    stdout: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    stream = Terminal()
    without = nullcontext() if stdout else redirect_stdout(None)
    with without, Progress("chunks", json_lines=False, stream=stream) as progress:
        progress.update(364, 1, total=900, text="42/s, 5/100 documents and so on and on", eta_s=463)
    last = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue().split("\r")[-1])
    assert last.count("\n") == 1
    for part in ("chunks ", " 364/900 ", "1 failed, 463 s left"):
        assert part in last


# Files of texts.


@pytest.mark.parametrize("more", [[], ["--wait"], ["--out"]])
def test_after_a_bad_line_it_says_what_was_submitted(
    more: list[str], tmp_path: Path, elsewhere: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    many = tmp_path / "many.txt"
    many.write_bytes(b"a\n" * 2049 + b"\xff\n")
    elsewhere.answers = [task()]
    if "--out" in more:
        more = ["--out", str(tmp_path / "out")]
        elsewhere.answers = [task(), task(), array([[1.0]] * 2048)]
    assert main(["submit", str(many), *more, "--url", elsewhere.url]) == 1
    shown = capsys.readouterr()
    assert shown.out == "task_1\n"
    assert f"{many}, line 2050: not UTF-8" in shown.err
    assert "embedq wait task_1" in shown.err
    many.write_text("\n \n")
    assert main(["submit", str(many), *more, "--url", elsewhere.url]) == 0
    assert "no text in" in capsys.readouterr().err


# Signals, closed streams, an odd environment: a process of its own.


def test_a_reader_that_leaves_is_no_success(tmp_path: Path, elsewhere: Scripted) -> None:
    many = tmp_path / "many.txt"
    many.write_text("a\n" * 5000)
    elsewhere.answers = [task()]
    ran = run('("$0" -P -m embedq submit "$1" --url "$2"; echo $? >&2) | true', str(many), elsewhere.url)
    assert ran.stderr.endswith("\n141\n")
    assert "embedq wait task_1" in ran.stderr


@pytest.mark.parametrize("more", [[], ["--wait"]])
def test_ctrl_c_ends_the_wait_for_a_line(more: list[str], elsewhere: Scripted) -> None:
    elsewhere.answers = [task()]
    command = [sys.executable, "-P", "-m", "embedq", "submit", "-", *more, "--url", elsewhere.url]
    environ, pipe = os.environ | {"PYTHONPATH": str(CHECKOUT)}, subprocess.PIPE
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


def test_ctrl_c_while_it_is_still_loading_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "httpx.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    ran = run('"$0" -P -m embedq embed hi', python_path=f"{tmp_path}{os.pathsep}{CHECKOUT}")
    assert (ran.returncode, ran.stderr) == (130, "embedq: interrupted\n")


def test_a_closed_output_is_said_and_closed_errors_go_into_no_other_file() -> None:
    def ran(closing: str) -> subprocess.CompletedProcess[str]:
        command = f'exec "{sys.executable}" -m embedq version {closing}'
        return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)

    assert (ran(">&-").returncode, ran(">&-").stderr) == (2, "embedq: standard output is closed\n")
    assert (ran("2>&-").returncode, ran("2>&-").stdout) == (0, f"embedq {metadata.version('embedq')}\n")

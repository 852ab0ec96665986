import io
import json

from hypothesis import given
from hypothesis import strategies as st

from stack.log import LineSplitter, Log, message_of


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class ClosedPipe(io.StringIO):
    def write(self, text: str) -> int:  # noqa: ARG002 - the signature is the base class's
        raise BrokenPipeError


def test_names_are_aligned() -> None:
    stream = io.StringIO()
    log = Log(["api", "worker-1"], stream)
    log.write("api", "hello")
    log.write("worker-1", "there")
    log.write_own("all well")
    assert stream.getvalue() == "api      | hello\nworker-1 | there\nstack    | all well\n"


def test_a_terminal_shows_each_role_in_its_colour() -> None:
    stream = Terminal()
    log = Log(["api", "redis"], stream)
    log.write("api", "hello")
    log.write("redis", "there")
    assert stream.getvalue() == "\x1b[36mapi   |\x1b[0m hello\n\x1b[32mredis |\x1b[0m there\n"


def test_a_log_that_nobody_reads_does_not_stop_the_service() -> None:
    Log(["api"], ClosedPipe()).write("api", "hello")


@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))), cut=st.integers(1, 7)
)
def test_lines_come_back_however_they_are_cut(lines: list[str], cut: int) -> None:
    data = "".join(f"{line}\n" for line in lines).encode()
    splitter = LineSplitter()

    split = [line for start in range(0, len(data), cut) for line in splitter.feed(data[start : start + cut])]

    assert split == lines
    assert splitter.rest() == []


def test_the_last_line_needs_no_end() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"one\r\ntw") == ["one"]
    assert splitter.rest() == ["tw"]
    assert splitter.rest() == []


def test_bytes_that_are_no_text_do_not_stop_the_log() -> None:
    assert LineSplitter().feed(b"\xff\xfe!\n") == ["\ufffd\ufffd!"]


def test_a_line_that_never_ends_is_cut() -> None:
    splitter = LineSplitter()
    lines = [line for _ in range(5) for line in splitter.feed(b"x" * 40_000)]
    assert [len(line) for line in lines] == [80_000, 80_000]


def test_in_json_other_lines_become_messages() -> None:
    stream = io.StringIO()
    log = Log(["api", "redis"], stream, "json")
    log.write("api", '{"message":"hello","role":"api"}')
    log.write("redis", "Ready to accept connections")
    log.write_own("all well")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["role"], line["message"]) for line in lines] == [
        ("api", "hello"),
        ("redis", "Ready to accept connections"),
        ("stack", "all well"),
    ]


def test_what_a_line_says_in_either_form() -> None:
    assert [message_of(line) for line in ("no", '{"message":"no"}', "[1]", "{}")] == ["no", "no", "[1]", "{}"]

import io

from stack.log import Log


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
    log.say("all well")
    assert stream.getvalue() == "api      | hello\nworker-1 | there\nstack    | all well\n"


def test_a_terminal_shows_each_role_in_its_colour() -> None:
    stream = Terminal()
    log = Log(["api", "redis"], stream)
    log.write("api", "hello")
    log.write("redis", "there")
    assert stream.getvalue() == "\x1b[36mapi   |\x1b[0m hello\n\x1b[32mredis |\x1b[0m there\n"


def test_a_log_that_nobody_reads_does_not_stop_the_service() -> None:
    Log(["api"], ClosedPipe()).write("api", "hello")

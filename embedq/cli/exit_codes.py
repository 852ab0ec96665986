"""Exit codes, for scripts. The table in docs/client.md is this one."""

from embedq.errors import EmbedqClientError, UnavailableError, UnreachableError, WaitTimeoutError

OK = 0
SOME_FAILED = 1
USAGE = 2
REFUSED = 3
UNREACHABLE = 4
TIMEOUT = 5
ALL_FAILED = 6
INTERRUPTED = 130

HELP = """exit codes:
  0    done
  1    done in part: some texts, documents, keys or names failed, others did not; or `doctor` found something
  2    wrong usage, or an input file that cannot be used
  3    the server refused (4xx)
  4    the server or its Redis cannot be reached, or had no room for as long as it was tried
  5    the time of --timeout is over; the work goes on
  6    nothing came of it: every text or document failed, or the ingestion as a whole
  78   a role cannot start as it is configured (api, worker, up)
  130  interrupted; submitted work goes on
  141  the reader of a pipe has left; submitted work goes on

environment:
  EMBEDQ_URL      address of the server (default http://127.0.0.1:8000)
  EMBEDQ_API_KEY  its API key, where it wants one
"""


class UsageError(Exception):
    """The command cannot run as it was given. The message says what to change."""


def exit_code(error: EmbedqClientError) -> int:
    """The exit code for an error of the client."""
    if isinstance(error, WaitTimeoutError):
        return TIMEOUT
    return UNREACHABLE if isinstance(error, UnreachableError | UnavailableError) else REFUSED


def outcome(succeeded: int, failed: int) -> int:
    """The exit code of work that has ended, by how much of it came through."""
    if not failed:
        return OK
    return SOME_FAILED if succeeded else ALL_FAILED

"""What PostgreSQL and its client say, in the words of this project: what passes by itself, and what somebody must mend.

Never the server's own text: it may quote values of a row. Nor the client's: it may quote the URL.
"""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import asyncpg

from tasks.errors import InternalError, SinkRefused, SinkUnavailable

# Beginnings of SQLSTATE, the longest first: what passes by itself, or by what an operator does to the server and not to
# this job. https://www.postgresql.org/docs/current/errcodes-appendix.html
_PASSING = {
    "25006": "takes no writes at present, as a standby does",
    "25P03": "ended a transaction that stood idle",
    "25P04": "ended a transaction that took too long",
    "53100": "has no room left on its disk",
    "53200": "is out of memory",
    "53300": "has no connection to spare",
    "53400": "has reached a limit that its settings draw",
    "55000": "does not take connections or writes at present",
    "55006": "has something in use that this load needs",
    "55P03": "kept this load waiting for a lock for too long",
    "57014": "cancelled a statement, or took too long over it",
    "57P01": "was shut down",
    "57P02": "crashed and is coming back",
    "57P03": "is starting up or shutting down",
    "58000": "reports an error of its system",
    "58030": "reports an error of its disk",
    "08": "broke the connection",
    "40": "gave way to another transaction",
    "53": "lacks resources",
    "57": "was interrupted by its operator",
}
_REASONS = {
    "0A000": "lacks something that embedq needs, or has a view in place of the table",
    "22021": "has an encoding that cannot hold these texts; use a database with the encoding UTF8",
    "22P05": "has an encoding that cannot hold these texts; use a database with the encoding UTF8",
    "23": "has a constraint or a trigger on the table that does not let these rows in; drop it, or name another table",
    "28": "refuses the user or the password; check them in EMBEDQ_SINKS, and pg_hba.conf on the server",
    "3D": "has no such database; create it, or mend its name in EMBEDQ_SINKS",
    "3F": "has no such schema; create it, or name another one in sink.table",
    "42501": "does not allow its user to do this; grant CONNECT on the database and CREATE on the schema, or make its "
    "user the tables' owner",
    "42703": "has another table of this name that is not one of embedq's; name another table",
    "42P01": "has lost a table that was there; retry, which makes it again",
    "42804": "has another table of this name that is not one of embedq's; name another table",
    "42809": "has a view or something else in place of the table; name another table",
    "58P01": "lacks a file of pgvector; install pgvector anew on the server",
}
_URL_REASONS = ("22023", "42602", "42704", "55P02")
"""At the opening of a connection: of a parameter in the URL that the server does not know, or not with this value."""
_MEND_URL = "Mend its URL in EMBEDQ_SINKS and restart the documents workers, then retry."


@contextmanager
def opening(sink: str, url: str) -> Iterator[None]:
    """Refuses where a connection cannot be had because it is described wrongly.

    Raises:
        SinkRefused: the URL is wrong, or does not fit the server.
    """
    try:
        yield
    except asyncpg.PostgresError as error:
        if _state(error).startswith(_URL_REASONS):
            raise _misdescribed(sink, "has a parameter that its server does not take") from None
        raise
    except ssl.SSLCertVerificationError:
        raise _misdescribed(sink, "asks for a certificate that its server does not have") from None
    except OSError as error:
        if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError) and "ssl" in urlsplit(url).query:
            raise _misdescribed(sink, "names a file of TLS that cannot be read") from None
        if type(error) is ConnectionError and "rejected SSL upgrade" in str(error):  # nothing else tells it
            raise _misdescribed(sink, "asks for TLS (sslmode), which its server does not speak") from None
        raise
    except (asyncpg.InterfaceError, ValueError):
        raise _misdescribed(sink, "cannot be used: postgresql://user:password@host:port/database is expected") from None


@contextmanager
def translated(sink: str) -> Iterator[None]:
    """Raises errors of PostgreSQL and of its client as ours.

    Raises:
        SinkUnavailable: it passes.
        SinkRefused: it does not; says what to do.
        InternalError: a value of ours is none for this database.
    """
    try:
        yield
    except asyncpg.PostgresError as error:
        state = _state(error)
        passing = _longest(_PASSING, state)
        if passing is not None:
            raise _unavailable(sink, f"{passing} ({state})") from None
        what = _longest(_REASONS, state) or "refuses; its log says why"
        raise SinkRefused(
            f"The database of sink {sink!r} {what} ({type(error).__name__}, {state}).", param="sink.name"
        ) from None
    except socket.gaierror as error:
        raise _unavailable(sink, "has a host name that cannot be resolved") from error
    except ValueError as error:
        if not isinstance(error, asyncpg.InterfaceError):
            raise
        raise InternalError(f"A value of a row does not fit its column in the sink {sink!r}.") from None
    except (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:  # a timeout, too
        raise _unavailable(sink, "does not answer") from error


def _state(error: asyncpg.PostgresError) -> str:
    return str(getattr(error, "sqlstate", None) or "")


def _longest(words: dict[str, str], state: str) -> str | None:
    return words.get(state) or words.get(state[:2])


def _misdescribed(sink: str, what: str) -> SinkRefused:
    return SinkRefused(f"The URL of the sink {sink!r} {what}. {_MEND_URL}", param="sink.name")


def _unavailable(sink: str, what: str) -> SinkUnavailable:
    return SinkUnavailable(
        f"The database of sink {sink!r} {what}. Nothing of this load is visible; it is tried again.", retry_after_s=10
    )

"""A connection to PostgreSQL for synchronous callers: its own event loop, its errors in the words of this project."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import asyncpg
import numpy as np
import numpy.typing as npt

from tasks.errors import InternalError, Invalid, SinkUnavailable
from tasks.unshown import unshown

T = TypeVar("T")

CONNECT_S = 5.0
COMMAND_S = 120.0
"""Limit of one command. Commands have to be small, because one that takes longer is repeated for ever."""
_PROGRESS_S = 0.5
_CLOSE_S = 2.0


@unshown("url")
class Database(NamedTuple):
    """A database of this server. `url`: may hold a password. `name`: in EMBEDQ_SINKS; "" is that of EMBEDQ_DATASETS."""

    url: str
    name: str = ""

    @property
    def shown(self) -> str:
        """In words, without an article."""
        return f"database of sink {self.name!r}" if self.name else f"database of {self.setting}"

    @property
    def setting(self) -> str:
        """Where an operator has named it."""
        return "EMBEDQ_SINKS" if self.name else "EMBEDQ_DATASETS"

    @property
    def param(self) -> str:
        """Of a request, by which it was named."""
        return "sink.name" if self.name else "sink.dataset"


class Connection:
    """One connection, opened when it is needed, and again after it broke. For one thread at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._loop: asyncio.Runner | None = None
        self._connection: Any = None

    def run(self, work: Callable[[Any], Awaitable[T]], progress: Callable[[], None] = lambda: None) -> T:
        """The result of `work(connection)` in one transaction; `progress` is called meanwhile and may end it.

        Raises:
            SinkUnavailable: the server is down or full. The transaction had no effect, or its effect is unknown.
            Invalid: the server can never do it, or its URL is wrong.
        """
        if self._loop is None:
            self._loop = asyncio.Runner()
        with translated(self._database):
            return self._loop.run(self._watched(work, progress))

    def close(self) -> None:
        """Closes the connection."""
        if self._loop is None:
            return
        with suppress(Exception):  # the connection is not needed any more
            self._loop.run(self._leave())
        self._loop.close()
        self._loop = None

    async def _watched(self, work: Callable[[Any], Awaitable[T]], progress: Callable[[], None]) -> T:
        task = asyncio.ensure_future(self._transaction(work))
        try:
            while not (await asyncio.wait({task}, timeout=_PROGRESS_S))[0]:
                progress()
            return task.result()
        except BaseException:
            task.cancel()
            await asyncio.wait({task}, timeout=_CLOSE_S)
            await self._leave()  # its state is unknown: the next transaction opens a new one
            raise

    async def _transaction(self, work: Callable[[Any], Awaitable[T]]) -> T:
        if self._connection is None or self._connection.is_closed():
            with opening(self._database):
                # Poolers between here and the server mix up prepared statements.
                self._connection = await asyncpg.connect(
                    self._database.url, timeout=CONNECT_S, command_timeout=COMMAND_S, statement_cache_size=0
                )
        async with self._connection.transaction():
            return await work(self._connection)

    async def _leave(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()


async def know_vectors(connection: Any) -> None:
    """Makes the connection send vectors in their binary form, and know their operators. The extension must exist."""
    schema = await schema_of_vectors(connection)
    path = "current_setting('search_path') || ', ' || quote_ident($1)"
    await connection.execute(f"SELECT set_config('search_path', {path}, true)", schema)
    await connection.set_type_codec("vector", schema=schema, encoder=_packed, decoder=_unpacked, format="binary")


async def schema_of_vectors(connection: Any) -> str:
    """Where the extension is: perhaps on no search path."""
    schema: str = await connection.fetchval(
        "SELECT nspname FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'vector'"
    )
    return schema


def _packed(vector: npt.NDArray[np.float32]) -> bytes:
    # pgvector's own binary form: number of dimensions, zero, then floats, all big-endian.
    return struct.pack(">HH", len(vector), 0) + vector.astype(">f4").tobytes()


def _unpacked(data: bytes) -> npt.NDArray[np.float32]:
    return np.frombuffer(data, ">f4", offset=4).astype(np.float32)


# ---- errors of PostgreSQL and of its client: transient ones, and those that need an operator -------------------------

# Prefixes of SQLSTATE, the longest first: errors that pass by themselves, or once an operator has repaired the server.
# https://www.postgresql.org/docs/current/errcodes-appendix.html
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
    "28": "refuses the user or the password; check them in {setting}, and pg_hba.conf on the server",
    "2BP01": "has a view or something else of yours that needs these tables; drop it first",
    "3D": "does not exist; create it, or mend its name in {setting}",
    "3F": "has no such schema; create it, or name another one in sink.table",
    "42501": "does not allow its user to do this; grant CONNECT on the database and CREATE on the schema, or make its "
    "user the tables' owner",
    "42703": "has another table of this name that is not one of embedq's; name another table",
    "42P01": "has lost a table that was there; retry, which makes it again",
    "42804": "has another table of this name that is not one of embedq's; name another table",
    "42809": "has a view or something else in place of the table; name another table",
    "54": "has a limit that one of these documents is beyond; use smaller chunks",
    "58P01": "lacks a file of pgvector; install pgvector anew on the server",
}
_URL_REASONS = ("22023", "42602", "42704", "55P02")
"""States at the opening of a connection if the server does not know a parameter of the URL, or its value."""


@contextmanager
def opening(database: Database) -> Iterator[None]:
    """Refuses a connection whose description is wrong.

    Raises:
        Invalid: the URL is wrong, or does not fit the server.
    """
    try:
        yield
    except asyncpg.PostgresError as error:
        if _state(error).startswith(_URL_REASONS):
            raise _misdescribed(database, "has a parameter that its server does not take") from None
        raise
    except ssl.SSLCertVerificationError:
        raise _misdescribed(database, "asks for a certificate that its server does not have") from None
    except OSError as error:
        if (
            isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError)
            and "ssl" in urlsplit(database.url).query
        ):
            raise _misdescribed(database, "names a file of TLS that cannot be read") from None
        if type(error) is ConnectionError and "rejected SSL upgrade" in str(error):  # nothing else tells it
            raise _misdescribed(database, "asks for TLS (sslmode), which its server does not speak") from None
        raise
    except (asyncpg.InterfaceError, ValueError):
        raise _misdescribed(
            database, "cannot be used: postgresql://user:password@host:port/database is expected"
        ) from None


@contextmanager
def translated(database: Database) -> Iterator[None]:
    """Raises errors of PostgreSQL and of its client as ours.

    Raises:
        SinkUnavailable: the error is transient.
        Invalid: it is not. Says what to do.
        InternalError: the database cannot hold a value of ours.
    """
    try:
        yield
    except asyncpg.PostgresError as error:
        state = _state(error)
        if state == "22000":  # also of the client, which has not sent it
            raise InternalError(f"A value does not fit its place in the {database.shown}.") from None
        passing = _longest(_PASSING, state)
        if passing is not None:
            raise _unavailable(database, f"{passing} ({state})") from None
        what = (_longest(_REASONS, state) or "refuses; its log says why").format(setting=database.setting)
        detail = f"The {database.shown} {what} ({type(error).__name__}, {state})."
        raise Invalid("sink_refused", detail, param=database.param) from None
    except socket.gaierror as error:
        raise _unavailable(database, "has a host name that cannot be resolved") from error
    except ValueError as error:
        if not isinstance(error, asyncpg.InterfaceError):
            raise
        raise InternalError(f"A value of a row does not fit its column in the {database.shown}.") from None
    except ConnectionRefusedError as error:
        raise _unavailable(database, "refuses connections") from error
    except (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:  # a timeout, too
        raise _unavailable(database, "does not answer") from error


def _state(error: asyncpg.PostgresError) -> str:
    return str(getattr(error, "sqlstate", None) or "")


def _longest(words: dict[str, str], state: str) -> str | None:
    return words.get(state) or words.get(state[:2])


def _misdescribed(database: Database, what: str) -> Invalid:
    mend = f"Mend it in {database.setting}, restart the processes that have it, then retry."
    return Invalid("sink_refused", f"The URL of the {database.shown} {what}. {mend}", param=database.param)


def _unavailable(database: Database, what: str) -> SinkUnavailable:
    return SinkUnavailable(f"The {database.shown} {what}. Nothing is half done; try again.", retry_after_s=10)

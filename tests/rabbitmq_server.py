"""RabbitMQ for tests: Debian's, as a process of its own on free ports, and no service."""

import contextlib
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any, Self

import amqp

from stack.testing import Process, free_port

_PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_START = 'epmd -port "$ERL_EPMD_PORT" -address 127.0.0.1 & exec "$1"'
"""Erlang's register of names is started beside it, or it would start itself as a service that stays."""


def find_program() -> Path | None:
    """RabbitMQ's start script, None if there is none."""
    return _PROGRAM if _PROGRAM.exists() else None


class RabbitMQServer(Process):
    """One broker; after `kill`, `start` runs it again on the same data and port."""

    def __init__(self, folder: Path, program: Path) -> None:
        self.port = free_port()
        self._data = Path(tempfile.mkdtemp(prefix="embedq-rabbitmq-"))
        self._environment = {
            "HOME": str(self._data),  # for Erlang's cookie
            "ERL_EPMD_PORT": str(free_port()),
            "RABBITMQ_NODENAME": "embedq@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(self._data / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self._data),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(self._data / "pid"),
            "RABBITMQ_CONF_ENV_FILE": str(self._data / "none"),
            "RABBITMQ_CONFIG_FILE": str(self._data / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._data / "none"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
            "RUNNING_UNDER_SYSTEMD": "1",  # the script becomes the server, and does not wait beside it
        }
        assignments = [f"{name}={value}" for name, value in self._environment.items()]
        super().__init__("rabbitmq", ["env", *assignments, "sh", "-c", _START, "sh", str(program)], folder)

    @staticmethod
    def url(port: int) -> str:
        """For `EMBEDQ_BROKER_URL`; `port`: its own, or that of a link to it."""
        return f"amqp://guest:guest@127.0.0.1:{port}//"

    def start(self) -> Self:
        """Starts the broker and returns when it lets clients in."""
        self.launch()
        self.wait_while_running(self._answers, "letting clients in")
        return self

    def kill(self) -> None:
        """`kill -9` of the server and of its register."""
        os.killpg(self.pid, signal.SIGKILL)
        self.wait()

    def remove(self) -> None:
        """Kills it and deletes its data."""
        if self.running:
            self.kill()
        shutil.rmtree(self._data)

    def state(self, queue: str) -> tuple[int, int]:
        """How many messages wait in a queue, and how many processes consume it. One that is not there has neither."""
        with self._connect() as connection:
            try:
                declared: Any = connection.channel().queue_declare(queue, passive=True)
            except amqp.NotFound:
                return 0, 0
        return int(declared.message_count), int(declared.consumer_count)

    def publish(self, queue: str, message: amqp.Message) -> None:
        """Puts a message into a queue, as anybody may who has the rights of a role."""
        with self._connect() as connection:
            connection.channel().basic_publish_confirm(message, routing_key=queue)

    def _connect(self) -> amqp.Connection:
        connection = amqp.Connection(f"127.0.0.1:{self.port}", read_timeout=5, connect_timeout=5)
        connection.connect()
        return connection

    def _answers(self) -> bool:
        with contextlib.suppress(OSError, amqp.AMQPError):
            self._connect().close()
            return True
        return False

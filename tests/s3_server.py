"""S3 for tests: moto's server as a process of its own, spoken to over a socket by the real driver."""

import contextlib
import secrets
import ssl
import sys
from pathlib import Path
from typing import Self

import httpx

from tests.processes import Process, free_port

_NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""On loopback without TLS: httpx would read the system's certificates for each request, 25 ms."""
KEY_ID, SECRET = "an-access-key", "a-secret-that-nobody-may-read"


class S3Server(Process):
    """One server; it forgets everything when it stops."""

    def __init__(self, folder: Path) -> None:
        self._port = free_port()
        super().__init__("s3", [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)], folder)

    @property
    def endpoint(self) -> str:
        """For `AWS_ENDPOINT_URL`."""
        return f"http://127.0.0.1:{self._port}"

    def environment(self) -> dict[str, str]:
        """What the driver reads: this server and nothing of the developer's own."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def start(self) -> Self:
        """Starts the server and returns when it answers."""
        self.launch()
        self.wait_while_running(self._answers, "answering")
        return self

    def bucket(self) -> str:
        """The URL of a new bucket."""
        name = f"b-{secrets.token_hex(4)}"
        httpx.put(f"{self.endpoint}/{name}", verify=_NO_AUTHORITIES).raise_for_status()
        return f"s3://{name}"

    def check_credentials(self, *, really: bool) -> None:
        """From now on: whether a request must be signed by somebody the server knows, which is nobody."""
        url = f"{self.endpoint}/moto-api/reset-auth"
        httpx.post(url, content="0" if really else "inf", verify=_NO_AUTHORITIES).raise_for_status()

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(self.endpoint, timeout=5, verify=_NO_AUTHORITIES).is_success
        return False

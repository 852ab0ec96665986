"""S3 for tests: moto's server as a process of its own, spoken to over a socket by the real driver."""

import contextlib
import secrets
import sys
from pathlib import Path

import httpx

from tests.processes import NO_AUTHORITIES, Process, free_port

KEY_ID, SECRET = "an-access-key", "a-secret-that-nobody-may-read"


class S3Server(Process):
    """One server; it forgets everything when it stops."""

    def __init__(self, folder: Path) -> None:
        self._port = free_port()
        super().__init__("s3", [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)], folder)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def bucket(self) -> str:
        name = f"b-{secrets.token_hex(4)}"
        httpx.put(f"{self.endpoint}/{name}", verify=NO_AUTHORITIES).raise_for_status()
        return f"s3://{name}"

    def check_credentials(self, *, really: bool) -> None:
        """From now on: whether a request must be signed by somebody the server knows, which is nobody."""
        url = f"{self.endpoint}/moto-api/reset-auth"
        httpx.post(url, content="0" if really else "inf", verify=NO_AUTHORITIES).raise_for_status()

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(self.endpoint, timeout=5, verify=NO_AUTHORITIES).is_success
        return False

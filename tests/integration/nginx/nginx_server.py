"""nginx for tests: Debian's, as it is configured in deploy/nginx, with ports, certificate and folders of its own."""

import contextlib
import getpass
import shutil
import socket
import ssl
from pathlib import Path

from tests.integration.guarded.certificates import Authority
from tests.processes import Process, free_port
from tests.source_tree import CHECKOUT

CONFIGURATION = CHECKOUT / "deploy/nginx/nginx.conf"
_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def find_program() -> str | None:
    """The program; Debian has it where only root looks for programs."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


class NginxServer(Process):
    """One nginx in front of one API. `changed`: texts of the configuration and what takes their place."""

    def __init__(self, folder: Path, program: str, api_port: int, changed: dict[str, str]) -> None:
        self.port = free_port()
        folder.mkdir()
        self.authority = Authority(folder, "nginx")
        self.authority.server()
        certificate = str(folder / "nginx-server.pem")
        text = CONFIGURATION.read_text(encoding="utf-8")
        for old, new in {
            "user www-data;": f"user {getpass.getuser()};",
            "/run/nginx.pid": str(folder / "nginx.pid"),
            "/var/log/nginx/error.log": "stderr",
            "listen 443 ssl": f"listen 127.0.0.1:{self.port} ssl",
            "127.0.0.1:8000": f"127.0.0.1:{api_port}",
            "/etc/ssl/embed.pem": certificate,
            "/etc/ssl/embed.key": certificate,
            "access_log off;": "access_log off;"
            + "".join(f" {name}_temp_path {folder / name};" for name in _TEMPORARY),
            **changed,
        }.items():
            assert old in text, f"{old} is not in {CONFIGURATION}"
            text = text.replace(old, new)
        file = folder / "nginx.conf"
        file.write_text(text, encoding="utf-8")
        command = [program, "-p", str(folder), "-e", "stderr", "-c", str(file), "-g", "daemon off;"]
        super().__init__("nginx", command, folder)

    @property
    def base_url(self) -> str:
        """Of the service behind it."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def trust(self) -> ssl.SSLContext:
        """For its clients."""
        return ssl.create_default_context(cafile=str(self.authority.file))

    def _answers(self) -> bool:
        with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

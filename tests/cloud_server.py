"""Google Cloud Storage and Azure Blob Storage for tests: as much of their HTTP as the driver of buckets speaks.

S3 asks for the same as Google, if nobody deletes. With TLS, which moto does not have here.
"""

import json
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

ACCOUNT, KEY = "account", "YS1zZWNyZXQtdGhhdC1ub2JvZHktbWF5LXJlYWQ="
CONTAINERS = ("one", "two")
_ISO = "2026-01-02T03:04:05.000Z"


class CloudServer:
    """Objects by container and name. `refusal`: status and code with which everything is answered."""

    def __init__(self, server: ThreadingHTTPServer, scheme: str) -> None:
        self.objects: dict[str, dict[str, bytes]] = {name: {} for name in CONTAINERS}
        self.pieces: dict[str, bytes] = {}
        self.refusal: tuple[int, str] | None = None
        self.endpoint = f"{scheme}://127.0.0.1:{server.server_port}"

    def environment(self) -> dict[str, str]:
        account = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        google = json.dumps(account | {"gcs_base_url": self.endpoint, "disable_oauth": True})
        return {
            "GOOGLE_SERVICE_ACCOUNT_KEY": google,
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": self.endpoint,
        }


@contextmanager
def cloud_server(tls: ssl.SSLContext | None = None) -> Iterator[CloudServer]:
    """A server, for the block."""
    server = _Server(("127.0.0.1", 0), _Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.cloud = CloudServer(server, "http" if tls is None else "https")
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server.cloud
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    cloud: CloudServer

    def handle_error(self, *_: object) -> None:
        """Nothing: the driver may hang up in the middle of an answer."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def handle_one_request(self) -> None:
        """Answers whatever the method."""
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        url = urlsplit(self.path)
        container, _, name = unquote(url.path).strip("/").partition("/")
        query = {key: values[0] for key, values in parse_qs(url.query, keep_blank_values=True).items()}
        missing = "ContainerNotFound" if "x-ms-version" in self.headers else "NoSuchBucket"
        if self.server.cloud.refusal is not None:
            self._refuse(*self.server.cloud.refusal)
        elif container not in self.server.cloud.objects:
            self._refuse(404, missing)
        else:
            self._serve(self.server.cloud.objects[container], name, query, body)

    def _serve(self, objects: dict[str, bytes], name: str, query: dict[str, str], body: bytes) -> None:
        match self.command, query:
            case "GET", {"prefix": prefix}:
                self._list({key: data for key, data in objects.items() if key.startswith(prefix)})
            case "GET", _:
                self._read(objects.get(name))
            case ("PUT", {"blockid": piece}) | ("PUT", {"partNumber": piece}):
                self.server.cloud.pieces[piece] = body
                self._answer(201)
            case "PUT", {"comp": "blocklist"}:
                self._join(objects, name, re.findall(r"<Uncommitted>(.+?)<", body.decode()))
            case "POST", {"uploadId": _}:
                self._join(objects, name, re.findall(r"<PartNumber>(.+?)<", body.decode()))
            case "POST", {"uploads": _}:
                self._answer(
                    200, "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>"
                )
            case "POST", {"comp": "batch"}:
                self._delete_all(objects, re.findall(r"DELETE /\w+/(\S+) HTTP", body.decode()))
            case "PUT", _:
                objects[name] = body
                self._answer(201)
            case "DELETE", _:
                if objects.pop(name, None) is None:
                    self._refuse(404, "NoSuchKey")
                else:
                    self._answer(204)

    def _list(self, found: dict[str, bytes]) -> None:
        azure = "x-ms-version" in self.headers
        times = f"<Last-Modified>{formatdate(usegmt=True)}</Last-Modified>", f"<LastModified>{_ISO}</LastModified>"
        parts = []
        for key, data in found.items():
            name = escape(key)
            if azure:
                about = f"{times[0]}<Content-Length>{len(data)}</Content-Length><Content-Type>a/b</Content-Type>"
                parts.append(f"<Blob><Name>{name}</Name><Properties>{about}<Etag>x</Etag></Properties></Blob>")
            else:
                about = f"<Size>{len(data)}</Size>{times[1]}<ETag>x</ETag>"
                parts.append(f"<Contents><Key>{name}</Key>{about}</Contents>")
        text = "".join(parts)
        if azure:
            self._answer(200, f"<EnumerationResults><Blobs>{text}</Blobs><NextMarker/></EnumerationResults>")
        else:
            self._answer(200, f"<ListBucketResult>{text}</ListBucketResult>")

    def _read(self, data: bytes | None) -> None:
        if data is None:
            self._refuse(404, "BlobNotFound" if "x-ms-version" in self.headers else "NoSuchKey")
            return
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range", ""))
        if wanted is None:
            self._answer(200, data)
            return
        first, end = int(wanted[1]), min(int(wanted[2] or len(data)) + 1, len(data))
        if first >= len(data):
            self._refuse(416, "InvalidRange")
        else:
            self._answer(206, data[first:end], {"content-range": f"bytes {first}-{end - 1}/{len(data)}"})

    def _join(self, objects: dict[str, bytes], name: str, pieces: list[str]) -> None:
        objects[name] = b"".join(self.server.cloud.pieces.pop(piece) for piece in pieces)
        text = "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"
        self._answer(201 if self.command == "PUT" else 200, text)

    def _delete_all(self, objects: dict[str, bytes], names: list[str]) -> None:
        answers = []
        for number, name in enumerate(names):
            status = "404 Not Found\r\nx-ms-error-code: BlobNotFound"
            if objects.pop(name, None) is not None:
                status = "202 Accepted"
            answers.append(
                f"--b\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\nHTTP/1.1 {status}\r\n\r\n\r\n"
            )
        self._answer(202, "".join(answers) + "--b--\r\n", {"content-type": "multipart/mixed; boundary=b"})

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{KEY}</Message></Error>")

    def _answer(self, status: int, body: str | bytes = b"", headers: dict[str, Any] | None = None) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        common = {"content-length": len(data), "etag": '"x"', "last-modified": formatdate(usegmt=True)}
        for key, value in (common | (headers or {})).items():
            self.send_header(key, str(value))
        self.end_headers()
        self.wfile.write(data)

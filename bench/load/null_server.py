"""A server that answers every request at once with the same vector: what a load generator can do at most.

`python -m bench.load.null_server` prints its port and serves until SIGTERM.
"""

import asyncio
import json
import sys
from typing import cast

import uvloop

_VECTOR = [round(0.05 - number / 4000, 6) for number in range(384)]
_BODY = json.dumps({"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": _VECTOR}]}).encode()
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(_BODY) + _BODY


class _Answering(asyncio.Protocol):
    """One answer per piece of data: generators send small requests whole and wait."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:  # noqa: ARG002 - whatever it is
        self._transport.write(_ANSWER)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Answering, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve())

"""A whole service whose Redis trusts nobody: a user with its own rights for each role, and TLS on the way to it."""

import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
import redis

from tests.integration.guarded.certificates import Authority
from tests.key_leaks import fail_on_leaks
from tests.link import Link
from tests.processes import ApiProcess, Process, RedisServer, Roles, WorkerProcess
from tests.source_tree import CHECKOUT

KEY, OTHER_KEY = "key-of-somebody", "key-of-somebody-else"


class GuardedRedis(RedisServer):
    """A Redis with the users of deploy/redis. Its own clients are the operator's."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        made = folder / "users"
        subprocess.run([sys.executable, CHECKOUT / "deploy/redis/make_users.py", made], check=True)
        self.passwords = dict(line.split() for line in (made / "passwords").read_text().splitlines())
        self.command += ["--aclfile", str(made / "users.acl")]

    @property
    def url(self) -> str:
        """With the rights of the operator, without TLS."""
        return f"redis://operator:{self.passwords['operator']}@127.0.0.1:{self.endpoint.port}/0"


@dataclass(slots=True)
class Guarded:
    """The processes of the service, and a client whose key may do everything. `OTHER_KEY` has no scope `admin`."""

    server: GuardedRedis
    link: Link
    authority: Authority
    storage: Path
    api: ApiProcess
    worker: WorkerProcess
    documents: WorkerProcess
    client: httpx.Client

    @property
    def processes(self) -> tuple[Process, ...]:
        return self.api, self.worker, self.documents

    def url(self, user: str, *, trusted: Path | None = None) -> str:
        """For `EMBEDQ_REDIS_URL` of a role. `trusted`: another authority than the right one."""
        return url(self.server, self.link, user, trusted or self.authority.file)

    def user(self, name: str) -> redis.Redis:
        """A connection with the rights of a role, to be closed by the caller."""
        return redis.Redis.from_url(self.url(name))


def url(server: GuardedRedis, link: Link, user: str, trusted: Path) -> str:
    return f"rediss://{user}:{server.passwords[user]}@127.0.0.1:{link.port}/0?ssl_ca_certs={trusted}"


@pytest.fixture(scope="session")
def guarded(start_redis: Callable[..., RedisServer], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    server = start_redis(folder / "redis", GuardedRedis)
    assert isinstance(server, GuardedRedis)
    authority = Authority(folder, "authority")
    digests = [sha256(key.encode()).hexdigest() for key in (KEY, OTHER_KEY)]
    storage, keys = folder / "storage", f"somebody:{digests[0]}:admin,other:{digests[1]}"
    try:
        with (
            Link(server.endpoint.port, tls=authority.server()) as link,
            Roles(folder, "", storage_url=storage) as roles,
        ):
            at = {user: url(server, link, user, authority.file) for user in ("worker", "documents", "api")}
            worker = roles.worker(redis_url=at["worker"])
            documents = roles.documents(redis_url=at["documents"])
            api = roles.api(redis_url=at["api"], api_keys=keys)
            api.wait_ready()
            with api.client() as client:
                client.headers["authorization"] = f"Bearer {KEY}"
                yield Guarded(server, link, authority, storage, api, worker, documents, client)
        fail_on_leaks(server)
    finally:
        server.stop()


@pytest.fixture
def foreign(tmp_path: Path) -> Authority:
    """An authority that nobody here trusts."""
    return Authority(tmp_path, f"foreign-{secrets.token_hex(4)}")

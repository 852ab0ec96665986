"""Uses a running Compose project as a client would, and stops its containers while they work.

python3 deploy/smoke_check.py http://127.0.0.1:8000 docker compose --project-name embedq-smoke

Standard library only: it runs before anything is installed. Prints a line per finding;
the first one that is wrong ends it with `CheckFailed`.
"""

import json
import math
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

CAT = "A cat is sleeping on the sofa in the living room."
KITTEN = "On the couch of the lounge a kitten takes a nap."
REVENUE = "Quarterly revenue grew by eight percent."
DIMENSION = 384
READY_TIMEOUT_S = 240.0
TASK_TIMEOUT_S = 240.0
HTTP_TIMEOUT_S = 60.0

SAME = 0.999
"""Cosine above which two vectors are of the same text."""
UNAVAILABLE = 503
UNAUTHENTICATED = 401

Task = dict[str, Any]


class CheckFailed(Exception):
    """The deployment does not do what it should. The message says what was seen."""


def require(truth: bool, otherwise: str) -> None:
    """Raises `CheckFailed(otherwise)` unless `truth`."""
    if not truth:
        raise CheckFailed(otherwise)


class Server:
    """The web tier at `url`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.key = ""  # sent with each call, if there is one

    def call(self, method: str, path: str, body: object = None) -> Any:
        """The decoded JSON answer. Raises `urllib.error.HTTPError` for 4xx and 5xx."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self.key}"} if self.key else {})
        request = urllib.request.Request(  # noqa: S310 - the address is ours, given on the command line
            self._url + path, data, headers, method=method
        )
        with urllib.request.urlopen(request, timeout=HTTP_TIMEOUT_S) as answer:  # noqa: S310 - as above
            return json.load(answer)

    def await_ready(self) -> None:
        """Returns once a worker with a loaded model beats; `CheckFailed` if that takes too long."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        said: object = None
        while time.monotonic() < deadline:
            try:
                self.call("GET", "/health/ready")
            except urllib.error.HTTPError as error:
                said = error.read().decode()
            except OSError as error:  # the container is not listening yet
                said = error
            else:
                return
            time.sleep(0.5)
        raise CheckFailed(f"not ready in {READY_TIMEOUT_S:.0f} s: {said}")

    def submit(self, texts: list[str]) -> str:
        """The id of the new task."""
        task = self.call("POST", "/v1/tasks", {"input": texts})
        require(task["status"] in {"queued", "in_progress"}, f"a new task is {task}")
        return str(task["id"])

    def await_started(self, task_id: str) -> None:
        """Returns once some vectors are there and some are not."""
        task = self.poll(f"/v1/tasks/{task_id}", lambda task: task["counts"]["completed"] > 0)
        require(task["status"] == "in_progress", f"ended before it could be disturbed: {task}")

    def vectors(self, task_id: str) -> list[list[float]]:
        """The vectors of a task, in input order, once it has completed without a failed item."""
        task = self.poll(f"/v1/tasks/{task_id}", lambda task: task["status"] not in {"queued", "in_progress"})
        counts = task["counts"]
        require(task["status"] == "completed" and counts["completed"] == counts["total"], f"ended as {task}")
        data = self.call("GET", f"/v1/tasks/{task_id}/result")["data"]
        require([item["index"] for item in data] == list(range(counts["total"])), "not in input order")
        return [item["embedding"] for item in data]

    def poll(self, path: str, enough: Callable[[Task], bool]) -> Task:
        """The object at a path, once it is far enough; `CheckFailed` if that takes too long."""
        deadline = time.monotonic() + TASK_TIMEOUT_S
        task: Task = {}
        while time.monotonic() < deadline:
            try:
                task = self.call("GET", path)
            except urllib.error.HTTPError as error:
                require(error.code == UNAVAILABLE, f"{error} while polling")  # Redis is being restarted by us
            else:
                if enough(task):
                    return task
            time.sleep(0.1)
        raise CheckFailed(f"{path} did not get there in {TASK_TIMEOUT_S:.0f} s: {task}")


def cosine(one: list[float], other: list[float]) -> float:
    """The cosine of two vectors of unit length."""
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


def check_meaning(vectors: list[list[float]]) -> None:
    """Requires unit vectors of CAT, KITTEN and REVENUE that know what the texts are about."""
    require({len(vector) for vector in vectors} == {DIMENSION}, f"dimensions: {[len(vector) for vector in vectors]}")
    require(all(abs(cosine(vector, vector) - 1) < 1 - SAME for vector in vectors), "not of unit length")
    cat, kitten, revenue = vectors
    near, far = cosine(cat, kitten), cosine(cat, revenue)
    require(near > far + 0.3, f"meaning is lost: cat/kitten {near:.3f}, cat/revenue {far:.3f}")
    print(f"meaning: cat/kitten {near:.3f}, cat/revenue {far:.3f}")


def check_search(server: Server) -> None:
    """Requires that documents are ingested, and found in their dataset by meaning."""
    documents = [{"id": name, "text": text} for name, text in (("cat", CAT), ("revenue", REVENUE))]
    body = {"source": {"documents": documents}, "sink": {"type": "dataset", "dataset": "smoke"}}
    ingestion_id = server.call("POST", "/v1/ingestions", body)["id"]
    ended = server.poll(f"/v1/ingestions/{ingestion_id}", lambda one: one["status"] in {"completed", "failed"})
    require(ended["status"] == "completed", f"ended as {ended}")
    found = server.call("POST", "/v1/datasets/smoke/search", {"query": KITTEN})["data"]
    require([chunk["document_id"] for chunk in found] == ["cat", "revenue"], f"found {found}")
    print("search:", *(f"{chunk['document_id']} {chunk['score']:.3f}" for chunk in found))


def long_task() -> list[str]:
    """Passages that take some ten seconds on a small machine, all different, with the known texts among them."""
    story = "The river carries {0} boats past the old mill. " * 6
    passages = [f"Passage {number}. " + story.format(number) for number in range(600)]
    passages[0], passages[350], passages[-1] = CAT, KITTEN, REVENUE
    return passages


def check_disturbed(server: Server, known: list[list[float]], *commands: list[str]) -> None:
    """Runs `commands` in the middle of a long task and requires that it completes, each vector in its place."""
    task_id = server.submit(long_task())
    server.await_started(task_id)
    for command in commands:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    vectors = server.vectors(task_id)
    for mine, expected in zip((vectors[0], vectors[350], vectors[-1]), known, strict=True):
        require(cosine(mine, expected) > SAME, "another vector than before")
    done = ", ".join(" ".join(command[-2:]) for command in commands)
    print(f"{len(vectors)} texts completed across: {done} ({time.monotonic() - START:.0f} s)")


def check_keys(server: Server, compose: list[str]) -> None:
    """Makes the first key as docs/operations.md says. From then on the server is closed without it."""
    command = [*compose, "exec", "-T", "api", "embedq", "keys", "create", "smoke"]
    key = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    require(key.startswith("embedq_"), f"not a key: {key!r}")
    deadline = time.monotonic() + HTTP_TIMEOUT_S
    while not refused(server):
        require(time.monotonic() < deadline, "still open without a key")
        time.sleep(0.1)
    server.key = key
    require(server.call("GET", "/v1/key")["name"] == "smoke", "the first key is not known")
    print("keys: the first one closes the server")


def refused(server: Server) -> bool:
    """Whether a call without a key is answered with 401."""
    try:
        server.call("GET", "/v1/tasks")
    except urllib.error.HTTPError as error:
        require(error.code == UNAUTHENTICATED, f"{error} without a key")
        return True
    return False


def main(url: str, compose: list[str]) -> None:
    """Runs every check against `url`; `compose` is the command line up to the subcommand."""
    server = Server(url)
    server.await_ready()
    print(f"ready after {time.monotonic() - START:.0f} s")
    known = server.vectors(server.submit([CAT, KITTEN, REVENUE]))
    check_meaning(known)
    check_search(server)
    check_disturbed(server, known, [*compose, "restart", "worker"])
    kills = [[*compose, "kill", "--signal", "KILL", service] for service in ("worker", "redis")]
    starts = [[*compose, "start", service] for service in ("redis", "worker")]
    check_disturbed(server, known, *kills, *starts)
    server.await_ready()
    check_keys(server, compose)


START = time.monotonic()

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

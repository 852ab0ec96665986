"""Workers of the simulation: they claim and commit, die, hang, stop, and come back too late."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.simulation.repeats import repeat_claim, repeat_commit
from tests.simulation.thin_client import WORKER_TTL_MS, Claim, Finished, Piece
from tests.simulation.world import LEASE_MS, Process, Stream, World

DEEDS = (
    *(["commit"] * 12),
    *("part", "part", "give_back", "blame", "crash", "hang", "rest", "rest", "renew"),
)
"""What a busy stream does next, by weight. `part`: it commits one piece. `rest`: it asks once more, then is idle."""
_HARMLESS = {"hang", "give_back", "renew"}
_LIVES_MS = 10**9
_PAUSE_MS = 50


@dataclass(frozen=True)
class Turn:
    """What a stream does when it is its turn. `sent`: a bell that is due reaches the broker."""

    stream: int
    budget: int = 100
    most: int = 64
    linger_ms: int = 800
    deed: str = "commit"
    sent: bool = True
    passes: str = ""


def start(world: World, n: int) -> None:
    """A process that has loaded the model. What its predecessor held is lost."""
    process = Process(world.client, f"w{n}")
    world.processes[n : n + 1] = [process]
    _note_predecessor(world, process)
    world.rung(world.ledger.heartbeat("join", process.name, ttl_ms=_LIVES_MS).bell)


def _note_predecessor(world: World, process: Process) -> None:
    """What one of this name held before is lost when its successor is heard of."""
    held = [token for token in world.claims() if token.startswith(f"{process.name}/")]
    world.note_losses(held)
    world.note_expiring(held)


def crash(world: World, n: int) -> None:
    """A process dies, or one that is dead starts."""
    process = world.processes[n]
    if not process.alive:
        start(world, n)
        return
    world.fault = True
    world.zombies += [stream.claim for stream in process.streams if stream.claim]
    process.close()


def stop(world: World, n: int) -> None:
    """A process stops as it should, and gives back what it holds."""
    process = world.processes[n]
    if not process.alive:
        return
    world.zombies += [stream.claim for stream in process.streams if stream.claim]
    process.close()
    world.note_expiring([token for token in world.claims() if token.startswith(f"{process.name}/")])
    world.rung(world.ledger.heartbeat("stop", process.name).bell)


def beat(world: World, n: int) -> None:
    """A process says that it lives, and renews its leases; one that is dead says that it loads its model."""
    process = world.processes[n]
    if not process.alive:
        _note_predecessor(world, process)
        world.rung(world.ledger.heartbeat("loading", process.name, ttl_ms=WORKER_TTL_MS).bell)
        return
    tokens = [stream.claim.token for stream in process.streams if stream.claim and stream.state != "hung"]
    world.note_expiring(tokens)
    said = world.ledger.heartbeat("beat", process.name, ttl_ms=_LIVES_MS, lease_ms=LEASE_MS, tokens=tokens)
    assert said.accepted
    world.rung(said.bell)


def deliver(world: World, n: int) -> None:
    """A bell reaches a process: its idle streams start, and one of them clears the bell."""
    process = world.processes[n]
    idle = [stream for stream in process.streams if stream.state == "idle"]
    if world.broker and process.alive and idle:
        world.broker -= 1
        for stream in idle:
            stream.state, stream.rang = "started", stream is idle[0]


def work(world: World, turn: Turn) -> None:
    """Lets a stream go on; one whose process is dead starts it."""
    stream = world.processes[turn.stream // 2].streams[turn.stream % 2]
    if not stream.process.alive:
        start(world, turn.stream // 2)
        return
    waited = stream.state in {"lingering", "paused"} and world.ledger.now >= stream.until
    woken = stream.state == "lingering" and stream.notified
    if stream.state in {"started", "again"} or waited or woken:
        ask(world, stream, turn)
    elif stream.state == "lingering" and turn.deed == "rest":
        ask(world, stream, Turn(turn.stream, turn.budget, turn.most, linger_ms=0, sent=turn.sent))
    elif stream.state == "hung":
        stream.state = "busy" if stream.claim else "again"
    elif stream.state == "busy":
        go_on(world, stream, turn)


def ask(world: World, stream: Stream, turn: Turn) -> None:
    """Claims."""
    beside = [
        token for token in world.claims() if token.startswith(f"{stream.process.name}/") and any(world.held(token))
    ]
    marked = [token for token in beside if any(piece.deaths for piece in world.held(token))]
    how: dict[str, Any] = {
        "budget": turn.budget,
        "max_pieces": turn.most,
        "linger_ms": turn.linger_ms,
        "rang": stream.rang,
        "lease_ms": LEASE_MS,
        "passes": turn.passes,
    }
    claim = world.ledger.claim(stream.name, f"{stream.name}/{world.number()}", **how)
    stream.rang = stream.notified = False
    world.last = partial(repeat_claim, world, stream, claim, how)
    if claim.pieces:
        _check_claim(world, claim, turn, beside, marked)
        stream.state, stream.claim = "busy", claim
    else:
        _rest(world, stream, claim)
    world.rung(claim.bell, sent=turn.sent)


def _rest(world: World, stream: Stream, claim: Claim) -> None:
    stream.until = world.ledger.now + claim.wait_ms
    if claim.more:
        stream.state = "again"
    elif claim.wait_ms == _PAUSE_MS:
        stream.state = "paused"
    else:
        stream.state = "lingering" if claim.wait_ms else "idle"


def _check_claim(world: World, claim: Claim, turn: Turn, beside: Sequence[str], marked: Sequence[str]) -> None:
    assert len(claim.pieces) <= turn.most
    assert len(claim.pieces) == 1 or claim.cost <= turn.budget, "over the budget"
    assert not marked, "something beside a marked piece"
    if any(piece.deaths for piece in claim.pieces):
        assert len(claim.pieces) == 1, "a marked piece in company"
        assert not beside, "a marked piece beside another claim of its process"
    for piece in claim.pieces:
        known = world.tasks[piece.task]
        assert not (known.deadline and known.deadline <= world.ledger.now), "overdue work was begun"
        assert (known.lane, known.owner) == (claim.lane, piece.owner)
        assert known.owner not in world.purged, "work of a purged owner was begun"
        assert known.owner != turn.passes, "work of an owner that is passed over"
        root = int(piece.name.rstrip("abcd"))
        assert piece.first - piece.offset == known.starts[root], "a part that begins elsewhere in its payload"
        assert piece.payload == b"p%d" % root * (root + 1)


def poisoned(world: World, claim: Claim) -> bool:
    """Whether it kills its worker."""
    known = ((piece, world.tasks.get(piece.task)) for piece in claim.pieces)
    return any(
        task is not None and task.poison is not None and piece.first <= task.poison < piece.first + piece.items
        for piece, task in known
    )


def go_on(world: World, stream: Stream, turn: Turn) -> None:
    """What a busy stream does."""
    claim, deed = stream.claimed, turn.deed
    if poisoned(world, claim) and deed not in _HARMLESS:
        deed = "crash"
    if deed in {"commit", "rest"}:
        _commit_all(world, stream, turn, lingers=deed == "commit" and world.number() % 2 == 0)
    elif deed == "part":
        _commit_one(world, stream, turn)
    elif deed in {"give_back", "blame"}:
        if deed == "blame":
            world.note_losses([claim.token])
        world.rung(world.ledger.give_back(claim.token, blame=deed == "blame"), sent=turn.sent)
        stream.claim, stream.state = None, "again"
    elif deed == "crash":
        crash(world, turn.stream // 2)
    elif deed == "hang":
        stream.state = "hung"
    elif deed == "renew":
        beat(world, turn.stream // 2)


def _commit_all(world: World, stream: Stream, turn: Turn, *, lingers: bool) -> None:
    claim = stream.claimed
    wait_ms, _ = commit(world, claim.token, claim.pieces, stream.name, 800 if lingers else 0)
    if wait_ms:
        stream.notified = False
    if claim.token in world.claims():  # in portions, or of something that had ended
        world.rung(world.ledger.give_back(claim.token), sent=turn.sent)
    stream.claim, stream.state, stream.until = None, "lingering" if wait_ms else "again", world.ledger.now + wait_ms


def _commit_one(world: World, stream: Stream, turn: Turn) -> None:
    claim = stream.claimed
    commit(world, claim.token, claim.pieces[:1])
    left = claim.pieces[1:]
    stream.claim = Claim(claim.token, lane=claim.lane, pieces=left)
    if not left:
        if claim.token in world.claims():
            world.rung(world.ledger.give_back(claim.token), sent=turn.sent)
        stream.claim, stream.state = None, "again"


def commit(
    world: World, token: str, pieces: Sequence[Piece], stream: str = "", linger_ms: int = 0
) -> tuple[int, list[int]]:
    """Commits what says whose it is: for how long the stream lingers, and what became of each piece."""
    holding = {(piece.task, piece.name) for piece in world.held(token)}
    finished = [
        Finished(piece, f"{piece.task}:{piece.first}:{token};".encode() * piece.items, tokens=piece.items)
        for piece in pieces
    ]
    wait_ms, codes, took = world.ledger.commit(token, finished, spent=len(finished), stream=stream, linger_ms=linger_ms)
    ended = set[str]()
    for piece, code in zip(pieces, codes, strict=True):
        known, task = world.tasks.get(piece.task), world.ledger.read(piece.task)
        mine = (piece.task, piece.name) in holding and known is not None and known.owner not in world.purged
        assert (code == 1) == mine, (code, piece)
        ended |= {piece.task} if mine and task is not None and task.state == "completed" else set()
    assert len(took) == 2 * len(ended)
    world.last = partial(repeat_commit, world, token, finished, codes)
    world.rung(0)
    return wait_ms, codes


def zombie_commit(world: World, number: int) -> None:
    """A process that was taken for dead commits: nothing changes but by what it still holds."""
    if not world.zombies:
        return
    claim = world.zombies[number % len(world.zombies)]
    if poisoned(world, claim):
        return
    before = {piece.task: world.client.hgetall(f"eq:task:{piece.task}") for piece in claim.pieces}
    _, codes = commit(world, claim.token, claim.pieces)
    committed = {piece.task for piece, code in zip(claim.pieces, codes, strict=True) if code == 1}
    for task_id, fields in before.items():
        owner = world.tasks[task_id].owner if task_id in world.tasks else ""
        if task_id not in committed and owner not in world.purged:
            assert world.client.hgetall(f"eq:task:{task_id}") == fields, "a stale commit changed something"

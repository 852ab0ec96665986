"""`embedq keys`: makes, lists, limits, rotates, revokes, purges, exports and imports the API keys of a server.

It needs a key with the scope `admin` in `EMBEDQ_API_KEY`. `export`, `import`, `create --owner`, and `create` without
such a key go through the Redis of the service, which proves the operator.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from embedq import environment
from embedq.cli.asking import asks, checked_address
from embedq.cli.exit_codes import OK, SOME_FAILED, UNREACHABLE, USAGE, UsageError
from embedq.cli.options import json_option, positive, server_options, shared_options
from embedq.cli.output import Output, printable
from embedq.cli.serve import CHECKOUT, command_for
from embedq.errors import EmbedqClientError, RefusedError, UnreachableError
from embedq.transport import Transport, is_loopback, route

SCOPES = ("online", "bulk", "files", "ingest", "read", "operate", "admin")
_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_SERVER_ERROR = 500

Work = Callable[[Transport, argparse.Namespace, Output], Awaitable[None]]


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.description = (
        "API keys of a server. EMBEDQ_API_KEY must be a key with the scope admin. Without it, create goes through the "
        "Redis of the service (EMBEDQ_REDIS_URL, or the data folder of embedq up); the first key has all scopes. "
        "export and import always do."
    )
    shared_options(parser)
    parts = parser.add_subparsers(metavar="WHAT", required=True)
    creating = _part(parts, "create", _create, "make a key and print its text, which is told this once")
    creating.add_argument("--owner", metavar="ID", help="whose what it makes is, after a Redis was lost: through Redis")
    creating.set_defaults(run=_run_create)
    exporting = parts.add_parser("export", help="print keys and owners, a line of JSON each; without any key's text")
    exporting.set_defaults(run=_export)
    importing = parts.add_parser("import", help="give the keys of an export back to a Redis that has lost them")
    importing.add_argument("file", metavar="FILE", type=Path, help="what export has printed")
    importing.set_defaults(run=_import)
    for part in (exporting, importing):
        json_option(part)
        part.set_defaults(takes=("json",))
    for part in (creating, exporting, importing):
        part.add_argument(
            "--data", metavar="DIR", help="of embedq up (default: EMBEDQ_REDIS_URL says which service, else .embedq)"
        )
    rotating = _part(parts, "rotate", _rotate, "give a key another text and print it")
    rotating.add_argument("--grace", type=duration, default=0.0, metavar="T", help="the old text is valid for so long")
    limiting = _part(parts, "limits", _limit, "change limits, scopes or the end of a key; without options, print them")
    for part in (creating, limiting):
        # Absent where not given: None removes a limit.
        new, absent = part.add_argument, argparse.SUPPRESS
        new("--scopes", type=_names, default=absent, metavar="S", help=f"some of {','.join(SCOPES)}")
        expires_help = "ends by itself after T, as in 90d"
        new("--expires", dest="expires_in", type=_or_none(duration), default=absent, metavar="T", help=expires_help)
        for name, (kind, text) in LIMITS.items():
            new(f"--{name.replace('_', '-')}", type=_or_none(kind), default=absent, metavar="N", help=text)
    _part(parts, "revoke", _revoke, "end a key for good; what it owns stays until it is purged")
    _part(parts, "delete", _delete, "delete the record of a key that is revoked and purged")
    purging = _part(parts, "purge", _purge, "have everything removed that a revoked key owns, and print what is left")
    purging.add_argument("--yes", action="store_true", help="do not ask")
    _part(parts, "list", _list, "print all keys", named=False)


def _part(parts: Any, name: str, work: Work, text: str, *, named: bool = True) -> argparse.ArgumentParser:
    part: argparse.ArgumentParser = parts.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    if named:
        part.add_argument("name", metavar="NAME", help="of the key")

    server_options(part, timeout_s=60)
    part.set_defaults(run=asks(Transport, work))
    return part


# Through Redis.


def _run_create(args: argparse.Namespace, output: Output) -> int:
    if not args.owner and environment.api_key() is not None:
        return asks(Transport, _create)(args, output)
    with checked_address():
        elsewhere = not is_loopback(environment.server_url())
    if args.url or elsewhere:
        raise UsageError(
            "--url and EMBEDQ_URL name a server, and it makes a key for one with the scope admin in EMBEDQ_API_KEY. "
            "Without both, and for --owner, this goes through the Redis of the settings here"
        )
    owner = ("--owner", args.owner) if args.owner else ()
    for key in _through_redis(args, *owner, "create", json.dumps(_new(args))):
        _tell(key, output)  # at once: an interrupted command must not make a key that nobody is told
    return OK


def _export(args: argparse.Namespace, _: Output) -> int:
    sys.stdout.writelines([json.dumps(line) + "\n" for line in _through_redis(args, "export")])
    return OK


def _import(args: argparse.Namespace, output: Output) -> int:
    with args.file.open("rb") as source:
        [answer] = _through_redis(args, "import", stdin=source)
    output.result(f"{answer['imported']:,} keys are there", answer | {"refused": [*answer["refused"]]})
    for name, reason in answer["refused"].items():
        output.note(f"{printable(name)} is not imported: {reason}")
    return SOME_FAILED if answer["refused"] else OK


def _through_redis(
    args: argparse.Namespace, *arguments: str, stdin: IO[bytes] | None = None
) -> Iterator[dict[str, Any]]:
    """What the server's part of the command prints, where the settings of the service are.

    Raises:
        UsageError, EmbedqClientError: what it has said is wrong.
        SystemExit: it has died, and its last words are on the terminal.
    """
    command = command_for("api.keys_command", *(("--data", args.data) if args.data else ()), *arguments)
    environ = environment.with_python_path(CHECKOUT)
    with subprocess.Popen(  # noqa: S603 - our own
        command, env=environ, stdin=stdin, stdout=subprocess.PIPE, text=True
    ) as child:
        for told in map(json.loads, child.stdout or ()):
            if "code" not in told:
                yield told
            elif child.wait() == USAGE:
                raise UsageError(told["message"])
            else:
                kind = UnreachableError if child.returncode == UNREACHABLE else RefusedError
                raise kind(told["message"], code=told["code"])
    if child.returncode != OK:
        raise SystemExit(child.returncode)


# Through the server.


async def _create(server: Transport, args: argparse.Namespace, output: Output) -> None:
    lost = f"If the key was made, nobody knows its text: embedq keys rotate {args.name} gives it another one."
    _tell(await _told_once(server, route("keys"), _new(args), lost), output)


async def _rotate(server: Transport, args: argparse.Namespace, output: Output) -> None:
    lost = (
        "If the key was rotated, nobody knows its new text, and the one of before may end: rotate it again, with "
        "another key of the scope admin if this command used that key."
    )
    _tell(await _told_once(server, route("keys", args.name, "rotate"), {"grace_seconds": args.grace}, lost), output)


async def _told_once(server: Transport, path: str, body: Mapping[str, Any], lost: str) -> dict[str, Any]:
    """The answer that has a key's text, which no repetition tells again."""
    try:
        return await server.json("POST", path, body, once=True)
    except EmbedqClientError as error:
        if error.status is None or error.status >= _SERVER_ERROR:
            error.message += f" {lost}"
        raise


async def _limit(server: Transport, args: argparse.Namespace, output: Output) -> None:
    changes, path = _changes(args), route("keys", args.name)
    key = await (server.json("POST", path, changes) if changes else server.json("GET", path))
    output.result(describe(key), key)


async def _revoke(server: Transport, args: argparse.Namespace, output: Output) -> None:
    output.result(f"{args.name} revoked", await server.json("POST", route("keys", args.name, "revoke")))


async def _delete(server: Transport, args: argparse.Namespace, output: Output) -> None:
    await server.call("DELETE", route("keys", args.name))
    output.result(f"{args.name} deleted", {"name": args.name, "object": "key", "deleted": True})


async def _purge(server: Transport, args: argparse.Namespace, output: Output) -> None:
    if not args.yes:
        _confirm(args.name)
    key = await server.json("POST", route("keys", args.name, "purge"))
    left = ", ".join(f"{number:,} {name}" for name, number in key["left"].items())
    said = "nothing is left" if key["swept_at"] else f"documents workers remove all it has; left are {left}"
    output.result(f"{args.name} is purged: {said}", key)


def _confirm(name: str) -> None:
    if not sys.stdin or not sys.stdin.isatty():
        raise UsageError(f"purge deletes all that {name} owns for good; say --yes")
    print(f"Delete everything that {name} owns, for good? Type its name: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != name:
        raise UsageError("that is not its name; nothing was deleted")


async def _list(server: Transport, _args: argparse.Namespace, output: Output) -> None:
    for key in (await server.json("GET", route("keys")))["data"]:
        output.result(describe(key), key)


def describe(key: Mapping[str, Any]) -> str:
    """A key in one line."""
    parts = [printable(key["name"]), ",".join(key["scopes"])]
    times = {name: at for name in ("expires", "revoked", "purged") if (at := key[f"{name}_at"])}
    parts += [f"{name} {datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}" for name, at in times.items()]
    parts += ["of EMBEDQ_API_KEYS"] if key["source"] == "environment" else []
    limits = {name: value for name, value in key["limits"].items() if value is not None}
    parts += [f"{name}={','.join(value) if isinstance(value, list) else value}" for name, value in limits.items()]
    return " ".join(parts)


def _tell(key: Mapping[str, Any], output: Output) -> None:
    """Prints the text of a key and nothing else, so that a script can keep it."""
    output.result(key["key"], {"name": key["name"], "key": key["key"]})
    if not output.json_lines:
        output.note(f"this is the key {key['name']}; it is told this once, and the server keeps only its SHA-256")


def _changes(args: argparse.Namespace) -> dict[str, Any]:
    """What the options say, as the server reads it; None removes."""
    changes = {name: getattr(args, name) for name in ("scopes", "expires_in") if name in args}
    limits = {name: getattr(args, name) for name in LIMITS if name in args}
    return changes | ({"limits": limits} if limits else {})


def _new(args: argparse.Namespace) -> dict[str, Any]:
    """A key with what the options say."""
    body = {"name": args.name, **_changes(args)}
    body["limits"] = {name: value for name, value in body.get("limits", {}).items() if value is not None}
    return {name: value for name, value in body.items() if value not in (None, {})}


# Arguments.


def duration(text: str) -> float:
    """Seconds of a text such as 90d, 1h, 30m or 45."""
    form = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if form is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 90d, 1h, 30m or 45s")
    return float(form[1]) * _UNITS_S[form[2]]


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _or_none(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        return None if text == "none" else kind(text)

    read.__name__ = kind.__name__  # argparse names it where the text is wrong
    return read


LIMITS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "requests_per_second": (positive, "requests of any kind; none: no limit of its own, as for the others"),
    "tokens_per_minute": (int, "estimated tokens of accepted texts"),
    "queued_tokens": (int, "estimated tokens that wait at a time"),
    "open_jobs": (int, "tasks, batches and ingestions that have not ended"),
    "stored_bytes": (int, "of files, outputs, what became of documents, and datasets"),
    "sinks": (_names, "names of EMBEDQ_SINKS, or name/table, comma-separated; a table may end with *"),
    "roots": (_names, "prefixes below EMBEDQ_INGEST_ROOTS, comma-separated"),
}
"""Kind of the value and its help, by the server's name."""

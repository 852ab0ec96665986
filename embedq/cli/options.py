"""Options that several commands share, and kinds of arguments. Quick to load."""

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embedq.service import EncodingOptions

SHARED = ("url", "timeout", "json")
"""Options that stand before or after the name of a command that has them."""


def shared_options(parser: argparse.ArgumentParser, timeout_help: str = "give up after so many seconds") -> None:
    """`--url`, `--timeout`, `--json`; absent where not given, so that each may stand before or after the command."""
    group = parser.add_argument_group("options of commands that ask a server, before or after their name")
    absent = argparse.SUPPRESS
    group.add_argument("--url", default=absent, help="address of the server (default: EMBEDQ_URL, else the local one)")
    group.add_argument("--timeout", type=positive, default=absent, metavar="S", help=timeout_help)
    json_option(group)


def json_option(parser: argparse._ActionsContainer) -> None:
    """`--json` alone; absent where not given."""
    absent = argparse.SUPPRESS
    parser.add_argument("--json", action="store_true", default=absent, help="JSON lines instead of text, for programs")


def server_options(parser: argparse.ArgumentParser, *, timeout_s: float | None) -> None:
    """The shared options, of a command that has them. A `timeout_s` of None means that it waits for ever by default."""
    default = "never" if timeout_s is None else f"{timeout_s:g}"
    shared_options(parser, f"give up after so many seconds (default: {default})")
    parser.set_defaults(takes=SHARED, default_timeout_s=timeout_s)


def encoding_options(parser: argparse.ArgumentParser, *, truncating: bool = True) -> None:
    """`--model` and what changes a vector. `truncating`: whether texts can be too long at all."""
    new = parser.add_argument
    new("--model", metavar="NAME", help="name under which the server serves it (default: its own)")
    new("--dimensions", type=count, metavar="N", help="cut vectors to N numbers (Matryoshka models)")
    new("--prompt-name", metavar="NAME", help="one of the model's prompts, put before each text")
    off: Any = {"action": "store_false", "default": None}
    new("--no-normalize", dest="normalize", **off, help="leave vectors at their own length")
    if truncating:
        new("--no-truncate", dest="truncate", **off, help="let texts fail that are too long for the model")


def encoding_from_args(args: argparse.Namespace) -> "EncodingOptions":
    """The values of `encoding_options`; options that were not given are absent."""
    names = ("dimensions", "prompt_name", "normalize", "truncate")
    given: Any = {name: value for name in names if (value := getattr(args, name, None)) is not None}
    options: EncodingOptions = given
    return options


def utf8(text: str) -> str:
    """An argument that must be a text, which any bytes on a command line need not be."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("it is not UTF-8; convert it first") from None
    return text


def count(text: str) -> int:
    """An argument that must be an integer above 0."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def positive(text: str) -> float:
    """An argument that must be a number above 0."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return number

"""Kinds of arguments, and the options that stand before or after the name of a command. Quick to load."""

import argparse


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

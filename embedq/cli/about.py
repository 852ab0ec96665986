"""`embedq completion`, `help`, `version`: the command about itself."""

import argparse
from collections.abc import Iterator, Sequence

from embedq.cli import Command, parser, print_version
from embedq.cli.exit_codes import OK
from embedq.cli.output import Output

_SCRIPTS = {
    "bash": """_embedq() {
    local IFS=$'\\n'
    COMPREPLY=($(embedq completion --of "${COMP_WORDS[@]:1:COMP_CWORD}"))
}
complete -o default -F _embedq embedq  # for ~/.bashrc: eval "$(embedq completion bash)"
""",
    "zsh": """#compdef embedq
_embedq() {
    local -a found=("${(@f)$(embedq completion --of "${(@)words[2,CURRENT]}")}")
    if [[ -n "$found" ]]; then compadd -a found; else _files; fi
}
compdef _embedq embedq  # for ~/.zshrc, after compinit: eval "$(embedq completion zsh)"
""",
    "fish": """function __embedq
    set -l found (embedq completion --of (commandline -opc)[2..-1] (commandline -ct))
    if set -q found[1]; printf '%s\\n' $found; else; __fish_complete_path (commandline -ct); end
end
complete -c embedq -f -a '(__embedq)'  # for ~/.config/fish/completions/embedq.fish
""",
}


def add(command: argparse.ArgumentParser) -> None:
    """Adds the options of the command that the parser is for."""
    name = command.prog.split()[-1]
    if name == "completion":
        command.epilog = 'bash, zsh: eval "$(embedq completion SHELL)"; fish: embedq completion fish | source'
        command.add_argument("shell", choices=sorted(_SCRIPTS), nargs="?", default="bash")
        command.add_argument("--of", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)  # what the scripts ask
    elif name == "help":
        command.add_argument("words", nargs="*", metavar="COMMAND")
    command.set_defaults(run=run, what=name)


def run(args: argparse.Namespace, _: Output) -> int:
    """The exit code."""
    if args.what == "version":
        print_version()
    elif args.what == "help":
        parser().parse_args([*args.words, "--help"])
    elif args.of is None:
        print(_SCRIPTS[args.shell], end="")
    else:
        for found in candidates(args.of):
            print(found)
    return OK


def candidates(words: Sequence[str]) -> Iterator[str]:
    """What the last of the words of a command line, without `embedq`, may become; nothing where a file is meant."""
    current: argparse.ArgumentParser = parser()
    *before, last = words or [""]
    for word in before:
        current = dict(_subcommands(current)).get(word, current)
        if isinstance(current, Command):
            current.load()
    actions = current._actions  # noqa: SLF001 - argparse has no other way to look at a parser
    options = {name: action for action in actions for name in action.option_strings if action.help != argparse.SUPPRESS}
    asked = options.get(before[-1]) if before else None
    if asked is not None and asked.nargs != 0:
        found = [str(choice) for choice in asked.choices or ()]
    elif last.startswith("-"):
        found = [name for name in options if name.startswith("--")]
    else:
        found = [str(choice) for action in actions if not action.option_strings for choice in action.choices or ()]
    yield from (name for name in found if name.startswith(last))


def _subcommands(current: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in current._actions:  # noqa: SLF001 - as above
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            yield from action.choices.items()

"""``gpuperf completion``: what a shell needs to complete the command, as a script of its own. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from .common import OK, write

__all__ = ["add_parser"]

_FILES = ("-o", "--output", "--baselines")


def add_parser(commands: Any) -> None:
    """Registers the subcommand."""
    parser = commands.add_parser(
        "completion",
        help="print a completion script for a shell",
        epilog='bash: eval "$(gpuperf completion bash)"   fish: gpuperf completion fish | source',
    )
    parser.add_argument("shell", choices=sorted(_WRITERS))
    parser.set_defaults(run=lambda arguments: _run(arguments, commands))


def _run(arguments: argparse.Namespace, commands: Any) -> int:
    write("\n".join(_WRITERS[arguments.shell](_described(commands))) + "\n", None)
    return OK


def _described(commands: Any) -> dict[str, tuple[str, list[tuple[str, str]], list[str]]]:
    """Subcommand → (help, options with their help, words that may stand among the arguments)."""
    helps = {action.dest: str(action.help) for action in commands._get_subactions()}
    found = {}
    for name, parser in commands.choices.items():
        options, words = [], []
        for action in parser._actions:
            options += [(option, str(action.help or "")) for option in action.option_strings]
            words += [str(choice) for choice in action.choices or ()]
        found[name] = (helps.get(name, ""), options, words)
    return found


def _bash(commands: dict[str, Any]) -> Iterator[str]:
    yield "_gpuperf() {"
    yield '  local word="${COMP_WORDS[COMP_CWORD]}" words='
    yield '  case "${COMP_WORDS[1]}" in'
    for name, (_, options, choices) in commands.items():
        words = " ".join([*(option for option, _ in options), *choices])
        yield f'    {name}) words="{words}" ;;'
    yield "  esac"
    yield f'  if [ "$COMP_CWORD" -eq 1 ]; then words="{" ".join(commands)} --help"; fi'
    yield '  COMPREPLY=($(compgen -W "$words" -- "$word"))'
    yield '  if [ "$COMP_CWORD" -gt 1 ]; then COMPREPLY+=($(compgen -f -- "$word")); fi'
    yield "}"
    yield "complete -o filenames -F _gpuperf gpuperf"


def _zsh(commands: dict[str, Any]) -> Iterator[str]:
    yield "#compdef gpuperf"
    yield "_gpuperf() {"
    yield "  if (( CURRENT == 2 )); then"
    described = " ".join(_quoted(f"{name}:{text}") for name, (text, _, _) in commands.items())
    yield f"    local -a commands=({described})"
    yield "    _describe command commands"
    yield "    return"
    yield "  fi"
    yield "  case $words[2] in"
    for name, (_, options, choices) in commands.items():
        described = " ".join(_quoted(f"{option}:{text}") for option, text in options)
        extra = f" compadd -- {' '.join(choices)};" if choices else ""
        yield f"    {name}) local -a options=({described}); _describe option options;{extra} _files ;;"
    yield "  esac"
    yield "}"
    yield "compdef _gpuperf gpuperf"


def _fish(commands: dict[str, Any]) -> Iterator[str]:
    for name, (text, options, choices) in commands.items():
        yield f"complete -c gpuperf -n __fish_use_subcommand -f -a {name} -d {_quoted(text)}"
        for option, meaning in options:
            flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            value = " -r" if option in _FILES else ""
            yield f"complete -c gpuperf -n '__fish_seen_subcommand_from {name}' {flag}{value} -d {_quoted(meaning)}"
        if choices:
            yield f"complete -c gpuperf -n '__fish_seen_subcommand_from {name}' -a {_quoted(' '.join(choices))}"


def _quoted(text: str) -> str:
    return "'" + text.replace("%%", "%").replace("\\", "\\\\").replace("'", "’") + "'"


_WRITERS = {"bash": _bash, "fish": _fish, "zsh": _zsh}

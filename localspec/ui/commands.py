"""The slash commands of the chat, on screens and on lines alike: names, arguments, how they are read."""

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.errors import UsageError
from localspec.ui.settings import NAMES


@dataclass(frozen=True, slots=True)
class Command:
    """One slash command.

    Args:
        name: what is typed behind the slash.
        usage: its arguments, for people.
        summary: what it does, in a few words.
        arguments: words that the first argument may be; empty where it is free.
        while_busy: whether it may run while an answer streams in.
    """

    name: str
    usage: str
    summary: str
    arguments: tuple[str, ...] = ()
    while_busy: bool = False


COMMANDS: Sequence[Command] = (
    Command("new", "", "start a new conversation"),
    Command("system", "[TEXT]", "show or set the system prompt; `-` takes it away"),
    Command("persona", "[NAME]", "take a named system prompt from the settings"),
    Command("regenerate", "[SEED]", "answer the last question again"),
    Command("edit", "[N]", "change a question of yours, the last or the N-th, in a branch"),
    Command("branch", "[N]", "go on from the N-th message in a conversation of its own"),
    Command("continue", "", "let the last answer go on where it stopped"),
    Command("copy", "[N|code|all]", "copy the last answer, its N-th block of code, or everything"),
    Command("model", "[PAIR]", "show or switch the pair of models"),
    Command("history", "[WORDS]", "list or search earlier conversations"),
    Command("rename", "TITLE", "give this conversation a title"),
    Command("export", "[md|json] [FILE]", "write this conversation to a file", ("md", "json")),
    Command("set", "[NAME VALUE]", "show or change how answers are sampled", (*NAMES, "draft")),
    Command("think", "", "fold or unfold thoughts and long questions", while_busy=True),
    Command("stats", "", "show where the time goes and what drafting is worth", while_busy=True),
    Command("lens", "", "show where every token of the last answer came from"),
    Command("race", "[TEXT]", "answer with and without drafting, side by side"),
    Command("drop", "", "leave the oldest turns out where the context is full"),
    Command("stop", "", "stop the answer and keep what is there", while_busy=True),
    Command("restart", "", "start the engine again", while_busy=True),
    Command("theme", "[NAME]", "show or change the colours", while_busy=True),
    Command("help", "", "list commands and keys", while_busy=True),
    Command("quit", "", "leave", while_busy=True),
)
BY_NAME = {command.name: command for command in COMMANDS}


def parse(line: str) -> tuple[Command, str] | None:
    """Return the command of a line and its argument; None where the line is no command.

    A line that begins with two slashes, or whose first word has another slash, is a text: paths do.

    Raises:
        UsageError: no command has this name, or several begin with it.
    """
    word, _, rest = line.partition(" ")
    if not word.startswith("/") or "/" in word[1:] or "\n" in word or len(word) == 1:
        return None
    name = word[1:].lower()
    found = [command for command in COMMANDS if command.name.startswith(name)]
    if name in BY_NAME:
        found = [BY_NAME[name]]
    if len(found) == 1:
        return found[0], rest.strip()
    if found:
        raise UsageError(
            f"{word} may mean {', '.join(f'/{each.name}' for each in found)}: type more of it"
        )
    raise UsageError(f"there is no command {word[:40]}: /help lists them")


def matching(line: str) -> list[Command]:
    """Return the commands that a line which is being typed may become."""
    if not line.startswith("/") or " " in line or "\n" in line:
        return []
    name = line[1:].lower()
    first = [command for command in COMMANDS if command.name.startswith(name)]
    return first or [command for command in COMMANDS if name in command.name]


def number(argument: str, what: str, most: int) -> int:
    """Return an argument as a number from 1 on.

    Raises:
        UsageError: it is none, or above `most`.
    """
    if not argument.isdecimal() or not 1 <= int(argument) <= most:
        raise UsageError(f"{argument[:40]!r} is no {what}: give a number from 1 to {most}")
    return int(argument)

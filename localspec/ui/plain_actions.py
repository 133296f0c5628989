"""What the slash commands do in the plain form: the same as on the screens, told in lines."""

from collections.abc import Callable, Mapping

from localspec.errors import UsageError
from localspec.ui import settings
from localspec.ui.attach import without_files
from localspec.ui.commands import COMMANDS, Command, number
from localspec.ui.copying import copied
from localspec.ui.export import write_export
from localspec.ui.figures import stats_lines
from localspec.ui.installed import named
from localspec.ui.lens import legend, marked
from localspec.ui.pairs import choices
from localspec.ui.plain import Plain

Action = Callable[[Plain, str], None]
_WIDTH = 78


def run_command(plain: Plain, command: Command, argument: str) -> None:
    """Run a command.

    Raises:
        LocalspecError: it cannot be done; one line.
    """
    ACTIONS[command.name](plain, argument)


def _new(plain: Plain, argument: str) -> None:  # noqa: ARG001 - every action takes one
    plain.session.new()
    plain.tell("a new conversation")


def _system(plain: Plain, argument: str) -> None:
    talk = plain.session.talk
    if argument:
        talk.set_system(None if argument == "-" else argument)
    plain.tell(f"system prompt: {talk.system}" if talk.system else "no system prompt")


def _persona(plain: Plain, argument: str) -> None:
    personas = plain.preferences.personas
    if argument in personas:
        _system(plain, personas[argument])
    elif argument or not personas:
        known = ", ".join(personas) or "none; name some under [personas] in chat.toml"
        raise UsageError(f"there is no persona {argument[:40]!r}: known are {known}")
    else:
        plain.tell(f"personas: {', '.join(personas)}")


def _regenerate(plain: Plain, argument: str) -> None:
    if argument and not argument.isdecimal():
        raise UsageError(f"seed is {argument[:40]!r}: it takes a whole number")
    plain.session.regenerate(int(argument) if argument else None)
    plain.answer()


def _edit(plain: Plain, argument: str) -> None:
    numbers = plain.session.talk.numbers()
    which, _, text = argument.partition(" ")
    plain.session.talk.question()
    at = number(which, "question", len(numbers)) if which else len(numbers)
    if not text.strip():
        plain.tell(f"question {at}: {without_files(plain.session.talk.question(at).content)[0]}")
        plain.tell(f"to ask something else instead: /edit {at} TEXT")
        return
    plain.session.ask_instead(at, text.strip())
    plain.answer()


def _branch(plain: Plain, argument: str) -> None:
    talk = plain.session.talk
    if not talk.messages:
        raise UsageError("there is nothing to branch off from: ask something first")
    count = number(argument, "message", len(talk.messages)) if argument else len(talk.messages)
    talk.branch_off(count, plain.session.pair)
    plain.tell("this is a conversation of its own now; the other one is in the history")


def _continue(plain: Plain, argument: str) -> None:  # noqa: ARG001
    plain.session.go_on()
    plain.answer()


def _copy(plain: Plain, argument: str) -> None:
    plain.write(copied(plain.session.talk.messages, argument) + "\n")


def _model(plain: Plain, argument: str) -> None:
    if argument:
        plain.session.load(named(plain.session.loaded, argument))
        plain.wait_ready()
        plain.tell(plain.session.state.trouble or f"loaded: {plain.session.state.line()}")
        return
    for each in choices():
        plain.tell(f"{each.name}: {each.hint}")
    plain.tell("/model NAME takes one")


def _history(plain: Plain, argument: str) -> None:
    talk = plain.session.talk
    word, _, rest = argument.partition(" ")
    if word == "delete" and rest.startswith("#"):
        conversation = _conversation(plain, rest)
        talk.history.delete(conversation)
        if conversation == talk.conversation:
            plain.session.forget()
        plain.tell(f"deleted {rest}")
    elif word.startswith("#"):
        plain.session.open(_conversation(plain, word))
        for each in talk.messages:
            plain.write(f"{'You' if each.role == 'user' else each.model}: {each.content}\n\n")
    else:
        found = talk.history.conversations(argument)
        for stored in found:
            plain.tell(f"#{stored.id} {stored.title or 'untitled'} {stored.excerpt}")
        plain.tell(
            "/history #N opens one, /history delete #N deletes it" if found else "nothing fits"
        )


def _conversation(plain: Plain, text: str) -> int:
    known = {each.id for each in plain.session.talk.history.conversations(limit=1_000_000)}
    if not text[1:].isdecimal() or int(text[1:]) not in known:
        raise UsageError(f"there is no conversation {text[:20]}: /history lists them")
    return int(text[1:])


def _rename(plain: Plain, argument: str) -> None:
    if not argument:
        raise UsageError("there is no title: write one behind /rename")
    plain.session.talk.rename(argument)


def _export(plain: Plain, argument: str) -> None:
    talk = plain.session.talk
    if talk.conversation is None:
        raise UsageError("this conversation is empty: there is nothing to export")
    path = write_export(talk.history, talk.conversation, argument, plain.session.folder)
    plain.tell(f"written to {path}")


def _set(plain: Plain, argument: str) -> None:
    name, _, value = argument.partition(" ")
    if argument:
        plain.session.set(name, value.strip())
    for line in settings.lines(plain.session.options):
        plain.tell(line)
    plain.tell(f"draft  {'on' if plain.session.draft else 'off'}")


def _think(plain: Plain, argument: str) -> None:  # noqa: ARG001
    plain.show_thoughts = not plain.show_thoughts
    plain.tell(f"thoughts are {'shown' if plain.show_thoughts else 'left out'}")


def _stats(plain: Plain, argument: str) -> None:  # noqa: ARG001
    for line in stats_lines(plain.session.exchange, plain.session.earlier_rounds, _WIDTH):
        print(line, file=plain.err)


def _lens(plain: Plain, argument: str) -> None:  # noqa: ARG001
    exchange = plain.session.exchange
    if exchange is None or not exchange.tokens:
        raise UsageError("there are no tokens to look at: ask something in this session first")
    plain.write(marked(exchange.tokens) + "\n")
    print("\n".join(legend(exchange.tokens)), file=plain.err)


def _race(plain: Plain, argument: str) -> None:
    plain.wait_ready()
    race = plain.session.start_race(argument)
    plain.tell(race.verdict())
    while not race.done:
        plain.session.poll()
        plain.sleep(0.05)
    for name, lane in zip(("with drafting", "without"), race.lanes, strict=False):
        plain.write(f"[{name}]\n{lane.thoughts}{lane.answer}\n\n")
    plain.tell(race.verdict())


def _drop(plain: Plain, argument: str) -> None:  # noqa: ARG001
    plain.tell("the oldest turns are left out of the context from now on; the system prompt stays")
    if plain.session.leave_out_oldest():
        plain.answer()


def _stop(plain: Plain, argument: str) -> None:  # noqa: ARG001
    plain.tell("nothing is under way; Ctrl-C stops an answer")


def _restart(plain: Plain, argument: str) -> None:  # noqa: ARG001
    plain.session.restart()
    plain.wait_ready()
    plain.tell(plain.session.state.trouble or f"loaded: {plain.session.state.line()}")


def _theme(plain: Plain, argument: str) -> None:  # noqa: ARG001
    plain.tell("there are no colours here: those of the terminal are used")


def _help(plain: Plain, argument: str) -> None:  # noqa: ARG001
    for each in COMMANDS:
        plain.tell(f"{f'/{each.name} {each.usage}':<28} {each.summary}")


def _quit(plain: Plain, argument: str) -> None:  # noqa: ARG001
    plain.leaving = True


ACTIONS: Mapping[str, Action] = {
    "new": _new,
    "system": _system,
    "persona": _persona,
    "regenerate": _regenerate,
    "edit": _edit,
    "branch": _branch,
    "continue": _continue,
    "copy": _copy,
    "model": _model,
    "history": _history,
    "rename": _rename,
    "export": _export,
    "set": _set,
    "think": _think,
    "stats": _stats,
    "lens": _lens,
    "race": _race,
    "drop": _drop,
    "stop": _stop,
    "restart": _restart,
    "theme": _theme,
    "help": _help,
    "quit": _quit,
}

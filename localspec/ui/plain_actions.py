"""What the slash commands do in the plain form: the same as on the screens, told in lines."""

from collections.abc import Callable, Mapping

from localspec.errors import UsageError
from localspec.ui import plain_conversation, settings
from localspec.ui.commands import COMMANDS, Command
from localspec.ui.copying import copied
from localspec.ui.figures import stats_lines
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


def _copy(plain: Plain, argument: str) -> None:
    plain.write(copied(plain.session.talk.messages, argument) + "\n")


def _model(plain: Plain, argument: str) -> None:
    if argument:
        plain.session.load(argument)
        plain.tell_loaded()
        return
    for each in choices():
        plain.tell(f"{each.name}: {each.hint}")
    plain.tell("/model NAME takes one")


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
    for line in stats_lines(plain.session.exchange, _WIDTH):
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


def _stop(plain: Plain, argument: str) -> None:  # noqa: ARG001
    plain.tell("nothing is under way; Ctrl-C stops an answer")


def _restart(plain: Plain, argument: str) -> None:  # noqa: ARG001
    plain.session.restart()
    plain.tell_loaded()


def _theme(plain: Plain, argument: str) -> None:  # noqa: ARG001
    plain.tell("there are no colours here: those of the terminal are used")


def _help(plain: Plain, argument: str) -> None:  # noqa: ARG001
    for each in COMMANDS:
        plain.tell(f"{f'/{each.name} {each.usage}':<28} {each.summary}")


def _quit(plain: Plain, argument: str) -> None:  # noqa: ARG001
    plain.leaving = True


ACTIONS: Mapping[str, Action] = {
    "new": plain_conversation.new,
    "system": plain_conversation.system,
    "persona": plain_conversation.persona,
    "regenerate": plain_conversation.regenerate,
    "edit": plain_conversation.edit,
    "branch": plain_conversation.branch,
    "continue": plain_conversation.go_on,
    "copy": _copy,
    "model": _model,
    "history": plain_conversation.history,
    "rename": plain_conversation.rename,
    "export": plain_conversation.export,
    "set": _set,
    "think": _think,
    "stats": _stats,
    "lens": _lens,
    "race": _race,
    "drop": plain_conversation.drop,
    "stop": _stop,
    "restart": _restart,
    "theme": _theme,
    "help": _help,
    "quit": _quit,
}

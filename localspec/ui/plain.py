"""The chat in lines: for screen readers, pipes and terminals that can do nothing else. No Textual."""

from collections.abc import Coroutine, Iterable, Iterator

from localspec.errors import LocalspecError
from localspec.ui import commands
from localspec.ui.lines import Lines
from localspec.ui.quoted import QUOTES, goes_on, unquoted
from localspec.ui.shown import ELSEWHERE

_INTERRUPTED = 130


def run(front: Lines, typed: Iterable[str | None], *, greets: bool = False) -> int:
    """SavedConversation until the lines end, or the user leaves; return the exit code.

    Args:
        front: writes.
        typed: what the user types, without line ends; None where it was taken back.
        greets: whether a person is told which model answers, and how to get help.
    """
    front.tell_trouble()
    if front.session.talk.conversation is not None:
        front.tell(front.session.talk.continuing)
    front.session.start()
    _tell_of_tools(front)
    if greets:
        name = front.session.models.next_name
        front.tell(f"chatting with {name}; /help lists the commands, Ctrl-D quits")
    for text in _texts(typed):
        try:
            _at_once(_send(front, text))
        except LocalspecError as error:
            front.tell(str(error))
            front.code = error.exit_code
        except OSError as error:
            what = error.filename or "reading or writing failed"
            front.tell(f"{what}: {error.strerror or error}")
            front.code = 1
        except KeyboardInterrupt:
            return _INTERRUPTED
        front.tell_trouble()
        _tell_news(front)
        if front.leaving:
            break
    return front.code


def _tell_of_tools(front: Lines) -> None:
    work = front.session.work
    if work is not None:
        work.wait()
        for note in work.notes:
            front.tell(note)
        _tell_news(front)


def _tell_news(front: Lines) -> None:
    work = front.session.work
    for note in () if work is None else work.news():
        front.tell(note)


async def _send(front: Lines, text: str) -> None:
    found = commands.parse(text, typed=front.ask is not None)
    if found is not None:
        await commands.run(front, *found)
    else:
        elsewhere = front.session.talk.is_open_elsewhere
        front.session.ask(unquoted(text))
        if elsewhere:
            front.tell(ELSEWHERE)
        for name in front.session.unmatched(text):
            front.tell(f"no file matches {name}: sent as text")
        await front.show_answer()


def _at_once(doing: Coroutine[object, None, None]) -> None:
    """Run to the end what awaits nothing but lines, which wait where they are and need no event loop."""
    try:
        doing.send(None)
    except StopIteration:
        return
    raise AssertionError("a command awaits what lines do not have")


def _texts(typed: Iterable[str | None]) -> Iterator[str]:
    """Yield what the user types; a backslash at the end of a line goes on in the next, and so do three double quotes.

    None among the lines takes back what was begun.
    """
    begun = ""
    for line in typed:
        if line is None:
            begun = ""
            continue
        if goes_on(begun + line):
            begun += line + "\n"
            continue
        if line.endswith("\\") and not begun.lstrip().startswith(QUOTES):
            begun += line[:-1] + "\n"
            continue
        text, begun = begun + line, ""
        if text.strip():
            yield text
    if begun.strip():
        yield begun

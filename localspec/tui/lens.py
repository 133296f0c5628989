"""The token lens: an answer with the origin of every token, by colours, or by marks where there are none."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from localspec.chat.events import RoundDone
from localspec.decoding.drafters.register import DRAFTERS
from localspec.display import clean


@dataclass(frozen=True, slots=True)
class Mark:
    """How one origin is shown: what opens and closes a run of its tokens, or a colour of the theme instead."""

    open: str
    close: str
    colour: str
    meaning: str


MARKS = {
    **{
        name: Mark(entry.marks[0], entry.marks[1], entry.colour, entry.origin)
        for name, entry in reversed(list(DRAFTERS.items()))
    },
    "correction": Mark("<", ">", "error", "corrected by the target"),
    "bonus": Mark("+", "+", "accent", "extra token from the large model"),
    "plain": Mark("", "", "", "written by the target, nothing drafted"),
}


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring tokens of one origin."""

    text: str
    mark: Mark
    tokens: int


def runs(happened: Iterable[RoundDone]) -> list[Run]:
    """Return an answer as runs of one origin; what no draft had a part in is `plain`."""
    tokens = (
        (MARKS.get(origin, MARKS["plain"]), text)
        for each in happened
        for text, origin in zip(each.texts, each.round.origins, strict=False)
    )
    found = []
    for mark, group in groupby(tokens, lambda token: token[0]):
        texts = [text for _, text in group]
        found.append(Run(clean("".join(texts)), mark, len(texts)))
    return found


def pieces(happened: Iterable[RoundDone]) -> Iterator[tuple[str, Mark]]:
    """Yield an answer in pieces with their marks, of one line each; line ends and indentation are `plain`."""
    begins = True
    for run in runs(happened):
        for at, line in enumerate(run.text.split("\n")):
            if at:
                yield "\n", MARKS["plain"]
                begins = True
            text = line.lstrip(" ") if begins else line
            yield line[: len(line) - len(text)], MARKS["plain"]
            if text:
                yield text, run.mark
                begins = False


def marked(happened: Iterable[RoundDone]) -> str:
    """Return an answer with marks around its pieces, as plain text."""
    return "".join(f"{mark.open}{text}{mark.close}" for text, mark in pieces(happened))


def counts(happened: Iterable[RoundDone]) -> list[tuple[Mark, int]]:
    """Return every origin that an answer has, and how many of its tokens come from there."""
    found = dict.fromkeys(MARKS.values(), 0)
    for run in runs(happened):
        found[run.mark] += run.tokens
    return [(mark, count) for mark, count in found.items() if count]


def legend(happened: Sequence[RoundDone]) -> list[str]:
    """Return a line for every origin of an answer: its marks, how many tokens it has, what it means."""
    return [
        f"{mark.open or ' '}text{mark.close or ' '}  {count:>4}  {mark.meaning}"
        for mark, count in counts(happened)
    ]

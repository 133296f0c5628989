"""The token lens: an answer with the origin of every token, by marks, and by styles where there are any."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from localspec.engine.protocol import LensToken
from localspec.ui.clean import clean


@dataclass(frozen=True, slots=True)
class Mark:
    """How one origin is shown: what opens and closes a run of its tokens, and a Rich style."""

    open: str
    close: str
    style: str
    meaning: str


MARKS = {
    "model": Mark("[", "]", "underline green", "the draft model proposed it"),
    "lookup": Mark("{", "}", "underline2 cyan", "looked up in the text so far"),
    "correction": Mark("<", ">", "bold reverse", "the target's correction of a draft"),
    "bonus": Mark("+", "+", "bold magenta", "the target's, after a whole accepted draft"),
    "plain": Mark("", "", "", "the target's own, without a draft"),
}


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring tokens of one origin."""

    text: str
    mark: Mark
    tokens: int


def runs(tokens: Iterable[LensToken]) -> list[Run]:
    """Return an answer as runs of one origin; what no draft had a part in is `plain`."""
    found = []
    for mark, group in groupby(tokens, lambda token: MARKS.get(token.origin, MARKS["plain"])):
        every = list(group)
        found.append(Run(clean("".join(token.text for token in every)), mark, len(every)))
    return found


def marked(tokens: Iterable[LensToken]) -> str:
    """Return an answer with marks around its runs, as plain text."""
    return "".join(f"{run.mark.open}{run.text}{run.mark.close}" for run in runs(tokens))


def legend(tokens: Sequence[LensToken]) -> list[str]:
    """Return a line for every origin: its mark, how many tokens it has, what it means."""
    counts = {mark.meaning: 0 for mark in MARKS.values()}
    for run in runs(tokens):
        counts[run.mark.meaning] += run.tokens
    return [
        f"{mark.open or ' '}{'text' if mark.open else 'text '}{mark.close or ''}  "
        f"{counts[mark.meaning]:>4}  {mark.meaning}"
        for mark in MARKS.values()
    ]

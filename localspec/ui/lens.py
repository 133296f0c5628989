"""The token lens: an answer with the origin of every token, by marks, and by styles where there are any."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from localspec.chat.events import RoundDone
from localspec.decoding.drafters.register import DRAFTERS
from localspec.ui.clean import clean


@dataclass(frozen=True, slots=True)
class Mark:
    """How one origin is shown: what opens and closes a run of its tokens, and a Rich style."""

    open: str
    close: str
    style: str
    meaning: str


MARKS = {
    **{
        name: Mark(entry.marks[0], entry.marks[1], entry.style, entry.says)
        for name, entry in reversed(list(DRAFTERS.items()))
    },
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


def marked(happened: Iterable[RoundDone]) -> str:
    """Return an answer with marks around its runs, as plain text."""
    return "".join(f"{run.mark.open}{run.text}{run.mark.close}" for run in runs(happened))


def legend(happened: Sequence[RoundDone]) -> list[str]:
    """Return a line for every origin: its mark, how many tokens it has, what it means."""
    counts = {mark.meaning: 0 for mark in MARKS.values()}
    for run in runs(happened):
        counts[run.mark.meaning] += run.tokens
    return [
        f"{mark.open or ' '}{'text' if mark.open else 'text '}{mark.close or ''}  "
        f"{counts[mark.meaning]:>4}  {mark.meaning}"
        for mark in MARKS.values()
    ]

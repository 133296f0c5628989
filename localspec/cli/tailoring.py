"""What `localspec tailor` does and prints, once models are to be loaded."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import click

from localspec.bench.prompts import bundled, per_workload, read
from localspec.cli import INTERRUPTED
from localspec.cli.interrupt import cancel_on_interrupt, unwind_on_terminate
from localspec.cli.progress import ProgressLine
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.errors import LocalspecError
from localspec.options import LaunchOptions
from localspec.tailor.candidates import Candidate
from localspec.tailor.job import job, workshop
from localspec.tailor.measure import RecordedAnswer
from localspec.tailor.tailor import Tailor, Tried, best_of
from localspec.tailor.text import chances_json, chances_text, found_text, tried_json, tried_text
from localspec.tailor.worth import could_pay, why_not

_UNSURE = (
    "other programs were busy while passes were measured: what pays is not sure, "
    "run this again when the machine is quiet"
)


def tailored(request: LaunchOptions, flags: Mapping[str, Any]) -> int:
    """Tailor a draft model, and print what was found; return the exit code.

    Raises:
        LocalspecError: there is nothing to make it of, or no room.
    """
    prompts = bundled() if flags["prompts"] is None else read(Path(flags["prompts"]))
    task, cancel = job(request), CancelFlag()
    said = _Said(as_json=flags["json_"])
    try:
        with (
            unwind_on_terminate(),
            workshop() as folder,
            ProgressLine(enabled=not flags["quiet"]) as line,
            cancel_on_interrupt(cancel),
            closing(Tailor(task, cancel, line.load, line.measure)) as at_work,
        ):
            costs = at_work.costs
            known = {
                "pair": task.pair.name,
                "kept": None,
                "sure": costs.sure,
                **chances_json(costs.target),
            }
            said.add(known, *chances_text(task.pair.target, costs.target))
            pays = could_pay(costs.target)
            if not pays:
                said.tell("why_not", why_not(costs.target))
            if not costs.sure:
                said.tell("note", _UNSURE)
            if pays or flags["try_"]:
                texts = at_work.recorded(per_workload(prompts, flags["per_workload"]))
                candidates = chain(
                    at_work.candidates(),
                    at_work.searched(texts, folder) if flags["search"] else (),
                )
                tried = _tried(at_work, candidates, texts, folder, said)
                _judge(task.pair.name, tried, at_work, folder, said)
            else:
                _advise(None, at_work, folder, said)
                said.tell("next", "`localspec tailor --try` makes and measures candidates anyway")
    except Cancelled:
        return INTERRUPTED
    said.end()
    return 0


def _tried(
    at_work: Tailor,
    candidates: Iterable[Candidate],
    texts: Sequence[RecordedAnswer],
    folder: Path,
    said: "_Said",
) -> list[Tried]:
    """Return candidates, measured; say of which there is no room for, or which llama.cpp refuses.

    Of the files that are made, only the best is left.
    """
    tried, refused = list[Tried](), list[str]()
    for each in candidates:
        try:
            tried.append(at_work.tried(each, texts, folder))
        except LocalspecError as error:
            refused.append(f"not tried: {each.label}: {error}")
            said.add({"not_tried": refused}, refused[-1])
        best = best_of(tried)
        for other in tried:
            if other is not best and other.candidate.recipe:
                other.file.unlink(missing_ok=True)
    return tried


def _advise(best: Tried | None, at_work: Tailor, folder: Path, said: "_Said") -> None:
    """Say whether drafting would pay with the target in another type."""
    try:
        advice = at_work.otherwise(best, folder)
    except LocalspecError as error:
        advice = (
            f"whether drafting would pay with another type of the target was not measured: {error}"
        )
    if advice is not None:
        said.tell("advice", advice)


def _judge(pair: str, tried: Sequence[Tried], at_work: Tailor, folder: Path, said: "_Said") -> None:
    """Say what came of the candidates, and keep the best."""
    if not tried:
        said.tell("result", f"there is nothing here to make a draft model for {pair} of")
        return
    said.add({"tried": [tried_json(each) for each in tried]}, "", *tried_text(tried))
    best = best_of(tried)
    if best is not None and not at_work.costs.sure:
        said.tell("result", f"nothing is kept: {best.candidate.label} may earn most, but {_UNSURE}")
        return
    if best is not None:
        made = at_work.keep(best, found_text(best, tried))
        how = f"`localspec tailor --undo {pair}` removes it"
        said.add(
            {"kept": made.name}, f"{pair} drafts with {made.name} from now on: {made.found}; {how}"
        )
        return
    both = f"earns a hundredth more than what {pair} has and makes some kind of text a tenth faster"
    said.tell("result", f"nothing is kept: no candidate both {both}")
    _advise(max(tried, key=lambda each: each.earned.speed), at_work, folder, said)


class _Said:
    """What was found so far: printed at once, or in the end as JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._document: dict[str, object] = {}

    def add(self, values: Mapping[str, object], *lines: str) -> None:
        self._document |= values
        if not self._as_json:
            click.echo("\n".join(lines))

    def tell(self, key: str, sentence: str) -> None:
        self.add({key: sentence}, sentence)

    def end(self) -> None:
        if self._as_json:
            click.echo(json.dumps(self._document))

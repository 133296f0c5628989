"""`localspec pull` and `recommend`: fetch models, and which of them suit this machine."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from localspec.cli.interrupt import unwind_on_terminate
from localspec.cli.options import (
    Settings,
    complete_models,
    flags,
    json_option,
    option_flags,
    switch,
    with_settings,
)
from localspec.cli.progress import ProgressLine, fields, print_json, print_table
from localspec.display import notice, printable
from localspec.errors import LocalspecError, ModelUnavailable
from localspec.launch.fit import forecast
from localspec.launch.memories import memories
from localspec.launch.rows import ModelRow, model_rows
from localspec.launch.worth import why_idle
from localspec.llama.spare_cores import GIVES_WAY, taken_by_others
from localspec.models.entries import ModelEntry, Purpose
from localspec.models.pull import Wanted, bytes_to_fetch, fetch, models_of_all, require_room, wanted
from localspec.models.recommend import Memory, Recommendation, Suits, recommend, rounded
from localspec.models.registry import load_registry
from localspec.models.repository import model_header
from localspec.models.store import Store
from localspec.options import LaunchOptions
from localspec.storage.files import free_bytes, size_text
from localspec.storage.paths import data_dir

# Asked on a terminal: a target of 7B and more, or what leaves less free than it takes.
LARGE_BYTES = 4_000_000_000
# A smaller file is here sooner than its header is judged.
READ_AHEAD_BYTES = 50_000_000


@dataclass(frozen=True, slots=True)
class PullFlags:
    """Flags of `pull` alone.

    Args:
        with_draft: Also download draft models that would not pay off on this machine.
        yes: Do not ask for confirmation, however large the download is.
        quiet: Show no progress and no forecast, and do not ask.
    """

    with_draft: bool = switch()
    yes: bool = switch()
    quiet: bool = switch("-q", "--quiet")


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_models)
@option_flags("offline", offline="Do not use the network, only what is on this machine.")
@flags(pulling=PullFlags)
@with_settings
def pull(names: tuple[str, ...], settings: Settings, pulling: PullFlags) -> None:
    """Download each NAME, verify it, and print where its files are.

    A NAME is a model or a pair that `localspec search` lists, or user/repo:QUANT on the Hugging
    Face hub. A pair's draft model comes along if it can make answers faster on this machine.

    Files that you already have are not downloaded again, and an interrupted download resumes.
    Before a large download, the file's header shows whether the model will fit free memory. On a
    terminal, `pull` asks before it downloads more than 4 GB, more than half of the free disk, or
    something that will not run.
    """
    launch = settings.launch
    with unwind_on_terminate():
        downloads = wanted(names, offline=launch.offline)
        if not pulling.with_draft:
            downloads = [_without_idle(each, quiet=pulling.quiet) for each in downloads]
        preview = None if pulling.quiet else Preview(downloads, launch)
        if preview is not None:
            preview.before(ask=not pulling.yes)
        with ProgressLine(enabled=not pulling.quiet) as line:
            paths = fetch(models_of_all(downloads), offline=launch.offline, progress=line.download)
        if preview is not None:
            preview.after()
    for path in paths:
        click.echo(path)


def _without_idle(download: Wanted, *, quiet: bool) -> Wanted:
    """Return what is wanted without a draft model that could not pay here, and tell of it."""
    if download.draft_model is None:
        return download
    why = why_idle(download.name, download.target, download.draft_model)
    if why is None:
        return download
    if not quiet:
        notice(why)
    return Wanted(download.name, download.target)


class Preview:
    """Tells on stderr how pairs and models will fit, before they are fetched where that can be known.

    Args:
        downloads: what is fetched.
        request: how it would be loaded.
    """

    def __init__(self, downloads: Sequence[Wanted], request: LaunchOptions) -> None:
        self._wanted = downloads
        self._request = request
        self._store = Store(data_dir())
        self._reads_ahead = not request.offline
        self._done: set[str] = set()
        self._problems = 0

    def before(self, *, ask: bool) -> None:
        """Tell what can be known now, and ask before a large download on a terminal.

        Raises:
            ModelUnavailable: the disk has no room.
            click.Abort: the answer was no.
        """
        entries = [each for each in models_of_all(self._wanted) if isinstance(each, ModelEntry)]
        missing = [each for each in entries if self._store.path_of(each) is None]
        to_fetch = bytes_to_fetch(missing, self._store) if missing else 0
        if to_fetch:
            require_room(missing, self._store)
        if workers := ", ".join(self._request.workers):
            self._notify(f"what fits is not known now: {workers} will say what is free at loading")
        for each in self._forecast:
            self._forecast_early(each)
        if to_fetch and sys.stdin.isatty() and sys.stderr.isatty():
            self._ask(to_fetch, ask=ask)

    def after(self) -> None:
        """Tell what could not be known before the files were here."""
        for each in self._forecast:
            if each.name not in self._done:
                self._print_forecast(each)

    @property
    def _forecast(self) -> Sequence[Wanted]:
        """What can be judged here; nothing where workers are set: to ask one for its memory would take it from its user."""
        return () if self._request.workers else self._wanted

    def _forecast_early(self, each: Wanted) -> None:
        entries = [model for model in each.models if isinstance(model, ModelEntry)]
        to_fetch = bytes_to_fetch(entries, self._store)
        if to_fetch and (to_fetch < READ_AHEAD_BYTES or not self._reads_ahead):
            return
        try:
            self._print_forecast(each)
        except ModelUnavailable:  # another source may have the file, and its header is told then
            self._reads_ahead = False

    def _print_forecast(self, each: Wanted) -> None:
        try:
            headers = [model_header(model) for model in each.models]
        except ModelUnavailable:
            raise
        except LocalspecError as error:  # no GGUF, say: the download will not be better
            self._notify(f"warning: {error}", problem=True)
            self._done.add(each.name)
            return
        draft_model = headers[1] if len(headers) > 1 else None
        options = self._request.load
        expected = forecast(headers[0], draft_model, options, self._request.draft_load(options))
        for line in expected.lines:
            self._notify(f"{each.name} {line}" if line == expected.lines[0] else line)
        for problem in expected.problems:
            self._notify(f"warning: {problem}", problem=True)
        self._done.add(each.name)

    def _notify(self, text: str, *, problem: bool = False) -> None:
        self._problems += problem
        notice(printable(text))

    def _ask(self, to_fetch: int, *, ask: bool) -> None:
        free = free_bytes(self._store.root)
        sizes = f"{size_text(to_fetch)} to download, {size_text(free)} free on the disk"
        large = to_fetch > LARGE_BYTES or to_fetch > free // 2
        if not ask or not (large or self._problems):
            self._notify(sizes)
            return
        question = "download it anyway?" if self._problems else "download it?"
        click.confirm(
            f"localspec: {sizes}: {question}", default=not self._problems, abort=True, err=True
        )


@click.command("recommend")
@click.option("--code", is_flag=True, help="Recommend models for code instead of chat.")
@json_option
def recommend_(code: bool, json_: bool) -> None:
    """Recommend models for this machine, best first; `*` marks those that are on it.

    The best is the largest model, or one nearly as large and much faster, that takes at most half of
    the memory (85 % of a GPU's own) and should write 8 tokens per second or more. Every token reads
    the weights once, so localspec measures how fast it can read them here, once an hour, and
    predicts the speed from that. What other programs use at the moment changes nothing.
    """
    registry = load_registry()
    purpose: Purpose = "code" if code else "chat"
    places = memories(registry)
    proposals = recommend(registry, places, purpose)
    rows = {row.name: row for row in model_rows(registry, places)}
    if json_:
        print_json(_document(places, proposals, rows))
        return
    for place in places:
        free = "" if place.free_bytes is None else f", {size_text(place.free_bytes)} free now"
        speed = "" if place.bytes_per_s is None else f", read at {place.bytes_per_s / 1e9:.0f} GB/s"
        click.echo(f"{place.name}: {size_text(place.total_bytes)}{free}{speed}", err=True)
    others = taken_by_others()
    if others is not None and others[0] >= GIVES_WAY:
        notice(
            f"other programs are using {others[0]:.1f} of {others[1]} cores; the predicted speeds are for a quiet machine"
        )
    if not proposals:
        raise ModelUnavailable(
            f"no model for {purpose} fits this machine's memory: try {registry.default_pair}, "
            "a tiny demo model"
        )
    pairs = [(rows[each.pair], _reason(each)) for each in proposals]
    print_table(row.cells(f"{reason}: {row.about}") for row, reason in pairs)
    first = rows[proposals[0].pair]
    if first.here:
        click.echo(f"start the first with `localspec chat {first.name}`", err=True)
    else:
        click.echo(f"download the first with `localspec pull {first.name}`", err=True)


def _reason(proposal: Recommendation) -> str:
    speed, memory = proposal.tokens_per_s, proposal.memory
    how = "measured on this machine" if proposal.is_measured else "estimated"
    foreseen = "speed unknown" if speed is None else f"≈ {rounded(speed)} tokens/s {how}"
    note = {
        Suits.WELL: "",
        Suits.SLOW: ", slow here",
        Suits.TIGHT: f", more than {memory.most:.0%} of it",
    }[proposal.suits]
    short = ", more than is free now" if proposal.is_short else ""
    return f"{foreseen}, {size_text(proposal.needed_bytes)} {memory.name}{note}{short}"


def _document(
    places: list[Memory], proposals: tuple[Recommendation, ...], rows: Mapping[str, ModelRow]
) -> dict[str, Any]:
    return {
        "memories": [fields(each, "name total_bytes free_bytes bytes_per_s") for each in places],
        "proposals": [
            {
                "pair": each.pair,
                "memory": each.memory.name,
                "needed_bytes": each.needed_bytes,
                "read_bytes": each.target.read_bytes,
                **fields(each, "tokens_per_s is_measured"),
                "suits": each.suits.name.lower(),
                "is_short": each.is_short,
                "here": rows[each.pair].here,
            }
            for each in proposals
        ],
    }

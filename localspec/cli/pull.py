"""`localspec pull` and `recommend`: download models; which of them suit this machine."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from localspec.cli import options as cli
from localspec.cli.interrupt import unwind_on_terminate
from localspec.cli.progress import ProgressLine, fields, print_json, print_table
from localspec.config.resolve import is_offline
from localspec.display import notice, printable, say, wrapped
from localspec.errors import LocalspecError, ModelFileError, ModelUnavailable
from localspec.llama.spare_cores import GIVES_WAY, taken_by_others
from localspec.models.entries import Medium, ModelEntry, Purpose, shards_of
from localspec.models.gguf import read_header
from localspec.models.mmproj import WORDS, in_words, takes
from localspec.models.pull import Wanted, bytes_to_fetch, fetch, files_of_all, require_room, wanted
from localspec.models.registry import load_registry
from localspec.models.repository import model_header
from localspec.models.shape import encoder_bytes
from localspec.models.store import Store, sha256_of
from localspec.options import LaunchOptions
from localspec.plan.fit import forecast
from localspec.plan.recommend import Memory, Recommendation, Suits, recommend
from localspec.session.memories import memories
from localspec.session.model_lines import cells, outlook, rounded
from localspec.session.model_list import ModelRow, model_rows
from localspec.storage.files import free_bytes, size_text
from localspec.storage.paths import data_dir

# `pull` asks on a terminal: a target of 7B and more, or a download that leaves less free than it takes.
LARGE_BYTES = 4_000_000_000
# A smaller file is downloaded sooner than its header is judged.
READ_AHEAD_BYTES = 50_000_000


@dataclass(frozen=True, slots=True)
class PullFlags:
    """Flags of `pull` alone.

    Args:
        with_draft: Also download draft models and heads that would not make answers faster on this machine.
        yes: Do not ask for confirmation.
        quiet: Show no progress and no memory forecast, and do not ask.
    """

    with_draft: bool = cli.switch()
    yes: bool = cli.switch()
    quiet: bool = cli.switch("-q", "--quiet")


@click.command()
@click.argument(
    "names", metavar="NAME...", nargs=-1, required=True, shell_complete=cli.complete_models
)
@cli.option_flags("offline", offline="Do not use the network, only files on this machine.")
@cli.flags(pulling=PullFlags)
@cli.with_settings
def pull(names: tuple[str, ...], settings: cli.Settings, pulling: PullFlags) -> None:
    """Download each NAME, verify it, and print the paths of its files.

    NAME is a model that `localspec search` lists, or user/repo:QUANT on the Hugging Face hub. The
    file that lets it take images or audio (mmproj) comes with it, and its draft model or file of
    heads if that can make answers faster on this machine.

    Files that you have are not downloaded again, and an interrupted download resumes. Before a
    large download, `pull` reads the file's header and says whether the model will fit in free
    memory. On a terminal, it asks before it downloads more than 4 GB, more than half of the free
    disk, or a model that will not run.
    """
    launch = settings.launch
    with unwind_on_terminate():
        downloads = wanted(names, offline=launch.offline)
        if not pulling.with_draft:
            downloads = [_without_idle(each, quiet=pulling.quiet) for each in downloads]
        if not launch.offline:
            for each in files_of_all(downloads):
                if isinstance(each, ModelEntry):
                    _drop_if_damaged(each)
        preview = Preview(downloads, launch)
        if not pulling.quiet:
            preview.before(ask=not pulling.yes)
        with ProgressLine(enabled=not pulling.quiet) as line:
            paths = fetch(files_of_all(downloads), offline=launch.offline, progress=line.download)
        if not pulling.quiet:
            preview.after()
    for path in paths:
        click.echo(path)


def _drop_if_damaged(entry: ModelEntry) -> None:
    """Remove the files of a model that cannot be read as one, and are not those that were downloaded; links stay."""
    store = Store(data_dir())
    for shard in shards_of(entry):
        path = store.path_of(shard)
        if path is None or path.is_symlink():
            continue
        try:
            read_header(path)
        except ModelFileError as error:
            if sha256_of(path) != shard.sha256:
                notice(f"{printable(str(error)).partition(':')[0]}; downloading it again")
                store.remove(shard)


def download(name: str) -> None:
    """Download a model that a person chose, with what drafts for it where that pays, and show how far that is.

    Raises:
        LocalspecError: it cannot be had.
    """
    with unwind_on_terminate(), ProgressLine(enabled=True) as line:
        files = _chosen_files(name, offline=is_offline())
        fetch(files, offline=is_offline(), progress=line.download)


def bytes_of_download(name: str) -> int | None:
    """Return how much `download` would fetch of a model, by what is known without the hub; None where only that knows."""
    with suppress(LocalspecError):
        files = _chosen_files(name, offline=True)
        entries = [each for each in files if isinstance(each, ModelEntry)]
        return bytes_to_fetch(entries, Store(data_dir()))
    return None


def _chosen_files(name: str, *, offline: bool) -> list[ModelEntry | Path]:
    every = wanted([name], offline=offline)
    return files_of_all(_without_idle(each, quiet=True) for each in every)


def _without_idle(download: Wanted, *, quiet: bool) -> Wanted:
    """Return a download without its draft model, and print why, if that would not pay on this machine."""
    if download.draft_model is None:
        return download
    from localspec.plan.facts import why_not_pulled  # noqa: PLC0415 - few have one

    why = why_not_pulled(download.name, download.target, download.draft_model)
    if why is None:
        return download
    if not quiet:
        notice(why.text)
    return Wanted(download.name, download.target)


class Preview:
    """Prints how models will fit in memory; before the download where that can be known.

    Args:
        downloads: the models.
        launch: how they would be loaded.
    """

    def __init__(self, downloads: Sequence[Wanted], launch: LaunchOptions) -> None:
        self._downloads, self._launch, self._store = downloads, launch, Store(data_dir())
        # Nothing is forecast with workers: to ask one for its memory would take it from its user.
        self._waiting = [] if launch.workers else [*downloads]
        self._problems = 0

    def before(self, *, ask: bool) -> None:
        """Print what can be known now; on a terminal, ask before a large download.

        Raises:
            ModelUnavailable: the disk has no room.
            click.Abort: the answer was no.
        """
        to_fetch = self._to_fetch(files_of_all(self._downloads), require=True)
        if workers := ", ".join(self._launch.workers):
            self._notify(
                f"how much memory is free on {workers} is known only when the model is loaded"
            )
        reads_headers = not self._launch.offline
        for each in [*self._waiting]:
            missing = self._to_fetch(each.files)
            if missing and (missing < READ_AHEAD_BYTES or not reads_headers):
                continue
            try:
                self._print_forecast(each)
            except ModelUnavailable:  # another source may have the file: see `after`
                reads_headers = False
        if to_fetch and sys.stdin.isatty() and sys.stderr.isatty():
            self._ask(to_fetch, ask=ask)

    def after(self) -> None:
        """Print what could not be known before the download."""
        for each in [*self._waiting]:
            self._print_forecast(each)

    def _to_fetch(self, models: Iterable[ModelEntry | Path], *, require: bool = False) -> int:
        """Return the bytes to download of models, with `require` only if the disk has room for them."""
        entries = [each for each in models if isinstance(each, ModelEntry)]
        missing = [each for each in entries if self._store.path_of(each) is None]
        to_fetch = bytes_to_fetch(missing, self._store)
        if to_fetch and require:
            require_room(missing, self._store)
        return to_fetch

    def _print_forecast(self, each: Wanted) -> None:
        try:
            headers = [model_header(model) for model in each.models]
            encoder = self._encoder_bytes(each)
        except ModelUnavailable:
            raise
        except LocalspecError as error:
            # Not a GGUF file, for example: the download will not be better.
            lines, problems = [], [str(error)]
        else:
            options = self._launch.load
            small = (*headers[1:], None)[0]
            from localspec.plan.facts import free_memory  # noqa: PLC0415 - not of every download

            free = free_memory()
            draft_options = free.draft_load(self._launch, options)
            expected = forecast(headers[0], small, options, draft_options, free, encoder)
            (first, *rest), problems = expected.lines or ("",), [*expected.problems]
            lines = [f"{each.name} {first}", *rest] if first else []
        self._notify(*lines, *(f"warning: {problem}" for problem in problems))
        self._problems += len(problems)
        self._waiting.remove(each)

    def _encoder_bytes(self, each: Wanted) -> int:
        if each.mmproj is None or self._launch.reads_text_only:
            return 0
        return encoder_bytes(model_header(each.mmproj))

    def _notify(self, *texts: str) -> None:
        notice(*map(printable, texts))

    def _ask(self, to_fetch: int, *, ask: bool) -> None:
        free = free_bytes(self._store.root)
        sizes = f"{size_text(to_fetch)} to download, {size_text(free)} free on the disk"
        large = to_fetch > LARGE_BYTES or to_fetch > free // 2
        if not ask or not (large or self._problems):
            self._notify(sizes)
            return
        question = "download it anyway?" if self._problems else "download it?"
        question = wrapped(f"localspec: {sizes}: {question}", sys.stderr)
        click.confirm(question, default=not self._problems, abort=True, err=True)


@click.command("recommend")
@click.option("--code", is_flag=True, help="Recommend models for code instead of chat.")
@click.option("--images", is_flag=True, help="Recommend only models that take images.")
@click.option("--audio", is_flag=True, help="Recommend only models that take audio.")
@cli.json_option
def recommend_(code: bool, images: bool, audio: bool, json_: bool) -> None:
    """Recommend models for this machine, best first; `*` marks models that you have.

    Recommends the largest model, or one nearly as large and much faster, that takes at most half of
    the RAM (85 % of a GPU's memory) and should write at least 8 tokens per second. Speeds are
    predicted from how fast this machine reads memory, which is measured once an hour; with heads, from
    published acceptance by kind of text. Memory that other programs use at the moment does not count.
    """
    registry = load_registry()
    purpose: Purpose = "code" if code else "chat"
    places = memories(registry)
    wanted_media: dict[Medium, bool] = {"image": images, "audio": audio}
    media = [each for each, is_wanted in wanted_media.items() if is_wanted]
    proposals = recommend(registry, places, purpose, media)
    rows = {row.name: row for row in model_rows(registry, places)}
    if json_:
        print_json(_document(places, proposals, rows))
        return
    for place in places:
        free = "" if place.free_bytes is None else f", {size_text(place.free_bytes)} free now"
        speed = "" if place.bytes_per_s is None else f", read at {place.bytes_per_s / 1e9:.0f} GB/s"
        say(f"{place.name}: {size_text(place.total_bytes)}{free}{speed}")
    say_if_busy()
    if not proposals:
        what = f"no model for {purpose}" + (f" that takes {in_words(media)}" if media else "")
        demo = "" if media else f": try {registry.default_pair}, a tiny demo model"
        raise ModelUnavailable(f"{what} fits this machine's memory{demo}")
    pairs = [(rows[each.pair], _reason(each)) for each in proposals]
    print_table((cells(row, f"{reason}: {row.about}") for row, reason in pairs), whole=True)
    first = rows[proposals[0].pair]
    start = (
        "start the first with `localspec chat" if first.here else "download it with `localspec pull"
    )
    say(f"{start} {first.name}`")


def say_if_busy() -> None:
    """Print that speeds are lower than predicted while other programs are busy; nothing if none is."""
    others = taken_by_others()
    if others is not None and others[0] >= GIVES_WAY:
        busy = f"other programs are using {others[0]:.1f} of {others[1]} cores"
        notice(f"{busy}; the predicted speeds are for an idle machine")


def _reason(proposal: Recommendation) -> str:
    speed, memory = proposal.tokens_per_s, proposal.memory
    how = "measured on this machine" if proposal.is_measured else "estimated"
    foreseen = "speed unknown" if speed is None else f"≈ {rounded(speed)} tokens/s {how}"
    foreseen += outlook(proposal)
    note = {
        Suits.WELL: "",
        Suits.SLOW: ", slow here",
        Suits.TIGHT: f", more than {memory.most:.0%} of it",
    }[proposal.suits]
    short = ", more than is free now" if proposal.is_short else ""
    mmproj = proposal.target.loaded_bytes - proposal.target.size_bytes
    media = " and ".join(WORDS[each] for each in takes(proposal.target))
    more = f" + {size_text(mmproj)} for {media}" if mmproj and not proposal.with_mmproj else ""
    return f"{foreseen}, {size_text(proposal.needed_bytes)} {memory.name}{more}{note}{short}"


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
                **fields(each, "tokens_per_s is_measured with_heads"),
                "suits": each.suits.name.lower(),
                "is_short": each.is_short,
                "here": rows[each.pair].here,
            }
            for each in proposals
        ],
    }

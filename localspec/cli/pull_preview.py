"""What is told, and asked, before gigabytes are fetched: size, free disk, and what of it will fit."""

import sys
from collections.abc import Iterator, Sequence

import click

from localspec.display import notice, printable
from localspec.errors import LocalspecError, ModelUnavailable
from localspec.launch.fit import forecast
from localspec.models.entries import ModelEntry
from localspec.models.pull import Wanted, bytes_to_fetch, models_of_all, require_room
from localspec.models.repository import FoundHeader, find_headers, keep_beginning, of_model
from localspec.models.store import Store
from localspec.options import LaunchOptions
from localspec.storage.files import free_bytes, size_text
from localspec.storage.paths import data_dir

# Asked on a terminal: a target of 7B and more, or what leaves less free than it takes.
LARGE_BYTES = 4_000_000_000
# A smaller file is here sooner than its header is judged.
READ_AHEAD_BYTES = 50_000_000


class Preview:
    """Tells on stderr how pairs and models will fit, before they are fetched where that can be known.

    Args:
        found: what was asked for.
        request: how it would be loaded.
        offline: ask no hub for headers.
    """

    def __init__(self, found: Sequence[Wanted], request: LaunchOptions, *, offline: bool) -> None:
        self._found = found
        self._request = request
        self._store = Store(data_dir())
        self._reads_ahead = not offline
        self._told: set[str] = set()
        self._beginnings: list[FoundHeader] = []
        self._problems = 0

    def before(self, *, ask: bool) -> None:
        """Tell what can be known now, and ask before a large download on a terminal.

        Raises:
            ModelUnavailable: the disk has no room.
            click.Abort: the answer was no.
        """
        entries = [each for each in models_of_all(self._found) if isinstance(each, ModelEntry)]
        missing = [each for each in entries if self._store.path_of(each) is None]
        to_fetch = bytes_to_fetch(missing, self._store) if missing else 0
        if to_fetch:
            require_room(missing, self._store)
        if workers := ", ".join(self._request.workers):
            self._say(f"what fits is not known now: {workers} will say what is free at loading")
        for each in self._forecast:
            self._tell_if_known(each)
        if to_fetch and sys.stdin.isatty() and sys.stderr.isatty():
            self._ask(to_fetch, ask=ask)
        for beginning in self._beginnings:
            keep_beginning(beginning, self._store)

    def after(self) -> None:
        """Tell what could not be known before the files were here."""
        for each in self._forecast:
            if each.name not in self._told:
                self._tell(each)

    @property
    def _forecast(self) -> Sequence[Wanted]:
        """What can be judged here; nothing where workers are set: to ask one for its memory would take it from whoever uses it."""
        return () if self._request.workers else self._found

    def _tell_if_known(self, each: Wanted) -> None:
        entries = [model for model in each.models if isinstance(model, ModelEntry)]
        to_fetch = bytes_to_fetch(entries, self._store)
        if to_fetch and (to_fetch < READ_AHEAD_BYTES or not self._reads_ahead):
            return
        try:
            self._tell(each)
        except ModelUnavailable:  # another source may have the file, and its header is told then
            self._reads_ahead = False

    def _tell(self, each: Wanted) -> None:
        try:
            found = [list(find_headers(model)) for model in each.models]
        except ModelUnavailable:
            raise
        except LocalspecError as error:  # no GGUF, say: the download will not be better
            self._say(f"warning: {error}", problem=True)
            self._told.add(each.name)
            return
        self._beginnings += [header for headers in found for header in headers]
        names = _names(each)
        headers = [of_model(parts, name) for parts, name in zip(found, names, strict=True)]
        draft_model = headers[1] if len(headers) > 1 else None
        options = self._request.load
        expected = forecast(headers[0], draft_model, options, self._request.draft_load(options))
        for line in expected.lines:
            self._say(f"{each.name} {line}" if line == expected.lines[0] else line)
        for problem in expected.problems:
            self._say(f"warning: {problem}", problem=True)
        self._told.add(each.name)

    def _say(self, text: str, *, problem: bool = False) -> None:
        self._problems += problem
        notice(printable(text))

    def _ask(self, to_fetch: int, *, ask: bool) -> None:
        free = free_bytes(self._store.root)
        sizes = f"{size_text(to_fetch)} to download, {size_text(free)} free on the disk"
        large = to_fetch > LARGE_BYTES or to_fetch > free // 2
        if not ask or not (large or self._problems):
            self._say(sizes)
            return
        question = "download it anyway?" if self._problems else "download it?"
        click.confirm(
            f"localspec: {sizes}: {question}", default=not self._problems, abort=True, err=True
        )


def _names(each: Wanted) -> Iterator[str]:
    for model in each.models:
        yield model.name if isinstance(model, ModelEntry) else str(model)

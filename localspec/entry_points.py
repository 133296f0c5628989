"""Entry points: what installed packages add to localspec, this one's own plug-ins among them.

A group is read from the metadata of the packages on `sys.path` (`*.dist-info/entry_points.txt`). The standard library reads it, too,
but takes longer to import than `--help` may take; a test compares the two. What an entry point names is imported when it is used.
"""

import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from localspec.errors import UsageError

VERBS, ENGINES, DRAFTERS = "localspec.verbs", "localspec.engines", "localspec.drafters"
"""Groups: each entry point names a `Verb`, an `EngineEntry`, a `DrafterEntry`."""
_HERE = os.path.dirname(__file__)  # noqa: PTH120 - as above
_FOLDERS, _OWN = (".dist-info", ".egg-info"), "localspec"


class EntryPoint(NamedTuple):
    """What a package adds to a group.

    Args:
        name: of the verb, drafter or engine.
        value: `MODULE:ATTRIBUTE`, what it names.
        package: the package's name.
    """

    name: str
    value: str
    package: str

    @property
    def is_there(self) -> bool:
        """Whether the folder of a plug-in of localspec's own is there."""
        folder = self.value.partition(":")[0].partition(".")[2].replace(".", "/")
        return os.path.isdir(f"{_HERE}/{folder}")  # noqa: PTH112 - pathlib is slow

    def load(self, value: str = "") -> Any:
        """Return what it names, or what another value of its package does.

        Raises:
            UsageError: it cannot be imported, whatever the package raises; one line that names the package.
        """
        module, _, attribute = (value or self.value).partition(":")
        try:
            return getattr(import_module(module), attribute)
        except (Exception, SystemExit) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UsageError(
                f"{self.name!r} of the package {self.package} cannot be used: {reason}; repair or uninstall it"
            ) from error


class Verb(NamedTuple):
    """A verb that a plug-in adds to the command line; its module is imported for every `localspec --help`.

    Args:
        group: the heading of `localspec --help` under which it stands.
        summary: what it does, in a line.
        command: `MODULE:ATTRIBUTE`, its click command, imported when it is called.
        place: where in its group it stands; small numbers first.
    """

    group: str
    summary: str
    command: str
    place: int = 1000


class EngineEntry(NamedTuple):
    """An engine that a plug-in adds: a process that speaks the engine's protocol on stdin and stdout.

    The name of its entry point is the field of `LaunchOptions` that asks for it when it is set.

    Args:
        module: runs as that process, by `python -m`.
        check: `MODULE:FUNCTION`, which raises UsageError for a value of the option that it cannot take.
        prepare: `MODULE:FUNCTION`, called with the option's value before this process plans what it loads; empty without one.
        command_lines: `MODULE:FUNCTION`, which returns how a model is started in another program; empty without one.
    """

    module: str
    check: str
    prepare: str = ""
    command_lines: str = ""


def entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group, localspec's own first, then in the order of `sys.path`.

    A folder of `plugins` that is deleted takes its entry points with it, before any metadata is written again.
    """
    points = [each for each in _read().get(group, ()) if each.package != _OWN or each.is_there]
    return tuple(sorted(points, key=lambda each: each.package != _OWN))


def by_name(
    group: str, taken: Collection[str] = ()
) -> tuple[dict[str, EntryPoint], tuple[str, ...]]:
    """Return the entry points of a group by their names, and a line about each that has a name of another.

    Args:
        group: which.
        taken: names that no entry point can have.
    """
    points, refused = dict[str, EntryPoint](), list[str]()
    for each in entry_points(group):
        if each.name in points or each.name in taken:
            whose = points[each.name].package if each.name in points else _OWN
            refused.append(
                f"{each.name!r} of the package {each.package} is not used: {whose} has that name"
            )
        else:
            points[each.name] = each
    return points, tuple(refused)


def engine_module(option: str) -> str:
    """Return the module of the engine that an option asks for; see `EngineEntry`.

    Raises:
        UsageError: no package has it, or it is broken.
    """
    return _engine(option)[1].module


def check_engine(option: str, value: object) -> None:
    """Raise UsageError where the engine that an option asks for cannot take a value."""
    point, entry = _engine(option)
    point.load(entry.check)(value)


def prepare_engine(option: str, value: object) -> None:
    """Have an engine that computes in this process prepared for the value of its option; nothing where there is no such engine.

    Raises:
        UsageError: it cannot take the value; or there is a value and no package that has the engine.
    """
    if not value and option not in _prepared:
        return
    _prepared.add(option)
    point, entry = _engine(option)
    if entry.prepare:
        point.load(entry.prepare)(value)


def command_lines(option: str, *what: object) -> Any:
    """Return what the `command_lines` of an engine returns for a model.

    Raises:
        UsageError: there is no such engine.
    """
    point, entry = _engine(option)
    return point.load(entry.command_lines)(*what)


_prepared = set[str]()
"""Options whose engine was prepared, which hears of it when they are unset."""


def _engine(option: str) -> tuple[EntryPoint, EngineEntry]:
    point = by_name(ENGINES)[0].get(option)
    if point is None:
        raise UsageError(
            f"--{option} needs a plug-in that is not installed: install localspec again"
        )
    return point, point.load()


def of_others() -> list[str]:
    """Return what other packages add, each in words: its group, its name and the package."""
    return [
        f"{group.rpartition('.')[2]}: {each.name} of {each.package}"
        for group in (VERBS, ENGINES, DRAFTERS)
        for each in entry_points(group)
        if each.package != _OWN
    ]


@cache
def _read() -> Mapping[str, Sequence[EntryPoint]]:
    groups, seen = dict[str, list[EntryPoint]](), set[str]()
    for folder, package in _packages():
        if package in seen:  # as in the standard library: what is found first counts
            continue
        seen.add(package)
        try:
            with open(f"{folder}/entry_points.txt", "rb", buffering=0) as stream:  # noqa: PTH123 - pathlib is slow
                content = stream.read()
        except OSError:  # most packages have none
            continue
        if b"[localspec." in content:
            for group, name, value in _parsed(content.decode(errors="replace")):
                groups.setdefault(group, []).append(EntryPoint(name, value, package))
    return groups


def _packages() -> Iterator[tuple[str, str]]:
    """Yield the folders of metadata on `sys.path`, and the names of their packages."""
    for place in sys.path:
        try:
            names = os.listdir(place or ".")  # noqa: PTH208 - as above
        except OSError:  # an archive, or nothing
            continue
        for name in names:
            if name.endswith(_FOLDERS):
                package = name.rpartition(".")[0].partition("-")[0].lower().replace("_", "-")
                yield f"{place or '.'}/{name}", package


def _parsed(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield group, name and value of what is ours in an `entry_points.txt`."""
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            group = line.strip("[] ")
        elif group.startswith("localspec.") and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield group, name.strip(), value.partition("[")[0].strip()

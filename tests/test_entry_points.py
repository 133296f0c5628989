"""What packages add: verbs and engines of plug-ins, ours and strangers', by the metadata of what is installed."""

import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from localspec import entry_points as door
from localspec.cli import main as root
from localspec.config.keys import KEYS
from localspec.diagnosis import doctor
from localspec.diagnosis.doctor import Fact
from localspec.entry_points import DRAFTERS, ENGINES, VERBS, EntryPoint
from tests.support.checks import refuses

PROJECT = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
WORDS = """
import click
from localspec.entry_points import Verb

VERB = Verb("Speed", "Count the words of a line.", "words:words")


@click.command()
@click.argument("line")
def words(line):
    click.echo(len(line.split()))
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return what installs a package: a module, and metadata with the lines of one group."""
    installed = set[str]()

    def add(package: str, text: str, *lines: str, group: str = VERBS) -> None:
        (tmp_path / f"{package}.py").write_text(text, encoding="utf-8")
        about = tmp_path / f"{package}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text("\n".join((f"[{group}]", *lines, "")))
        installed.add(package)
        door._read.cache_clear()

    monkeypatch.syspath_prepend(tmp_path)
    yield add
    door._read.cache_clear()
    for package in installed:
        sys.modules.pop(package, None)


def page(*words: str) -> str:
    done = CliRunner().invoke(root.localspec, words, prog_name="localspec", terminal_width=100)
    return done.output


@pytest.mark.parametrize("group", [VERBS, ENGINES, DRAFTERS])
def test_what_is_read_is_what_the_standard_library_reads(group: str, install: Install) -> None:
    lines = ("# none", "words = words : VERB [extra]", "x=y:z", "", "[other]", "a=b:c")
    install("odd", "", *lines, group=group)
    theirs = {
        (each.name, each.module, each.attr, each.dist.name)
        for each in metadata.entry_points(group=group)
        if each.dist
    }
    ours = {
        (each.name, *map(str.strip, each.value.split(":")), each.package)
        for each in door.entry_points(group)
    }
    assert ours == theirs
    assert ("words", "words", "VERB", "odd") in ours


def test_the_installed_metadata_is_that_of_the_source() -> None:
    """If this fails, pyproject.toml has changed since: `pip install --no-deps -e .`."""
    for group, declared in PROJECT["entry-points"].items():
        points = [each for each in door.entry_points(group) if each.package == "localspec"]
        assert {each.name: each.value for each in points} == declared


def test_every_plug_in_of_ours_can_be_loaded_and_serves_an_option_or_a_verb() -> None:
    groups, troubles = root._grouped()
    assert troubles == []
    verbs = {name for verbs in groups.values() for name, _ in verbs}
    assert {*PROJECT["entry-points"][VERBS], *root.MODULES} <= verbs
    for option in PROJECT["entry-points"][ENGINES]:
        assert option in KEYS
        assert __import__(door.engine_module(option).partition(".")[0])


def test_a_verb_of_another_package_stands_in_its_group_and_runs(install: Install) -> None:
    install("words", WORDS, "words = words:VERB")
    speed = page("--help").partition("Speed:")[2].partition("\n\n")[0].splitlines()
    assert speed[-1].split(maxsplit=1) == ["words", "Count the words of a line."]
    assert page("words", "one two three") == "3\n"
    assert "--debug" in page("words", "--help")
    assert Fact("plug-ins", "verbs: words of words", "note") in doctor.software()
    assert "did you mean words?" in page("word", "one")


BROKEN = {
    "import nothing_of_this_name": "No module named 'nothing_of_this_name'",
    "VERB = 7": "is no localspec.api.Verb",
    "raise SystemExit": "SystemExit",
    "": "has no attribute 'VERB'",
    "def (": "invalid syntax",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_package_is_one_line_of_help_and_takes_nothing_away(
    text: str, install: Install
) -> None:
    usual = page("--help")
    install("words", text, "words = words:VERB")
    before, _, troubles = page("--help").partition("Plug-ins that cannot be used:")
    assert before.strip() == usual.strip()
    assert BROKEN[text] in troubles
    done = CliRunner().invoke(root.localspec, ("words", "x"))
    refuses("of the package words|No module|no localspec.api.Verb", root._command, "words")
    assert done.exit_code != 0


def test_no_package_takes_the_name_of_a_verb_and_the_attempt_is_shown(install: Install) -> None:
    install("words", WORDS, "run = words:VERB", "serve = words:VERB", "ls = words:VERB")
    install("more", WORDS, "words = more:VERB")
    install("yet", WORDS, "words = yet:VERB")
    text = " ".join(page("--help").split())
    told = "'{}' of the package {} is not used: {} has that name".format
    for name in ("run", "serve", "ls"):
        assert told(name, "words", "localspec") in text
    assert told("words", "yet", "more") in text
    assert "HTTP" in page("serve", "--help")


def test_an_engine_that_nobody_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    refuses("^--server: give an address|^--server nowhere", door.check_engine, "server", "nowhere")
    monkeypatch.setattr(door, "_read", dict)
    refuses("^--server needs a plug-in", door.check_engine, "server", "http://127.0.0.1:9")
    refuses("^--workers needs a plug-in", door.prepare_engine, "workers", ("127.0.0.1:9",))
    monkeypatch.setattr(door, "_prepared", set())
    door.prepare_engine("workers", ())  # nobody asks for it


def test_the_value_that_a_plug_in_names_is_loaded_as_its_own() -> None:
    point = EntryPoint("words", "words:VERB", "pack")
    refuses("'words' of the package pack", point.load, "nothing_of_this_name:x")

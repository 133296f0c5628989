"""Help texts, by a snapshot for each command, and what is answered to names that are not there."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from localspec.cli import main as root
from localspec.cli.options import SECTIONS, SectionedCommand
from localspec.config.keys import KEYS
from tests.cli.command import assert_one_complaint, environment, localspec

ROOT = Path(__file__).parents[2]
SNAPSHOTS = Path(__file__).parent / "snapshots"
UPDATE = "LOCALSPEC_UPDATE_SNAPSHOTS"
SLOW = {"llama_cpp", "textual", "huggingface_hub", "numpy", "jinja2", "pip", "asyncio"}
IMPORTS = "import sys, localspec.__main__ as m; sys.argv[1:] = ['--help']\ntry: m.main()\nfinally: print(*sys.modules, file=sys.stderr)"
INSTALLED = "import sys; sys.argv = ['localspec', *sys.argv[1:]]; from localspec.__main__ import main; main()"
RARE = [name for _, names in SECTIONS.values() for name in names]
HIDDEN = {"--tensor-split", "--no-kv-offload", "--workers", "--draft-device"}


def commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield all commands by their words."""
    with click.Context(root.localspec) as context:
        yield (), root.localspec
        for verb in root.MODULES:
            command = root.localspec.get_command(context, verb)
            assert command is not None
            yield (verb,), command
            if isinstance(command, click.Group):
                yield from (((verb, name), each) for name, each in command.commands.items())


def page(*words: str) -> str:
    done = CliRunner().invoke(root.localspec, words, prog_name="localspec", terminal_width=80)
    return done.output


def flags_of(text: str) -> set[str]:
    return set(re.findall(r"--[a-z-]+", text))


@pytest.mark.parametrize("verb", [None, *root.MODULES])
def test_the_help_of_a_verb_is_as_in_its_snapshot(verb: str | None) -> None:
    """Update with LOCALSPEC_UPDATE_SNAPSHOTS=1."""
    pages = []
    for words, command in commands():
        if words[:1] == ((verb,) if verb else ()):
            pages.append(page(*words, "--help"))
            if isinstance(command, SectionedCommand):
                pages.append(page(*words, "--help-all"))
    path, text = SNAPSHOTS / f"{verb or 'localspec'}.txt", "\n\n".join(pages)
    if os.environ.get(UPDATE):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_the_help_of_all_commands_imports_nothing_slow() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True
    )
    assert {name.partition(".")[0] for name in done.stderr.split()} & SLOW == set()
    assert "Usage: " in done.stdout
    assert localspec("run", "--help", cold=True).out.startswith("Usage: ")


def test_help_leaves_out_rare_flags_which_help_all_and_the_settings_reference_have() -> None:
    rows = dict[str, str]()
    with click.Context(root.localspec) as context:
        for words, command in commands():
            if not isinstance(command, SectionedCommand):
                continue
            usual, every = page(*words, "--help"), page(*words, "--help-all")
            flags = {flag for each in command.params for flag in each.opts}
            assert {flag for flag in flags if flag.startswith("--")} <= flags_of(every)
            assert not HIDDEN & flags_of(usual)
            headings = re.findall(r"^(\S.*):$", usual, flags=re.MULTILINE)
            assert headings == ["Options", *(each for each in SECTIONS if each in headings)]
            for each in command.params if words[0] in {"run", "chat", "batch"} else ():
                record = each.get_help_record(context)
                if each.name in RARE and record is not None:
                    flag, text = (part.replace("|", "\\|") for part in record)
                    rows.setdefault(each.name, f"| `{flag}` | {text} |")
    reference = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    assert "\n".join(rows[name] for name in RARE) in reference


def test_help_of_draft_names_every_drafter() -> None:
    draft = KEYS["draft"]
    assert all(re.search(rf"\b{each}\b", draft.help) for each in draft.choices)


def test_help_takes_a_command_by_any_of_its_names_and_cuts_no_summary() -> None:
    assert "List the models on this" in page("help", "ls")
    for words, command in commands():
        if isinstance(command, click.Group) and words:
            assert "..." not in page(*words, "--help").partition("Commands:")[2]


def test_no_verb_is_the_help_and_code_2() -> None:
    done = localspec()
    assert (done.code, done.out) == (2, "")
    assert "Usage: " in done.err


@pytest.mark.parametrize("old", root.MOVED)
def test_a_name_of_an_earlier_version_is_answered_with_the_new_one(old: str) -> None:
    done = localspec(*old.split(), "--json")
    assert_one_complaint(done, 2)
    assert root.MOVED[old] in done.err


@pytest.mark.parametrize(
    ("verb", "meant"),
    [
        ("pul", "did you mean pull?"),
        ("download", "did you mean pull?"),
        ("models", "did you mean list or search?"),
        ("Why is the sky blue?", "localspec run"),
        ("xyzzy", "there is no command 'xyzzy'\n"),
    ],
)
def test_what_is_no_command_is_answered_with_what_is_meant(verb: str, meant: str) -> None:
    done = CliRunner().invoke(root.localspec, [verb])
    assert done.exit_code == 2
    assert meant in done.output


@pytest.mark.parametrize(
    ("verb", "out", "err"), [("config", "pair ", ""), ("index", "", "no index yet")]
)
def test_a_group_alone_shows_its_state(
    verb: str, out: str, err: str, bare_machine: dict[str, str]
) -> None:
    done = localspec(verb, env=bare_machine)
    assert done.code == 0
    assert done.out.startswith(out)
    assert done.err.startswith(err)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("localspec ch", {"chat", "check"}),
        ("localspec chat --pl", {"--plain"}),
        ("localspec chat --draft lo", {"lookup"}),
        ("localspec run --pair qwen3", {"qwen3-4b", "qwen3-8b"}),
        ("localspec run qwen3", {"qwen3-0.6b"}),
        ("localspec pull smollm2-13", {"smollm2-135m"}),
        ("localspec config set temp", {"temperature"}),
    ],
)
def test_verbs_options_and_names_are_completed(words: str, offered: set[str]) -> None:
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    done = localspec(env={"_PYTHON _M LOCALSPEC_COMPLETE": "bash_complete", **asked})
    assert done.err == ""
    assert offered <= {line.partition(",")[2] for line in done.out.splitlines()}


def test_the_installed_command_completes() -> None:
    asked = {"COMP_WORDS": "localspec ch", "COMP_CWORD": "1"}
    env = environment({"_LOCALSPEC_COMPLETE": "bash_complete", **asked})
    program = [sys.executable, "-c", INSTALLED]
    done = subprocess.run(program, capture_output=True, text=True, check=True, env=env)
    assert (done.stdout.split(), done.stderr) == (["plain,chat", "plain,check"], "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(shell: str) -> None:
    done = localspec("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert "_LOCALSPEC_COMPLETE" in done.out

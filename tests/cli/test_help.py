import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from localspec.cli import main as root
from localspec.cli import options as sections
from localspec.config import keys
from tests.cli.command import assert_one_complaint, localspec

ROOT = Path(__file__).parents[2]
SNAPSHOTS = Path(__file__).parent / "snapshots"
RARE = [names for _, names in sections.SECTIONS.values()]
SLOW = {
    "llama_cpp",
    "textual",
    "huggingface_hub",
    "numpy",
    "jinja2",
    "pip",
    "asyncio",
}
LIST_IMPORTS = """
import sys
from localspec.__main__ import main
sys.argv = ["localspec", "--help"]
try:
    main()
finally:
    print(*{name.partition(".")[0] for name in sys.modules}, file=sys.stderr)
"""


def test_help_imports_nothing_slow() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIST_IMPORTS], capture_output=True, text=True, check=True
    )
    imported = set(done.stderr.split())
    assert imported & SLOW == set()
    assert "Answer a prompt." in done.stdout


@pytest.mark.parametrize(
    ("arguments", "file"), [(("--help",), "help.txt"), (("run", "--help"), "run_help.txt")]
)
def test_the_help_is_as_in_its_snapshot(
    arguments: tuple[str, ...], file: str, bare_machine: dict[str, str]
) -> None:
    done = localspec(*arguments, env={**bare_machine, "COLUMNS": "80"}, cold=True)
    assert done.out == (SNAPSHOTS / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("verb", ["run", "chat", "serve", "batch", "bench", "tailor"])
def test_help_leaves_out_rare_flags_which_help_all_shows(verb: str) -> None:
    usual = CliRunner().invoke(root.localspec, [verb, "--help"], terminal_width=80).output
    every = CliRunner().invoke(root.localspec, [verb, "--help-all"], terminal_width=80).output
    with click.Context(root.localspec) as context:
        command = root.localspec.get_command(context, verb)
    assert command is not None
    flags = {flag for each in command.params for flag in each.opts if flag.startswith("--")}
    assert flags <= set(re.findall(r"--[a-z-]+", every))
    hidden = {"--tensor-split", "--no-kv-offload", "--workers", "--draft-device"}
    assert not hidden & set(re.findall(r"--[a-z-]+", usual))
    headings = re.findall(r"^(\S.*):$", usual, flags=re.MULTILINE)
    assert headings == ["Options", *(each for each in sections.SECTIONS if each in headings)]


def test_help_of_draft_names_every_drafter() -> None:
    draft = keys.KEYS["draft"]
    assert all(re.search(rf"\b{each}\b", draft.help) for each in draft.choices)


def test_the_flags_that_help_leaves_out_stand_in_the_settings_reference() -> None:
    rare = {name for names in RARE for name in names}
    rows: dict[str, str] = {}
    with click.Context(root.localspec) as context:
        for verb in ("run", "chat", "batch"):
            command = root.localspec.get_command(context, verb)
            assert command is not None
            for each in command.params:
                record = each.get_help_record(context)
                if each.name in rare and record is not None:
                    flag, text = (part.replace("|", "\\|") for part in record)
                    rows.setdefault(each.name, f"| `{flag}` | {text} |")
    assert rows.keys() == rare
    reference = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    assert "\n".join(rows[name] for names in RARE for name in names) in reference


@pytest.mark.parametrize("old", root.MOVED)
def test_the_name_of_an_earlier_version_is_answered_with_what_it_is_now(
    old: str, bare_machine: dict[str, str]
) -> None:
    done = localspec(*old.split(), "--json", env=bare_machine)
    assert_one_complaint(done, 2)
    now = root.MOVED[old]
    assert now in done.err
    assert done.err.startswith(f"localspec: localspec {old} is ")


def test_every_verb_has_help_of_its_own() -> None:
    for verb in ("run", "pull", "import"):
        done = localspec(verb, "--help", cold=True)
        assert (done.code, done.err) == (0, "")
        assert f"Usage: python -m localspec {verb} [OPTIONS]" in done.out


@pytest.mark.parametrize(
    ("verb", "meant"),
    [
        ("pul", "did you mean pull?"),
        ("download", "did you mean pull?"),
        ("models", "did you mean list or search?"),
        ("histroy", "did you mean history?"),
        ("Why is the sky blue?", "to ask something, use `localspec run`"),
        ("xyzzy", "there is no command 'xyzzy'\n"),
    ],
)
def test_what_is_no_command_is_answered_with_what_is_meant(verb: str, meant: str) -> None:
    done = CliRunner().invoke(root.localspec, [verb])
    assert done.exit_code == 2
    assert meant in done.output


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--temp", "there is no option --temp: did you mean --temperature or --template? See "),
        ("--jsonschema", "there is no option --jsonschema: did you mean --json-schema? See "),
        ("--xyzzy", "there is no option --xyzzy; see "),
    ],
)
def test_an_option_that_there_is_not_is_answered_with_those_that_begin_so(
    typed: str, meant: str, bare_machine: dict[str, str]
) -> None:
    done = localspec("run", typed, "1", "Hi", env=bare_machine)
    assert_one_complaint(done, 2)
    assert meant in done.err


@pytest.mark.parametrize(
    ("verb", "first"),
    [
        ("config", "pair "),
        ("index", ""),
    ],
)
def test_a_verb_with_subcommands_alone_shows_how_things_are(
    verb: str, first: str, bare_machine: dict[str, str]
) -> None:
    done = localspec(verb, env=bare_machine)
    assert done.code == 0
    assert done.out.startswith(first)
    if verb == "index":
        assert done.err.startswith("no index yet")


@pytest.mark.parametrize(
    ("verb", "page"), [("ls", "List the models on this"), ("bench", "5 or more")]
)
def test_help_takes_a_command_by_any_of_its_names(verb: str, page: str) -> None:
    assert page in " ".join(CliRunner().invoke(root.localspec, ["help", verb]).output.split())


def test_no_summary_of_a_command_is_cut_off() -> None:
    with click.Context(root.localspec) as context:
        found = {name: root.localspec.get_command(context, name) for name in root.MODULES}
    groups = [name for name, verb in found.items() if isinstance(verb, click.Group)]
    assert {"index", "config", "history"} <= set(groups)
    for name in groups:
        page = CliRunner().invoke(root.localspec, [name, "--help"], terminal_width=80).output
        assert "..." not in page.partition("Commands:")[2], page


def test_no_verb_shows_the_help_and_is_code_2() -> None:
    done = localspec()
    assert (done.code, done.out) == (2, "")
    assert "Download models and verify them" in done.err

"""`localspec config`, the first run and `doctor`: settings with their origins, what a person is asked, and what is not well."""

import importlib
import io
import json
import os
import re
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from localspec.cli import main as root
from localspec.cli import system
from localspec.cli.main import localspec as cli
from localspec.cli.options import Settings, settings_of
from localspec.cli.prompt import with_model
from localspec.config.files import user_file
from localspec.config.keys import KEYS
from localspec.diagnosis.doctor import Fact
from localspec.errors import LocalspecError, ModelUnavailable
from localspec.llama.selection import builds_dir
from localspec.models.registry import load_registry
from localspec.session.model_list import ModelRow
from localspec.setup.plan import GpuFinding
from tests.cli.command import localspec, succeed
from tests.models.gguf_builder import build
from tests.support.checks import refuses
from tests.tui.terminal import Terminal

Call = Callable[..., Result]
pull = importlib.import_module("localspec.cli.pull")


@pytest.fixture
def elsewhere(tmp_path: Path, bare_machine: dict[str, str]) -> dict[str, str]:
    """A bare machine whose user's file sets a temperature and a pair."""
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings/config.toml").write_text('temperature = 0.5\npair = "no-such-pair"\n')
    return {**bare_machine, "LOCALSPEC_CONFIG_DIR": str(tmp_path / "settings")}


def show(env: dict[str, str], folder: Path, **variables: str) -> dict[str, list[str]]:
    """Return the words of each line of `config show`, by setting."""
    done = succeed("config", "show", env={**env, **variables}, cwd=folder)
    return {line.split()[0]: line.split()[1:] for line in done.out.splitlines()}


def test_every_setting_has_value_and_origin(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    lines = show(elsewhere, tmp_path, LOCALSPEC_CTX="99")
    file = str(tmp_path / "settings/config.toml")
    assert list(lines) == ["model", *list(KEYS)[2:]], "a pair and a target are one model"
    assert lines["temperature"] == ["0.5", file]
    assert lines["ctx"] == ["99", "LOCALSPEC_CTX"]
    assert lines["top_k"] == ["40", "default"]
    mirrors = {"LOCALSPEC_MIRRORS": "https://me:s3cret@mirror.example/gguf"}
    for options in ([], ["--json"]):
        done = localspec("config", "show", *options, env={**elsewhere, **mirrors}, cwd=tmp_path)
        assert "s3cret" not in done.out
        assert "mirror.example" in done.out
    document = json.loads(done.out)
    assert set(document) == set(KEYS)
    assert document["temperature"] == {"value": 0.5, "level": "user", "origin": file}
    Path(file).unlink()
    qwen = show(elsewhere, tmp_path, LOCALSPEC_PAIR="qwen3-4b")
    assert qwen["temperature"] == ["0.6", "recommended", "for", "qwen3-4b"]
    assert show(elsewhere, tmp_path)["model"][:2] == ['"smollm2-135m"', "default,"]
    for name in ("LOCALSPEC_PAIR", "LOCALSPEC_TARGET"):
        assert show(elsewhere, tmp_path, **{name: "qwen3-4b"})["model"] == ['"qwen3-4b"', name]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Call a verb in process, on a machine of its own; what it raises, is raised."""
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    monkeypatch.delenv("LOCALSPEC_TELEMETRY", raising=False)
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> Result:
        words = ("config", *words)
        return CliRunner().invoke(cli, words, catch_exceptions=False, standalone_mode=False)

    return call


@pytest.mark.parametrize(
    ("calls", "settings"),
    [
        (["set temperature 0.3", "set system Brief."], {"temperature": 0.3, "system": "Brief."}),
        (["set temperature 0.3", "set ctx 512", "unset temperature"], {"ctx": 512}),
        (["set model qwen2.5-coder:1.5b"], {"pair": "qwen2.5-coder-1.5b"}),
        (["set pair qwen3-4b", "set model qwen2.5-coder-0.5b"], {"target": "qwen2.5-coder-0.5b"}),
        (["set model qwen2.5-coder-0.5b", "set pair qwen3-4b"], {"pair": "qwen3-4b"}),
        (["set pair qwen3-4b", "unset model", "unset model"], {}),
        (["set telemetry off", "set telemetry text"], {"telemetry": "text"}),
    ],
)
def test_settings_are_set_and_unset(
    call: Call, calls: list[str], settings: dict[str, object]
) -> None:
    for each in calls:
        done = call(*each.split(maxsplit=2))
        assert done.stdout == ""
        assert each.split()[1] in done.stderr
    assert tomllib.loads(user_file().read_text()) == settings


def test_a_switch_reads_as_it_is_typed(call: Call) -> None:
    for typed, text, value in (("on", "on", True), ("false", "off", False), ("true", "on", True)):
        assert f"store is {text} in " in call("set", "store", typed).stderr
        assert json.loads(call("get", "store").stdout) is value, "scripts read it"
        assert call("show", "store").stdout.split()[:2] == ["store", text]
        assert tomllib.loads(user_file().read_text())["store"] is value


def test_only_the_users_own_file_is_read(call: Call, tmp_path: Path) -> None:
    (tmp_path / "localspec.toml").write_text("temperature = 0.9\nno such = TOML\n")
    assert call("path").stdout.splitlines() == [str(user_file())]
    call("set", "temperature", "0.5")
    assert json.loads(call("show", "--json").stdout)["temperature"]["value"] == 0.5


def test_a_file_is_found_from_other_folders(call: Call, tmp_path: Path) -> None:
    for name in ("mine", "off"):
        (tmp_path / name).touch()
    for given, kept in (("mine", str(tmp_path / "mine")), ("off", "off")):
        call("set", "mmproj", given)
        assert tomllib.loads(user_file().read_text()) == {"mmproj": kept}


def test_a_bad_value_is_mended_by_the_program(call: Call) -> None:
    file = user_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    for bad, words in [
        ('temperature = "x"', ("unset", "temperature")),
        ('temperature = "x"', ("set", "temperature", "0.5")),
        ("temprature = 1", ("unset", "temprature")),
    ]:
        file.write_text(f"{bad}\nctx = 512\n")
        call(*words)
        left = {"ctx": 512, **({"temperature": 0.5} if words[0] == "set" else {})}
        assert tomllib.loads(file.read_text()) == left
    file.write_text('temperature = "x"\ntop_k = "y"\n')
    assert "'top_k'" in call("unset", "temperature").stderr
    assert tomllib.loads(file.read_text()) == {"top_k": "y"}, "and what is still wrong is said"
    file.write_text("no TOML\n")
    refuses("is not TOML", call, "set", "temperature", "0.5")
    assert file.read_text() == "no TOML\n"


def test_doctor_names_unreadable_settings_and_no_variable_that_is_not_set(
    bare_machine: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text("no TOML\n")
    env = {name: text for name, text in bare_machine.items() if name != "HF_HUB_OFFLINE"}
    printed = localspec("doctor", env={**env, "LOCALSPEC_CONFIG_DIR": str(tmp_path)}).out
    assert re.search("HF_HUB_OFFLINE +not set", printed)
    assert "not checked, your settings cannot be read" in printed
    printed = localspec("doctor", env={**env, "HF_HUB_OFFLINE": "1"}).out
    assert re.search("HF_HUB_OFFLINE +set", printed)


def test_one_value_is_printed_alone(call: Call) -> None:
    call("set", "temperature", "0.3")
    call("set", "model", "qwen3-4b")
    for name, printed in [
        ("temperature", "0.3\n"),
        ("model", "qwen3-4b\n"),
        ("pair", "qwen3-4b\n"),
        ("system", "\n"),
        ("exact", "false\n"),
    ]:
        assert call("get", name).stdout == printed
    refuses("did you mean temperature", call, "get", "temperture")


def test_one_setting_is_shown_with_its_origin(call: Call) -> None:
    call("set", "ctx", "512")
    assert call("show", "ctx").stdout.split() == ["ctx", "512", str(user_file())]
    assert json.loads(call("show", "ctx", "--json").stdout)["ctx"]["level"] == "user"
    for name in ("model", "pair", "target"):
        assert call("show", name).stdout.startswith("model ")
    for flags in ([], ["--json"]):
        refuses("did you mean temperature", call, "show", "temperture", *flags)


READING = [
    *("search", "list", "stats", "recommend", "check a b", "config", "config get ctx"),
    *("history list", "history show", "history search word", "history export 1"),
]


@pytest.mark.parametrize("words", READING)
def test_what_only_reads_makes_no_folder_that_a_variable_names(
    words: str, bare_machine: dict[str, str], tmp_path: Path
) -> None:
    wrong = tmp_path / "no/such"
    done = localspec(*words.split(), env={**bare_machine, "LOCALSPEC_DATA_DIR": str(wrong)})
    assert not wrong.parent.exists()
    if words.startswith(("list", "stats", "history")):
        assert f"LOCALSPEC_DATA_DIR is {wrong}, and there is no such folder" in done.err


def test_every_verb_says_once_which_variable_is_misspelt(bare_machine: dict[str, str]) -> None:
    env = {**bare_machine, "LOCALSPEC_TEMPERTURE": "0.3"}
    said = "LOCALSPEC_TEMPERTURE changes nothing: did you mean LOCALSPEC_TEMPERATURE?"
    for words in (["list"], ["config", "path"], ["batch", "no-such-file.jsonl"]):
        assert localspec(*words, env=env).err.count(said) == 1
    assert said not in localspec("list", "--help", env=env).err


def test_what_cannot_be_set_changes_nothing(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for words, told in [
        ("temperture 1", "did you mean temperature"),
        ("xyzzy 1", "'xyzzy': use one of model, pair"),
        ("temperature warm", "'warm', but takes a number"),
        ("temperature -1", "temperature is -1.0: .* 0 or more"),
        ("telemetry perhaps", "telemetry"),
        ("model qwen3", "did you mean qwen3-0.6b"),
    ]:
        with pytest.raises(LocalspecError, match=told):
            call("set", *words.split())
        assert not user_file().exists()
    assert "temperature was not set" in call("unset", "temperature").stderr
    monkeypatch.setenv("LOCALSPEC_CTX", "99")
    assert "LOCALSPEC_CTX sets ctx, too" in call("set", "ctx", "4096").stderr


def test_what_was_edited(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho "temprature = 1" > "$1"\n')
    editor.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(editor))
    refuses("line 1: 'temprature'", call, "edit")


PAIRS = load_registry().pairs
EVERY = [
    ModelRow("gemma3-1b", 10**9, False, True, "chat", True, 14.0),
    ModelRow("qwen3-4b", 10**9, True, True, "reasoning", True, 8.5, True, own=True),
    ModelRow("smollm2-135m", 10**8, True, True, "a toy"),
]


class Typed(io.StringIO):
    """What a person types."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path))
    monkeypatch.setattr("localspec.cli.first_run.measured_choices", lambda: EVERY)
    monkeypatch.setattr(pull, "bytes_of_download", lambda _: None)
    return tmp_path / "config.toml"


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made = list[str]()
    monkeypatch.setattr("localspec.cli.pull.download", made.append)
    return made


def chosen(typed: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(sys, "stdin", Typed(typed))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    return with_model(settings_of({}), quiet=False)[0]


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("\n", "qwen3-4b"),
        ("2\n", "smollm2-135m"),
        ("3\n", "gemma3-1b"),
        ("a\n3\n", "smollm2-135m"),
        ("9\nqwen3-8b\n", "qwen3-8b"),
    ],
)
def test_the_chosen_model_is_the_default_from_then_on(
    typed: str,
    name: str,
    own_settings: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    downloads: list[str],
) -> None:
    assert chosen(typed, monkeypatch).launch.pair == name
    assert tomllib.loads(own_settings.read_text()) == {"pair": name}
    out, printed = capsys.readouterr()
    assert out == ""
    assert "3  gemma3-1b: 1.0 GB to download" in printed
    assert downloads == ([] if name in {"qwen3-4b", "smollm2-135m"} else [name])
    assert chosen("", monkeypatch).launch.pair == name  # without a question


def test_a_model_that_is_here_stays_when_a_download_fails(
    own_settings: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(name: str) -> None:
        raise ModelUnavailable(f"{name} cannot be had: no connection")

    monkeypatch.setattr("localspec.cli.pull.download", fail)
    assert chosen("3\n\n", monkeypatch).launch.pair == "qwen3-4b"
    assert tomllib.loads(own_settings.read_text()) == {"pair": "qwen3-4b"}
    assert "gemma3-1b cannot be had: no connection; choose another" in capsys.readouterr().err


def test_without_the_hub_what_other_sources_have_comes_first(
    own_settings: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(own_settings.parent / "data"))
    fetched = list[str]()

    def fetch(name: str) -> None:
        fetched.append(name)
        if name != "smollm2-135m":
            raise ModelUnavailable(f"{name} could not be downloaded (hub: no connection)")

    monkeypatch.setattr("localspec.cli.pull.download", fetch)
    rows = [replace(EVERY[0], pair=PAIRS["gemma3-1b"]), EVERY[2]]
    rows[1] = replace(rows[1], here=False, pair=PAIRS["smollm2-135m"])
    monkeypatch.setattr("localspec.cli.first_run.measured_choices", lambda: rows)
    monkeypatch.setattr("localspec.cli.first_run._has_route", lambda: True)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    # The demo is the last; only where the download of another failed, the first.
    assert chosen("1\n\n", monkeypatch).launch.pair == "smollm2-135m"
    assert fetched == ["gemma3-1b", "smollm2-135m"]
    own_settings.unlink()
    monkeypatch.setattr("localspec.cli.first_run._has_route", lambda: False)
    capsys.readouterr()
    assert chosen("\n", monkeypatch).launch.pair == "smollm2-135m"
    assert "The hub cannot be reached (this machine has no network)" in " ".join(
        capsys.readouterr().err.split()
    )
    own_settings.unlink()
    (file := own_settings.parent / "My.gguf").write_bytes(build({}, []))
    assert chosen(f"{file}\n", monkeypatch).launch.target == str(file)


def test_a_file_is_chosen_by_its_path_as_m_takes_it(
    own_settings: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(own_settings.parent / "data"))
    monkeypatch.chdir(own_settings.parent)
    (blob := own_settings.parent / "sha256-74701a8c").write_bytes(build({}, []))
    (own_settings.parent / "text.gguf").write_text("no model")
    long = f"./{'x' * 90}/{'y' * 90}.gguf"
    typed = "\n".join(("./missing.gguf", long, "text.gguf", "x" * 90, f"./{blob.name}", ""))
    assert chosen(typed, monkeypatch).launch.target == str(blob)
    told = "".join(capsys.readouterr().err.split())
    assert "thereisnofilemissing.gguf:checkthepath" in told
    assert f"thereisnofile{long[2:]}:checkthepath" in told
    assert "text.ggufisnotaGGUFfile" in told
    assert f"nomodelmatches'{'x' * 79}…'" in told


def test_the_size_of_a_download_is_that_of_all_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    target = load_registry().model("qwen3.5-0.8b")
    assert target.mmproj is not None
    assert pull.bytes_of_download("qwen3.5-0.8b") == target.size_bytes + target.mmproj.size_bytes
    partial = tmp_path / "partial" / target.sha256 / "blob"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"x" * 1000)
    assert pull.bytes_of_download("qwen3.5-0.8b") == target.loaded_bytes - 1000
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelUnavailable) as failure:
        pull.download("qwen3.5-0.8b")
    assert " MB" not in str(failure.value), "of one file, beside the size of all"


def test_on_a_narrow_terminal_the_first_run_breaks_no_word(
    own_settings: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("localspec.display", "localspec.cli.first_run"):
        monkeypatch.setattr(f"{module}.columns_of", lambda _: 40)
    refuses("no model chosen", chosen, "smolm2\na\nn\n", monkeypatch)
    printed = capsys.readouterr().err
    lines = printed.replace("none): ", "none):\n").splitlines()
    assert max(map(len, lines)) <= 40
    words = " ".join(printed.split())
    assert "These are on this machine, or suit it best: 1 " in words
    assert "Enter for 1, or type a number or a name (a: list all, n: none):" in words
    assert not own_settings.exists()


def test_a_name_that_is_misspelt_and_the_list_of_all(
    own_settings: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refuses("no model chosen", chosen, "smolm2\na\nn\n", monkeypatch)
    printed = capsys.readouterr().err
    assert "no model matches 'smolm2': did you mean smollm2-135m" in printed
    listed = printed[printed.rindex("no model matches") :]
    numbers = [int(each) for each in re.findall(r"^ *(\d+) ", listed, re.MULTILINE)]
    assert numbers == [*range(len(numbers), 0, -1)], "the best are above the next question"
    assert len(numbers) > 1
    assert all(len(line) <= 80 for line in printed.splitlines() if line[:3].strip().isdecimal())
    assert not own_settings.exists()


def test_choosing_none(
    own_settings: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for typed in ["n\n", "", "99\nn\n"]:
        refuses("localspec config set model NAME", chosen, typed, monkeypatch)
        assert not own_settings.exists()
    assert "there is no number 99: type one from 1 to " in capsys.readouterr().err

    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("click.termui.visible_prompt_func", interrupted)
    with pytest.raises(click.Abort):  # code 130 as everywhere; the end of stdin, above, is a no
        chosen("", monkeypatch)


@pytest.mark.usefixtures("own_settings")
def test_without_a_person_one_line_names_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, quiet, told in [
        ({}, False, True),
        ({}, True, False),
        ({"model": "demo"}, False, False),
    ]:
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        settings, line = with_model(settings_of(given), quiet=quiet)
        assert settings.launch.pair in {None, "smollm2-135m"}
        assert ("no model chosen: using smollm2-135m" in line) is bool(line) is told


def test_the_last_download_is_proposed(own_settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(own_settings.parent / "data"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    blobs, registry = own_settings.parent / "data/blobs", load_registry()
    blobs.mkdir(parents=True)
    for age, name in enumerate(("gemma3-1b", "qwen3-4b-2507", "smollm2-135m")):
        target = registry.model(registry.pair(name).target)
        with (blobs / target.sha256).open("wb") as file:
            file.truncate(target.size_bytes)
        os.utime(blobs / target.sha256, (10**9 - age, 10**9 - age))
    _, line = with_model(settings_of({}), quiet=False)
    assert "`localspec config set model gemma3-1b`" in line


def test_the_program_alone_is_the_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(sys, stream, Typed())
    monkeypatch.setattr(sys, "argv", ["localspec"])
    assert root._implied() == ["chat"]
    monkeypatch.setattr(sys, "argv", ["localspec", "--help"])
    assert root._implied() is None


def test_a_folder_given_as_a_file_is_refused_before_a_model_is_chosen(tmp_path: Path) -> None:
    places = {f"LOCALSPEC_{each}_DIR": str(tmp_path / each) for each in ("CONFIG", "DATA")}
    words = (sys.executable, "-m", "localspec", "run", "-f", str(tmp_path), "Hi")
    terminal = Terminal(*words, **places)
    try:
        terminal.until("is a folder")
        assert terminal.process.wait(10) == 2
        assert b"You have not chosen" not in terminal.seen
    finally:
        terminal.close()


SECRETS = {"HF_TOKEN": "hf_s3cret", "HTTPS_PROXY": "http://me:s3cret@127.0.0.1:9"}
SECTIONS = ["software", "hardware", "GPU build", "files", "settings", "network", "store", "memory"]
NO_GPU = {"cuda": GpuFinding(lacks=("nvcc (the CUDA toolkit)",)), "cpu": GpuFinding()}


def test_doctor_prints_no_secret(bare_machine: dict[str, str], tmp_path: Path) -> None:
    done = localspec("doctor", env={**bare_machine, **SECRETS}, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "s3cret" not in done.out
    *_, last = done.out.splitlines()
    assert last.startswith("no problems, 1 warning (?)")
    sections = [line for line in done.out.splitlines() if line and line[0] not in " -?!"]
    assert sections[:-1] == SECTIONS
    assert "HF_TOKEN           set" in done.out
    assert "? hub 127.0.0.1      " in done.out


def test_no_line_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(system, "columns_of", lambda _: 40)
    value = "the CPU computes, and no GPU was found: a machine without one is fast enough for most"
    lines = system._line(Fact("setup", value, "note")).splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 40
    assert " ".join(" ".join(lines).split()) == f"- setup {value}"


def test_what_doctor_finds(bare_machine: dict[str, str], stored: Path, tmp_path: Path) -> None:
    (stored / "blobs").mkdir(parents=True)
    (stored / "blobs" / ("0" * 64)).write_bytes(b"other bytes")
    command = ("doctor", "--json", "--offline")
    assert localspec(*command, env=bare_machine, cwd=tmp_path).code == 0
    done = localspec(*command, "--verify", env=bare_machine, cwd=tmp_path)
    document = json.loads(done.out)
    assert (done.code, document["ok"]) == (1, False)
    (broken,) = [fact for fact in document["facts"] if fact["state"] == "broken"]
    assert (broken["section"], broken["name"]) == ("store", "0" * 12)
    env = {**bare_machine, "LOCALSPEC_CTX": "many"}
    done = localspec("doctor", "--offline", env=env, cwd=tmp_path)
    assert "! failed             environment variable LOCALSPEC_CTX is 'many'" in done.out
    assert (done.code, done.out.splitlines()[-1][:14]) == (1, "1 problem (!),")


@pytest.mark.parametrize(
    ("arguments", "less", "code", "printed"),
    [
        ("", "", 0, ["no GPU was found"]),
        ("--for cpu", "", 0, ["already built in"]),
        ("--for cuda --yes", "", "install nvcc (the CUDA toolkit)", ["CUDA"]),
        ("--dry-run --for cuda --rpc", "", 0, ["CUDA", "first install nvcc", "libraries_only.cmake -DGGML_CUDA=ON -DGGML_RPC=ON'", "NEW"]),
        ("--dry-run --for cuda", "it has less", 0, ["CUDA; it has less", "-DLESS=ON", "NEW"]),
    ],
)  # fmt: skip
def test_setup_says_what_it_would_do(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    less: str,
    code: Any,
    printed: list[str],
) -> None:
    gpus = {"cuda": GpuFinding(instead={"-DLESS=ON": less})} if less else NO_GPU
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr("localspec.cli.system.find_gpus", lambda: gpus)
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    result = CliRunner().invoke(cli, ["setup", *arguments.split()], standalone_mode=False)
    assert result.return_value == code if code == 0 else str(code) in str(result.exception)
    lines = result.output.splitlines()
    assert all(part in line for part, line in zip(printed, lines, strict=True))
    assert not builds_dir().exists()


def test_setup_asks_nothing_without_a_terminal() -> None:
    done = localspec("setup", "--for", "cpu", "--rebuild")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "--yes" in done.err


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("tensor_split", "nonsense", "it takes a number for each device"),
        ("server", "nonsense", "give an address like"),
        ("workers", "nonsense", "is not HOST:PORT"),
        ("template_kwargs", '{"enable_thinking": true}', "set think instead"),
        ("gate", "rules.toml", "rules.toml"),
    ],
)
def test_what_every_run_would_refuse_is_not_set(
    call: Call, tmp_path: Path, name: str, value: str, words: str
) -> None:
    (tmp_path / "rules.toml").write_text("nonsense = 1")
    refuses(words, call, "set", name, value)
    assert not user_file().exists()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("device", "nonsense", "there is no device 'nonsense' here"),
        ("draft_device", "nonsense", "there is no device 'nonsense' here"),
        ("temperature", "9", "0 to 1.5 is usual"),
        ("repeat_penalty", "1000", "1 to 1.3 is usual"),
        ("max_tokens", "999999999999", "no context holds an answer"),
        ("vectors", "nonsense", "no model matches 'nonsense'"),
        ("draft_model", "nonsense", "no model matches 'nonsense'"),
        *((each, "nowhere", "there is no nowhere here yet") for each in ("mmproj", "gate", "server_key_file", "mirrors", "draft_lora")),
    ],
)  # fmt: skip
def test_what_may_be_here_later_is_set_with_a_note(
    call: Call, name: str, value: str, words: str
) -> None:
    told = call("set", name, value).stderr
    assert (words in told, told.count("\n")) == (True, 2)
    assert name in tomllib.loads(user_file().read_text())

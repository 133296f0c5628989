"""`localspec config`: the origin of every setting, and changes to the user's own file."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from localspec.cli.main import localspec as cli
from localspec.config.files import user_file
from localspec.config.keys import KEYS
from localspec.errors import LocalspecError, UsageError
from tests.cli.command import assert_one_complaint, localspec

Call = Callable[..., Result]


@pytest.fixture
def elsewhere(tmp_path: Path, bare_machine: dict[str, str]) -> dict[str, str]:
    """A bare machine whose user's file sets a temperature and a pair."""
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings/config.toml").write_text('temperature = 0.5\npair = "no-such-pair"\n')
    return {**bare_machine, "LOCALSPEC_CONFIG_DIR": str(tmp_path / "settings")}


def show(env: dict[str, str], folder: Path, **variables: str) -> dict[str, list[str]]:
    """Return the words of each line of `config show`, by setting."""
    done = localspec("config", "show", env={**env, **variables}, cwd=folder)
    assert done.code == 0
    return {line.split()[0]: line.split()[1:] for line in done.out.splitlines()}


def test_show_has_value_and_origin_of_every_setting(
    tmp_path: Path, elsewhere: dict[str, str]
) -> None:
    lines = show(elsewhere, tmp_path, LOCALSPEC_CTX="99")
    file = str(tmp_path / "settings/config.toml")
    assert list(lines) == list(KEYS)
    assert lines["temperature"] == ["0.5", file]
    assert lines["ctx"] == ["99", "LOCALSPEC_CTX"]
    assert lines["top_k"] == ["40", "default"]
    done = localspec("config", "show", "--json", env=elsewhere, cwd=tmp_path)
    document = json.loads(done.out)
    assert set(document) == set(KEYS)
    assert document["temperature"] == {"value": 0.5, "level": "user", "origin": file}


def test_show_names_the_default_pair_and_what_is_recommended_for_a_model(
    tmp_path: Path, bare_machine: dict[str, str]
) -> None:
    qwen = show(bare_machine, tmp_path, LOCALSPEC_PAIR="qwen3-4b")
    assert qwen["temperature"] == ["0.6", "recommended", "for", "qwen3-4b"]
    assert qwen["repeat_penalty"] == ["1.0", "default"]
    assert show(bare_machine, tmp_path)["pair"][:2] == ['"smollm2-135m"', "default,"]
    alone = show(bare_machine, tmp_path, LOCALSPEC_TARGET="qwen3-4b")
    assert alone["pair"] == ["-", "default"]


def test_passwords_of_mirrors_are_not_printed(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    mirrors = {"LOCALSPEC_MIRRORS": "https://me:s3cret@mirror.example/gguf"}
    for options in ([], ["--json"]):
        done = localspec("config", "show", *options, env={**elsewhere, **mirrors}, cwd=tmp_path)
        assert "s3cret" not in done.out
        assert "mirror.example" in done.out


def test_only_the_users_file_is_read_and_a_setting_that_is_gone_can_be_removed(
    tmp_path: Path, elsewhere: dict[str, str]
) -> None:
    (tmp_path / "localspec.toml").write_text("temperature = 0.9\nno such = TOML\n")
    file = tmp_path / "settings/config.toml"
    done = localspec("config", "path", env=elsewhere, cwd=tmp_path)
    assert done.out.splitlines() == [str(file)]
    file.write_text('power = "quiet"\ntemperature = 0.5\n')
    done = localspec("config", "show", "--json", env=elsewhere, cwd=tmp_path)
    assert json.loads(done.out)["temperature"]["value"] == 0.5
    assert "`localspec config unset power`" in done.err
    assert localspec("config", "unset", "power", env=elsewhere, cwd=tmp_path).code == 0
    assert file.read_text() == "temperature = 0.5\n"
    assert localspec("config", "show", env=elsewhere, cwd=tmp_path).err == ""


def test_run_obeys_the_users_file_and_a_flag_overrides_it(
    tmp_path: Path, elsewhere: dict[str, str]
) -> None:
    done = localspec("run", "Hi", env=elsewhere, cwd=tmp_path)
    assert_one_complaint(done, 3)
    assert "'no-such-pair'" in done.err
    done = localspec("run", "Hi", "--pair", "no-other-pair", env=elsewhere, cwd=tmp_path)
    assert "'no-other-pair'" in done.err


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
def test_an_answer_is_given_as_it_was_set(tmp_path: Path) -> None:
    settings = {"LOCALSPEC_MAX_TOKENS": "3", "LOCALSPEC_THREADS": "1", "LOCALSPEC_DRAFT": "off"}
    for flags, tokens in (((), 3), (("--max-tokens", "5"), 5)):
        words = ("run", "--json", "--seed", "1", *flags, "Hi")
        done = localspec(*words, env=settings, cwd=tmp_path)
        assert json.loads(done.out)["usage"]["completion_tokens"] == tokens


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Call a verb in process, on a machine of its own; what it raises, is raised."""
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    monkeypatch.delenv("LOCALSPEC_TELEMETRY", raising=False)

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
        assert call(*each.split(maxsplit=2)).stdout == ""
    assert tomllib.loads(user_file().read_text()) == settings


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("set temperature 0.3", "temperature is 0.3 in "),
        ("unset temperature", "was not set"),
        ("set model qwen2.5-coder:1.5b", "is now your default model"),
        ("set ctx 4096", "LOCALSPEC_CTX sets ctx, too, and comes before "),
    ],
)
def test_a_change_is_confirmed(
    call: Call, words: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_CTX", "99")
    assert told in call(*words.split()).stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("temperture 1", "did you mean temperature"),
        ("xyzzy 1", "'xyzzy': use one of model, pair"),
        ("temperature warm", "'warm', but takes a number"),
        ("temperature -1", "temperature cannot be used: .* 0 or more"),
        ("model qwen3", "did you mean qwen3-0.6b"),
    ],
)
def test_what_cannot_be_set_changes_nothing(call: Call, words: str, told: str) -> None:
    with pytest.raises(LocalspecError, match=told):
        call("set", *words.split())
    assert not user_file().exists()


def test_an_editor_opens_the_file_which_is_checked_afterwards(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho "temprature = 1" > "$1"\n')
    editor.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(editor))
    with pytest.raises(UsageError, match="line 1: 'temprature'"):
        call("edit")

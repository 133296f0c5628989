"""`localspec config`, and `localspec run` under settings."""

import json
from pathlib import Path

import pytest

from localspec.config.keys import KEYS
from tests.cli.command import assert_one_complaint, localspec


@pytest.fixture
def elsewhere(tmp_path: Path, bare_machine: dict[str, str]) -> dict[str, str]:
    """A bare machine whose user's file sets a temperature and a pair."""
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings/config.toml").write_text('temperature = 0.5\npair = "no-such-pair"\n')
    return {**bare_machine, "LOCALSPEC_CONFIG_DIR": str(tmp_path / "settings")}


def test_show_names_value_and_origin_of_every_key(
    tmp_path: Path, elsewhere: dict[str, str]
) -> None:
    done = localspec("config", "show", env={**elsewhere, "LOCALSPEC_CTX": "99"}, cwd=tmp_path)
    assert done.code == 0
    lines = {line.split()[0]: line.split()[1:] for line in done.out.splitlines()}
    assert list(lines) == list(KEYS)
    assert lines["temperature"] == ["0.5", str(tmp_path / "settings/config.toml")]
    assert lines["ctx"] == ["99", "LOCALSPEC_CTX"]
    assert lines["top_k"] == ["40", "default"]


def test_show_is_json_for_programs(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    done = localspec("config", "show", "--json", env=elsewhere, cwd=tmp_path)
    document = json.loads(done.out)
    assert set(document) == set(KEYS)
    origin = str(tmp_path / "settings/config.toml")
    assert document["temperature"] == {"value": 0.5, "level": "user", "origin": origin}


def test_show_tells_what_is_recommended_for_the_model(
    tmp_path: Path, bare_machine: dict[str, str]
) -> None:
    done = localspec(
        "config", "show", env={**bare_machine, "LOCALSPEC_PAIR": "qwen3-4b"}, cwd=tmp_path
    )
    lines = {line.split()[0]: line.split()[1:] for line in done.out.splitlines()}
    assert lines["temperature"] == ["0.6", "recommended", "for", "qwen3-4b"]
    assert lines["repeat_penalty"] == ["1.0", "default"]


def test_show_names_the_pair_that_is_loaded_where_none_was_chosen(
    tmp_path: Path, bare_machine: dict[str, str]
) -> None:
    for variables, pair in (
        ({}, ['"smollm2-135m"', "default,", "until", "you", "choose", "a", "model"]),
        ({"LOCALSPEC_TARGET": "qwen3-4b"}, ["-", "default"]),
    ):
        done = localspec("config", "show", env={**bare_machine, **variables}, cwd=tmp_path)
        lines = {line.split()[0]: line.split()[1:] for line in done.out.splitlines()}
        assert lines["pair"] == pair


def test_passwords_of_mirrors_are_not_shown(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    mirrors = {"LOCALSPEC_MIRRORS": "https://me:s3cret@mirror.example/gguf"}
    for options in ([], ["--json"]):
        done = localspec("config", "show", *options, env={**elsewhere, **mirrors}, cwd=tmp_path)
        assert "s3cret" not in done.out
        assert "mirror.example" in done.out


def test_a_file_in_the_working_folder_sets_nothing(
    tmp_path: Path, elsewhere: dict[str, str]
) -> None:
    (tmp_path / "localspec.toml").write_text("temperature = 0.9\nno such = TOML\n")
    done = localspec("config", "path", env=elsewhere, cwd=tmp_path)
    assert done.out.splitlines() == [str(tmp_path / "settings/config.toml")]
    done = localspec("config", "show", "--json", env=elsewhere, cwd=tmp_path)
    assert json.loads(done.out)["temperature"]["value"] == 0.5


def test_a_setting_that_is_gone_is_named_in_a_line_and_can_be_removed(
    tmp_path: Path, elsewhere: dict[str, str]
) -> None:
    file = tmp_path / "settings/config.toml"
    file.write_text('power = "quiet"\ntemperature = 0.5\n')
    done = localspec("config", "show", "--json", env=elsewhere, cwd=tmp_path)
    assert json.loads(done.out)["temperature"]["value"] == 0.5
    assert "'power' is gone: remove it with `localspec config unset power`" in done.err
    assert localspec("config", "unset", "power", env=elsewhere, cwd=tmp_path).code == 0
    assert file.read_text() == "temperature = 0.5\n"
    assert localspec("config", "show", env=elsewhere, cwd=tmp_path).err == ""


def test_run_obeys_the_users_file_and_a_flag_overrules_it(
    tmp_path: Path, elsewhere: dict[str, str]
) -> None:
    done = localspec("run", "Hi", env=elsewhere, cwd=tmp_path)
    assert_one_complaint(done, 3)
    assert "no pair 'no-such-pair'" in done.err
    done = localspec("run", "Hi", "--pair", "no-other-pair", env=elsewhere, cwd=tmp_path)
    assert "no pair 'no-other-pair'" in done.err


@pytest.mark.slow
@pytest.mark.weights
def test_an_answer_is_given_as_it_was_set(smollm2_path: Path, tmp_path: Path) -> None:
    settings = {"LOCALSPEC_MAX_TOKENS": "3", "LOCALSPEC_THREADS": "1", "LOCALSPEC_DRAFT": "off"}
    done = localspec("run", "--json", "--seed", "1", "Hi", env=settings, cwd=tmp_path)
    assert json.loads(done.out)["usage"]["completion_tokens"] == 3
    done = localspec("run", "--json", "--max-tokens", "5", "Hi", env=settings, cwd=tmp_path)
    assert json.loads(done.out)["usage"]["completion_tokens"] == 5

"""`config set`, `unset` and `edit`, names by `import`, `search` and `history`; in process."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from localspec.cli.main import localspec
from localspec.config.files import user_file
from localspec.errors import LocalspecError, ModelUnavailable, UsageError
from localspec.history.archive import History
from localspec.messages import Message
from tests.chat.toy_calls import HERMES
from tests.models.gguf_builder import Tensor, build, model_values

Call = Callable[..., Result]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Call a verb on a machine of its own; what it raises, is raised."""
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    monkeypatch.delenv("LOCALSPEC_TELEMETRY", raising=False)
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> Result:
        return CliRunner().invoke(localspec, words, catch_exceptions=False, standalone_mode=False)

    return call


@pytest.fixture
def settings(tmp_path: Path) -> Callable[[], dict[str, Any]]:
    """Return what the user's own file says."""
    return lambda: tomllib.loads((tmp_path / "settings/config.toml").read_text())


def test_a_setting_is_set_and_unset(call: Call, settings: Callable[[], dict[str, Any]]) -> None:
    assert "temperature is 0.3 in " in call("config", "set", "temperature", "0.3").stderr
    call("config", "set", "system", "Be brief.")
    assert settings() == {"temperature": 0.3, "system": "Be brief."}
    call("config", "unset", "temperature")
    assert settings() == {"system": "Be brief."}
    assert "was not set" in call("config", "unset", "temperature").stderr


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("temperture", "1"), "there is no setting 'temperture': did you mean temperature"),
        (("xyzzy", "1"), "there is no setting 'xyzzy': use one of model, pair"),
        (("temperature", "warm"), "temperature is 'warm', but takes a number"),
        (("temperature", "-1"), "temperature cannot be used: .* 0 or more"),
        (("model", "qwen3"), "did you mean qwen3-0.6b"),
    ],
)
def test_what_cannot_be_set_changes_nothing(
    call: Call, tmp_path: Path, words: tuple[str, ...], match: str
) -> None:
    with pytest.raises(LocalspecError, match=match):
        call("config", "set", *words)
    assert not (tmp_path / "settings/config.toml").exists()


def test_a_model_is_a_pair_or_a_target_and_never_both(
    call: Call, settings: Callable[[], dict[str, Any]]
) -> None:
    told = call("config", "set", "model", "qwen2.5-coder:1.5b").stderr
    assert told.startswith("qwen2.5-coder:1.5b is now your default model, in ")
    assert "pair" not in told.replace(str(user_file().parent), "")
    assert settings() == {"pair": "qwen2.5-coder-1.5b"}
    call("config", "set", "model", "qwen2.5-coder-0.5b")
    assert settings() == {"target": "qwen2.5-coder-0.5b"}
    call("config", "set", "pair", "qwen3-4b")
    assert settings() == {"pair": "qwen3-4b"}
    call("config", "unset", "model")
    assert settings() == {}


def test_who_comes_before_is_said(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_CTX", "99")
    assert (
        "LOCALSPEC_CTX sets ctx, too, and comes before "
        in call("config", "set", "ctx", "4096").stderr
    )


def test_an_editor_opens_the_file_and_what_it_left_is_checked(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho "temprature = 1" > "$1"\n')
    editor.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(editor))
    with pytest.raises(UsageError, match="line 1: 'temprature' is not a known setting"):
        call("config", "edit")


def test_a_model_is_given_another_name(call: Call) -> None:
    assert call("import", "qwen3:4b", "--name", "fast").stdout == "fast\n"
    assert "fast = qwen3-4b\n" in call("import").stdout
    call("config", "set", "model", "fast")
    with pytest.raises(UsageError, match="qwen3-8b is already the name"):
        call("import", "fast", "--name", "qwen3-8b")
    with pytest.raises(UsageError, match="give it another name with --name"):
        call("import", "qwen3-8b")
    with pytest.raises(UsageError, match="'a b' cannot be a name"):
        call("import", "qwen3-8b", "--name", "a b")
    assert call("rm", "fast").stdout == "removed the name fast; qwen3-4b stays\n"
    assert "fast" not in call("import").stdout


def test_search_lists_what_fits_the_smallest_first(call: Call) -> None:
    found = [line.split()[0] for line in call("search", "coder").stdout.splitlines()]
    assert found[:2] == ["qwen2.5-coder-1.5b", "qwen2.5-coder-7b"]
    assert found[-1] == "qwen2.5-coder-0.5b"  # a draft model
    assert [line.split()[0] for line in call("search", "qwen3:4b").stdout.splitlines()] == [
        "qwen3-4b",
        "qwen3-4b-2507",
    ]
    names = [each["name"] for each in json.loads(call("search", "--json").stdout)]
    assert {"smollm2-135m", "gemma3-270m"} <= set(names)
    with pytest.raises(ModelUnavailable):
        call("search", "frobnicate")


def test_search_and_show_tell_which_models_can_call_tools(call: Call) -> None:
    lines = call("search").stdout.splitlines()
    marked = {line.split()[0]: " · tools" in line for line in lines}
    assert marked["qwen3-4b"]
    assert not marked["gemma3-4b"]
    known = {each["name"]: each["tools"] for each in json.loads(call("search", "--json").stdout)}
    assert (known["qwen3-4b"], known["gemma3-4b"], known["qwen3.8-27b"]) == (True, False, None)
    for name, told in (("qwen3-4b", "yes"), ("gemma3-4b", "no")):
        facts = dict(line.split(None, 1) for line in call("show", name).stdout.splitlines())
        assert facts["tools"] == told
    assert "tools" not in call("show", "qwen3.8-27b").stdout


@pytest.mark.parametrize(
    ("template", "told"), [(HERMES, True), ("{{ messages }}", False), (None, False)]
)
def test_of_a_file_its_own_template_says_whether_it_can_call_tools(
    call: Call, tmp_path: Path, template: str | None, told: bool
) -> None:
    values = model_values()
    del values["tokenizer.chat_template"]
    values |= {} if template is None else {"tokenizer.chat_template": template}
    content = build(values, [Tensor("weights", (8, 4))], data_bytes=128)
    (tmp_path / "mine.gguf").write_bytes(content)
    shown = json.loads(call("show", str(tmp_path / "mine.gguf"), "--json").stdout)
    assert shown["tools"] is told


def test_history_is_listed_searched_shown_and_exported(call: Call, tmp_path: Path) -> None:
    assert call("history").stderr == "no conversations yet\n"
    with pytest.raises(UsageError, match="no conversations yet"):
        call("history", "show")
    history = History(tmp_path / "data/history")
    for river in ("Douro", "Tejo"):
        number = history.create(pair="toy")
        said = history.add_user(number, None, Message.user(f"Where is the {river}?"))
        history.begin_reply(number, said, "toy").finish(Message.assistant("In Portugal."))
    history.close()
    first, second = call("history").stdout.splitlines()
    assert first.startswith("2 ")
    assert second.endswith("Where is the Douro? · toy")
    assert call("history", "search", "douro").stdout.startswith("1 ")
    assert call("history", "list", "-n", "1").stdout.count("\n") == 1
    assert json.loads(call("history", "list", "--json").stdout)[0]["messages"] == 2
    assert "## Assistant\n\nIn Portugal.\n" in call("history", "show").stdout
    assert "Douro" in call("history", "show", "#1").stdout
    assert json.loads(call("history", "show", "1", "--json").stdout)["pair"] == "toy"
    assert "Tejo" in call("history", "show", "Where is the T").stdout
    path = tmp_path / call("history", "export", "1").stdout.strip()
    assert path.read_text().startswith("# Where is the Douro?")
    call("history", "export", "2", "tejo.json")
    assert json.loads((tmp_path / "tejo.json").read_text())["title"] == "Where is the Tejo?"
    with pytest.raises(UsageError, match="there is no conversation 'x'"):
        call("history", "show", "x")
    with pytest.raises(LocalspecError, match="there is no conversation 9"):
        call("history", "show", "9")

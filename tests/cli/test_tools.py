"""`--tools`, where it cannot begin."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from localspec.chat.conversation import Conversation
from localspec.cli.hands import toolboxes
from localspec.cli.question import question
from localspec.cli.run_here import before_question
from localspec.engine.ask import Ask
from localspec.messages import Message
from localspec.options import ReplyOptions
from localspec.retrieval.index import made
from localspec.retrieval.vector_table import VectorModel
from tests.chat.test_calling import assistant
from tests.chat.toy_calls import NOW
from tests.chat.toy_tokenizer import shown
from tests.cli.command import assert_one_complaint, localspec


def test_a_folder_with_localspecs_own_files_is_not_opened(tmp_path: Path) -> None:
    """Its rules could be written there, and its conversations read."""
    places = {"LOCALSPEC_DATA_DIR": str(tmp_path / "share/localspec"), "HOME": str(tmp_path)}
    for verb in ("run", "chat"):
        done = localspec(
            verb, "--tools", *(["Hi"] if verb == "run" else []), cwd=tmp_path, env=places
        )
        assert_one_complaint(done, 2)
        assert "start it in the folder of a project" in done.err


def test_rules_for_calls_are_read_before_anything_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "calls.toml"
    file.write_text("at_most = 'many'")
    for verb in (["run", "--tools", "Hi"], ["chat", "--tools"], ["serve"]):
        done = localspec(*verb, "--tool-rules", str(file), cwd=tmp_path)
        assert_one_complaint(done, 2)
        assert f"--tool-rules {file}" in done.err
    gone = localspec("run", "--tool-rules", "nowhere.toml", "Hi", cwd=tmp_path)
    assert_one_complaint(gone, 2)
    assert "nowhere.toml cannot be read" in gone.err


def test_rules_that_are_none_are_told_before_anything_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings/tools.toml").write_text("permit = []")
    (tmp_path / "project").mkdir()
    places = {"LOCALSPEC_CONFIG_DIR": str(tmp_path / "settings")}
    done = localspec("run", "--tools", "Hi", cwd=tmp_path / "project", env=places)
    assert_one_complaint(done, 2)
    assert "tools.toml: 'permit' is unknown" in done.err


def test_that_vectors_cannot_be_used_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    with closing(made("notes")) as index:
        index.choose_vector_model(VectorModel("gone", "0" * 64))
    flags: dict[str, Any] = {"docs": "notes", "mcp": (), "files": (), "offline": True}
    toolboxes(Path.cwd(), flags, lambda _: None)
    question("How hot is tea?", flags)
    assert capsys.readouterr().err.count("found by words alone") == 1


def test_what_is_kept_of_a_prompt_ends_where_its_question_begins() -> None:
    speaker = assistant("x")
    said = (Message.system("Be brief."), Message.user("hello"), Message.assistant("x"))
    asked = Ask(0, (*said, Message.user("And?")), ReplyOptions(), tools=(NOW,))
    conversation = Conversation(None, asked.messages, tools=asked.tools)
    kept = speaker.prompt_tokens(conversation)[: before_question(speaker, asked)]
    text = shown(kept)
    assert text.endswith("<|im_start|>user\n")
    assert "Be brief." in text
    assert "hello" not in text

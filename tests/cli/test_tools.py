"""`--tools`, where it cannot begin."""

import os
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from localspec.chat.conversation import Conversation
from localspec.chat.events import Event, Finished, Reply, Text
from localspec.chat.request import Request
from localspec.cli import tools
from localspec.cli.prompt import DocsFlags, QuestionFlags
from localspec.cli.run import AnswerWriter, OutputFlags
from localspec.cli.tools import RepliesAndCalls, ToolFlags, pressed_answer
from localspec.decoding.cancel import Cancelled
from localspec.decoding.round import Spent, StopReason
from localspec.engine.engine import FirstRequest, Interrupted, NoSignals
from localspec.engine.protocol import Load
from localspec.launch import local_engine
from localspec.launch.local_engine import before_question
from localspec.messages import Message, ToolCall
from localspec.options import ReplyOptions
from localspec.retrieval.index import VectorModel, open_index
from localspec.session.approval import typed_decision
from localspec.toolbox.permissions import Decision
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
    assert "tools.toml: permit is not a known key" in done.err


def test_that_vectors_cannot_be_used_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    with closing(open_index("notes", make=True)) as index:
        index.choose_vector_model(VectorModel("gone", "0" * 64))
    docs = DocsFlags("notes")
    ToolFlags(tools=True).runner(docs, offline=True)
    QuestionFlags().message("How hot is tea?", docs)
    assert capsys.readouterr().err.count("found by words alone") == 1


def test_what_is_kept_of_a_prompt_ends_where_its_question_begins() -> None:
    speaker = assistant("x")
    said = (Message.system("Be brief."), Message.user("hello"), Message.assistant("x"))
    asked = Request(0, (*said, Message.user("And?")), ReplyOptions(), tools=(NOW,))
    conversation = Conversation(None, asked.messages, tools=asked.tools)
    kept = speaker.prompt_tokens(conversation)[: before_question(speaker, asked)]
    text = shown(kept)
    assert text.endswith("<|im_start|>user\n")
    assert "Be brief." in text
    assert "hello" not in text


def test_a_question_is_not_saved_before_the_model_is_loaded_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its context is counted first, and a second load for a larger one may be interrupted."""
    speaker, saved, loads = assistant("x"), [], count()
    target = SimpleNamespace(n_ctx=8, model=SimpleNamespace(n_ctx_train=4096))
    runtime = SimpleNamespace(assistant=speaker, target=target, costs=None, drafting=None)
    plan = SimpleNamespace(options=SimpleNamespace(n_ctx=4096), target=Path("x"))

    def load(*_: object, **__: object) -> object:
        if next(loads):
            raise Cancelled
        return runtime

    monkeypatch.setattr(local_engine, "make_plan", lambda *_, **__: plan)
    monkeypatch.setattr(local_engine, "load_plan", load)
    monkeypatch.setattr(local_engine, "may_need_more", lambda *_: True)

    def asked() -> Request:
        saved.append(False)
        return Request(0, (Message.user("hello"),), ReplyOptions())

    first = FirstRequest("hello", asked)
    with pytest.raises(Interrupted):
        local_engine.local_engine(Load(), lambda _: None, NoSignals(), None, first, print)
    assert (next(loads), saved) == (2, [False])


class Terminal:
    """A terminal in which the function under test asks, with keys that are pressed once the question is there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ours, theirs = os.openpty()
        self.stdin = os.fdopen(theirs, "r")
        monkeypatch.setattr(sys, "stdin", self.stdin)
        monkeypatch.setattr(tools, "_UNREAD_S", 0.0)

    def asks(self, keys: bytes, stop: threading.Event) -> Decision | None:
        pressed = threading.Timer(0.3, os.write, [self.ours, keys])
        pressed.start()
        try:
            return typed_decision(lambda text: pressed_answer(text, stop.is_set), "this")
        finally:
            pressed.join()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    made = Terminal(monkeypatch)
    yield made
    made.stdin.close()
    os.close(made.ours)


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        (b"y", Decision(allowed=True)),
        (b"A", Decision(allowed=True, always=True)),
        (b"y\n", Decision(allowed=True)),
        (b"n too soon\n", Decision(allowed=False, reason="too soon")),
        (b"\x1b", None),
        (b"\x04", None),
    ],
)
def test_a_key_answers_without_enter(
    terminal: Terminal, keys: bytes, wanted: Decision | None
) -> None:
    before = termios.tcgetattr(sys.stdin.fileno())
    assert terminal.asks(keys, threading.Event()) == wanted
    assert termios.tcgetattr(sys.stdin.fileno()) == before


def test_behind_n_a_line_says_why(terminal: Terminal) -> None:
    threading.Timer(0.6, os.write, [terminal.ours, b"not now\n"]).start()
    found = terminal.asks(b"n", threading.Event())
    assert found == Decision(allowed=False, reason="not now")


def test_nobody_waits_for_a_key_once_it_is_stopped(terminal: Terminal) -> None:
    stop = threading.Event()
    stop.set()
    assert terminal.asks(b"", stop) is None


def test_a_call_is_told_once_and_never_on_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    monkeypatch.setattr(tools, "pressed_answer", lambda *_, **__: "y")
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    call = ToolCall("1", "list_folder", "{}")
    block = '```json\n{"name": "list_folder", "arguments": {}}\n```'
    runner = ToolFlags(tools=True).runner(DocsFlags(), offline=False)
    turns = RepliesAndCalls(runner, quiet=False)
    writer = AnswerWriter(OutputFlags(), calls=True)

    last = Reply("", "", (), StopReason.EOG, 7, 1, 0, 1, 0.1, 0.1, 0.1, Spent(), "off")
    replies: Iterator[list[Event]] = iter(
        [
            [
                Text("I look.\n"),
                *map(Text, block),
                Finished(replace(last, calls=(call,)), Message.assistant("")),
            ],
            [Text("It is "), Text("empty: `x`"), Finished(last, Message.assistant(""))],
        ]
    )
    asked = Request(0, (Message.user("hi"),), ReplyOptions())
    turns.last_reply(asked, lambda _: writer.write(iter(next(replies))), lambda: False)
    told = capsys.readouterr()
    assert told.out == "I look.\nIt is empty: `x`\n"
    assert told.err.count("list .") == 1
    assert block in told.err

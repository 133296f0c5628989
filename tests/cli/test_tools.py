"""`--tools` of `run`: approval by a key, calls and their results, and what is saved of a question."""

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

BLOCK = '```json\n{"name": "list_folder", "arguments": {}}\n```'
LAST = Reply("", "", (), StopReason.EOG, 7, 1, 0, 1, 0.1, 0.1, 0.1, Spent(), "off")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder, and settings and data elsewhere."""
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")


@pytest.mark.usefixtures("project")
def test_vectors_that_cannot_be_used_are_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(open_index("notes", make=True)) as index:
        index.choose_vector_model(VectorModel("gone", "0" * 64))
    docs = DocsFlags("notes")
    ToolFlags(tools=True).runner(docs, offline=True)
    QuestionFlags().message("How hot is tea?", docs)
    assert capsys.readouterr().err.count("localspec pull gone") == 1


def test_the_kept_part_of_a_prompt_ends_before_its_question() -> None:
    speaker = assistant("x")
    before = (Message.system("Be brief."), Message.user("hello"), Message.assistant("x"))
    request = Request(0, (*before, Message.user("And?")), ReplyOptions(), tools=(NOW,))
    conversation = Conversation(None, request.messages, tools=request.tools)
    text = shown(speaker.prompt_tokens(conversation)[: before_question(speaker, request)])
    assert text.endswith("<|im_start|>user\n")
    assert "Be brief." in text
    assert "hello" not in text


def test_a_question_is_saved_once_the_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its context is counted first, and a second load for a larger one may be interrupted."""
    speaker, saved, loads = assistant("x"), list[bool](), count()
    target = SimpleNamespace(n_ctx=8, model=SimpleNamespace(n_ctx_train=4096))
    runtime = SimpleNamespace(
        assistant=speaker, target=target, costs=None, drafting=None, held=None
    )
    plan = SimpleNamespace(options=SimpleNamespace(n_ctx=4096), target=Path("x"))

    def load(*_: object, **__: object) -> object:
        if next(loads):
            raise Cancelled
        return runtime

    monkeypatch.setattr(local_engine, "make_plan", lambda *_, **__: plan)
    monkeypatch.setattr(local_engine, "load_plan", load)
    monkeypatch.setattr(local_engine, "may_need_more", lambda *_: True)

    def request() -> Request:
        saved.append(False)
        return Request(0, (Message.user("hello"),), ReplyOptions())

    first = FirstRequest("hello", request)
    with pytest.raises(Interrupted):
        local_engine.local_engine(Load(), lambda _: None, NoSignals(), None, first, print)
    assert (next(loads), saved) == (2, [False])


@pytest.mark.parametrize(
    ("presses", "stopped", "wanted"),
    [
        ([b"y"], False, Decision(allowed=True)),
        ([b"A"], False, Decision(allowed=True, always=True)),
        ([b"n too soon\n"], False, Decision(allowed=False, reason="too soon")),
        ([b"n", b"not now\n"], False, Decision(allowed=False, reason="not now")),
        ([b"\x04"], False, None),
        ([], True, None),
    ],
)
def test_a_key_answers_without_enter(
    monkeypatch: pytest.MonkeyPatch, presses: list[bytes], stopped: bool, wanted: Decision | None
) -> None:
    monkeypatch.setattr(tools, "_UNREAD_S", 0.0)
    keyboard, theirs = os.openpty()
    with os.fdopen(keyboard), os.fdopen(theirs) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        keys = [
            threading.Timer(0.3 * at, os.write, [keyboard, each])
            for at, each in enumerate(presses, 1)
        ]
        for each in keys:
            each.start()
        before = termios.tcgetattr(stdin.fileno())
        assert typed_decision(lambda text: pressed_answer(text, lambda: stopped), "this") == wanted
        assert termios.tcgetattr(stdin.fileno()) == before
        for each in keys:
            each.join()


@pytest.mark.usefixtures("project")
def test_a_call_is_printed_once_and_never_on_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tools, "pressed_answer", lambda *_, **__: "y")
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    runner = ToolFlags(tools=True).runner(DocsFlags(), offline=False)
    turns = RepliesAndCalls(runner, quiet=False)
    writer = AnswerWriter(OutputFlags(), calls=True)
    called = replace(LAST, calls=(ToolCall("1", "list_folder", "{}"),))
    replies: Iterator[list[Event]] = iter(
        [
            [Text("I look.\n"), *map(Text, BLOCK), Finished(called, Message.assistant(""))],
            [Text("It is "), Text("empty: `x`"), Finished(LAST, Message.assistant(""))],
        ]
    )
    request = Request(0, (Message.user("hi"),), ReplyOptions())
    turns.last_reply(request, lambda _: writer.write(iter(next(replies))), lambda: False)
    printed = capsys.readouterr()
    assert printed.out == "I look.\nIt is empty: `x`\n"
    assert printed.err.count("list .") == 1
    assert BLOCK in printed.err

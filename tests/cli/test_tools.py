"""`--tools` of `run`: approval by a key, calls and their results, and what is saved of a question."""

import os
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.chat.events import Event, Finished, Reply, Text
from localspec.chat.request import Request
from localspec.cli import tools
from localspec.cli.prompt import DocsFlags, QuestionFlags, SystemFlags
from localspec.cli.run import AnswerWriter, OutputFlags
from localspec.cli.tools import ChatFlags, RepliesAndCalls, ToolFlags, pressed_answer
from localspec.decoding.round import Spent, StopReason
from localspec.messages import Message, ToolCall
from localspec.options import ReplyOptions
from localspec.retrieval.index import VectorModel, open_index
from localspec.session.approval import typed_decision
from localspec.toolbox.permissions import Decision

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
    ChatFlags(SystemFlags(), docs, ToolFlags(tools=True)).runner(offline=True)
    QuestionFlags().message("How hot is tea?", docs)
    assert capsys.readouterr().err.count("localspec pull gone") == 1


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
    asked = ChatFlags(SystemFlags(), DocsFlags(), ToolFlags(tools=True))
    runner = asked.runner(offline=False)
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

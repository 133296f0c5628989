"""An answer on its way to stdout: its text, code, JSON and figures, and how much of the prompt is read."""

import io
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from localspec.chat.events import Event, Finished, Prefilling, Reply, Started, Text, Withheld
from localspec.chat.request import Request
from localspec.cli import output as printing
from localspec.cli.output import (
    AnswerStream,
    ReadingLine,
    RunOutcome,
    incomplete_line,
    print_code,
)
from localspec.cli.run import AnswerWriter, OutputFlags, RunAnswer, _report, unmasked
from localspec.cli.tools import RepliesAndCalls
from localspec.decoding.round import Draft, Round, Spent, StopReason, Verdict
from localspec.decoding.stats import AcceptanceStats
from localspec.engine.engine import Engine
from localspec.engine.protocol import EngineDied, Failed, Load, Notice, Question, Ready
from localspec.errors import ContextOverflow, EngineGone
from localspec.messages import Message, ToolCall, ToolResult
from localspec.options import LaunchOptions, LoadOptions
from localspec.toolbox.loop import CarriedOut
from tests.waiting import PATIENCE_S

NASTY = "a\x1b[31mred\x1b]0;title\x07\r\x9b2J\x7f\tb\nc é 漢 txt\u202egnp\u200f.exe"
CLEAN = "a␛[31mred␛]0;title␇\ufffd2J␡\tb\nc é 漢 txt\\u202egnp\\u200f.exe\n"
THOUGHTS = [Text("hm", thinking=True), Text("m", thinking=True), Text("yes")]
CODE = "Here:\n\n```python\nx = 1\n```\n\nor\n\n~~~\ny = 2\n~~~\nDone."
TWO_LANGUAGES = "```go\npackage main\n```\nRun it:\n\n```sh\ngo run .\n```\n\n```\n1\n```"
RATES = {
    "rounds": 2,
    "drafted": 6,
    "accepted": 3,
    "acceptance_rate": 0.5,
    "mean_acceptance_length": 2.5,
    "branches": 0,
    "branches_accepted": 0,
}


class Stream(io.StringIO):
    """A stream that may be a terminal, and says when it is flushed."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal, self.flushed, self.was_flushed = terminal, "", threading.Event()

    def isatty(self) -> bool:
        return self.terminal

    def flush(self) -> None:
        self.flushed = self.getvalue()
        self.was_flushed.set()


def printed(
    monkeypatch: pytest.MonkeyPatch, *chunks: Text, terminal: bool = False, **how: bool
) -> str:
    out = Stream(terminal=terminal)
    monkeypatch.setattr(sys, "stdout", out)
    stream = AnswerStream(**{"silent": False, "show_thinking": False, **how})
    for chunk in chunks:
        stream.write(chunk)
        assert terminal or how or out.flushed.endswith(chunk.text)
    stream.end()
    return out.flushed


def test_a_terminal_gets_only_what_it_does_not_obey(monkeypatch: pytest.MonkeyPatch) -> None:
    for chunks, terminal, how, text in [
        ([Text(NASTY)], True, {}, CLEAN),
        ([Text(NASTY)], False, {}, f"{NASTY}\n"),
        ([Text("a\n")], False, {}, "a\n"),
        ([], False, {}, ""),
        ([Text("a\r")], True, {}, "a\n"),
        (THOUGHTS, False, {"show_thinking": False}, "yes\n"),
        (THOUGHTS, False, {"show_thinking": True}, "<think>\nhmm\n</think>\n\nyes\n"),
        (THOUGHTS, False, {"silent": True, "show_thinking": True}, ""),
        (THOUGHTS[:1], False, {"show_thinking": True}, "<think>\nhm\n</think>\n"),
    ]:
        assert printed(monkeypatch, *chunks, terminal=terminal, **how) == text
    monkeypatch.setattr(printing, "columns_of", lambda _: 24)
    chunks = [Text(each) for each in ("Here is some help", "ful in", "formation about", " tea.")]
    wrapped = "Here is some helpful\ninformation about tea.\n"
    assert printed(monkeypatch, *chunks, terminal=True) == wrapped
    assert printed(monkeypatch, *chunks) == wrapped.replace("\n", " ", 1)


def test_code_is_printed_of_one_language_and_what_is_left_out_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for text, code, note in [
        (CODE.replace("~~~\ny", "~~~Python title=b.py\ny"), "x = 1\n\ny = 2\n", ""),
        (TWO_LANGUAGES, "package main\n", "1 of 3 blocks of code"),
        ("x = 1", "x = 1\n", "no block of code"),
        ("Like so:\n\n    x = 1\n\nor\n\n```python\ny\n```", "y\n", ""),
        ("Like so:\n\n    x = 1\n", "x = 1\n", ""),
        ("```c\n```", "", "the block of code is empty"),
    ]:
        for quiet in [False, True]:
            print_code(text, quiet=quiet)
            out, err = capsys.readouterr()
            assert (out, bool(err)) == (code, bool(note and not quiet))
            assert note in err or quiet


CURL = 'curl -X POST http://localhost:8080/v1/x -H "Content-Type: application/json" && echo done'
JSON = '{"c": "a text with blanks that is longer than the terminal is wide"}'


@pytest.mark.parametrize(
    ("flags", "bound", "text", "out"),
    [
        ({"code": True}, False, f"```sh\n{CURL}\n```", f"{CURL}\n"),
        ({}, True, JSON, f"{JSON}\n"),  # --json-schema, --regex, --grammar, --lark
        ({"raw": True}, False, CURL, f"{CURL}\n"),
        ({"show_thinking": True}, False, "one two three four five", "one two three four\nfive\n"),
    ],
)
def test_nothing_but_prose_is_wrapped(
    flags: dict[str, bool], bound: bool, text: str, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Stream(terminal=True)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(printing, "columns_of", lambda _: 20)
    answer = replace(reply(), text=text)
    writer = AnswerWriter(OutputFlags(**flags), bound=bound)
    writer.write(iter([*map(Text, text), Finished(answer, Message.from_text("assistant", text))]))
    if flags.get("code"):
        print_code(text, quiet=True)
    assert terminal.getvalue() == out


@pytest.mark.parametrize("shows", [True, False])
def test_masked_texts_are_shown_on_demand(monkeypatch: pytest.MonkeyPatch, shows: bool) -> None:
    asked = list[str]()

    def wants(rule: str) -> bool:
        asked.append(rule)
        return shows

    monkeypatch.setattr("localspec.cli.run._wants_to_see", wants)
    events: list[Event] = [
        Text("Write to "),
        Withheld("e-mail", "ann@example.org", "[masked: e-mail]"),
        Withheld("e-mail", "bob@example.org", "[masked: e-mail]"),
        Text("[masked: e-mail], [masked: e-mail], "),
        Withheld("e-mail", "in a call", "[masked: e-mail]", in_call=True),
        Text("and [masked: e-mail]."),
    ]
    text = "".join(each.text for each in unmasked(iter(events)) if isinstance(each, Text))
    one, two = ("ann@example.org", "bob@example.org") if shows else ("[masked: e-mail]",) * 2
    assert text == f"Write to {one}, {two}, and [masked: e-mail]."
    assert asked == ["e-mail", "e-mail"]


def reading(
    monkeypatch: pytest.MonkeyPatch, patience_s: float, *events: Event, terminal: bool = True
) -> str:
    err = Stream(terminal=terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr(printing, "PATIENCE_S", patience_s)
    with ReadingLine(enabled=True) as line:
        line.take(Started(8200, 80))
        assert patience_s or not terminal or err.was_flushed.wait(PATIENCE_S)
        for event in events:
            line.take(event)
    return err.getvalue()


def test_a_long_prompt_has_a_line_until_the_first_word(monkeypatch: pytest.MonkeyPatch) -> None:
    events = Prefilling(3412, 8120), Text("A"), Text(" word")
    lines = ["", "reading 8,120 tokens", "reading 3,412 of 8,120 tokens", ""]
    assert reading(monkeypatch, 0, *events).split("\r\x1b[K") == lines
    assert reading(monkeypatch, 0).endswith("\r\x1b[K"), "an early end leaves nothing behind"
    assert reading(monkeypatch, 1000, *events) == ""
    assert reading(monkeypatch, 0, *events, terminal=False) == ""


def reply() -> Reply:
    """Six tokens: one from prefill, then rounds of 3 and of 2."""
    acceptance = AcceptanceStats()
    draft = Draft((1, 2, 3), drafter="model")
    acceptance.add(Round(draft, Verdict(2, 4), (1, 2, 4)))
    acceptance.add(Round(draft, Verdict(1, 4), (1, 4)))
    spent = Spent(draft_s=0.75, verify_s=1.0, sample_s=0.125)
    tokens, times = (1, 2, 3, 4, 5, 6), (0.5, 0.25, 2.0)
    return Reply(
        "Grüße", "", tokens, StopReason.EOG, 7, 4, 0, 6, *times, spent, "model", acceptance
    )


def outcome(given: Reply, target: str = "big") -> RunOutcome:
    return RunOutcome(given, target, "small", 1.23456789)


@pytest.mark.parametrize(
    ("thinking", "text", "reason", "flags", "words"),
    [
        ("hm", "", StopReason.LENGTH, {}, "allow more tokens"),
        ("hm", " \n", StopReason.EOG, {}, "; --show-thinking prints them"),
        ("hm", "", StopReason.EOG, {"show_thinking": True}, "think off\n"),
        ("hm", "", StopReason.CANCELLED, {}, ""),
        ("hm", "yes", StopReason.LENGTH, {}, ""),
        ("", "", StopReason.EOG, {}, ""),
        ("hm", "", StopReason.EOG, {"quiet": True}, ""),
    ],
)
def test_run_says_that_a_reply_was_only_thoughts(
    capsys: pytest.CaptureFixture[str],
    thinking: str,
    text: str,
    reason: StopReason,
    flags: dict[str, Any],
    words: str,
) -> None:
    given = replace(reply(), text=text, thinking=thinking, stop_reason=reason).noted()
    _report(outcome(given), Request(1, (Message.user("?"),)), OutputFlags(**flags), "chat")
    printed = capsys.readouterr().err
    assert words in printed
    assert ("only thoughts and no answer" in printed) == bool(words)
    assert ("--show-thinking" in printed) == (bool(words) and not flags)


def test_json_has_every_figure_and_null_for_those_of_nothing() -> None:
    seconds = {"prefill_s": 0.25, "draft_prefill_s": 0.0, "first_token_s": 0.5, "decode_s": 2.0}
    stages = {"draft_s": 0.75, "verify_s": 1.0, "sample_s": 0.125, "other_s": 0.125}
    assert outcome(reply()).as_json("code") == {
        "text": "Grüße",
        "stop_reason": "eog",
        "complete": True,
        "seed": 7,
        "workload": "code",
        "model": {"target": "big", "draft_model": "small"},
        "usage": {"prompt_tokens": 4, "completion_tokens": 6},
        "timings": {"load_s": 1.234568, **seconds, **stages, "tokens_per_s": 2.5},
        "speculation": {
            "drafter": "model",
            "gain": None,
            **RATES,
            "by_drafter": {"model": RATES},
            "reason": None,
        },
    }
    none: dict[str, Any] = {"text": "", "tokens": (), "completion_tokens": 0}
    none |= {"first_token_s": None, "acceptance": AcceptanceStats()}
    document = outcome(replace(reply(), stop_reason=StopReason.CANCELLED, **none)).as_json("chat")
    timings, speculation = document["timings"], document["speculation"]
    assert document["stop_reason"] == "cancelled"
    assert (timings["first_token_s"], timings["tokens_per_s"]) == (None, None)
    assert (speculation["acceptance_rate"], speculation["mean_acceptance_length"]) == (None, None)
    assert speculation["by_drafter"] == {}
    noted = outcome(replace(reply(), note="it knows no effort")).as_json("chat")
    assert noted["note"] == "it knows no effort"


def test_the_line_says_why_an_answer_was_cut_off_or_not_drafted() -> None:
    for reason, complete, bound_complete, told in [
        (StopReason.EOG, True, True, ""),
        (StopReason.STOP_STRING, True, False, ""),
        (StopReason.LENGTH, False, False, "--max-tokens"),
        (StopReason.CONTEXT_FULL, False, False, "raise --ctx"),
        (StopReason.LOOP, False, False, "repeated itself"),
        (StopReason.GATED, False, False, "--gate"),
        (StopReason.CANCELLED, False, False, "interrupted"),
    ]:
        given = outcome(replace(reply(), stop_reason=reason))
        assert given.as_json("code")["complete"] is complete
        assert given.as_json("code", bound=True)["complete"] is bound_complete
        usual = "big · 6 tokens · 2.5 tokens/s · drafting gain not known yet · 3 of 6 drafted tokens accepted · "
        assert given.line().startswith(usual)
        assert told in given.line()
        assert (given.line() == f"{usual}seed 7") is complete
    cut = incomplete_line(replace(reply(), stop_reason=StopReason.LENGTH), bound=True)
    assert "incomplete and may not match its grammar: cut off" in cut, "[a-z]+ matches cut off, too"
    full = replace(outcome(replace(reply(), stop_reason=StopReason.CONTEXT_FULL)), can_grow=False)
    assert " · cut off, the context is full · seed" in full.line()
    plain = replace(outcome(replace(reply(), acceptance=AcceptanceStats())), no_drafting="because")
    assert " · because · " in plain.line()
    told = replace(plain, reason="off: because").as_json("chat")["speculation"]
    assert told["reason"] == "off: because", "as a server says it"
    assert outcome(reply(), "\x1b[2J\n.gguf").line().startswith("'\\x1b[2J\\n.gguf' · ")
    branched = reply()
    draft = Draft((1, 2), drafter="model", alternatives=((8, 9), (7, 9)), branches=(1, 0))
    branched.acceptance.add(Round(draft, Verdict(0, 4, branch=8), (8, 4)))
    assert " · 1 of 2 second choices accepted · " in outcome(branched).line()
    figures = outcome(branched).as_json("chat")["speculation"]
    counts = ("branches", "branches_accepted", "drafted", "accepted")
    assert [figures[each] for each in counts] == [2, 1, 8, 3]


def test_json_has_calls_and_their_results() -> None:
    look, gone = ToolCall("a", "look", '{"at": "x"}'), ToolCall("b", "look", "broken")
    called = replace(reply(), text="I look.", calls=(look, gone), stop_reason=StopReason.TOOL_CALL)
    replies: list[Reply | CarriedOut] = [
        called,
        CarriedOut(look, ToolResult("a", "found"), 0.25, begun=True),
        CarriedOut(gone, ToolResult("b", "no", is_error=True)),
        reply(),
    ]
    document = replace(outcome(reply()), replies=replies).as_json("chat")
    assert document["text"] == "Grüße"
    (first,) = document["rounds"]
    assert (first["text"], first["usage"]) == ("I look.", document["usage"])
    calls = [[*each.values()] for each in first["calls"]]
    assert calls == [["look", {"at": "x"}, "found", False, 0.25], ["look", "broken", "no", True, 0]]
    assert [*first["calls"][0]] == ["name", "arguments", "result", "is_error", "seconds"]


@pytest.mark.parametrize(
    ("flags", "begins", "out"),
    [
        ({}, True, "Grüße:\n```\nx = 1\n"),
        ({"code": True}, True, "x = 1\n"),
        ({"json_": True}, True, None),
        ({"json_": True}, False, ""),
    ],
)
def test_an_answer_whose_engine_went_away_is_printed_as_far_as_it_came(
    flags: dict[str, bool], begins: bool, out: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    def events() -> Iterator[Event]:
        if begins:
            yield Text("Hm.", thinking=True)
            yield Text("Grüße:\n```\nx = 1\n")
        raise EngineGone("worker w is gone")

    writer = AnswerWriter(OutputFlags(quiet=True, **flags))
    with pytest.raises(EngineGone) as gone:
        writer.write(events())
    writer.break_off(gone.value)
    text = capsys.readouterr().out
    if out is None:
        error = {"type": "EngineGone", "message": "worker w is gone"}
        answer = {"text": "Grüße:\n```\nx = 1\n", "thinking": "Hm.", "error": error}
        assert json.loads(text) == answer
    else:
        assert text == out


class Scripted(Engine):
    """An engine that answers every request with one notice."""

    def __init__(self, answer: Callable[[int], Notice], *, is_shared: bool) -> None:
        super().__init__(Ready("big", "small", "off", 4096, (), 0.0, False), is_shared=is_shared)
        self._answer = answer

    def cancel(self, number: int) -> None:
        pass

    def close(self) -> None:
        pass

    def _submit(self, question: Question) -> None:
        pass

    def _receive(self) -> None:
        self._deliver(self._answer(1))


def answered(
    monkeypatch: pytest.MonkeyPatch,
    turns: RepliesAndCalls,
    server: Callable[[int], Notice],
    here: Callable[[int], Notice],
    n_ctx: int | None = None,
) -> RunOutcome | None:
    """Have `run` answer with an engine of a server, and with one in this process."""

    @asynccontextmanager
    async def opened(load: Load, *_: object) -> AsyncIterator[Engine]:
        yield Scripted(here if load.own else server, is_shared=not load.own)

    monkeypatch.setattr("localspec.cli.run.open_engine", opened)
    load = Load(LaunchOptions(load=LoadOptions(n_ctx=n_ctx)))
    request = Request(0, (Message.user("hello"),))
    with ExitStack() as engine:
        return RunAnswer(load, request, turns, OutputFlags(json_=True)).outcome(engine)


def test_no_repeated_call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = RepliesAndCalls(None, quiet=True)

    def gone(_: int) -> Notice:
        turns.items.append(replace(reply(), text="", calls=(ToolCall("a", "write", "{}"),)))
        return EngineDied("the server is gone")

    def here(_: int) -> Notice:
        pytest.fail("the question is repeated")

    with pytest.raises(EngineGone, match="in the middle of the answer"):
        answered(monkeypatch, turns, gone, here)
    assert capsys.readouterr().out == ""


def test_a_prompt_too_long_for_the_server_is_answered_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = RepliesAndCalls(None, quiet=False)

    def full(number: int) -> Notice:
        return Failed(number, "ContextOverflow", "9000 tokens")

    def here(number: int) -> Notice:
        return Finished(reply(), Message.assistant("Grüße"), id=number)

    assert answered(monkeypatch, turns, full, here) is not None
    assert "loading the model here" in capsys.readouterr().err
    with pytest.raises(ContextOverflow):
        answered(monkeypatch, turns, full, here, n_ctx=4096)

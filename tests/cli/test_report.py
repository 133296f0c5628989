import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from localspec.chat.events import Event, Finished, Reply, Text
from localspec.chat.request import Request
from localspec.cli.output import RunOutcome
from localspec.cli.run import AnswerWriter, OutputFlags, RunAnswer, RunQuestion
from localspec.cli.tools import RepliesAndCalls
from localspec.decoding.round import Draft, Round, Spent, StopReason, Verdict
from localspec.decoding.stats import AcceptanceStats
from localspec.engine.engine import Engine, EngineGone
from localspec.engine.protocol import EngineDied, Failed, Load, Notice, Question, Ready
from localspec.errors import ContextOverflow
from localspec.messages import Message, ToolCall, ToolResult
from localspec.options import LaunchOptions, LoadOptions
from localspec.toolbox.loop import CarriedOut


def outcome(given: Reply, target: str = "big") -> RunOutcome:
    return RunOutcome(given, target, "small", 1.23456789)


def reply() -> Reply:
    """Six tokens: one from prefill, then rounds of 3 and of 2."""
    acceptance = AcceptanceStats()
    draft = Draft((1, 2, 3), drafter="model")
    acceptance.add(Round(draft, Verdict(2, 4), (1, 2, 4)))
    acceptance.add(Round(draft, Verdict(1, 4), (1, 4)))
    return Reply(
        text="Grüße",
        thinking="",
        tokens=(1, 2, 3, 4, 5, 6),
        stop_reason=StopReason.EOG,
        seed=7,
        prompt_tokens=4,
        cached_tokens=0,
        completion_tokens=6,
        first_token_s=0.5,
        prefill_s=0.25,
        decode_s=2.0,
        spent=Spent(draft_s=0.75, verify_s=1.0, sample_s=0.125),
        drafter="model",
        acceptance=acceptance,
    )


def test_json_tells_every_figure() -> None:
    rates = {
        "rounds": 2,
        "drafted": 6,
        "accepted": 3,
        "acceptance_rate": 0.5,
        "mean_acceptance_length": 2.5,
        "branches": 0,
        "branches_accepted": 0,
    }
    assert outcome(reply()).as_json("code") == {
        "text": "Grüße",
        "stop_reason": "eog",
        "complete": True,
        "seed": 7,
        "workload": "code",
        "model": {"target": "big", "draft_model": "small"},
        "usage": {"prompt_tokens": 4, "completion_tokens": 6},
        "timings": {
            "load_s": 1.234568,
            "prefill_s": 0.25,
            "draft_prefill_s": 0.0,
            "first_token_s": 0.5,
            "decode_s": 2.0,
            "draft_s": 0.75,
            "verify_s": 1.0,
            "sample_s": 0.125,
            "other_s": 0.125,
            "tokens_per_s": 2.5,
        },
        "speculation": {"drafter": "model", **rates, "by_drafter": {"model": rates}},
    }


def test_the_line_says_why_nothing_was_drafted() -> None:
    plain = replace(reply(), acceptance=AcceptanceStats())
    told = replace(outcome(plain), no_drafting="no drafting: would be slower here")
    assert " · no drafting: would be slower here · " in told.line()
    assert "no drafting" not in replace(told, reply=reply()).line()


def test_json_of_nothing_generated_has_null_where_there_is_no_figure() -> None:
    nothing = replace(
        reply(),
        text="",
        tokens=(),
        stop_reason=StopReason.CANCELLED,
        completion_tokens=0,
        first_token_s=None,
        acceptance=AcceptanceStats(),
    )
    document = outcome(nothing).as_json("chat")
    assert document["stop_reason"] == "cancelled"
    assert document["timings"]["first_token_s"] is None
    assert document["timings"]["tokens_per_s"] is None
    assert document["speculation"]["acceptance_rate"] is None
    assert document["speculation"]["mean_acceptance_length"] is None
    assert document["speculation"]["by_drafter"] == {}


@pytest.mark.parametrize(
    ("reason", "complete", "bound_complete"),
    [
        (StopReason.EOG, True, True),
        (StopReason.STOP_STRING, True, False),
        (StopReason.LENGTH, False, False),
        (StopReason.CONTEXT_FULL, False, False),
        (StopReason.LOOP, False, False),
        (StopReason.GATED, False, False),
    ],
)
def test_an_answer_that_was_cut_off_is_not_complete(
    reason: StopReason, complete: bool, bound_complete: bool
) -> None:
    given = outcome(replace(reply(), stop_reason=reason))
    assert given.as_json("code")["complete"] is complete
    assert given.as_json("code", bound=True)["complete"] is bound_complete


def broken_off(**given: bool) -> None:
    """Have an answer written whose engine goes away in the middle of it."""

    def events() -> Iterator[Event]:
        yield Text("Hm.", thinking=True)
        yield Text("Grüße:\n```\nx = 1\n")
        raise EngineGone("worker w is gone")

    writer = AnswerWriter(OutputFlags(quiet=True, **given))
    with pytest.raises(EngineGone) as gone:
        writer.write(events())
    writer.break_off(gone.value)


def test_what_there_is_of_an_answer_whose_engine_went_away_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken_off()
    assert capsys.readouterr().out == "Grüße:\n```\nx = 1\n"
    broken_off(code=True)
    assert capsys.readouterr().out == "x = 1\n"
    broken_off(json_=True)
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    error = {"type": "EngineGone", "message": "worker w is gone"}
    text = "Grüße:\n```\nx = 1\n"
    assert json.loads(out) == {"text": text, "thinking": "Hm.", "error": error}


def test_answer_that_never_began_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    AnswerWriter(OutputFlags(quiet=True, json_=True)).break_off(EngineGone("worker w is gone"))
    assert capsys.readouterr().out == ""


class Scripted(Engine):
    """An engine that tells of every request what it is given."""

    def __init__(self, told: Callable[[int], Notice], *, is_shared: bool) -> None:
        super().__init__(Ready("big", "small", "off", 4096, (), 0.0, False), is_shared=is_shared)
        self._told = told

    def cancel(self, number: int) -> None:
        pass

    def close(self) -> None:
        pass

    def _submit(self, question: Question) -> None:
        pass

    def _receive(self) -> None:
        self._deliver(self._told(1))


def opening(server: Callable[[int], Notice], here: Callable[[int], Notice]) -> Any:
    """Return what opens an engine of a server, or with `own` one here."""

    @asynccontextmanager
    async def opened(*_: object, own: bool, **__: object) -> AsyncIterator[Engine]:
        yield Scripted(here if own else server, is_shared=not own)

    return opened


def test_calls_that_were_carried_out_are_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server goes away between a reply that is nothing but a call and the next one."""
    turns = RepliesAndCalls(None, quiet=True)

    def gone(_: int) -> Notice:
        turns.items.append(replace(reply(), text="", calls=(ToolCall("a", "write", "{}"),)))
        return EngineDied("the server is gone")

    def here(_: int) -> Notice:
        pytest.fail("it is asked for again")

    monkeypatch.setattr("localspec.cli.run.open_engine", opening(gone, here))
    with pytest.raises(EngineGone, match="in the middle of the answer: ask again"):
        answering(turns, OutputFlags(quiet=True, json_=True)).outcome()
    assert capsys.readouterr().out == ""


def answering(turns: RepliesAndCalls, output: OutputFlags, n_ctx: int | None = None) -> RunAnswer:
    load = Load(LaunchOptions(load=LoadOptions(n_ctx=n_ctx)))
    question = RunQuestion(Request(0, (Message.user("hello"),)), None, None)
    return RunAnswer(load, question, turns, output)


def test_a_prompt_that_is_too_long_for_the_servers_context_is_answered_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "the prompt has 9000 tokens and the context holds 4096"
    opened = opening(
        lambda number: Failed(number, "ContextOverflow", reason),
        lambda number: Finished(reply(), Message.assistant("Grüße"), id=number),
    )
    monkeypatch.setattr("localspec.cli.run.open_engine", opened)

    def answered(n_ctx: int | None) -> RunOutcome | None:
        turns = RepliesAndCalls(None, quiet=False)
        return answering(turns, OutputFlags(json_=True), n_ctx).outcome()

    assert answered(None) is not None
    assert "too small for this prompt: loading the model here" in capsys.readouterr().err
    with pytest.raises(ContextOverflow):
        answered(4096)


def test_json_has_the_calls_and_what_they_came_to() -> None:
    look, gone = ToolCall("a", "look", '{"at": "x"}'), ToolCall("b", "look", "broken")
    called = replace(reply(), text="I look.", calls=(look, gone), stop_reason=StopReason.TOOL_CALL)
    said: list[Reply | CarriedOut] = [
        called,
        CarriedOut(look, ToolResult("a", "found"), 0.25, begun=True),
        CarriedOut(gone, ToolResult("b", "no", is_error=True)),
        reply(),
    ]
    document = replace(outcome(reply()), replies=said).as_json("chat")
    assert document["text"] == "Grüße"
    (first,) = document["rounds"]
    assert first["text"] == "I look."
    assert first["usage"] == document["usage"]
    assert first["calls"] == [
        {
            "name": "look",
            "arguments": {"at": "x"},
            "result": "found",
            "is_error": False,
            "seconds": 0.25,
        },
        {"name": "look", "arguments": "broken", "result": "no", "is_error": True, "seconds": 0},
    ]


def test_the_line_for_people_tells_speed_drafting_and_seed() -> None:
    assert outcome(reply()).line() == (
        "big · 6 tokens · 2.5 tokens/s · model: 3 of 6 drafted tokens accepted · seed 7"
    )


def test_the_line_for_people_tells_an_end_that_the_model_did_not_choose() -> None:
    endings = {
        StopReason.LENGTH: "cut off at --max-tokens",
        StopReason.CANCELLED: "interrupted",
        StopReason.CONTEXT_FULL: "raise --ctx",
    }
    for reason in StopReason:
        line = outcome(replace(reply(), stop_reason=reason)).line()
        told = [text for text in endings.values() if text in line]
        assert told == ([endings[reason]] if reason in endings else [])


def test_a_file_name_cannot_command_the_terminal() -> None:
    assert outcome(reply(), "\x1b[2J\n.gguf").line().startswith("'\\x1b[2J\\n.gguf' · ")


def test_second_choices_are_told_where_there_were_any() -> None:
    assert "second choices" not in outcome(reply()).line()
    branched = reply()
    draft = Draft((1, 2), drafter="model", alternatives=((8, 9), (7, 9)), branches=(1, 0))
    branched.acceptance.add(Round(draft, Verdict(0, 4, branch=8), (8, 4)))
    assert " · 1 of 2 second choices accepted · " in outcome(branched).line()
    figures = outcome(branched).as_json("chat")["speculation"]
    assert (figures["branches"], figures["branches_accepted"]) == (2, 1)
    assert (figures["drafted"], figures["accepted"]) == (8, 3)

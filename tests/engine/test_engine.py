"""The engine's process, with the real protocol and server, and models that tell a script."""

from pathlib import Path

import pytest

from localspec.chat.events import Finished, Prefilling, Text
from localspec.decoding.round import StopReason
from tests.engine.client import EngineClient
from localspec.engine.protocol import (
    Counted,
    Downloading,
    EngineDied,
    Failed,
    Hello,
    LoadCancelled,
    Loading,
    Ready,
    ReplyEvents,
    StateLeft,
    StateRestored,
    StateSaved,
)
from localspec.messages import Message
from localspec.options import LaunchOptions, ReplyOptions, SamplingParams
from tests.engine.double import command
from tests.engine.talking import Heard, double, hear_all, hear_event, hear_of
from tests.waiting import PATIENCE_S

GREEDY = ReplyOptions(SamplingParams(temperature=0))


def turns(*contents: str) -> list[Message]:
    """Take turns, the user's first."""
    said = (Message.user, Message.assistant)
    return [said[i % 2](text) for i, text in enumerate(contents)]


def ended(heard: Heard) -> Finished:
    last = heard[-1]
    assert isinstance(last, Finished), last
    return last


@pytest.mark.slow
def test_loading_is_told_from_the_first_word_on() -> None:
    script = {"load_s": 0.3, "download": {"bytes": 1000, "seconds": 0.3}, "notes": ["a note"]}
    with double(script, load=False) as engine:
        engine.load(LaunchOptions(pair="a-pair"))
        heard = hear_of(engine, Ready)
    assert isinstance(heard[0], Hello)
    assert heard[0].version == "double"
    assert heard.of(Downloading)[-1] == Downloading("a-pair", 1000, 1000, "a script")
    assert heard.of(Loading)[-1] == Loading("a-pair", 1.0)
    ready = heard[-1]
    assert isinstance(ready, Ready)
    assert (ready.target, ready.n_ctx, ready.notes) == ("a-pair", 4000, ("a note",))


def test_a_reply_streams_and_adds_up() -> None:
    text = "Grüße, **世界** 🙂\n" * 20
    with double({"otherwise": [text], "drafts": 3, "pass_s": 0.002}) as engine:
        heard = hear_all(
            engine, engine.ask(turns("hello"), ReplyOptions(SamplingParams(temperature=0), seed=5))
        )
    last = ended(heard)
    assert heard.text == text
    assert last.message == Message.assistant(text)
    assert (last.reply.stop_reason, last.reply.seed) == (StopReason.EOG, 5)
    assert len(heard.of(ReplyEvents)) > 3
    assert heard.written == text
    origins = heard.origins
    assert set(origins) == {"first", "model", "lookup", "correction", "bonus"}
    assert origins.index("first") == 0
    rounds, told = heard.rounds, last.reply.acceptance
    assert sum(len(r.confirmed) for r in rounds) + 1 == last.reply.completion_tokens
    assert sum(r.drafted for r in rounds) == told.drafted
    assert sum(r.accepted for r in rounds) == told.accepted
    # What ends the reply is no text, and may have been drafted as well.
    drafted = sum(each in {"model", "lookup"} for each in origins)
    assert told.accepted - drafted in {0, 1}
    assert {r.draft.drafter for r in rounds} == set(told.by_drafter) == {"model", "lookup"}
    assert all(min(r.spent.drafting_s, r.spent.verify_s, r.spent.aside_s) >= 0 for r in rounds)
    assert sum(r.spent.wall_s for r in rounds) == pytest.approx(last.reply.spent.wall_s)


def test_without_drafting_the_text_is_the_same_and_every_token_plain() -> None:
    with double({"otherwise": ["A text of some length."], "drafts": 3}) as engine:
        with_drafts = hear_all(engine, engine.ask(turns("hello"), GREEDY))
        without = hear_all(engine, engine.ask(turns("hello"), GREEDY, draft="off", keep=0))
        again = hear_all(engine, engine.ask(turns("hello"), GREEDY))
    assert with_drafts.text == without.text
    assert set(without.origins) == {"first", "plain"}
    assert without.started.cached_tokens == 0
    assert ended(without).reply.acceptance.drafted == 0
    assert ended(again).reply.acceptance.drafted > 0


def test_what_drafting_gained_is_told_and_what_it_would_cost() -> None:
    costs = {"target": [[1, 2], [0.01, 0.015]], "draft_model": [[1], [0.009]]}
    with double({"otherwise": ["x" * 50], "drafts": 3, "costs": costs}, load=False) as engine:
        engine.load(LaunchOptions(pair="a-pair"))
        ready = hear_of(engine, Ready)[-1]
        drafted = ended(hear_all(engine, engine.ask(turns("hello"), GREEDY))).forecast
        plain = ended(hear_all(engine, engine.ask(turns("hello"), GREEDY, draft="off"))).forecast
    assert isinstance(ready, Ready)
    assert ready.break_even is None
    assert drafted is not None
    assert drafted.predicted is not None
    assert drafted.measured is not None
    assert drafted.note == ""
    assert plain is not None
    assert plain.predicted is plain.measured is None
    assert "draft model not used: at" in plain.note
    assert "at its" in plain.note


def test_without_costs_nothing_is_forecast() -> None:
    with double({"drafts": 3}) as engine:
        assert ended(hear_all(engine, engine.ask(turns("hello"), GREEDY))).forecast is None


def test_thoughts_are_apart() -> None:
    script = {"otherwise": ["<think>hm, hm</think>Yes."], "thinks": True}
    with double(script) as engine:
        heard = hear_all(engine, engine.ask(turns("hello"), GREEDY))
    assert ended(heard).message == Message.assistant("Yes.", "hm, hm")
    assert "".join(each.text for each in heard.events(Text) if each.thinking) == "hm, hm"
    assert heard.written == "<think>hm, hm</think>Yes."


def test_a_second_turn_evaluates_only_what_is_new() -> None:
    with double({"otherwise": ["One.", "Two."]}) as engine:
        first = ended(hear_all(engine, engine.ask(turns("hello"), GREEDY)))
        talk = [*turns("hello"), first.message, Message.user("more")]
        heard = hear_all(engine, engine.ask(talk, GREEDY))
    known = first.reply.prompt_tokens + first.reply.completion_tokens - 2
    assert heard.started.cached_tokens == known
    assert ended(heard).reply.cached_tokens == known
    assert heard.text == "Two."


def test_another_branch_shares_what_it_has_in_common() -> None:
    with double({"otherwise": ["One.", "Two."]}) as engine:
        first = ended(hear_all(engine, engine.ask(turns("hello"), GREEDY)))
        talk = [*turns("hello"), first.message]
        hear_all(engine, engine.ask([*talk, Message.user("this way")], GREEDY))
        heard = hear_all(engine, engine.ask([*talk, Message.user("that way")], GREEDY))
        again = hear_all(engine, engine.ask(turns("hello"), GREEDY))
    assert (
        heard.started.cached_tokens >= first.reply.prompt_tokens + first.reply.completion_tokens - 2
    )
    assert again.started.cached_tokens == first.reply.prompt_tokens - 1


def test_a_reply_that_was_stopped_goes_on(tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    rests = {"at": 9, "until": str(go_on)}
    with double({"otherwise": ["One two three four five."], "rests": rests}) as engine:
        number = engine.ask(turns("hello"), GREEDY)
        hear_event(engine, Text)
        engine.cancel(number)
        cut = ended(hear_all(engine, number))
        assert cut.reply.stop_reason is StopReason.CANCELLED
        assert 0 < len(cut.message.text) < 24
        go_on.touch()
        heard = hear_all(engine, engine.ask([*turns("hello"), cut.message], GREEDY))
    assert ended(heard).message.text == "One two three four five."
    assert heard.text == "One two three four five."[len(cut.message.text) :]
    assert heard.started.cached_tokens == heard.started.prompt_tokens - 1


@pytest.mark.slow
def test_a_prompt_is_told_while_it_is_evaluated_and_stops_in_the_middle(tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    with double({"rests": {"at": 192, "until": str(go_on)}}) as engine:
        number = engine.ask(turns("x" * 3000), GREEDY)
        hear_event(engine, Prefilling)
        engine.cancel(number)
        heard = hear_all(engine, number)
        last = ended(heard)
        assert (last.reply.stop_reason, last.message.text) == (StopReason.CANCELLED, "")
        assert last.reply.first_token_s is None
        go_on.touch()
        whole = hear_all(engine, engine.ask(turns("x" * 3000), GREEDY))
    started = whole.started
    assert 64 <= started.cached_tokens < started.prompt_tokens - 64
    told = whole.events(Prefilling)
    assert {each.total_tokens for each in told} == {started.prompt_tokens - started.cached_tokens}
    assert [each.done_tokens for each in told] == sorted(each.done_tokens for each in told)
    assert ended(whole).reply.stop_reason is StopReason.EOG


def test_a_waiting_request_is_cancelled_before_it_begins(tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    with double({"rests": {"at": 4, "until": str(go_on)}}) as engine:
        first, second, third = (engine.ask(turns("hello"), GREEDY) for _ in range(3))
        hear_event(engine, Text)
        engine.cancel(second)
        engine.cancel(first)  # heard after the one before it, and ends the rest
        assert ended(hear_all(engine, first)).reply.stop_reason is StopReason.CANCELLED
        go_on.touch()
        assert ended(hear_all(engine, second)).reply.stop_reason is StopReason.CANCELLED
        assert ended(hear_all(engine, third)).reply.stop_reason is StopReason.EOG


def test_a_late_cancel_stops_nothing_else() -> None:
    with double() as engine:
        first = engine.ask(turns("hello"), GREEDY)
        hear_all(engine, first)
        engine.cancel(first)
        engine.cancel(None)
        assert (
            ended(hear_all(engine, engine.ask(turns("hello"), GREEDY))).reply.stop_reason
            is StopReason.EOG
        )


def test_another_pair_takes_the_place_of_the_first() -> None:
    with double() as engine:
        engine.load(LaunchOptions(target="another"))
        ready = hear_of(engine, Ready)[-1]
        assert isinstance(ready, Ready)
        assert ready.target == "another"
        heard = hear_all(engine, engine.ask(turns("hello"), GREEDY))
        assert heard.started.cached_tokens == 0


def test_a_pair_that_is_refused_leaves_the_one_that_is_loaded() -> None:
    script = {"refuses": {"gone": ["ModelUnavailable", "gone is nowhere: pull it"]}}
    with double(script) as engine:
        engine.load(LaunchOptions(pair="gone"))
        assert hear_of(engine, Ready)[-1] == Failed(
            None, "ModelUnavailable", "gone is nowhere: pull it"
        )
        assert (
            ended(hear_all(engine, engine.ask(turns("hello"), GREEDY))).reply.stop_reason
            is StopReason.EOG
        )


@pytest.mark.parametrize("stage", ["download", "load"])
def test_a_load_can_be_stopped_at_any_stage(stage: str) -> None:
    seconds: dict[str, dict[str, object]] = {
        "download": {"download": {"bytes": 10, "seconds": 30}},
        "load": {"load_s": 30},
    }
    with double(seconds[stage], load=False) as engine:
        engine.load(LaunchOptions(pair="a-pair"))
        hear_of(engine, Downloading if stage == "download" else Loading)
        engine.cancel()
        assert hear_of(engine, LoadCancelled)[-1] == LoadCancelled(None)
        number = engine.ask(turns("hello"))
        assert hear_all(engine, number)[-1] == Failed(
            number, "UsageError", "no model loaded: choose one with F8 or /model"
        )


def test_a_waiting_load_is_stopped_with_the_running_one() -> None:
    with double({"load_s": 30}, load=False) as engine:
        for _ in range(3):
            engine.load(LaunchOptions(pair="a-pair"))
        hear_of(engine, Loading)
        engine.cancel()
        stopped = [hear_of(engine, LoadCancelled)[-1] for _ in range(3)]
    assert stopped == [LoadCancelled(None)] * 3


@pytest.mark.parametrize(
    ("asked", "kind", "told"),
    [
        ([], "UsageError", "nothing to answer"),
        ([Message.system("x")], "UsageError", "nothing to answer"),
        (turns("x" * 5000), "ContextOverflow", "5008 tokens and the context holds 4000"),
    ],
)
def test_what_cannot_be_answered_is_told_in_one_line(
    asked: list[Message], kind: str, told: str
) -> None:
    with double() as engine:
        number = engine.ask(asked, GREEDY)
        last = hear_all(engine, number)[-1]
        assert isinstance(last, Failed)
        assert (last.id, last.kind) == (number, kind)
        assert told in last.reason
        assert "\n" not in last.reason
        assert (
            ended(hear_all(engine, engine.ask(turns("hello"), GREEDY))).reply.stop_reason
            is StopReason.EOG
        )


def test_options_arrive() -> None:
    with double({"otherwise": ["one two three"]}) as engine:
        short = ended(hear_all(engine, engine.ask(turns("a"), ReplyOptions(max_tokens=3, seed=9))))
        stopped = ended(hear_all(engine, engine.ask(turns("a"), ReplyOptions(stop=(" th",)))))
    assert (short.message.text, short.reply.stop_reason, short.reply.seed) == (
        "one",
        StopReason.LENGTH,
        9,
    )
    assert (stopped.message.text, stopped.reply.stop_reason) == ("one two", StopReason.STOP_STRING)


def test_too_long_a_conversation_loses_its_oldest_turns_and_never_the_system_prompt() -> None:
    said = [Message.system("s" * 100)]
    for index in range(40):
        said += turns(f"question {index} " + "x" * 80, f"answer {index}")
    said.append(Message.user("the last one"))
    with double({"n_ctx": 1000}) as engine:
        refused = hear_all(engine, engine.ask(said, GREEDY))[-1]
        assert isinstance(refused, Failed)
        assert refused.kind == "ContextOverflow"
        heard = hear_all(engine, engine.ask(said, GREEDY, drop_oldest=True))
        started, left_out = heard.started, ended(heard).dropped_turns
        count = engine.ask_count([said[0], *said[1 + left_out :]])
        kept = hear_of(engine, Counted)[-1]
        engine.ask_count([said[0], *said[left_out - 1 :]])
        one_more = hear_of(engine, Counted)[-1]
    assert ended(heard).reply.stop_reason is StopReason.EOG
    assert left_out % 2 == 0
    assert kept == Counted(count, started.prompt_tokens, 1000)
    assert isinstance(one_more, Counted)
    assert started.prompt_tokens <= 750 < one_more.tokens


def test_a_conversation_that_fits_loses_nothing() -> None:
    with double() as engine:
        heard = hear_all(engine, engine.ask(turns("a", "b", "c"), GREEDY, drop_oldest=True))
    assert ended(heard).dropped_turns == 0


def test_what_was_evaluated_outlives_the_process(tmp_path_factory: pytest.TempPathFactory) -> None:
    state = str(tmp_path_factory.mktemp("history") / "state" / "7")
    with double({"otherwise": ["One.", "Two."]}) as engine:
        first = ended(hear_all(engine, engine.ask(turns("hello"), GREEDY)))
        engine.save_state(state)
        saved = hear_of(engine, StateSaved)[-1]
        assert isinstance(saved, StateSaved)
        assert saved.tokens == first.reply.prompt_tokens + first.reply.completion_tokens - 2
    with double({"otherwise": ["One.", "Two."]}) as engine:
        engine.restore_state(state)
        assert hear_of(engine, StateRestored)[-1] == StateRestored(state, saved.tokens)
        talk = [*turns("hello"), first.message, Message.user("more")]
        heard = hear_all(engine, engine.ask(talk, GREEDY))
        assert heard.started.cached_tokens == saved.tokens
        engine.restore_state(state + "8")
        assert hear_of(engine, StateLeft)[-1] == StateLeft(state + "8", "there is none")


def test_closing_saves_what_was_to_be_saved(tmp_path_factory: pytest.TempPathFactory) -> None:
    state = tmp_path_factory.mktemp("history") / "7"
    with double({"otherwise": ["One two three."], "pass_s": 0.05}) as engine:
        engine.ask(turns("hello"), GREEDY)
        engine.save_state(str(state))
        hear_event(engine, Text)
        engine.close(wait_s=PATIENCE_S)
    assert (state / "cells.json").exists()


@pytest.mark.slow
def test_nothing_waits_for_a_reader() -> None:
    text = "x" * 3000
    with double({"otherwise": [text]}) as engine:
        first = engine.ask(turns("hello"), GREEDY)
        second = engine.ask(
            turns("hello"), ReplyOptions(SamplingParams(temperature=0), max_tokens=5)
        )
        assert ended(hear_all(engine, first)).message.text == text
        assert ended(hear_all(engine, second)).reply.stop_reason is StopReason.LENGTH


def test_an_engine_that_cannot_be_started_is_dead_in_one_line() -> None:
    engine = EngineClient(("/nowhere/at/all",))
    engine.start()
    assert engine.drain() == [EngineDied("the engine cannot be started: No such file or directory")]
    engine.load(LaunchOptions())
    assert engine.drain() == [EngineDied("the engine cannot be started: No such file or directory")]
    engine.close()


def test_a_restart_loads_again_what_was_loaded_last() -> None:
    with double() as engine:
        engine.load(LaunchOptions(target="another"))
        hear_of(engine, Ready)
        before = engine.pid
        engine.restart()
        ready = hear_of(engine, Ready)[-1]
        assert isinstance(ready, Ready)
        assert ready.target == "another"
        assert engine.pid != before
        assert (
            ended(hear_all(engine, engine.ask(turns("hello"), GREEDY))).reply.stop_reason
            is StopReason.EOG
        )


def test_closing_twice_is_harmless() -> None:
    engine = EngineClient(command())
    engine.close()
    engine.start()
    assert engine.alive
    engine.close()
    engine.close()
    assert not engine.alive
    assert [type(each).__name__ for each in engine.drain()] in ([], ["Hello"])


def test_a_character_that_was_cut_in_half_is_whole_when_the_reply_goes_on() -> None:
    with double({"otherwise": ["日本語。"]}) as engine:
        cut = hear_all(
            engine,
            engine.ask(turns("hello"), ReplyOptions(SamplingParams(temperature=0), max_tokens=4)),
        )
        assert cut.text == ended(cut).message.text == "日"
        rest = hear_all(engine, engine.ask([*turns("hello"), ended(cut).message], GREEDY))
    assert rest.text == "本語。"
    assert ended(rest).message.text == "日本語。"
    assert rest.written == "本語。"


def test_what_is_asked_aside_costs_the_conversation_nothing_that_it_has_in_common() -> None:
    with double({"otherwise": ["One.", "Two.", "Three."], "drafts": 3}) as engine:
        first = ended(hear_all(engine, engine.ask(turns("hello"), GREEDY)))
        said = [*turns("hello"), first.message]
        aside = [*said, Message.user("and aside?")]
        with_drafts = hear_all(engine, engine.ask(aside, GREEDY, ephemeral=True))
        keep = with_drafts.started.cached_tokens
        without = hear_all(
            engine, engine.ask(aside, GREEDY, draft="off", ephemeral=True, keep=keep)
        )
        then = hear_all(engine, engine.ask([*said, Message.user("and then?")], GREEDY))
    # The answer's last token is evaluated with what follows it.
    assert keep == first.reply.prompt_tokens + len(first.message.text) - 1
    assert without.started == with_drafts.started
    assert without.text == with_drafts.text
    assert then.started.cached_tokens >= keep

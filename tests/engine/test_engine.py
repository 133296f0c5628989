"""The engine's process, with the real protocol and server, and models that tell a script."""

import time
from pathlib import Path

import pytest

from localspec.chat.events import Prefilling, Text
from localspec.decoding.round import StopReason
from localspec.engine.protocol import (
    MAX_FRAME_BYTES,
    Counted,
    Downloading,
    EngineDied,
    Failed,
    Hello,
    LoadCancelled,
    Loading,
    Ready,
    ReplyEvents,
)
from localspec.messages import MediaPart, Message
from localspec.options import LaunchOptions, ReplyOptions, SamplingParams
from tests.chat.toy_encoder import COUNT, damaged, picture, sound
from tests.engine.double import command
from tests.engine.talking import Talker, double, hear_all, hear_event, hear_last, hear_of
from tests.waiting import PATIENCE_S


def greedy(max_tokens: int) -> ReplyOptions:
    return ReplyOptions(SamplingParams(temperature=0), max_tokens=max_tokens)


def turns(*contents: str) -> list[Message]:
    said = (Message.user, Message.assistant)
    return [said[i % 2](text) for i, text in enumerate(contents)]


HELLO = turns("hello")


def goes_on(engine: Talker) -> bool:
    return engine.reply(HELLO).done.reply.stop_reason is StopReason.EOG


@pytest.mark.slow
def test_loading_is_reported_from_the_first_word_on() -> None:
    script = {"load_s": 0.3, "download": {"bytes": 1000, "seconds": 0.3}, "notes": ["a note"]}
    with double(script, load=False) as engine:
        engine.load(LaunchOptions(pair="a-pair"))
        heard = hear_of(engine, Ready)
    assert isinstance(heard[0], Hello)
    assert heard[0].version == "double"
    assert heard.of(Downloading)[-1] == Downloading("a-pair", 1000, 1000, "a script")
    assert heard.of(Loading)[-1] == Loading("a-pair", 1.0)
    (ready,) = heard.of(Ready)
    assert (ready.target, ready.n_ctx, ready.notes) == ("a-pair", 4000, ("a note",))


def test_a_reply_streams_and_adds_up() -> None:
    text = "Grüße, **世界** 🙂\n" * 20
    with double({"otherwise": [text], "drafts": 3, "pass_s": 0.002}) as engine:
        heard = engine.reply(HELLO, ReplyOptions(SamplingParams(temperature=0), seed=5))
    reply = heard.done.reply
    assert heard.text == heard.written == text
    assert heard.done.message == Message.assistant(text)
    assert heard.done.reply.gain is None, "costs are not known"
    assert (reply.stop_reason, reply.seed) == (StopReason.EOG, 5)
    assert len(heard.of(ReplyEvents)) > 3
    origins, rounds, figures = heard.origins, heard.rounds, reply.acceptance
    assert set(origins) == {"first", "model", "lookup", "correction", "bonus"}
    assert origins.index("first") == 0
    assert sum(len(r.confirmed) for r in rounds) + 1 == reply.completion_tokens
    assert sum(r.drafted for r in rounds) == figures.drafted
    assert sum(r.accepted for r in rounds) == figures.accepted
    # What ends the reply is no text, and may have been drafted as well.
    drafted = sum(each in {"model", "lookup"} for each in origins)
    assert figures.accepted - drafted in {0, 1}
    assert {r.draft.drafter for r in rounds} == set(figures.by_drafter) == {"model", "lookup"}
    assert all(min(r.spent.drafting_s, r.spent.verify_s, r.spent.aside_s) >= 0 for r in rounds)
    assert sum(r.spent.wall_s for r in rounds) == pytest.approx(reply.spent.wall_s)


def test_the_gain_of_drafting_is_reported_and_what_it_would_cost() -> None:
    costs = {"target": [[1, 2], [0.01, 0.015]], "draft_model": [[1], [0.009]]}
    with double({"otherwise": ["x" * 50], "drafts": 3, "costs": costs}) as engine:
        drafted = engine.reply(HELLO).done
        plain = engine.reply(HELLO, draft="off").done
    assert drafted.reply.gain is not None
    assert drafted.reply.gain_ratio == drafted.reply.gain.ratio > 0
    assert drafted.draft_note == ""
    assert plain.reply.gain is None
    assert "draft model not used: at its" in plain.draft_note


def test_a_turn_and_another_branch_evaluate_only_what_is_new() -> None:
    with double({"otherwise": ["One.", "Two."]}) as engine:
        first = engine.reply(HELLO).done
        talk = [*HELLO, first.message]
        second = engine.reply([*talk, Message.user("this way")])
        branch = engine.reply([*talk, Message.user("that way")])
        again = engine.reply(HELLO)
    known = first.reply.prompt_tokens + first.reply.completion_tokens - 2
    assert second.started.cached_tokens == second.done.reply.cached_tokens == known
    assert second.text == "Two."
    assert branch.started.cached_tokens >= known
    assert again.started.cached_tokens == first.reply.prompt_tokens - 1


def test_a_reply_that_was_stopped_or_cut_in_half_goes_on(tmp_path: Path) -> None:
    go_on, text = tmp_path / "go on", "One two three four five."
    script = {"answers": {"cut": "日本語。"}, "otherwise": [text]}
    with double({**script, "rests": {"at": 9, "until": str(go_on)}}) as engine:
        number = engine.ask(HELLO)
        hear_event(engine, Text)
        engine.cancel(number)
        cut = hear_all(engine, number).done
        assert cut.reply.stop_reason is StopReason.CANCELLED
        assert 0 < len(cut.message.text) < 24
        go_on.touch()
        heard = engine.reply([*HELLO, cut.message])
        assert heard.done.message.text == text
        assert heard.text == text[len(cut.message.text) :]
        assert heard.started.cached_tokens == heard.started.prompt_tokens - 1
        half = engine.reply("cut", greedy(4))
        assert half.text == half.done.message.text == "日"
        rest = engine.reply([Message.user("cut"), half.done.message])
        assert rest.text == rest.written == "本語。"
        assert rest.done.message.text == "日本語。"


@pytest.mark.slow
def test_a_prompt_is_reported_while_it_is_evaluated_and_stops_in_the_middle(tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    with double({"rests": {"at": 192, "until": str(go_on)}}) as engine:
        number = engine.ask("x" * 3000)
        hear_event(engine, Prefilling)
        engine.cancel(number)
        last = hear_all(engine, number).done
        assert (last.reply.stop_reason, last.message.text) == (StopReason.CANCELLED, "")
        assert last.reply.first_token_s is None
        go_on.touch()
        whole = engine.reply("x" * 3000)
    started, progress = whole.started, whole.events(Prefilling)
    assert 64 <= started.cached_tokens < started.prompt_tokens - 64
    new = started.prompt_tokens - started.cached_tokens
    assert {each.total_tokens for each in progress} == {new}
    assert [each.done_tokens for each in progress] == sorted(each.done_tokens for each in progress)
    assert whole.done.reply.stop_reason is StopReason.EOG


def test_a_cancel_ends_what_waits_and_what_runs_and_nothing_else(tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    with double({"rests": {"at": 4, "until": str(go_on)}}) as engine:
        first, second, third = (engine.ask(HELLO) for _ in range(3))
        hear_event(engine, Text)
        engine.cancel(second)
        engine.cancel(first)  # heard after the one before it, and ends the rest
        assert hear_all(engine, first).done.reply.stop_reason is StopReason.CANCELLED
        go_on.touch()
        assert hear_all(engine, second).done.reply.stop_reason is StopReason.CANCELLED
        assert hear_all(engine, third).done.reply.stop_reason is StopReason.EOG
        for late in (third, None):
            engine.cancel(late)
        assert goes_on(engine)


def test_another_pair_takes_the_place_of_the_first_and_one_that_is_refused_does_not() -> None:
    reason = "gone is nowhere: pull it"
    with double({"refuses": {"gone": ["ModelUnavailable", reason]}}) as engine:
        engine.load(LaunchOptions(target="another"))
        assert hear_last(engine, Ready).target == "another"
        assert engine.reply(HELLO).started.cached_tokens == 0
        engine.load(LaunchOptions(pair="gone"))
        assert hear_last(engine, Failed) == Failed(None, "ModelUnavailable", reason)
        assert goes_on(engine)
        before = engine.pid
        engine.load(LaunchOptions(target="another"))
        hear_last(engine, Ready)
        engine.restart()
        assert hear_last(engine, Ready).target == "another"
        assert engine.pid != before
        assert goes_on(engine)


@pytest.mark.parametrize(
    ("script", "kind", "waiting"),
    [
        ({"download": {"bytes": 10, "seconds": 30}}, Downloading, 0),
        ({"load_s": 30}, Loading, 0),
        ({"load_s": 30}, Loading, 2),
    ],
)
def test_a_load_can_be_stopped_at_any_stage_and_those_that_wait_with_it(
    script: dict[str, object], kind: type[Loading], waiting: int
) -> None:
    with double(script, load=False) as engine:
        for _ in range(1 + waiting):
            engine.load(LaunchOptions(pair="a-pair"))
        hear_of(engine, kind)
        engine.cancel()
        for _ in range(1 + waiting):
            assert hear_last(engine, LoadCancelled) == LoadCancelled(None)
        failed = engine.reply(HELLO)[-1]
        assert isinstance(failed, Failed)
        assert (failed.kind, "no model loaded" in failed.reason) == ("UsageError", True)


def test_what_cannot_be_answered_fails_in_one_line() -> None:
    huge = MediaPart("image", "huge.png", bytes(MAX_FRAME_BYTES))
    rows: list[tuple[list[Message], str, str]] = [
        ([], "UsageError", "nothing to answer"),
        ([Message.system("x")], "UsageError", "nothing to answer"),
        (turns("x" * 5000), "ContextOverflow", "5008 tokens and the context holds 4000"),
        ([Message.user("x", media=[picture()])], "UsageError", "sees, such as seer"),
        ([Message.user("x", media=[huge])], "UsageError", "fewer and smaller pictures"),
    ]
    with double() as engine:
        for messages, kind, words in rows:
            number = engine.ask(messages)
            last = hear_last(engine, Failed)
            assert (last.id, last.kind) == (number, kind)
            assert words in last.reason
            assert "\n" not in last.reason
            assert goes_on(engine)


def test_pictures_are_answered_counted_left_out_and_remembered(tmp_path: Path) -> None:
    look = Message.user("hello", media=[picture()])
    with double({"sees": True, "n_ctx": 100}) as engine:
        ready = engine.ready
        assert (ready.sees, ready.hears) == (True, False)
        plain, seen = (engine.reply([each]).started.prompt_tokens for each in (*HELLO, look))
        assert seen == plain + COUNT + 2
        engine.count_of(look)
        assert hear_last(engine, Counted).tokens == seen
        said = [look, Message.assistant("x"), *HELLO]
        heard = engine.reply(said)
        assert heard.started.cached_tokens >= seen - 1
        many = [Message.user("hello", media=[picture(n) for n in range(20)]), *said[1:]]
        assert engine.reply(many, drop_oldest=True).done.dropped_turns == 2
        for wrong, words in ((damaged(), "is damaged"), (sound(), " takes no sounds: attach")):
            failed = engine.reply([Message.user("hello", media=[wrong])])[-1]
            assert isinstance(failed, Failed)
            assert (failed.kind, words in failed.reason) == ("UsageError", True)


def test_too_long_a_conversation_loses_its_oldest_turns_and_never_the_system_prompt() -> None:
    said = [Message.system("s" * 100)]
    for index in range(40):
        said += turns(f"question {index} " + "x" * 80, f"answer {index}")
    said.append(Message.user("the last one"))
    with double({"n_ctx": 1000}) as engine:
        refused = engine.reply(said)[-1]
        assert isinstance(refused, Failed)
        assert refused.kind == "ContextOverflow"
        heard = engine.reply(said, drop_oldest=True)
        prompt, left_out = heard.started.prompt_tokens, heard.done.dropped_turns
        count = engine.count_of(said[0], *said[1 + left_out :])
        assert hear_last(engine, Counted) == Counted(count, prompt, 1000)
        engine.count_of(said[0], *said[left_out - 1 :])
        assert prompt <= 750 < hear_last(engine, Counted).tokens
        short = engine.reply(turns("a", "b", "c"), drop_oldest=True)
    assert heard.done.reply.stop_reason is StopReason.EOG
    assert left_out % 2 == short.done.dropped_turns == 0


def test_closing_waits_for_no_answer() -> None:
    with double({"otherwise": ["x" * 3000], "pass_s": 0.05}) as engine:
        for _ in range(2):  # all of it would take minutes
            engine.ask(HELLO)
        hear_event(engine, Text)
        start = time.monotonic()
        engine.close(wait_s=PATIENCE_S)
        assert time.monotonic() - start < PATIENCE_S / 2


def test_one_that_cannot_be_started_is_dead_in_one_line_and_closing_twice_is_harmless() -> None:
    engine = Talker(("/nowhere/at/all",))
    dead = [EngineDied("the engine cannot be started: No such file or directory")]
    engine.start()
    assert engine.drain() == dead
    engine.load(LaunchOptions())
    assert engine.drain() == dead
    engine.close()
    engine = Talker(command())
    engine.close()
    engine.start()
    assert engine.alive
    for _ in range(2):
        engine.close()
    assert not engine.alive
    assert [type(each).__name__ for each in engine.drain()] in ([], ["Hello"])


def test_what_is_asked_aside_costs_the_conversation_nothing_that_it_has_in_common() -> None:
    with double({"otherwise": ["One.", "Two.", "Three."], "drafts": 3}) as engine:
        first = engine.reply(HELLO).done
        said = [*HELLO, first.message]
        aside = [*said, Message.user("and aside?")]
        with_drafts = engine.reply(aside, ephemeral=True)
        keep = with_drafts.started.cached_tokens
        without = engine.reply(aside, draft="off", ephemeral=True, most_cached=keep)
        then = engine.reply([*said, Message.user("and then?")])
    # The answer's last token is evaluated with what follows it.
    assert keep == first.reply.prompt_tokens + len(first.message.text) - 1
    assert without.started == with_drafts.started
    assert without.text == with_drafts.text
    assert set(without.origins) == {"first", "plain"}
    assert without.done.reply.acceptance.drafted == 0
    assert then.done.reply.acceptance.drafted > 0
    assert then.started.cached_tokens >= keep

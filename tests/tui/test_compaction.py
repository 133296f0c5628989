"""Compaction: a summary by the model takes the place of earlier turns in what is sent; the history keeps them all."""

from pathlib import Path
from typing import Any

import pytest

from localspec.decoding.round import StopReason
from localspec.engine.protocol import MAX_FRAME_BYTES
from localspec.errors import UsageError
from localspec.history.archive import History
from localspec.messages import MediaPart, Message
from localspec.options import ReplyOptions, SamplingParams
from localspec.session.compaction import (
    MOST_MEDIA_BYTES,
    REQUEST,
    context_of,
    options_for,
    recent_from,
)
from localspec.session.conversation import SavedConversation
from localspec.session.export import exported
from localspec.session.preferences import Preferences
from tests.support.checks import fits
from tests.support.media import picture_file
from tests.tui.answers import finished
from tests.tui.driving import Chat, driven
from tests.tui.lines import said

SUMMARY, RHONE = "They spoke of rivers.", "and the Rhone?"
ANSWERS = {"Summarise our": SUMMARY, "Rhine": "It is 1233 km long.", "and the Rhone": "812 km."}
SCRIPT: dict[str, Any] = {"answers": ANSWERS, "otherwise": ["Well."], "n_ctx": 3000}
QUESTION = f"{'the Rhone ' * 60} {RHONE}"


def say(talk: SavedConversation, text: str, answer: str, *media: MediaPart) -> None:
    """Ask, and answer."""
    talk.say(Message.user(text, media=media))
    reply(talk, answer)


def reply(talk: SavedConversation, text: str, *, cut: bool = False) -> None:
    """Answer the last message."""
    assert talk.conversation is not None
    made = talk.history.begin_reply(talk.conversation, talk.messages[-1].id, "toy")
    (made.cut if cut else made.finish)(Message.assistant(text))
    talk.show_branch(made.message)


def hold(talk: SavedConversation, *numbers: int) -> None:
    for number in numbers:
        say(talk, f"q{number}", f"a{number} " * 9)


def sent(talk: SavedConversation) -> list[str]:
    return [each.text for each in talk.turns(talk.messages[-1].id)]


@pytest.fixture
def talk(tmp_path: Path) -> SavedConversation:
    return SavedConversation(History(tmp_path / "history"), "Be brief.")


def test_summary_takes_the_place_of_all_but_the_last_turns(talk: SavedConversation) -> None:
    hold(talk, *range(1, 10))
    talk.say_compaction()
    assert sent(talk)[-3:] == ["q7", "a7 " * 9, REQUEST], "what it is to summarise"
    reply(talk, "In short.")
    talk.say(Message.user("next"))
    after = ["Be brief.", REQUEST, "In short.", "q8", "a8 " * 9, "q9", "a9 " * 9, "next"]
    assert sent(talk) == after
    assert len(talk.messages) == 21, "the history keeps everything"
    talk.branch_off(len(talk.messages))
    assert sent(talk) == after


def test_pictures_are_summarised_and_count_as_what_is_long(talk: SavedConversation) -> None:
    look = MediaPart.of(picture_file(0), "photo.png")
    say(talk, "q1", "a1 " * 9, look)
    hold(talk, *range(2, 10))
    say(talk, "q10", "a10", look)
    hold(talk, 11)
    talk.say_compaction()
    asked = talk.turns(talk.messages[-1].id)
    assert asked[1].media == (look,)
    assert asked[-1].text.startswith(f"{REQUEST} Describe what is still needed of pictures")
    reply(talk, "In short.")
    talk.say(Message.user("next"))
    assert sent(talk)[3:] == ["q11", "a11 " * 9, "next"], "what is kept is a quarter at most"


def test_pictures_without_room_are_left(
    talk: SavedConversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 4 * MOST_MEDIA_BYTES // 3 + (4 << 20) < MAX_FRAME_BYTES
    looks = [MediaPart.of(picture_file(n), f"{n}.png") for n in (0, 2)]
    for look in looks:
        say(talk, "look", "seen " * 99, look)
    most = sum(len(each.data) for each in looks) - 1
    monkeypatch.setattr("localspec.session.compaction.MOST_MEDIA_BYTES", most)
    question = Message.user("next")
    with pytest.raises(UsageError, match=r"have 0 MB, more than 0: .* /compact"):
        talk.turns_with(question)
    talk.drop_oldest = True
    dropped = talk.turns_with(question)
    assert [each.media for each in dropped if each.role == "user"] == [(), (looks[1],), ()]
    assert dropped[1].text == "[0.png: left out]\nlook"
    talk.drop_oldest = False
    talk.say_compaction()
    assert [part for each in talk.turns(talk.messages[-1].id) for part in each.media] == [looks[1]]
    reply(talk, "In short.")
    assert talk.turns_with(question)[-1] == question


def test_kept_turns_are_few(talk: SavedConversation, monkeypatch: pytest.MonkeyPatch) -> None:
    hold(talk, 1)
    assert recent_from(talk.messages) is None
    say(talk, "q2", "long " * 9999)
    assert recent_from(talk.messages) is None
    assert context_of(talk.messages) == talk.messages
    look = MediaPart.of(picture_file(0), "0.png")
    say(talk, "look", "seen", look)
    assert recent_from(talk.messages) == talk.messages[4].id
    assert recent_from(talk.messages, 9000) == talk.messages[4].id
    assert recent_from(talk.messages, 1000) is None, "a quarter of what has room"
    monkeypatch.setattr("localspec.session.compaction.MOST_MEDIA_BYTES", len(look.data))
    assert recent_from(talk.messages) is None, "pictures beside a summary need room"


def test_second_summary_has_the_first_and_what_was_kept(talk: SavedConversation) -> None:
    hold(talk, *range(1, 6))
    talk.say_compaction()
    reply(talk, "First.")
    hold(talk, *range(6, 10))
    talk.say_compaction()
    assert [*sent(talk)[1:3], sent(talk)[-1]] == [REQUEST, "First.", REQUEST]
    assert {"q5", "q6"} <= {*sent(talk)}
    reply(talk, "Second.")
    hold(talk, 10)
    assert sent(talk)[1:3] == [REQUEST, "Second."]
    assert sent(talk)[-2:] == ["q10", "a10 " * 9]
    assert "q5" not in sent(talk)


def test_compaction_is_stopped_undone_and_the_summary_is_changed(talk: SavedConversation) -> None:
    hold(talk, 1)
    talk.say_compaction()
    reply(talk, "In short.")
    talk.rewrite_summary("Changed.")
    assert sent(talk) == ["Be brief.", REQUEST, "Changed."]
    assert talk.ends_with_summary
    talk.take_back()
    before = ["Be brief.", "q1", "a1 " * 9]
    assert sent(talk) == before
    assert REQUEST not in talk.history.questions(9)
    talk.say_compaction()
    reply(talk, "In sh", cut=True)
    hold(talk, 2)
    assert sent(talk) == [*before, REQUEST, "In sh", "q2", "a2 " * 9], "it takes no place"


def test_a_summary_that_came_to_nothing_is_no_version(talk: SavedConversation) -> None:
    hold(talk, 1)
    talk.say_compaction()
    for _ in range(2):
        assert talk.say_compaction() is None
        assert len(talk.history.messages(talk.conversation or 0)) == 3, "asked for again, not added"
        assert len(talk.messages[-1].siblings) == 1
    assert talk.has_tried_summary
    talk.say(Message.user("next"))
    assert talk.has_tried_summary
    assert [len(each.siblings) for each in talk.messages] == [1, 1, 1]
    reply(talk, "Well.")
    assert sent(talk)[-2:] == ["next", "Well."]
    talk.take_back()
    talk.say_compaction()
    reply(talk, "In short.")
    assert [len(each.siblings) for each in talk.messages] == [1, 1, 1, 1], "nor of a question"


def test_a_whole_summary_that_goes_on_is_one_though_more_of_it_is_stopped(
    talk: SavedConversation,
) -> None:
    hold(talk, *range(1, 10))
    talk.say_compaction()
    asked = sent(talk)
    reply(talk, "In short")
    last = talk.messages[-1]
    going_on = [each.text for each in talk.turns(last.id, summarises=True)]
    assert going_on == [*asked, "In short"], "what it summarises, and not what comes behind it"
    stopped = finished(1, "In short, rivers", stop_reason=StopReason.CANCELLED)
    talk.finish_reply(talk.history.resume_reply(last.id), stopped.reply, stopped.message)
    assert talk.ends_with_summary
    assert talk.summary().message.text == "In short, rivers"
    again = talk.history.begin_reply(1, talk.messages[-2].id, "toy")
    talk.finish_reply(again, stopped.reply, stopped.message)
    assert not talk.ends_with_summary, "another version that was stopped"


def test_a_request_for_a_summary_is_exported_as_the_command(talk: SavedConversation) -> None:
    hold(talk, 1)
    talk.say_compaction()
    reply(talk, "In short.")
    text = exported(talk.history, 1, "md")
    assert REQUEST not in text
    assert "## You\n\n/compact\n\n## " in text


def test_summary_is_made_in_free_words_and_in_bounds() -> None:
    asked = ReplyOptions(SamplingParams(temperature=0.3), 7, regex="a+", stop=("x",), think="off")
    made = options_for(asked, 4096)
    assert (made.sampling, made.seed, made.max_tokens) == (asked.sampling, 7, 512)
    assert (made.regex, made.stop, made.stop_loops, made.think) == (None, (), True, "off")


CHANGED = ("the Rhine?", "/compact", "/compact edit", "/compact Mine.", "/copy")
FULL = "full, summarising; earlier messages stay in the history"
BY_ITSELF = f"Well.\n{SUMMARY}\n812 km.\n"
# What is typed; how many long answers were before; when it is compacted, and how; the code, the answers and the news.
TALKS: list[tuple[Any, ...]] = [
    (("short?", "shorter?", "/compact", RHONE), 1, "ask", {}, 0, f"Well.\nWell.\n{SUMMARY}\n812 km.\n", {"/compact has the model summarise": 1}),
    ((QUESTION, "/compact"), 1, "ask", {}, 0, f"{SUMMARY}\n812 km.\n", {"/compact summarises earlier turns": 1}),
    ((QUESTION,), 1, "auto", {}, 0, f"{SUMMARY}\n812 km.\n", {"the context is full, summarising": 1}),
    *((("short?", RHONE, "/compact edit"), 1, "auto", {"quiet": quiet}, 0, BY_ITSELF, {FULL: 1, f"to change it: /compact {SUMMARY}": 1}) for quiet in (False, True)),
    # For one that no summary makes room for none is made, and one that comes to nothing is asked for once.
    *((("the Rhone " * 900,), 1, each, {}, 1, "", {"summarise": 0, "summarising": 0, "indexed: `localspec index add`": 1}) for each in ("auto", "ask")),
    *(((QUESTION, "again?" * 200), 1, "auto", {"summary": each}, 1, None, {"summarising": 1}) for each in ("", " \n")),
    # Of what is longer than the context, the oldest is left out of the summary; the last exchange is not.
    ((QUESTION,), 4, "auto", {"words": 35}, 0, f"{SUMMARY}\n812 km.\n", {"4 oldest turns left out": 1}),
    ((QUESTION, "again?" * 200), 4, "auto", {"words": 76}, 1, "", {"summaris": 0, "/compact drop leaves the oldest turns out": 2}),
    (("short?", "shorter?"), 1, "off", {}, 0, "Well.\nWell.\n", {"compact": 0}),
    *(((f"/compact{each}",), 0, "ask", {}, 2, "", {}) for each in ("", " edit", " some words")),
    (CHANGED, 0, "ask", {}, 0, {"\nMine.\n": 1}, {f"to change it: /compact {SUMMARY}": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("typed", "long", "compact", "how", "code", "out", "news"), TALKS)
def test_summary_is_made_in_lines(
    tmp_path: Path, typed: Any, long: int, compact: Any, how: Any, code: int, out: Any, news: Any
) -> None:
    talk = SavedConversation(History(tmp_path / "history"))
    for _ in range(long):
        say(talk, "the Rhine?", "It is 1233 km long, and flows north. " * how.get("words", 66))
    answers = {**ANSWERS, "Summarise our": how.get("summary", SUMMARY)}
    ended, given, told = said(
        tmp_path,
        *typed,
        script={**SCRIPT, "answers": answers},
        talk=talk,
        resume=talk.conversation,
        preferences=Preferences(compact=compact),
        quiet=how.get("quiet", False),
    )
    assert ended == code, told
    fits(given.strip() if out is None else given, out or "")
    fits(told, news)


@driven(SCRIPT)
async def test_screen_shows_what_was_typed_and_the_context_of_its_branch(chat: Chat) -> None:
    async def until_tokens(count: int) -> None:
        await chat.until(lambda: abs(chat.session.context_tokens - count) < 10)

    await chat.ask("the Rhine?")
    before = chat.session.context_tokens
    shown = [SUMMARY, "summarised; earlier messages stay in the history", "You ▌ /compact"]
    await chat.run("/compact", shows=shown, lacks="Summarise our")
    await chat.ask(RHONE, shows="You · 2 ▌ and the Rhone?")
    await chat.run("/undo")
    await chat.run("/undo", shows="taken back: /compact")
    await until_tokens(before)
    await chat.ask("and the Rhone? " * 40)
    assert chat.session.context_tokens > 2 * before
    await chat.run("/branch 1")
    await until_tokens(before)

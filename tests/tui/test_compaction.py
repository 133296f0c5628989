"""Compaction: a summary by the model takes the place of earlier turns in what is sent; the history keeps them all."""

from pathlib import Path
from typing import Any

import pytest

from localspec.history.archive import History
from localspec.messages import Message
from localspec.options import ReplyOptions, SamplingParams
from localspec.session.compaction import REQUEST, context_of, options_for, recent_from
from localspec.session.conversation import SavedConversation
from localspec.session.preferences import Compact, Preferences
from tests.tui.driving import Chat, driven
from tests.tui.lines import said as chat_in_lines

SCRIPT: dict[str, Any] = {
    "answers": {
        "Summarise our": "They spoke of rivers.",
        "Rhine": "It is 1233 km long.",
        "and the Rhone": "812 km.",
    },
    "otherwise": ["Well."],
    "n_ctx": 3000,
}


def reply(talk: SavedConversation, text: str, *, cut: bool = False) -> None:
    """Answer the last message."""
    assert talk.conversation is not None
    made = talk.history.begin_reply(talk.conversation, talk.messages[-1].id, "toy")
    (made.cut if cut else made.finish)(Message.assistant(text))
    talk.show_branch(made.message)


def hold(talk: SavedConversation, *numbers: int) -> None:
    """Ask and answer."""
    for number in numbers:
        talk.say(Message.user(f"q{number}"))
        reply(talk, f"a{number} " * 9)


def sent(talk: SavedConversation) -> list[str]:
    return [each.text for each in talk.turns(talk.messages[-1].id)]


@pytest.fixture
def talk(tmp_path: Path) -> SavedConversation:
    return SavedConversation(History(tmp_path / "history"), "Be brief.")


def test_summary_takes_the_place_of_all_but_the_last_turns(talk: SavedConversation) -> None:
    hold(talk, *range(1, 10))
    talk.say_compaction()
    assert sent(talk)[-3:] == ["q7", "a7 " * 9, REQUEST], "what it is to summarise"
    assert "q8" not in sent(talk)
    reply(talk, "In short.")
    talk.say(Message.user("next"))
    after = ["Be brief.", REQUEST, "In short.", "q8", "a8 " * 9, "q9", "a9 " * 9, "next"]
    assert sent(talk) == after
    assert len(talk.messages) == 21, "the history keeps everything"
    talk.branch_off(len(talk.messages))
    assert sent(talk) == after


def test_second_summary_has_the_first_and_what_was_kept(talk: SavedConversation) -> None:
    hold(talk, *range(1, 6))
    talk.say_compaction()
    reply(talk, "First.")
    hold(talk, *range(6, 10))
    talk.say_compaction()
    assert sent(talk)[1:3] == [REQUEST, "First."]
    assert sent(talk)[-1] == REQUEST
    assert {"q5", "q6"} <= {*sent(talk)}
    reply(talk, "Second.")
    hold(talk, 10)
    assert sent(talk)[1:3] == [REQUEST, "Second."]
    assert sent(talk)[-2:] == ["q10", "a10 " * 9]
    assert "q5" not in sent(talk)


def test_summary_that_was_stopped_takes_no_place(talk: SavedConversation) -> None:
    hold(talk, 1)
    talk.say_compaction()
    reply(talk, "In sh", cut=True)
    hold(talk, 2)
    assert sent(talk) == ["Be brief.", "q1", "a1 " * 9, REQUEST, "In sh", "q2", "a2 " * 9]


def test_compaction_is_undone_and_the_summary_is_changed(talk: SavedConversation) -> None:
    hold(talk, 1)
    talk.say_compaction()
    reply(talk, "In short.")
    talk.rewrite_summary("Changed.")
    assert sent(talk) == ["Be brief.", REQUEST, "Changed."]
    assert talk.ends_with_summary
    talk.take_back()
    assert sent(talk) == ["Be brief.", "q1", "a1 " * 9]
    assert REQUEST not in talk.history.questions(9)


def test_kept_turns_are_a_quarter_at_most_and_never_the_first(talk: SavedConversation) -> None:
    hold(talk, 1)
    assert recent_from(talk.messages) is None
    talk.say(Message.user("q2"))
    reply(talk, "long " * 99)
    assert recent_from(talk.messages) is None
    assert context_of(talk.messages) == talk.messages


def test_summary_is_made_in_free_words_and_in_bounds() -> None:
    asked = ReplyOptions(SamplingParams(temperature=0.3), 7, regex="a+", stop=("x",))
    made = options_for(asked, 4096)
    assert (made.sampling, made.seed, made.max_tokens) == (asked.sampling, 7, 512)
    assert (made.regex, made.stop, made.stop_loops) == (None, (), True)


def said(
    folder: Path,
    *lines: str,
    long: int = 0,
    compact: Compact = "ask",
    quiet: bool = False,
    summary: str = "They spoke of rivers.",
) -> tuple[int, str, str]:
    """Chat in lines, in a conversation that had so many long answers before; return the exit code, the answers and the news."""
    talk = SavedConversation(History(folder / "history"))
    for _ in range(long):
        talk.say(Message.user("the Rhine?"))
        reply(talk, "It is 1233 km long, and flows north. " * 66)
    script = {**SCRIPT, "answers": {**SCRIPT["answers"], "Summarise our": summary}}
    how: dict[str, Any] = {"resume": talk.conversation, "preferences": Preferences(compact=compact)}
    return chat_in_lines(folder, *lines, script=script, talk=talk, quiet=quiet, **how)


def test_nearly_full_context_is_told_once_and_compacting_makes_room(tmp_path: Path) -> None:
    lines = ("short?", "shorter?", "/compact", "and the Rhone?")
    code, out, err = said(tmp_path, *lines, long=1)
    assert code == 0, err
    assert err.count("/compact has the model summarise") == 1
    assert out == "Well.\nWell.\nThey spoke of rivers.\n812 km.\n"


@pytest.mark.parametrize(
    ("compact", "typed", "news"),
    [
        ("ask", ["/compact"], "/compact summarises earlier turns"),
        ("auto", [], "the context is full, summarising"),
    ],
)
def test_question_that_found_no_room_is_asked_again_behind_the_summary(
    compact: Compact, typed: list[str], news: str, tmp_path: Path
) -> None:
    question = f"{'the Rhone ' * 60} and the Rhone?"
    code, out, err = said(tmp_path, question, *typed, long=1, compact=compact)
    assert news in err
    assert code == 0, err
    assert out == "They spoke of rivers.\n812 km.\n"


@pytest.mark.parametrize("quiet", [False, True])
def test_nearly_full_context_is_summarised_by_itself_where_it_is_set_so(
    tmp_path: Path, quiet: bool
) -> None:
    lines = ("short?", "and the Rhone?", "/compact edit")
    code, out, err = said(tmp_path, *lines, long=1, compact="auto", quiet=quiet)
    assert code == 0, err
    assert out == "Well.\nThey spoke of rivers.\n812 km.\n", "the summary is shown"
    assert err.count("full, summarising; earlier messages stay in the history") == 1
    assert "to change it: /compact They spoke of rivers." in err


def test_question_that_no_summary_makes_room_for_is_refused_once(tmp_path: Path) -> None:
    code, out, err = said(tmp_path, "the Rhone " * 900, long=1, compact="auto")
    assert code != 0
    assert out == "They spoke of rivers.\n"
    assert err.count("summarising") == 1


@pytest.mark.parametrize(("long", "summary"), [(4, "never made"), (1, ""), (1, " \n")])
def test_summary_that_finds_no_room_or_comes_to_nothing_is_asked_for_once(
    tmp_path: Path, long: int, summary: str
) -> None:
    question = f"{'the Rhone ' * 60} and the Rhone?"
    code, out, err = said(
        tmp_path, question, "again?" * 200, long=long, compact="auto", summary=summary
    )
    assert code != 0
    assert out.strip() == ""
    assert err.count("summarising") == 1


def test_nothing_is_offered_where_it_is_set_so(tmp_path: Path) -> None:
    code, out, err = said(tmp_path, "short?", "shorter?", long=1, compact="off")
    assert (code, out) == (0, "Well.\nWell.\n")
    assert "compact" not in err


@pytest.mark.parametrize("line", ["/compact", "/compact edit", "/compact some words"])
def test_nothing_to_summarise_says_so(tmp_path: Path, line: str) -> None:
    assert said(tmp_path, line)[0] == 2


def test_summary_is_shown_to_be_changed(tmp_path: Path) -> None:
    lines = ("the Rhine?", "/compact", "/compact edit", "/compact Mine.", "/copy")
    _, out, err = said(tmp_path, *lines)
    assert "to change it: /compact They spoke of rivers." in err
    assert out.endswith("Mine.\n")


@driven(SCRIPT)
async def test_screen_shows_what_was_typed_and_that_it_is_done(chat: Chat) -> None:
    await chat.ask("the Rhine?")
    before = chat.session.context_tokens
    await chat.run("/compact")
    await chat.until(lambda: "They spoke of rivers." in chat.text())
    await chat.until(lambda: "summarised; earlier messages stay in the history" in chat.text())
    text = " ".join(chat.text().split())
    assert "Summarise our" not in text
    assert "You ▌ /compact" in text
    await chat.ask("and the Rhone?")
    assert "You · 2 ▌ and the Rhone?" in " ".join(chat.text().split())
    await chat.run("/undo")
    await chat.run("/undo")
    assert "taken back: /compact" in chat.text()
    await chat.until(lambda: abs(chat.session.context_tokens - before) < 10)


@driven(SCRIPT)
async def test_context_figure_follows_the_branch_that_is_shown(chat: Chat) -> None:
    await chat.ask("the Rhine?")
    one = chat.session.context_tokens
    await chat.ask("and the Rhone? " * 40)
    two = chat.session.context_tokens
    assert two > 2 * one
    await chat.run("/branch 1")
    await chat.until(lambda: abs(chat.session.context_tokens - one) < 10)

"""Conversations as trees: branches, search, deletion."""

import json
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from localspec.errors import HistoryError
from localspec.history.archive import History, cut_at_word
from localspec.history.database import STEPS
from localspec.messages import DocumentPart, Message, TextPart, ToolCall, ToolResult
from localspec.session.export import as_json, as_markdown
from tests.toy import Stopwatch


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    history = History(tmp_path / "history", clock=Stopwatch(), stopwatch=Stopwatch(0))
    assert history.trouble is None
    yield history
    history.close()


def talk(history: History, question: str, answer: str, conversation: int | None = None) -> int:
    """Add a question and its answer at the end of a conversation, or of a new one."""
    number = history.create() if conversation is None else conversation
    asked = history.add_user(number, history.conversation(number).leaf, Message.user(question))
    history.begin_reply(number, asked).finish(Message.assistant(answer))
    return number


def said(history: History, conversation: int) -> list[str]:
    return [each.message.text for each in history.branch(conversation)]


def test_a_conversation_is_there_again_after_a_restart(tmp_path: Path) -> None:
    first = History(tmp_path)
    number = first.create(system="Be brief.", pair="a-pair", settings='{"seed": 3}')
    asked = first.add_user(number, None, Message.user("Name a river."))
    reply = first.begin_reply(number, asked, "a-model")
    reply.finish(Message.assistant("The Rhine.", "Hm."), '{"tokens_per_s": 30}')
    first.close()
    second = History(tmp_path)
    stored = second.conversation(number)
    question, answer = second.branch(number)
    second.close()
    assert (stored.system, stored.pair, stored.settings) == ("Be brief.", "a-pair", '{"seed": 3}')
    assert (stored.title, stored.n_messages, stored.leaf) == ("Name a river.", 2, reply.message)
    assert (question.message, question.parent) == (Message.user("Name a river."), None)
    assert answer.message == Message.assistant("The Rhine.", "Hm.")
    assert (answer.state, answer.model) == ("complete", "a-model")
    assert answer.figures == '{"tokens_per_s": 30}'
    assert answer.parent == question.id


def called(history: History) -> tuple[int, list[Message]]:
    """Keep a question, an answer that calls twice, both results, and the last answer."""
    number = history.create()
    calls = (ToolCall("c1", "read_file", '{"path": "a"}'), ToolCall("c2", "run", "{"))
    messages = [
        Message.user("What does a say?"),
        Message("assistant", (TextPart("I look."), *calls), "Hm."),
        Message("tool", (ToolResult("c1", "It says ```rain```."),)),
        Message("tool", (ToolResult("c2", "refused", is_error=True),)),
        Message.assistant("Rain."),
    ]
    last = history.add_user(number, None, messages[0])
    reply = history.begin_reply(number, last, "m")
    reply.finish(messages[1])
    for each in messages[2:4]:
        last = history.add_result(
            number, history.branch(number)[-1].id, each, "f", '{"seconds": 1.5}'
        )
    history.begin_reply(number, last, "m").finish(messages[4])
    return number, messages


def test_calls_and_results_are_there_again_after_a_restart(tmp_path: Path) -> None:
    first = History(tmp_path)
    number, messages = called(first)
    first.close()
    second = History(tmp_path)
    found = second.branch(number)
    assert [each.message for each in found] == messages
    assert [each.model for each in found] == ["", "m", "f", "f", "m"]
    assert second.conversation(number).title == "What does a say?"
    assert second.questions(9) == ["What does a say?"], "a result is no question"
    assert [each.id for each in second.conversations("rain")] == [number], "results are searched"
    second.close()


def test_calls_and_results_are_exported(history: History) -> None:
    number, _ = called(history)
    stored, branch = history.conversation(number), history.branch(number)
    text = as_markdown(stored, branch)
    assert '```\nread_file {"path": "a"}\n```' in text
    assert "## Result\n\n````\nIt says ```rain```.\n````" in text
    assert "## Result (error)" in text
    document = json.loads(as_json(stored, branch))["messages"]
    assert document[1]["calls"][1] == {"id": "c2", "name": "run", "arguments": "{"}
    assert (document[3]["result_of"], document[3]["is_error"]) == ("c2", True)
    assert document[3]["content"] == "refused"


@pytest.mark.parametrize(
    "acts", ["{", "3", "[]", '{"calls": 3}', '{"calls": [{}]}', "null", "[" * 5000]
)
def test_acts_that_somebody_else_wrote_are_told_in_one_line(tmp_path: Path, acts: str) -> None:
    history = History(tmp_path)
    number, _ = called(history)
    history.close()
    with closing(sqlite3.connect(tmp_path / "history.db")) as file:
        file.execute("UPDATE message SET acts = ? WHERE id = 2", (acts,))
        file.commit()
    history = History(tmp_path)
    with pytest.raises(HistoryError, match="delete its conversation"):
        history.branch(number)
    history.delete(number)
    history.close()


# As localspec wrote it when a message was a text: words, and files behind them.
BEFORE = r"""
INSERT INTO conversation VALUES (1, 'sum @a', 'Be brief.', 'p', '', 1.0, 2.0, NULL);
INSERT INTO message VALUES (1, 1, NULL, 'user', 'sum @a' || x'0a0a' || '<file name="a">' || x'0a' || '1 <\/file>'
    || x'0a' || '</file>', '', 'complete', 1.0, '', '');
INSERT INTO message VALUES (2, 1, 1, 'assistant', 'It is 1.', 'hm', 'cut', 2.0, 'm', '{"a": 1}');
UPDATE conversation SET leaf = 2;
"""


def written_before(directory: Path, schema: str = STEPS[0]) -> History:
    with closing(sqlite3.connect(directory / "history.db")) as file:
        file.executescript(schema + "PRAGMA user_version = 1;" + BEFORE)
    return History(directory)


def test_a_history_of_the_version_before_is_as_it_was(tmp_path: Path) -> None:
    history = written_before(tmp_path)
    question, answer = history.branch(1)
    text = 'sum @a\n\n<file name="a">\n1 <\\/file>\n</file>'
    assert (question.message.text, question.message.typed) == (text, "sum @a")
    assert question.message.documents == (DocumentPart("a", "1 </file>"),)
    assert answer.message == Message.assistant("It is 1.", "hm")
    document = json.loads(as_json(history.conversation(1), history.messages(1)))
    assert [each["content"] for each in document["messages"]] == [text, "It is 1."]
    again = history.create()
    history.add_user(again, None, question.message)
    assert said(history, again) == [text]
    history.close()
    with closing(sqlite3.connect(tmp_path / "history.db")) as file:
        rows = file.execute("SELECT content FROM message WHERE role = 'user'").fetchall()
    assert rows == [(text,), (text,)]


def test_only_the_owner_can_read_it(history: History, tmp_path: Path) -> None:
    talk(history, "a secret", "kept")
    directory = tmp_path / "history"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    files = list(directory.iterdir())
    assert {"history.db", "history.db-wal"} <= {file.name for file in files}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_editing_an_earlier_question_begins_a_branch_beside_it(history: History) -> None:
    number = talk(history, "one", "1")
    talk(history, "two", "2", number)
    second = history.branch(number)[2]
    edited = history.add_user(number, second.parent, Message.user("zwei"))
    history.begin_reply(number, edited).finish(Message.assistant("II"))
    assert said(history, number) == ["one", "1", "zwei", "II"]
    assert history.branch(number)[2].siblings == (second.id, edited)
    assert [m.message.text for m in history.show(number, second.id)] == ["one", "1", "two", "2"]
    assert [m.message.text for m in history.show(number, edited)] == ["one", "1", "zwei", "II"]


def test_editing_the_first_question_is_a_second_beginning(history: History) -> None:
    number = talk(history, "one", "1")
    other = talk(history, "other", "O")
    (first, _) = history.branch(number)
    again = history.add_user(number, None, Message.user("uno"))
    assert said(history, number) == ["uno"]
    assert history.branch(number)[0].siblings == (first.id, again)
    assert len(history.branch(other)[0].siblings) == 1, "of its own conversation"


def test_asking_again_keeps_both_answers(history: History) -> None:
    number = talk(history, "one", "1")
    asked, answered = history.branch(number)
    again = history.begin_reply(number, asked.id)
    again.finish(Message.assistant("I"))
    assert said(history, number) == ["one", "I"]
    assert history.branch(number)[1].siblings == (answered.id, again.message)
    assert len(history.messages(number)) == 3


def test_a_cut_reply_goes_on_where_it_was_cut(history: History) -> None:
    number = history.create()
    reply = history.begin_reply(number, history.add_user(number, None, Message.user("count")))
    reply.feed("thinking", thinking=True)
    reply.feed("1, 2")
    reply.cut()
    assert history.branch(number)[1].state == "cut"
    more = history.resume_reply(reply.message)
    more.feed(", 3")
    more.finish()
    last = history.branch(number)[1]
    assert (last.message, last.state) == (Message.assistant("1, 2, 3", "thinking"), "complete")


def test_the_list_has_the_newest_first_and_no_empty_ones(history: History) -> None:
    first, second = talk(history, "a", "A"), talk(history, "b", "B")
    assert history.latest() == second
    history.create()
    assert [each.id for each in history.conversations()] == [second, first]
    talk(history, "c", "C", first)
    assert [each.id for each in history.conversations()] == [first, second]
    assert history.latest() == first
    assert [each.id for each in history.conversations(limit=1)] == [first]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("rhine", [0]),
        ("RHI", [0]),
        ("deep the rhine", [0]),
        ("rhine danube", []),
        ("strasse", [1]),
        ("naïve", [1]),
        ("uplicat", [1]),
        ("音楽", [2]),
        ("c++", [2]),
        ('"', [0]),
        ("100%", [1]),
        ("100_x", []),
        ("mine", [2]),
        ("", [2, 1, 0]),
        ("   ", [2, 1, 0]),
        ("*", []),
        ("AND", []),
        ("\ud800", [0]),
    ],
)
def test_search_finds_words_their_beginnings_and_what_lies_within(
    history: History, query: str, found: list[int]
) -> None:
    numbers = [
        talk(history, 'How deep is the "Rhine"?', "Quite."),
        talk(history, "deduplicate naive strasse", "100% done"),
        talk(history, "好きな音楽は何ですか", "std::vector in C++"),
    ]
    history.rename(numbers[2], "  a title\nof mine ")
    assert [each.id for each in history.conversations(query)] == [numbers[i] for i in found]


@pytest.mark.parametrize(
    ("typed", "title"),
    [
        (
            "Compare the three longest rivers of Europe with those of Asia, in a table",
            "Compare the three longest rivers of Europe with those of…",
        ),
        ("a question\nof two lines " + "x" * 80, "a question of two lines " + "x" * 35 + "…"),
        ("a question", "a question"),
    ],
)
def test_a_title_is_what_was_typed_without_files_cut_at_a_word_until_the_user_gives_one(
    history: History, typed: str, title: str
) -> None:
    number = history.create()
    history.add_user(number, None, Message.user(typed, [DocumentPart("a.txt", "inside")]))
    assert history.conversation(number).title == title
    assert "inside" in history.branch(number)[0].message.text
    history.rename(number, " Mine\n now ")
    talk(history, "another", "B", number)
    assert history.conversation(number).title == "Mine now"


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("aaaaa b ccc", "aaaaa b…"),
        ("aaaaa bb cc", "aaaaa…"),
        ("a bbbbbbbbb", "a bbbbb…"),
        ("aaaaa bb", "aaaaa bb"),
    ],
)
def test_a_title_that_is_cut_keeps_its_last_word_whole(text: str, cut: str) -> None:
    assert cut_at_word(text, 8) == cut


def test_of_conversations_of_one_moment_the_last_is_first_and_no_id_is_used_again(
    tmp_path: Path,
) -> None:
    history = History(tmp_path, clock=lambda: 1.0)
    assert history.latest() is None
    numbers = [talk(history, "a", "A") for _ in range(3)]
    assert [each.id for each in history.conversations()] == numbers[::-1]
    message = history.branch(numbers[2])[1].id
    history.delete(numbers[2])
    again = talk(history, "b", "B")
    assert again > numbers[2]
    assert history.branch(again)[0].id > message
    history.close()


def test_a_hit_has_the_words_around_it(history: History) -> None:
    talk(history, "one", "a long reply " * 30 + "with a needle in it")
    (hit,) = history.conversations("needle")
    assert "with a needle in it" in hit.excerpt
    assert len(hit.excerpt) < 200


def test_a_reply_is_searched_once_it_is_settled_and_never_twice(history: History) -> None:
    number = history.create()
    reply = history.begin_reply(number, history.add_user(number, None, Message.user("q")))
    reply.finish(Message.assistant("needle"))
    history.resume_reply(reply.message).finish(Message.assistant("haystack"))
    assert history.conversations("needle") == []
    assert len(history.conversations("haystack")) == 1


def test_what_is_deleted_is_in_no_file_any_more(history: History, tmp_path: Path) -> None:
    kept = talk(history, "keepsake", "remains")
    number = talk(history, "verysecretword", "confidentialanswer " * 400)
    history.update(number, system="hiddeninstruction")
    state = history.state_directory(number)
    assert state is not None
    state.mkdir(parents=True)
    (state / "target.kv").write_bytes(b"verysecretword")
    history.delete(number)
    everything = b"".join(
        path.read_bytes().lower() for path in tmp_path.rglob("*") if path.is_file()
    )
    assert b"keepsake" in everything
    for word in (b"verysecretword", b"confidentialanswer", b"hiddeninstruction"):
        assert word not in everything
        # The index leaves out what words have in common with their neighbours.
        assert word[4:] not in everything
    assert not state.exists()
    assert [each.id for each in history.conversations()] == [kept]
    assert history.conversations("secretword") == []
    with pytest.raises(HistoryError, match=f"there is no conversation {number}"):
        history.conversation(number)


def test_a_long_conversation_with_branches_can_be_deleted(history: History) -> None:
    number = history.create()
    parent = None
    for index in range(1500):
        parent = history.add_user(number, parent, Message.user(f"message {index}"))
    assert len(history.branch(number)) == 1500
    history.delete(number)
    assert history.trouble is None
    assert history.conversations("message") == []


def test_what_is_not_there_is_said_to_be_not_there(history: History) -> None:
    number = talk(history, "a", "A")
    with pytest.raises(HistoryError, match="message 99 is no longer in the history"):
        history.show(number, 99)
    with pytest.raises(HistoryError, match="message 99 is no longer in the history"):
        history.resume_reply(99)
    assert history.trouble is None
    assert history.branch(99) == []


def test_text_that_utf8_cannot_hold_is_kept_as_far_as_it_can(history: History) -> None:
    number = talk(history, "a\ud800b\x00c", "\udfff 😀 音")
    assert said(history, number) == ["a?b\x00c", "? 😀 音"]


def test_markdown_shows_the_branch(history: History) -> None:
    number = history.create(system="Be brief.\nAlways.", pair="a-pair")
    asked = history.add_user(number, None, Message.user("Name a river."))
    history.begin_reply(number, asked).cut(Message.assistant("The Rh"))
    text = as_markdown(history.conversation(number), history.branch(number))
    heading, about, *rest = text.split("\n\n")
    assert heading == "# Name a river."
    assert about.endswith(" · a-pair")
    assert rest == [
        "> Be brief.\n> Always.",
        "## You",
        "Name a river.",
        "## Assistant (cut)",
        "The Rh\n",
    ]


def test_json_has_every_branch_and_figure(history: History) -> None:
    number = talk(history, "one", "1")
    asked = history.branch(number)[0]
    history.begin_reply(number, asked.id, "m").finish(Message.assistant("I", "hm"), '{"x": 1}')
    document = json.loads(as_json(history.conversation(number), history.messages(number)))
    assert [m["content"] for m in document["messages"]] == ["one", "1", "I"]
    assert document["messages"][2]["figures"] == {"x": 1}
    assert document["messages"][2]["thinking"] == "hm"
    assert document["messages"][2]["parent"] == asked.id
    assert document["leaf"] == document["messages"][2]["id"]

"""Conversations as trees: branches, search, tags, export, deletion."""

import json
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from localspec.errors import HistoryError
from localspec.history.archive import History, cut_at_word
from localspec.history.records import MarkedReply, split_query, tags_of
from localspec.history.schema import STEPS
from localspec.messages import DocumentPart, Message, TextPart, ToolCall, ToolResult
from localspec.session.export import as_json, as_markdown
from localspec.storage.read_store import Shelf
from tests.support.checks import on_disk, refuses
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
    user = history.add_user(number, history.conversation(number).leaf, Message.user(question))
    history.begin_reply(number, user).finish(Message.assistant(answer))
    return number


def texts(history: History, conversation: int) -> list[str]:
    return [each.message.text for each in history.branch(conversation)]


def ids(history: History, query: str = "", limit: int = 200) -> list[int]:
    return [each.id for each in history.conversations(query, limit)]


def add_calls(history: History) -> tuple[int, list[Message]]:
    """Add a question, an answer that calls twice, both results, and the last answer."""
    number = history.create(system="Be brief.", pair="a-pair", settings='{"seed": 3}')
    calls = (ToolCall("c1", "read_file", '{"path": "a"}'), ToolCall("c2", "run", "{"))
    messages = [
        Message.user("What does a say?"),
        Message("assistant", (TextPart("I look."), *calls), "Hm."),
        Message("tool", (ToolResult("c1", "It says ```rain```."),)),
        Message("tool", (ToolResult("c2", "refused", is_error=True),)),
        Message.assistant("Rain.", "Hm."),
    ]
    last = history.add_user(number, None, messages[0])
    reply = history.begin_reply(number, last, "m")
    reply.finish(messages[1])
    last = reply.message
    for each in messages[2:4]:
        last = history.add_result(number, last, each, "f", '{"seconds": 1.5}')
    history.begin_reply(number, last, "m").finish(messages[4], '{"tokens_per_s": 30}')
    return number, messages


def test_a_conversation_with_calls_is_there_again_after_a_restart(tmp_path: Path) -> None:
    first = History(tmp_path)
    number, messages = add_calls(first)
    first.close()
    second = History(tmp_path)
    stored, branch = second.conversation(number), second.branch(number)
    assert (stored.system, stored.pair, stored.settings) == ("Be brief.", "a-pair", '{"seed": 3}')
    assert (stored.title, stored.n_messages) == ("What does a say?", 5)
    assert stored.leaf == branch[-1].id
    assert [each.message for each in branch] == messages
    assert [each.model for each in branch] == ["", "m", "f", "f", "m"]
    assert [each.parent for each in branch] == [None, *(each.id for each in branch[:-1])]
    assert {each.state for each in branch} == {"complete"}
    assert branch[-1].figures == '{"tokens_per_s": 30}'
    talk(second, "And b?", "No.")
    assert second.questions(9) == ["What does a say?", "And b?"], "a result is no question"
    assert ids(second, "rain") == [number], "results are searched"
    second.close()


def test_exports_have_every_branch_call_and_figure(history: History) -> None:
    number, _ = add_calls(history)
    user = history.branch(number)[0].id
    text = as_markdown(history.conversation(number), history.branch(number))
    assert '```\nread_file {"path": "a"}\n```' in text
    assert "## Result\n\n````\nIt says ```rain```.\n````" in text
    assert "## Result (error)" in text
    history.begin_reply(number, user, "m").cut(Message.assistant("The Rh", "hm"), '{"x": 1}')
    stored, branch = history.conversation(number), history.branch(number)
    heading, about, *rest = as_markdown(stored, branch).split("\n\n")
    assert (heading, rest[:2]) == ("# What does a say?", ["> Be brief.", "## You"])
    assert about.endswith(" · a-pair")
    assert rest[-2:] == ["## Assistant (cut)", "The Rh\n"]
    document = json.loads(as_json(stored, history.messages(number)))
    messages = document["messages"]
    assert messages[1]["calls"][1] == {"id": "c2", "name": "run", "arguments": "{"}
    assert (messages[3]["result_of"], messages[3]["is_error"]) == ("c2", True)
    assert [each["content"] for each in messages[3:]] == ["refused", "Rain.", "The Rh"]
    last = messages[5]
    assert (last["figures"], last["thinking"], last["parent"]) == ({"x": 1}, "hm", user)
    assert document["leaf"] == last["id"]
    later = history.begin_reply(number, branch[-1].id, "another")
    later.finish(Message.assistant("More."))
    branch = history.branch(number)
    assert "## Assistant · another\n\nMore." in as_markdown(stored, branch)
    assert "## Assistant · m (cut)\n\nThe Rh" in as_markdown(stored, branch)


# As localspec wrote it when a message was a text: words, and files behind them.
BEFORE = r"""
INSERT INTO conversation VALUES (1, 'sum @a', 'Be brief.', 'p', '', 1.0, 2.0, NULL);
INSERT INTO message VALUES (1, 1, NULL, 'user', 'sum @a' || x'0a0a' || '<file name="a">' || x'0a' || '1 <\/file>'
    || x'0a' || '</file>', '', 'complete', 1.0, '', '');
INSERT INTO message VALUES (2, 1, 1, 'assistant', 'It is 1.', 'hm', 'cut', 2.0, 'm', '{"a": 1}');
UPDATE conversation SET leaf = 2;
"""


def test_a_history_of_the_version_before_is_as_it_was(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "history.db")) as file:
        file.executescript(STEPS[0] + "PRAGMA user_version = 1;" + BEFORE)
    history = History(tmp_path)
    question, answer = history.branch(1)
    assert answer.mark == ""
    text = 'sum @a\n\n<file name="a">\n1 <\\/file>\n</file>'
    assert (question.message.text, question.message.typed) == (text, "sum @a")
    assert question.message.documents == (DocumentPart("a", "1 </file>"),)
    assert answer.message == Message.assistant("It is 1.", "hm")
    document = json.loads(as_json(history.conversation(1), history.messages(1)))
    assert [each["content"] for each in document["messages"]] == [text, "It is 1."]
    again = history.create()
    history.add_user(again, None, question.message)
    assert texts(history, again) == [text]
    history.close()
    with closing(sqlite3.connect(tmp_path / "history.db")) as file:
        rows = file.execute("SELECT content FROM message WHERE role = 'user'").fetchall()
    assert rows == [(text,), (text,)]


def test_a_mark_outlasts_a_restart_an_edit_and_more_of_its_reply(tmp_path: Path) -> None:
    history = History(tmp_path)
    number = talk(history, "one", "1")
    question, reply = history.branch(number)
    assert (reply.mark, history.marked()) == ("", [])
    history.mark(reply.id, "good")
    history.resume_reply(reply.id).finish(Message.assistant("1!"), '{"seed": 7, "prompt": 5}')
    edited = history.add_user(number, None, Message.user("uno"))
    other = history.begin_reply(number, edited, "m")
    other.cut()
    history.mark(other.message, "bad")
    history.go_back(number, None)
    history.close()
    history = History(tmp_path)
    assert history.marked() == [
        MarkedReply(number, reply.id, "good", "", 7, 5),
        MarkedReply(number, other.message, "bad", "m", None, None),
    ]
    stored, branch = history.conversation(number), history.show(number, question.id)
    assert "## Assistant (good)\n\n1!" in as_markdown(stored, branch)
    messages = json.loads(as_json(stored, history.messages(number)))["messages"]
    assert [each.get("mark") for each in messages] == [None, "good", None, "bad"]
    history.mark(reply.id, "")
    assert [each.id for each in history.marked()] == [other.message]
    history.delete(number)
    assert history.marked() == []
    history.close()
    with pytest.raises(HistoryError):
        history.marked()


def test_only_the_owner_can_read_it(history: History, tmp_path: Path) -> None:
    talk(history, "a secret", "kept")
    directory = tmp_path / "history"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in directory.iterdir()}
    assert {"history.db", "history.db-wal"} <= modes.keys()
    assert {*modes.values()} == {0o600}


def test_editing_an_earlier_question_begins_a_branch_beside_it(history: History) -> None:
    number = talk(history, "one", "1")
    other = talk(history, "other", "O")
    talk(history, "two", "2", number)
    first, answered, second, _ = history.branch(number)
    edited = history.add_user(number, second.parent, Message.user("zwei"))
    history.begin_reply(number, edited).finish(Message.assistant("II"))
    assert texts(history, number) == ["one", "1", "zwei", "II"]
    assert history.branch(number)[2].siblings == (second.id, edited)
    assert [m.message.text for m in history.show(number, second.id)] == ["one", "1", "two", "2"]
    assert [m.message.text for m in history.show(number, edited)] == ["one", "1", "zwei", "II"]
    again = history.begin_reply(number, first.id)
    again.finish(Message.assistant("I"))
    assert texts(history, number) == ["one", "I"]
    assert history.branch(number)[1].siblings == (answered.id, again.message)
    uno = history.add_user(number, None, Message.user("uno"))
    assert texts(history, number) == ["uno"]
    assert history.branch(number)[0].siblings == (first.id, uno)
    assert len(history.messages(number)) == 8
    assert len(history.branch(other)[0].siblings) == 1, "of its own conversation"


def test_a_cut_reply_goes_on_where_it_was_cut_and_is_searched_once(history: History) -> None:
    number = history.create()
    reply = history.begin_reply(number, history.add_user(number, None, Message.user("count")))
    reply.feed("thinking", thinking=True)
    reply.feed("1, 2 needle")
    reply.cut()
    assert history.branch(number)[1].state == "cut"
    more = history.resume_reply(reply.message)
    more.feed(", 3")
    more.finish()
    last = history.branch(number)[1]
    assert last.state == "complete"
    assert last.message == Message.assistant("1, 2 needle, 3", "thinking")
    history.resume_reply(reply.message).finish(Message.assistant("haystack"))
    assert ids(history, "needle") == []
    assert ids(history, "haystack") == [number]


def test_the_list_has_the_newest_first_no_empty_ones_and_no_id_twice(tmp_path: Path) -> None:
    moment_s = [1.0]
    history = History(tmp_path, clock=lambda: moment_s[0])
    assert history.latest() is None
    first, second, third = (talk(history, each, each.upper()) for each in "abc")
    assert ids(history) == [third, second, first], "of one moment the last is first"
    moment_s[0] = 2.0
    empty = history.create()
    talk(history, "c", "C", first)
    assert ids(history) == [first, third, second]
    assert (history.latest(), ids(history, limit=1)) == (first, [first])
    assert [history.named(each).id for each in ("a", f"#{second}")] == [first, second]
    message = max(each.id for each in history.branch(first))
    for number in (empty, first, third):
        history.delete(number)
    again = talk(history, "b", "B")
    assert again > empty
    assert history.branch(again)[0].id > message
    history.close()


def test_search_finds_words_their_beginnings_and_what_lies_within(history: History) -> None:
    numbers = [
        talk(history, 'How deep is the "Rhine"?', "Quite."),
        talk(history, "deduplicate naive strasse", "100% done"),
        talk(history, "好きな音楽は何ですか", "std::vector in C++"),
    ]
    history.rename(numbers[2], "  a title\nof mine ")
    cases: list[tuple[tuple[str, ...], list[int]]] = [
        (("rhine", "RHI", "deep the rhine", '"', "\ud800"), [0]),
        (("strasse", "naïve", "uplicat", "100%"), [1]),
        (("音楽", "c++", "mine"), [2]),
        (("rhine danube", "100_x", "*", "AND"), []),
        (("", "   "), [2, 1, 0]),
    ]
    for queries, places in cases:
        for query in queries:
            assert ids(history, query) == [numbers[at] for at in places], query
    numbers.append(talk(history, "the letter c", "learn C# and ASP.NET, or node.js 3.14"))
    cases = [
        (("c#", "C# learn", ".net", "node.js", "3.14"), [3]),
        (("C++",), [2]),
        (("c++ c#", "js.node", "3.15", "c+++"), []),
    ]
    for queries, places in cases:
        for query in queries:
            assert ids(history, query) == [numbers[at] for at in places], query
    assert "C# and" in history.conversations("c#")[0].excerpt
    talk(history, "one", "a long reply " * 30 + "with a needle in it")
    (hit,) = history.conversations("needle")
    assert "with a needle in it" in hit.excerpt
    assert len(hit.excerpt) < 200


LONG = "Compare the three longest rivers of Europe with those of"


@pytest.mark.parametrize(
    ("typed", "title"),
    [
        (f"{LONG} Asia, in a table", f"{LONG}…"),
        ("a question\nof two lines " + "x" * 80, "a question of two lines " + "x" * 35 + "…"),
    ],
)
def test_a_title_is_what_was_typed(history: History, typed: str, title: str) -> None:
    number = history.create()
    history.add_user(number, None, Message.user(typed, [DocumentPart("a.txt", "inside")]))
    assert history.conversation(number).title == title
    history.rename(number, " Mine\n now ")
    talk(history, "another", "B", number)
    assert history.conversation(number).title == "Mine now"
    cuts = {"aaaaa b ccc": "aaaaa b…", "aaaaa bb cc": "aaaaa…", "a bbbbbbbbb": "a bbbbb…"}
    assert {each: cut_at_word(each, 8) for each in cuts} == cuts


def test_accents_are_found_however_they_are_written(history: History) -> None:
    typed = "Mu\u0308nchen"
    both = [talk(history, "a", f"In {each} it rains.") for each in (typed, "M\u00fcnchen")]
    for query in (typed, "M\u00fcnchen", "munchen", "mu\u0308n"):
        assert ids(history, query) == both[::-1]


def test_tags_narrow_a_search_and_go_with_their_conversation(history: History) -> None:
    rivers, lakes, hills = (talk(history, f"about {n}", "") for n in ("rivers", "lakes", "hills"))
    assert history.tag(rivers, ["water", "europe"]) == ["europe", "water"]
    for _ in range(2):
        assert history.tag(lakes, ["water"]) == ["water"], "twice is once"
    for query, numbers in (
        ("tag:water", {rivers, lakes}),
        ("#water tag:europe", {rivers}),
        ("lakes tag:Water", {lakes}),
        ("hills tag:water", set()),
        ("about", {rivers, lakes, hills}),
    ):
        assert {*ids(history, query)} == numbers, query
    assert history.conversation(rivers).tags == ("europe", "water")
    assert history.tag(rivers, [], ["europe"]) == ["water"]
    history.delete(rivers)
    assert ids(history, "tag:water") == [lakes]


def test_tags_are_read_from_queries_and_from_what_is_typed() -> None:
    assert split_query("tag:a the #b c#d #") == ("the c#d #", ["a", "b"])
    assert tags_of("work, -old #New") == (["work", "new"], ["old"])
    for wrong in ("a/b", "12", "x" * 41, "-"):
        refuses("is not a tag", tags_of, wrong)


def test_what_is_deleted_is_in_no_file_any_more(history: History, tmp_path: Path) -> None:
    left = talk(history, "keepsake", "remains")
    number = talk(history, "verysecretword", "confidentialanswer " * 400)
    history.update(number, system="hiddeninstruction")
    shelf = Shelf(history._reads, "model", 4)
    name = f"{shelf.beginning('')}.{shelf.child(shelf.beginning(''), [1])}"
    shelf.write(name, [1], b"", [b"verysecretword"])
    shelf.note(number, [name])
    history.delete(number)
    everything = on_disk(tmp_path).lower()
    assert b"keepsake" in everything
    for word in (b"verysecretword", b"confidentialanswer", b"hiddeninstruction"):
        # The index leaves out what words have in common with their neighbours.
        assert word[4:] not in everything
    assert not shelf.has(name)
    assert ids(history) == [left]
    assert ids(history, "secretword") == []
    with pytest.raises(HistoryError, match=f"there is no conversation {number}"):
        history.conversation(number)


def test_a_long_conversation_can_be_deleted(history: History) -> None:
    number, parent = history.create(), None
    for index in range(1100):  # more than SQLite lets triggers nest
        parent = history.add_user(number, parent, Message.user(f"message {index}"))
    assert len(history.branch(number)) == 1100
    for act in (lambda: history.show(number, 9999), lambda: history.resume_reply(9999)):
        with pytest.raises(HistoryError, match="message 9999 is no longer in the history"):
            act()
    history.delete(number)
    assert history.trouble is None
    assert (ids(history, "message"), history.branch(number)) == ([], [])


def test_text_that_utf8_cannot_hold_is_stored_as_far_as_it_can(history: History) -> None:
    number = talk(history, "a\ud800b\x00c", "\udfff 😀 音")
    assert texts(history, number) == ["a?b\x00c", "? 😀 音"]

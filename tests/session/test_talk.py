"""A saved conversation, and what a person answers to the question of a call."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from localspec.display import shortened_lines
from localspec.history.archive import History
from localspec.messages import Message
from localspec.session.approval import typed_decision
from localspec.session.conversation import SavedConversation, StoredMessage
from localspec.toolbox.permissions import Decision
from tests.support.checks import refuses
from tests.tui.answers import finished, save_reply


def test_a_question_and_its_answer_go_on_in_the_next(tmp_path: Path) -> None:
    first = SavedConversation(History(tmp_path), "Be brief.")
    assert (first.pair, first.number) == ("", None)
    turns = first.turns_with(Message.user("Name a river."))
    assert [each.role for each in turns] == ["system", "user"]
    assert first.number is None, "nothing is saved yet"
    assert first.turns(first.say(Message.user("Name a river."))) == turns
    first.set_pair("smollm2-135m")
    save_reply(first, finished(text="The Douro.").reply, "toy-1b")
    first.history.close()
    second = SavedConversation(History(tmp_path))
    second.open(1)
    assert (second.pair, second.continuing) == ("smollm2-135m", "continuing 1, 'Name a river.'")
    texts = [each.text for each in second.turns_with(Message.user("And another?"))]
    assert texts == ["Be brief.", "Name a river.", "The Douro.", "And another?"]
    assert "accepted" in json.loads(second.messages[-1].figures)
    second.history.close()


def test_a_question_without_an_answer_gives_its_place_to_the_next(tmp_path: Path) -> None:
    talk = SavedConversation(History(tmp_path))
    talk.say(Message.user("Left alone."))
    assert talk.continuing.endswith("whose last question got no answer: the next takes its place")
    turns = talk.turns_with(Message.user("Instead."))
    assert [each.text for each in turns] == ["Instead."]
    assert talk.turns(talk.say(Message.user("Instead."))) == turns
    talk.history.close()


def test_the_last_reply_or_another_is_marked_and_a_branch_keeps_the_marks(tmp_path: Path) -> None:
    talk = SavedConversation(History(tmp_path))
    refuses("no answer yet", talk.mark, "good")
    for text in ("One.", "Two."):
        talk.say(Message.user(text))
        save_reply(talk, finished(text=text).reply, "toy-1b")
    first = talk.messages[1]
    talk.say(Message.user("Left alone."))
    assert [talk.mark("good"), talk.mark("bad"), talk.mark("bad", first)] == ["good", "bad", "bad"]
    assert [each.mark for each in talk.messages] == ["", "bad", "", "bad", ""]
    talk.branch_off(2)
    assert [each.mark for each in talk.messages] == ["", "bad"]
    assert talk.mark("bad") == ""
    prompt, seed = json.loads(first.figures)["prompt"], json.loads(first.figures)["seed"]
    known = {(each.seed, each.prompt) for each in talk.history.marked()}
    assert known == {(seed, prompt)}
    talk.history.close()


YES, ALWAYS = Decision(allowed=True), Decision(allowed=True, always=True)
NO = Decision(allowed=False, reason="too soon")


def typing(text: str) -> Callable[[str], str]:
    return lambda _question: text


def test_a_typed_answer_is_understood() -> None:
    for typed, wanted in [
        ("y", YES),
        ("Yes", YES),
        ("a", ALWAYS),
        ("always", ALWAYS),
        ("n", Decision(allowed=False)),
        ("no, too soon", NO),
        ("n too soon", NO),
    ]:
        assert typed_decision(typing(typed), "this") == wanted
    lines = iter(["", "a dog is an animal", "yes please do", "what?", "n"])
    assert typed_decision(lambda _: next(lines), "this") == Decision(allowed=False)

    def gone(_: str) -> str:
        raise EOFError

    assert typed_decision(gone, "this") is None


def test_of_a_long_result_the_first_and_the_last_lines_are_printed() -> None:
    lines = [str(each) for each in range(40)]
    assert shortened_lines("\n".join(lines)) == [*lines[:8], "[24 more lines]", *lines[-8:]]
    assert shortened_lines("\n".join(lines[:17])) == lines[:17]


class Watched(list[StoredMessage]):
    """Messages of which only the last may be looked at."""

    def __iter__(self) -> Iterator[StoredMessage]:
        raise AssertionError("all are looked through")

    def __getitem__(self, at: Any) -> Any:
        assert (at.start if isinstance(at, slice) else at) in {-2, -1}
        return super().__getitem__(at)


def test_what_a_screen_asks_for_all_the_time_looks_at_the_last_messages(tmp_path: Path) -> None:
    with closing(History(tmp_path)) as history:
        talk = SavedConversation(history)
        for number in range(5):
            talk.say(Message.user(f"question {number}"))
            save_reply(talk, finished(text="An answer.").reply, "toy-1b")
        messages = talk.messages
        talk.messages = Watched(messages)
        assert not talk.ends_with_summary
        talk.messages = messages
        talk.say_compaction()
        save_reply(talk, finished(text="The summary.").reply, "toy-1b")
        talk.messages = Watched(talk.messages)
        assert talk.ends_with_summary

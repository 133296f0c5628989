import json

from localspec.chat.events import Started
from localspec.history.records import StoredMessage
from localspec.messages import Message, Role
from localspec.tui.message_text import growing_text as growing
from localspec.tui.message_text import message_text as shown
from tests.tui.answers import exchange


def message(role: Role = "assistant", text: str = "text", **changes: object) -> StoredMessage:
    values: dict[str, object] = {
        "id": 1,
        "parent": None,
        "message": Message.from_text(role, text),
        "state": "complete",
        "created_s": 0.0,
        "model": "toy" if role == "assistant" else "",
        "figures": "",
        "siblings": (1,),
    }
    return StoredMessage(**{**values, **changes})  # type: ignore[arg-type]


def test_a_question_has_its_number() -> None:
    assert shown(message("user"), 3).heading == "You · 3"


def test_versions_are_counted() -> None:
    assert shown(message(siblings=(0, 1, 2))).heading == "toy · version 2 of 3"


def test_a_file_in_a_question_is_folded_to_its_name_and_size() -> None:
    told = shown(message("user", 'See @a\n\n<file name="a">\nlong\n</file>'), 1)
    assert (told.text, told.note) == ("See @a", "+ a · 4 B · ≈ 1 tokens")


def test_figures_of_an_answer() -> None:
    figures = json.dumps(
        {"tokens": 12, "tokens_per_s": 20.04, "accepted": 0.5, "stop": "cancelled"}
    )
    told = shown(message(figures=figures, state="cut"))
    assert told.note == "12 tokens · 20.0 tokens/s · stopped"


def test_an_answer_whose_writer_died_says_how_to_go_on() -> None:
    assert shown(message(state="cut")).note == "interrupted, /continue resumes"


def test_figures_of_another_version_are_left_out() -> None:
    for figures in ("{", "[]", '{"tokens": "many", "accepted": null}'):
        assert shown(message(figures=figures)).note == ""


def test_a_growing_answer_tells_what_it_waits_for() -> None:
    waiting = exchange("")
    assert growing(waiting, "toy", None).note == "waiting for the model …"
    waiting.started, waiting.prefilled = Started(100, 40), 0.5
    assert growing(waiting, "toy", None).note == "reading 30 of 60 tokens …"


def test_a_continued_answer_begins_with_what_was_there() -> None:
    assert growing(exchange(" more"), "toy", message(text="some")).text == "some more"

import json

import pytest

from localspec.chat.events import Started
from localspec.history.records import StoredMessage
from localspec.messages import Message, Role
from localspec.tui.message_text import growing_text, message_text
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


def test_headings_number_questions_and_count_versions() -> None:
    assert message_text(message("user"), 3).heading == "You · 3"
    assert message_text(message(siblings=(0, 1, 2))).heading == "toy · version 2 of 3"


def test_a_file_in_a_question_is_folded_to_its_name_and_size() -> None:
    made = message_text(message("user", 'See @a\n\n<file name="a">\nlong\n</file>'), 1)
    assert (made.text, made.note) == ("See @a", "+ a · 4 B · ≈ 1 tokens")


FIGURES = {"tokens": 12, "tokens_per_s": 20.04, "accepted": 0.5, "stop": "cancelled"}


@pytest.mark.parametrize(
    ("figures", "state", "note"),
    [
        (json.dumps(FIGURES), "cut", "12 tokens · 20.0 tokens/s · stopped"),
        ("", "cut", "interrupted, /continue resumes"),
        # Of another version:
        ("{", "complete", ""),
        ("[]", "complete", ""),
        ('{"tokens": "many", "accepted": null}', "complete", ""),
    ],
)
def test_figures_of_an_answer_and_how_it_ended(figures: str, state: str, note: str) -> None:
    assert message_text(message(figures=figures, state=state)).note == note


def test_a_growing_answer_tells_what_it_waits_for() -> None:
    waiting = exchange("")
    assert growing_text(waiting, "toy", None).note == "waiting for the model …"
    waiting.started, waiting.prefilled = Started(100, 40), 0.5
    assert growing_text(waiting, "toy", None).note == "reading 30 of 60 tokens …"


def test_a_continued_answer_begins_with_what_was_there() -> None:
    assert growing_text(exchange(" more"), "toy", message(text="some")).text == "some more"

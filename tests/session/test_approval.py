"""What a person answers to the question of a call, and what is printed of its result."""

import pytest

from localspec.display import shortened_lines
from localspec.session.approval import typed_decision
from localspec.toolbox.permissions import Decision

YES, ALWAYS = Decision(allowed=True), Decision(allowed=True, always=True)
NO = Decision(allowed=False, reason="too soon")


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("y", YES),
        ("Yes", YES),
        ("a", ALWAYS),
        ("always", ALWAYS),
        ("n", Decision(allowed=False)),
        ("no, too soon", NO),
        ("n too soon", NO),
    ],
)
def test_a_typed_answer_is_understood(typed: str, wanted: Decision) -> None:
    assert typed_decision(lambda _: typed, "this") == wanted


def test_what_is_no_answer_is_asked_again_and_the_end_stops() -> None:
    lines = iter(["", "a dog is an animal", "yes please do", "what?", "n"])
    assert typed_decision(lambda _: next(lines), "this") == Decision(allowed=False)

    def gone(_: str) -> str:
        raise EOFError

    assert typed_decision(gone, "this") is None


def test_of_a_long_result_the_first_and_the_last_lines_are_printed() -> None:
    lines = [str(each) for each in range(40)]
    assert shortened_lines("\n".join(lines)) == [*lines[:8], "[24 more lines]", *lines[-8:]]
    assert shortened_lines("\n".join(lines[:17])) == lines[:17]

import pytest

from localspec.config.keys import KEYS
from localspec.decoding.drafters.register import DRAFTERS, DrafterEntry
from localspec.tui import lens
from localspec.tui.lens import MARKS, counts, legend, marked, pieces
from tests.tui.answers import tokens

TOKENS = [
    tokens("The", by="prompt"),
    tokens(" cat", " sat", " on", by="model", drafted=3, accepted=2),
    tokens(" the", " mat", by="lookup", drafted=1, accepted=1),
    tokens("."),
]


def test_every_origin_has_marks_that_need_no_colour() -> None:
    assert marked(TOKENS) == "The[ cat sat]< on>{ the}+ mat+."
    assert "".join(text for text, _ in pieces(TOKENS)) == "The cat sat on the mat."
    assert legend(TOKENS) == [
        "[text]     2  proposed by the draft model",
        "{text}     1  looked up in the text so far",
        "<text>     1  corrected by the large model",
        "+text+     1  extra token from the large model",
        " text      2  written by the large model, nothing drafted",
    ]
    marks = [(mark.open, mark.close) for mark in MARKS.values()]
    assert len(set(marks)) == len(marks)


def test_a_drafter_of_another_package_has_its_own_marks_and_can_be_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happened = [tokens("a", by="series", drafted=1, accepted=1)]
    assert marked(happened) == "a", "not known yet"
    assert KEYS["draft"].problem("series") is not None
    entry = DrafterEntry("series", "none", 5, False, "<>", "accent", "the series goes on")
    monkeypatch.setitem(DRAFTERS, entry.name, entry)
    monkeypatch.setattr(lens, "MARKS", dict(MARKS))
    assert marked(happened) == "<a>"
    assert legend(happened) == ["<text>     1  the series goes on"]
    assert KEYS["draft"].problem("series") is None
    assert KEYS["draft"].read("series") == "series"


def test_a_part_of_a_character_counts_with_the_token_that_completes_it() -> None:
    happened = [tokens("", "日", by="model", drafted=2, accepted=2)]
    assert pieces(happened) == [("日", MARKS["model"])]
    assert counts(happened) == {MARKS["model"]: 2}


def test_tokens_cannot_command_the_terminal_and_marks_do_not_move_code() -> None:
    assert "\x1b" not in marked([tokens("\x1b[2J", by="model", drafted=1, accepted=1)])
    code = [
        tokens("def f():", "\n   ", by="model", drafted=1, accepted=1),
        tokens(" return", " 1\n", by="lookup", drafted=2, accepted=2),
    ]
    assert marked(code) == "[def f():]\n    {return 1}\n"

"""Numbers of passages, what they take of a context, and what an answer's brackets mean."""

from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.messages import DocumentPart, Message
from localspec.retrieval.index import open_index
from localspec.retrieval.update import add
from localspec.session.citing import (
    PassageText,
    as_documents,
    citations,
    files_of,
    passages_in,
    tokens_in,
)
from localspec.session.documents import Docs

TEA, COFFEE = (
    PassageText("tea.md:1-3", "Green tea: 80 degrees."),
    PassageText("c.txt:9", "Nine bars."),
)


def asked(text: str, *found: PassageText, before: tuple[Message, ...] = ()) -> Message:
    return Message.user(text, as_documents(found, passages_in(before)))


def test_numbers_go_on_and_nothing_is_said_twice() -> None:
    first = asked("How hot?", TEA)
    second = asked("And coffee?", COFFEE, TEA, before=(first, Message.assistant("80 [1].")))
    assert [each.name for each in second.documents] == ["[2] c.txt:9", "how to answer"]
    assert "[1]" in second.documents[-1].text
    known = passages_in([first, second])
    assert {number: each.where for number, each in known.items()} == {1: "tea.md:1-3", 2: "c.txt:9"}
    attached = Message.user("?", [DocumentPart("[x] a", "b"), *second.documents])
    assert [each.name for each in files_of(attached)] == ["[x] a"]


def test_what_a_conversation_keeps_is_enough_to_know_its_passages() -> None:
    """The history stores a text."""
    said = asked("How hot?", TEA, PassageText("x.md:1", "a\n</file>\n[9] b"))
    again = Message.from_text("user", said.text)
    assert again == said
    assert passages_in([again])[2].text == "a\n</file>\n[9] b"


def test_passages_keep_to_their_budget_the_best_first() -> None:
    found = [PassageText(f"{number}.md:1", "x" * 600) for number in range(9)]
    short = PassageText("short.md:1", "y" * 60)
    (*documents, about) = as_documents([*found, short], {}, 700)
    assert [each.name for each in documents] == [
        "[1] 0.md:1", "[2] 1.md:1", "[3] 2.md:1", "[4] short.md:1",
    ]  # fmt: skip
    assert sum(tokens_in(each.name[4:] + each.text) for each in documents) <= 700
    assert "passages" in about.text


@pytest.mark.parametrize(
    ("answer", "cited", "unknown"),
    [
        ("Hot [1]. Cold [2], warm[1].", [1, 2], []),
        ("Both [2, 1] and [7].", [2, 1], [7]),
        ("No claim here.", [], []),
        ("A list `a[2]` and\n```\nb[1]\n```\nand ~~~\n[2]", [], []),
        ("[1](https://example.com) is a link, [x] a box, [1.5] a number", [], []),
        ("[0]", [], [0]),
    ],
)
def test_brackets_in_an_answer_are_checked(
    answer: str, cited: list[int], unknown: list[int]
) -> None:
    found = citations(answer, passages_in([asked("?", TEA, COFFEE)]))
    assert [each.number for each in found.passages] == cited
    assert list(found.unknown) == unknown


def test_without_passages_brackets_mean_nothing_and_the_model_is_told_that_nothing_fits() -> None:
    found = citations("See [1].", passages_in([Message.user("?", [DocumentPart("a.txt", "x")])]))
    assert (found.passages, found.unknown) == ((), ())
    (about,) = as_documents([], {})
    assert "No passage" in about.text


def test_a_question_brings_its_passages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tea.md").write_text("# Tea\nGreen tea: 80 degrees.")
    index = open_index("notes", make=True)
    add(index, [tmp_path / "tea.md"])
    index.close()
    docs, question = Docs().parse_mention("@notes How hot is tea?")
    assert (docs.name, question) == ("notes", "How hot is tea?")
    documents = docs.check().documents(question, ())
    assert [each.name.partition(":")[0] for each in documents] == ["[1] tea.md", "how to answer"]
    assert Docs().parse_mention("@nobody hello") == (Docs(), "@nobody hello")
    assert Docs().documents("tea", ()) == ()
    with pytest.raises(UsageError, match="choose one of notes"):
        Docs("other").check()

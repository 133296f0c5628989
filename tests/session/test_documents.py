"""What goes with a question: files, passages of an index, their numbers, and a tool that looks things up."""

import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from localspec.messages import DocumentPart, Message, ToolCall
from localspec.retrieval.index import open_index
from localspec.retrieval.update import add
from localspec.session.attachments import (
    attached,
    attachment_of,
    completions,
    file_size,
    label,
    not_attached,
    pasted_alone,
    question_with,
)
from localspec.session.citing import (
    PassageText,
    as_documents,
    citations,
    files_of,
    passages_in,
    tokens_in,
)
from localspec.session.documents import Docs
from localspec.toolbox.functions import Functions
from localspec.toolbox.permissions import Permissions
from localspec.toolbox.rules import Rule, Rules
from localspec.toolbox.toolbox import Access
from tests.retrieval.documents import docx, pdf
from tests.support.checks import refuses


def test_a_mentioned_file_goes_with_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    files = attached("What does @a.py do?", tmp_path)
    said = question_with("What does @a.py do?", files)
    assert said.text == '\n\n<file name="a.py">\nx = 1\n</file>\n\nWhat does @a.py do?'
    assert said.typed == "What does @a.py do?"
    assert Message.from_text("user", said.text) == said
    assert [label(each) for each in said.documents] == ["a.py · 5 B · ≈ 1 token"]
    (chinese,) = question_with("", [DocumentPart("a.md", "茶要用热水泡。" * 10)]).documents
    assert label(chinese) == "a.md · 210 B · ≈ 70 tokens", (
        "of four English letters there would be one"
    )
    for content, word in [
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        (b"ab\x00cd", "is not UTF-8 text"),
        (b"x" * ((1 << 20) + 1), "longer than 1 MB"),
    ]:
        (tmp_path / "a.bin").write_bytes(content)
        refuses(word, attached, "@a.bin", tmp_path)


def test_the_text_of_a_document_goes_with_the_question(tmp_path: Path) -> None:
    for name, content, text in [
        ("thesis.pdf", pdf(["One & two.", "Three."]), "[page 1]\nOne & two.\n\n[page 2]\nThree."),
        ("short.PDF", pdf(["Alone."]), "Alone."),
        ("letter.docx", docx(("Title", "Hello"), ("Normal", "Dear all,")), "# Hello\nDear all,"),
        ("download", pdf(["Without a suffix."]), "Without a suffix."),
        ("download-2", docx(("Normal", "So is this.")), "So is this."),
    ]:
        (tmp_path / name).write_bytes(content)
        (part,) = attached(f"@{name}", tmp_path)
        assert part == DocumentPart(name, text)
        with (tmp_path / name).open("rb") as stream:
            assert attachment_of(stream, "stdin") == DocumentPart("stdin", text)
        assert attached(f"@{name}", tmp_path, media_only=True) == []
    for name, content, word in [
        ("empty.pdf", pdf([""]), "has no text: attach pictures"),
        ("broken.pdf", b"%PDF-1.4 nothing", "broken.pdf cannot be attached: its PDF is damaged"),
        ("text.docx", b"no archive", "text.docx cannot be attached: its DOCX is damaged"),
        ("long.docx", docx(("Normal", "word " * 250_000)), "text of long.docx is longer than 1 MB"),
    ]:
        (tmp_path / name).write_bytes(content)
        refuses(word, attached, f"@{name}", tmp_path)


@pytest.mark.parametrize(("name", "package"), [("a.pdf", "pypdf"), ("a.docx", "docx")])
def test_without_the_extra_one_line_says_how_to_install_it(
    name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / name).write_bytes(pdf(["x"]) if name == "a.pdf" else docx(("Normal", "x")))
    refuses(f"{name} cannot be attached: .*`pip install 'localspec", attached, f"@{name}", tmp_path)


def test_a_mention_that_was_pasted_attaches_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x")
    for text, pasted, names in [
        ("@a.py", (), ["a.py"]),
        ("@a.py", ("a.py",), []),
        ("@a.py and @a.py", ("a.py",), ["a.py"]),  # one of them was typed
        ("from @a.py, ok", ("a.py,",), []),
        ("@a.pyc", ("a.py",), []),
    ]:
        only_text = pasted_alone(text, pasted)
        assert [each.name for each in attached(text, tmp_path, pasted=only_text)] == names


def test_a_question_that_is_edited_attaches_what_it_attached(tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "my file.txt"):
        (tmp_path / name).write_text("x")
    text = '@notes See @a.py, @b.py. @"my file.txt" @gone.py'
    question = question_with(text, attached(text, tmp_path, pasted=("b.py.",)))
    assert not_attached(question, tmp_path) == {"b.py."}


def test_what_names_a_file_is_attached_and_the_rest_is_text(tmp_path: Path) -> None:
    for name in ("a.py", "my file.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / "src").mkdir()
    for text, names in [
        ("See @a.py. And (@a.py)!", ["a.py"]),
        ('Sum up @"my file.txt" please', ["my file.txt"]),
        ("Sum up @'my file.txt'", ["my file.txt"]),
        ("it is @'here", []),
        ("@src", []),
        ("mail me@example.org", []),
        ("@", []),
        ("@/no/such", []),
        ("@" + "x" * 5000, []),
    ]:
        assert [each.name for each in attached(text, tmp_path)] == names


def test_completions_have_sizes_and_folders(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_bytes(b"x" * 1500)
    (tmp_path / "setup.py").write_bytes(b"x")
    (tmp_path / ".hidden").write_bytes(b"x")
    (tmp_path / "sgone.py").symlink_to(tmp_path / "nowhere")
    offers = {
        "s": [("setup.py", "1 B"), ("src/", "")],
        "src/m": [("src/main.py", "1.5 KB")],
        "": [("setup.py", "1 B"), ("src/", "")],
        ".h": [(".hidden", "1 B")],
        "nowhere/x": [],
    }
    assert {typed: completions(typed, tmp_path) for typed in offers} == offers
    sizes = [file_size(each) for each in (0, 999, 1000, 2_500_000)]
    assert sizes == ["0 B", "999 B", "1.0 KB", "2 MB"]


TEA = PassageText("tea.md:1-3", "Green tea: 80 degrees.")
COFFEE = PassageText("c.txt:9", "Nine bars.")


def question(text: str, *found: PassageText, before: tuple[Message, ...] = ()) -> Message:
    return Message.user(text, as_documents(found, passages_in(before)))


def test_numbers_go_on_and_what_a_conversation_keeps_is_enough_to_know_them() -> None:
    first = question("How hot?", TEA)
    second = question("And coffee?", COFFEE, TEA, before=(first, Message.assistant("80 [1].")))
    assert [each.name for each in second.documents] == ["[2] c.txt:9", "how to answer"]
    assert "[1]" in second.documents[-1].text
    known = passages_in([first, second])
    assert {number: each.where for number, each in known.items()} == {1: "tea.md:1-3", 2: "c.txt:9"}
    attached = Message.user("?", [DocumentPart("[x] a", "b"), *second.documents])
    assert [each.name for each in files_of(attached)] == ["[x] a"]
    # The history stores a text.
    said = question("How hot?", TEA, PassageText("x.md:1", "a\n</file>\n[9] b"))
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
    chinese = [PassageText(f"{number}.md:1", "水" * 300) for number in range(9)]
    assert len(as_documents(chinese, {}, 700)) == 2 + 1, "each letter takes a token"


def test_brackets_in_an_answer_are_checked() -> None:
    for answer, cited, unknown in [
        ("Hot [1]. Cold [2], warm[1].", [1, 2], []),
        ("Both [2, 1] and [7].", [2, 1], [7]),
        ("No claim here.", [], []),
        ("A list `a[2]` and\n```\nb[1]\n```\nand ~~~\n[2]", [], []),
        ("[1](https://example.com) is a link, [x] a box, [1.5] a number", [], []),
        ("[0]", [], [0]),
    ]:
        found = citations(answer, passages_in([question("?", TEA, COFFEE)]))
        assert [each.number for each in found.passages] == cited
        assert list(found.unknown) == unknown
    found = citations("See [1].", passages_in([Message.user("?", [DocumentPart("a.txt", "x")])]))
    assert (found.passages, found.unknown) == ((), ())
    (about,) = as_documents([], {})
    assert "No passage" in about.text


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Functions:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tea.md").write_text("# Tea\nGreen tea: 80 degrees.")
    with closing(open_index("notes", make=True)) as index:
        add(index, [tmp_path / "tea.md"])
    return Functions([Docs("notes").search_docs], Access.NOTHING)


@pytest.mark.usefixtures("box")
def test_a_question_brings_its_passages() -> None:
    docs, question = Docs().parse_mention("@notes How hot is tea?")
    assert (docs.name, question) == ("notes", "How hot is tea?")
    documents = docs.check().documents(question, ())
    assert [each.name.partition(":")[0] for each in documents] == ["[1] tea.md", "how to answer"]
    assert Docs().parse_mention("@nobody hello") == (Docs(), "@nobody hello")
    Path('a "b".md').write_text("Kettles whistle.")
    with closing(open_index("notes")) as index:
        add(index, [Path('a "b".md').resolve()])
    (whistling, _) = docs.check().documents("kettles whistle", ())
    assert whistling.name == '[1] a "b".md:1'
    stored = Message.from_text("user", Message.user("?", [whistling]).text)
    assert stored.documents == (whistling,)
    assert Docs().documents("tea", ()) == ()
    refuses("choose one of notes", Docs("other").check)


def called(box: Functions, arguments: str) -> tuple[str, bool]:
    result = box.call(ToolCall("1", "search_docs", arguments), threading.Event())
    return result.text, result.is_error


def test_passages_are_looked_up_by_a_tool(box: Functions, tmp_path: Path) -> None:
    call = ToolCall("1", "search_docs", '{"question": "tea"}')
    proposal = box.propose(call)
    assert Permissions(Rules()).allowed(call, proposal)
    assert Permissions(Rules(deny=(Rule("search_docs"),))).refusal(call, proposal)
    assert called(box, '{"question": "how hot is tea?"}') == (
        "tea.md:1-2\n# Tea\nGreen tea: 80 degrees.", False,
    )  # fmt: skip
    assert called(box, '{"question": "coffee"}') == ("[nothing fits]", False)
    assert called(box, '{"words": "tea"}')[1]
    (tmp_path / "data" / "index" / "notes.db").unlink()
    assert called(box, '{"question": "tea"}')[1]

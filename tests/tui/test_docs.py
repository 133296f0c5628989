"""Answers from an index: passages go with a question, what is cited is shown and opened, in screens and in lines."""

from contextlib import closing
from pathlib import Path

import pytest

from localspec.history.archive import History
from localspec.messages import DocumentPart
from localspec.retrieval.index import open_index
from localspec.retrieval.update import add
from localspec.session.export import exported
from localspec.tui.sheets import ListSheet, TextSheet
from tests.tui.driving import Chat, drive
from tests.tui.lines import said

SCRIPT = {"otherwise": ["At 71 degrees [1]. Some say [9]."]}
QUESTION = "How hot is green tea brewed?"


@pytest.fixture(autouse=True)
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an index of the name `notes`."""
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "tea.md").write_text("# Tea\n\nGreen tea is brewed at 71 degrees.")
    (folder / "coffee.md").write_text("# Coffee\n\nEspresso needs nine bars.")
    monkeypatch.chdir(folder)
    with closing(open_index("notes", make=True)) as index:
        add(index, [folder])
    return folder


def test_what_is_cited_is_visible_and_opened_by_keys(tmp_path: Path) -> None:
    async def doing(chat: Chat) -> None:
        def documents(at: int) -> tuple[DocumentPart, ...]:
            return chat.session.talk.messages[at].message.documents

        await chat.ready()
        told = ["at most 1500 tokens of passages", "docs notes, ≤ 1500 tokens"]
        await chat.run("/docs notes", shows=told)
        told = ["+ [1] tea.md:1-3", "+ passages · ≈ 17 tokens", "[9] names no passage"]
        await chat.ask(QUESTION, shows=told, lacks="how to answer")
        assert chat.text().rindex("[1] tea.md:1-3") > chat.text().index("At 71 degrees")
        await chat.ask("And espresso?", shows="+ [2] coffee.md:1-3")
        await chat.press("f9")
        sheet = chat.app.screen
        assert isinstance(sheet, ListSheet)
        places = ["tea.md:1-3 · cited", "coffee.md:1-3"]
        others = ["an index of your files", "answer from no index"]
        assert [row.hint for row in sheet.rows] == places + others
        await chat.press("enter", shows="brewed at 71 degrees")
        assert isinstance(chat.app.screen, TextSheet)
        await chat.press("escape")
        await chat.run("/docs off")
        await chat.ask("@nobody there?", shows="no file matches @nobody")
        assert documents(-2) == ()
        await chat.ask(f"@notes {QUESTION}")  # for one question
        assert documents(-2)
        await chat.run("/edit 4 How many bars? @notes")
        assert documents(-1) == ()
        await chat.until_rest()
        await chat.run("/docs other", shows="choose one of notes")

    drive(doing, tmp_path, SCRIPT, size=(100, 40))
    with closing(History(tmp_path / "history")) as history:
        written = exported(history, 1, "md")
    assert "+ [1] tea.md:1-3" in written
    assert "how to answer" not in written


def test_lines_have_the_same(tmp_path: Path) -> None:
    lines = ("/docs", "/docs 1", "/docs notes", QUESTION, "/docs", "/docs 1", "/docs 7")
    _, out, err = said(tmp_path, *lines, script=SCRIPT)
    assert out == "At 71 degrees [1]. Some say [9].\n# Tea\n\nGreen tea is brewed at 71 degrees.\n"
    news = [each.removeprefix("localspec: ") for each in err.splitlines()]
    assert news[:2] == [
        "Documents: notes · an index of your files",
        "Documents: off · answer from no index",
    ]
    assert "there is no passage '1': /docs lists them" in news
    assert news.count("[1] tea.md:1-3") == 2, "below the answer, and over the passage"
    assert "[9] names no passage" in news
    assert "Documents: [1] · tea.md:1-3 · cited" in news
    assert "there is no passage '7': /docs lists them" in news


def test_numbers_go_on_where_a_conversation_is_taken_up_again(tmp_path: Path) -> None:
    said(tmp_path, "/docs notes", QUESTION, script=SCRIPT)
    _, _, err = said(tmp_path, f"@notes espresso and {QUESTION}", "/docs", script=SCRIPT, resume=1)
    assert "Documents: [2] · coffee.md:1-3" in err
    assert "Documents: [3]" not in err

"""Answers from an index: passages go with a question, what is cited is shown and opened, in screens and in lines."""

from contextlib import closing
from pathlib import Path

import pytest

from localspec.retrieval.index import open_index
from localspec.retrieval.update import add
from localspec.session.export import exported
from localspec.tui.session import Session
from localspec.tui.sheets import ListSheet, TextSheet
from tests.support.checks import fits
from tests.tui.driving import Chat, driven
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


@driven(SCRIPT, size=(100, 40))
async def test_what_is_cited_is_visible_and_opened_by_keys(chat: Chat) -> None:
    await chat.run("/docs notes", shows=["at most 1500 tokens", "docs notes, ≤ 1500 tokens"])
    told = ["+ [1] tea.md:1-3", "+ passages · ≈ 17 tokens", "[9] names no passage"]
    await chat.ask(QUESTION, shows=told, lacks="how to answer")
    assert chat.text().rindex("[1] tea.md:1-3") > chat.text().index("At 71 degrees")
    await chat.ask("And espresso?", shows="+ [2] coffee.md:1-3")
    await chat.until_sheet(ListSheet, "f9")
    hints = [
        "tea.md:1-3 · cited",
        "coffee.md:1-3",
        "an index of your files",
        "answer from no index",
    ]
    assert [row.hint for row in chat.app.screen.rows] == hints  # type: ignore[attr-defined]
    await chat.press("enter", shows="brewed at 71 degrees")
    await chat.until_sheet(TextSheet)
    await chat.press("escape")
    await chat.run("/docs off")
    await chat.ask("@nobody there?", shows="no file matches @nobody")
    assert chat.session.talk.messages[-2].message.documents == ()
    await chat.ask(f"@notes {QUESTION}")  # for one question
    assert chat.session.talk.messages[-2].message.documents
    await chat.run("/edit 4 How many bars? @notes")
    assert chat.session.talk.messages[-1].message.documents == ()
    await chat.until_rest()
    await chat.run("/docs other", shows="choose one of notes")
    written = exported(chat.session.talk.history, 1, "md")
    assert "+ [1] tea.md:1-3" in written
    assert "how to answer" not in written


def test_lines_have_the_same_and_numbers_go_on_in_a_conversation(tmp_path: Path) -> None:
    lines = ("/docs", "/docs 1", "/docs notes", QUESTION, "/docs", "/docs 1", "/docs 7")
    _, out, err = said(tmp_path, *lines, script=SCRIPT)
    assert out == "At 71 degrees [1]. Some say [9].\n# Tea\n\nGreen tea is brewed at 71 degrees.\n"
    news = {
        "notes · an index of your files": 2,
        "off · answer from no index": 2,
        "there is no passage '1': /docs lists them": 1,
        "\nlocalspec: [1] tea.md:1-3\n": 2,  # below the answer, and over the passage
        "[9] names no passage": 1,
        "Documents: [1] · tea.md:1-3 · cited": 1,
        "there is no passage '7': /docs lists them": 1,
    }
    fits(err, news)
    _, _, err = said(tmp_path, f"@notes espresso and {QUESTION}", "/docs", script=SCRIPT, resume=1)
    fits(err, {"Documents: [2] · coffee.md:1-3": 1, "Documents: [3]": 0})


def test_a_conversation_keeps_its_index(tmp_path: Path) -> None:
    names: list[str] = []

    def name(session: Session) -> None:
        names.append(session.docs.name)

    said(tmp_path, "/docs notes", QUESTION, script=SCRIPT, look=name)
    said(tmp_path, QUESTION, script=SCRIPT, resume=1, look=name)
    said(tmp_path, "/docs off", QUESTION, "/docs notes", "/history #1", script=SCRIPT, look=name)
    said(tmp_path, "/history #1", "/docs off", "/new", "/history #1", script=SCRIPT, look=name)
    assert names == ["notes", "notes", "notes", ""]
    (tmp_path / "data" / "index").rename(tmp_path / "elsewhere")
    _, _, err = said(tmp_path, QUESTION, "/docs off", QUESTION, script=SCRIPT, resume=2)
    fits(err, {"there is no index 'notes'": 1, "33 tokens": 1})

"""`search_docs`: a model looks things up by itself."""

import threading
from contextlib import closing
from pathlib import Path

import pytest

from localspec.messages import ToolCall
from localspec.retrieval.index import open_index
from localspec.retrieval.update import add
from localspec.session.documents import Docs
from localspec.toolbox.functions import Functions
from localspec.toolbox.permissions import Permissions
from localspec.toolbox.rules import Rule, Rules
from localspec.toolbox.toolbox import Access


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Functions:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tea.md").write_text("# Tea\nGreen tea: 80 degrees.")
    with closing(open_index("notes", make=True)) as index:
        add(index, [tmp_path / "tea.md"])
    return Functions([Docs("notes").search_docs], Access.NOTHING)


def called(box: Functions, arguments: str) -> tuple[str, bool]:
    result = box.call(ToolCall("1", "search_docs", arguments), threading.Event())
    return result.text, result.is_error


def test_passages_are_returned_under_their_places(box: Functions) -> None:
    (tool,) = box.tools
    assert tool.parameters["required"] == ["question"]
    assert called(box, '{"question": "how hot is tea?"}') == (
        "tea.md:1-2\n# Tea\nGreen tea: 80 degrees.", False,
    )  # fmt: skip
    assert called(box, '{"question": "coffee"}') == ("[nothing fits]", False)
    assert called(box, '{"words": "tea"}')[1]


def test_it_needs_no_question_and_a_rule_can_refuse_it(box: Functions) -> None:
    call = ToolCall("1", "search_docs", '{"question": "tea"}')
    proposal = box.propose(call)
    assert Permissions(Rules()).allowed(call, proposal)
    assert "tea" in proposal.summary
    assert Permissions(Rules(deny=(Rule("search_docs"),))).refusal(call, proposal)


def test_an_index_that_is_gone_is_an_error_that_the_model_sees(
    box: Functions, tmp_path: Path
) -> None:
    (tmp_path / "data" / "index" / "notes.db").unlink()
    text, failed = called(box, '{"question": "tea"}')
    assert failed
    assert "there is no index 'notes'" in text

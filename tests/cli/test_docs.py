"""`localspec run --docs` on real weights: passages in, citations out."""

import json
from pathlib import Path

import pytest

from tests.cli.command import PLAIN, assert_one_complaint, localspec

pytestmark = [pytest.mark.weights, pytest.mark.usefixtures("smollm2_path")]
# What it says is prescribed: which passages it cites is what is tested, not how clever a small model is.
SAYS = ("run", *PLAIN, "--regex", r"Tea \[1\], water \[5\]")
CITED = "Tea [1], water [5]"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notes")
    (folder / "tea.md").write_text(
        "# Tea\n\nGreen tea is brewed at 71 degrees for three minutes.\n"
    )
    (folder / "coffee.md").write_text("# Coffee\n\nEspresso needs nine bars of pressure.\n")
    return folder


@pytest.fixture
def data(folder: Path, tmp_path: Path, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory with an index; the model is named by its path."""
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(folder)
    assert localspec("index", "add", ".", "-n", "notes").code == 0
    return tmp_path / "data"


@pytest.mark.usefixtures("data")
def test_an_answer_has_its_passages_and_what_it_cites(smollm2_path: Path) -> None:
    asked = ("At how many degrees is green tea brewed?", "--target", str(smollm2_path))
    done = localspec(*SAYS, "--json", "--docs", "notes", *asked)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["text"] == CITED
    assert found["passages"] == [{"number": 1, "where": "tea.md:1-3", "cited": True}]
    assert found["unknown_citations"] == [5]


@pytest.mark.usefixtures("data")
def test_an_index_is_named_for_one_question_and_citations_are_told(smollm2_path: Path) -> None:
    done = localspec(*SAYS, "@notes How many bars?", "--target", str(smollm2_path))
    assert (done.code, done.out) == (0, f"{CITED}\n"), done.err
    cited, unknown, figures = done.err.splitlines()[-3:]
    assert cited == "localspec: [1] coffee.md:1-3 · cited"
    assert unknown == "localspec: [5] names no passage"
    assert "tokens" in figures


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(
    ("asked", "numbers", "told"),
    [
        ("How many bars?", ["[1]"], "cites no passage: check it"),
        ("Bars and degrees?", ["[1]", "[2]"], "cites none of its 2 passages: check it"),
    ],
)
def test_what_was_read_is_told_and_that_an_answer_cites_none_of_it(
    smollm2_path: Path, asked: str, numbers: list[str], told: str
) -> None:
    words = ("run", *PLAIN, "--draft", "off", "--regex", "Tea", "--docs", "notes", asked)
    *read, complaint, _ = localspec(*words, "--target", str(smollm2_path)).err.splitlines()
    assert [each.split(" ", 2)[1] for each in read] == numbers
    assert all(each.endswith(".md:1-3 · read") for each in read)
    assert complaint == f"localspec: the answer {told}"


def test_an_index_that_is_not_there_is_complained_of(data: Path) -> None:
    complaint = localspec(*SAYS, "--docs", "nothing", "Hello")
    assert_one_complaint(complaint, 2)
    assert "choose one of notes" in complaint.err
    complaint = localspec("run", "--docs", "notes", "--raw", "Hello")
    assert_one_complaint(complaint, 2)
    assert data.exists()

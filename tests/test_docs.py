"""What the documents refer to is there: links, headings, programs of the repository, and every decision in its index."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
_PROGRAM = re.compile(r"python -m (lab(?:\.[a-z_]+)+)(?![.\w])")


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", document.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: str(each.relative_to(ROOT)))
def test_links_and_programs_that_are_named_are_there(document: Path) -> None:
    text = document.read_text()
    for path, heading in _LINK.findall(text):
        target = document.parent / path if path else document
        assert target.exists(), path
        if heading:
            assert heading in anchors(target), f"{path}#{heading}"
    for name in _PROGRAM.findall(text):
        path = ROOT.joinpath(*name.split("."))
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), name
    # There, each line is a question of its own.
    assert not re.search(r"\| localspec chat", text)


def test_every_decision_stands_in_the_index_under_its_title() -> None:
    index = (ROOT / "docs/decisions/README.md").read_text()
    rows = dict(re.findall(r"^\| \[(.+?)\]\((\S+)\) \| .+ \|$", index, flags=re.MULTILINE))
    pages = sorted(each.name for each in (ROOT / "docs/decisions").glob("[a-z]*.md"))
    assert sorted(rows.values()) == pages


def test_the_documents_are_short_enough_to_be_read() -> None:
    pages = (ROOT / "docs").rglob("*.md")
    assert sum(len(each.read_text().split()) for each in pages) <= 45_000

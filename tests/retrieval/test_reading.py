"""What is read of each format, and under which numbers."""

import sys
from contextlib import suppress
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from localspec.retrieval import reading
from localspec.retrieval.passages import NumberedLine
from localspec.retrieval.reading import NotText, Unreadable, place, read
from tests.retrieval.documents import docx, pdf

SEEDS = {
    "a.html": b"<p>a</p><![x[y]]><!--<a b='c>&#x;<pre></body>",
    "a.docx": docx(("Title", "a"), ("Heading 1", "b")),
    "a.pdf": pdf(["one", "two"]),
    "a.md": b"# a\n```\n\xff",
}


def pictures() -> list[bytes]:
    kinds = list[bytes]()
    for kind in ("PNG", "JPEG", "GIF", "BMP", "WEBP"):
        file = BytesIO()
        Image.new("RGB", (3, 3)).save(file, kind)
        kinds.append(file.getvalue())
    return kinds


def lines(name: str, content: bytes) -> list[tuple[int, str]]:
    return [(each.number, each.text) for each in read(name, content)[0] if each.text]


def test_text_is_numbered_by_lines_and_its_name_says_whether_it_is_code() -> None:
    texts = [NumberedLine(1, "one"), NumberedLine(2, ""), NumberedLine(3, "two")]
    assert read("a/notes.md", b"\xef\xbb\xbfone\r\n\ntwo ") == (texts, False)
    names = ("a.py", "b.rs", "README", "c.rst", "tar.1", "a.b/notes", "Makefile.am")
    assert [name for name in names if read(name, b"")[1]] == ["a.py", "b.rs", "Makefile.am"]
    for content in (b"\x89PNG\0\0", b"caf\xe9", b"ID3\4\0", b"RIFF\4\0\0\0WAVE", *pictures()):
        with pytest.raises(NotText):
            read("a.txt", content)


def test_html_keeps_the_lines_of_its_source_and_drops_what_is_not_read() -> None:
    page = (
        b"<html><head><title>T</title><style>p {}</style></head>\n<body><h2>Two\nwords</h2>\n"
        b"<p>Some <b>bold</b> text &amp;\nmore</p><script>x = '<p>no</p>'</script>\n"
        b"<pre>a\n  b\n</pre><ul><li>one<li>two</ul>"
    )
    assert lines("a.html", page) == [
        (1, "T"), (2, "## Two words"), (4, "Some bold text & more"),
        (6, "a"), (7, "  b"), (8, "one"), (8, "two"),
    ]  # fmt: skip
    assert lines("a.html", b"<p>a</p><![x[y]]> and more") == [(1, "a"), (1, "and more")]
    assert lines("a.html", b"") == lines("a.html", b"<!-- nothing -->") == []


def test_docx_is_numbered_by_paragraphs_with_headings() -> None:
    parts = [("Title", "Letter"), ("", "Dear <all>,"), ("Heading 2", "Terms"), ("", "Ten days.")]
    content = docx(*parts)
    assert lines("letter.docx", content) == [
        (1, "# Letter"), (2, "Dear <all>,"), (3, "## Terms"), (4, "Ten days."),
    ]  # fmt: skip
    for broken in (b"", b"PK\3\4 nonsense", content[:-40], content[:200] + b"x" * 50 + content[250:]):  # fmt: skip
        with pytest.raises(Unreadable, match="damaged"):
            read("letter.docx", broken)


def test_a_docx_has_what_was_inserted_while_changes_were_tracked_and_is_unpacked_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content, changed = docx(("", "Ten days."), ("", "kept")), BytesIO()
    with ZipFile(BytesIO(content)) as old, ZipFile(changed, "w", ZIP_DEFLATED) as new:
        for each in old.namelist():
            xml = old.read(each).replace(b"<w:r><w:t>Ten", b"<w:ins><w:r><w:t>Ten")
            xml = xml.replace(b"days.</w:t></w:r>", b"days.</w:t></w:r></w:ins>")
            new.writestr(each, xml)
            assert (b"<w:ins>" in xml) == (each == "word/document.xml")
    assert lines("letter.docx", changed.getvalue()) == [(1, "Ten days."), (2, "kept")]
    monkeypatch.setattr(reading, "MOST_DOCUMENT_BYTES", 9_000)
    with pytest.raises(Unreadable, match="too long"):
        read("letter.docx", changed.getvalue())


def test_pdf_is_numbered_by_pages() -> None:
    content = pdf(["The first page", "The second page"])
    assert lines("paper.pdf", content) == [(1, "The first page"), (2, "The second page")]
    with pytest.raises(Unreadable, match="damaged"):
        read("paper.pdf", b"%PDF-1.4 nonsense")


def test_a_document_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, package, extra in (("a.pdf", "pypdf", "pdf"), ("a.docx", "docx", "documents"), ("a.html", "lxml", "documents")):  # fmt: skip
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(Unreadable, match=rf"`pip install 'localspec\[{extra}\]'`"):
            read(name, SEEDS[name])


@pytest.mark.parametrize("name", SEEDS)
@given(at=st.integers(0, 400), cut=st.integers(0, 9), put=st.binary(max_size=9))
@settings(max_examples=60)
def test_whatever_a_file_holds_is_lines_or_unreadable(
    name: str, at: int, cut: int, put: bytes
) -> None:
    content = SEEDS[name]
    with suppress(Unreadable):
        numbered, _ = read(name, content[:at] + put + content[at + cut :])
        assert all(each.number >= 1 for each in numbered)


def test_places_are_in_the_units_of_their_format() -> None:
    assert place("a/b.md", 10, 14) == "a/b.md:10-14"
    assert place("a.py", 3, 3) == "a.py:3"
    assert place("a.PDF", 2, 3) == "a.PDF:p2-3"
    assert place("a.docx", 7, 7) == "a.docx:¶7"

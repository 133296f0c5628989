"""Reading: what a file says, as numbered lines. Knows formats, and neither passages' sizes nor a database.

Text is numbered by its lines, a PDF by its pages, a DOCX by its paragraphs. HTML has the lines of its source.
"""

import logging
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable
from html.parser import HTMLParser
from io import BytesIO
from pathlib import PurePath
from xml.etree import ElementTree

from localspec.errors import LocalspecError
from localspec.retrieval.passages import Kind, NumberedLine

MOST_TEXT_BYTES, MOST_DOCUMENT_BYTES = 2 << 20, 64 << 20
"""Of a file that is text; of a PDF or DOCX, packed and unpacked."""
_MOST_PAGES = 5000
_LOOKED_AT = 8192
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MARKDOWN = {".md", ".markdown", ".mdx", ".qmd", ".rmd"}
_HTML = {".htm", ".html", ".xhtml"}
_PLAIN = {"", ".adoc", ".asciidoc", ".csv", ".log", ".org", ".rst", ".tex", ".text", ".tsv", ".txt"}
_BLOCK_TAGS = (
    "address article aside blockquote body caption dd details dialog div dl dt fieldset figcaption figure footer form"
    " h1 h2 h3 h4 h5 h6 header hr html li main nav ol option p pre section summary table tbody td tfoot th thead title tr ul"
)
_BLOCKS = frozenset(_BLOCK_TAGS.split())
_HEADING = re.compile(r"(?i)title|heading ?([1-6])")
_UNSEEN = {"script", "style", "template", "noscript", "svg"}
# What zipfile, zlib and expat raise of a file that is broken, or locked by a password.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, ElementTree.ParseError, EOFError, KeyError, NotImplementedError, RuntimeError, ValueError,
)  # fmt: skip


class Unreadable(LocalspecError):
    """A file has no text that can be had; says why in a few words, such as `it is not text`."""


class NotText(Unreadable):
    """A file is of a kind that holds no text, such as a picture."""


def most_bytes(name: str) -> int:
    """Return how long a file of this name may be."""
    return MOST_DOCUMENT_BYTES if _suffix(name) in _DOCUMENTS else MOST_TEXT_BYTES


def read(name: str, content: bytes) -> tuple[list[NumberedLine], Kind]:
    """Return what a file says, and how its parts are marked.

    Args:
        name: of the file; its ending tells the format.
        content: all of it.

    Raises:
        NotText: it holds none.
        Unreadable: it is damaged, or needs a package that is not there.
    """
    document = _DOCUMENTS.get(_suffix(name))
    if document is not None:
        return document(content), Kind.MARKDOWN
    if b"\0" in content[:_LOOKED_AT]:
        raise NotText("it is not text")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise NotText("it is not UTF-8 text") from None
    if _suffix(name) in _HTML:
        return _from_html(text), Kind.MARKDOWN
    lines = [NumberedLine(number, each.rstrip()) for number, each in enumerate(text.split("\n"), 1)]
    if _suffix(name) in _MARKDOWN:
        return lines, Kind.MARKDOWN
    return lines, Kind.TEXT if _suffix(name) in _PLAIN or _is_manual(name) else Kind.CODE


def place(name: str, first: int, last: int) -> str:
    """Return where in a file something stands, for people: `guide.md:10-14`, `paper.pdf:p3`, `letter.docx:¶2`."""
    sign = {".pdf": "p", ".docx": "¶"}.get(_suffix(name), "")
    return f"{name}:{sign}{first}" + (f"-{last}" if last > first else "")


def _suffix(name: str) -> str:
    return PurePath(name).suffix.lower()


def _is_manual(name: str) -> bool:
    """Return whether a name ends as that of a manual page does: `tar.1`, `open.3p`."""
    return _suffix(name)[1:2].isdigit()


def _from_pdf(content: bytes) -> list[NumberedLine]:
    try:
        from pypdf import PdfReader  # noqa: PLC0415 - an extra; few have PDFs
    except ImportError:
        raise Unreadable("PDF needs pypdf: `pip install 'localspec[pdf]'`") from None
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # else it tells of every flaw
    try:
        pages = PdfReader(BytesIO(content)).pages[:_MOST_PAGES]
        return [
            NumberedLine(number, line.rstrip())
            for number, page in enumerate(pages, 1)
            for line in page.extract_text().splitlines()
        ]
    except Exception as error:
        # Damage in a PDF surfaces as nearly anything.
        raise Unreadable(f"its PDF is damaged or encrypted ({type(error).__name__})") from error


def _from_docx(content: bytes) -> list[NumberedLine]:
    try:
        with (
            zipfile.ZipFile(BytesIO(content)) as packed,
            packed.open("word/document.xml") as stream,
        ):
            xml = stream.read(MOST_DOCUMENT_BYTES + 1)
        if len(xml) > MOST_DOCUMENT_BYTES:
            raise Unreadable("its text is too long")
        # Entities that grow without end are refused by expat itself, since 2.4.
        body = ElementTree.fromstring(xml)  # noqa: S314
    except _DAMAGE as error:
        raise Unreadable("its DOCX is damaged or encrypted") from error
    return [
        NumberedLine(number, _paragraph(each))
        for number, each in enumerate(body.iter(f"{_WORD}p"), 1)
    ]


def _paragraph(paragraph: ElementTree.Element) -> str:
    """Return a paragraph as Markdown has it: a heading with its signs."""
    said: list[str] = []
    for each in paragraph.iter():
        if each.tag == f"{_WORD}t":
            said.append(each.text or "")
        elif each.tag in {f"{_WORD}tab", f"{_WORD}br"}:
            said.append(" ")
    style = paragraph.find(f"{_WORD}pPr/{_WORD}pStyle")
    name = "" if style is None else style.get(f"{_WORD}val", "")
    found = _HEADING.fullmatch(name)
    signs = "#" * int(found[1] or 1) + " " if found else ""
    return signs + " ".join("".join(said).split())


class _Page(HTMLParser):
    """Takes the text out of a page, with the line of the source that each line of it begins on."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[NumberedLine] = []
        self._said, self._at, self._hidden, self._verbatim = "", 1, 0, 0

    def handle_starttag(self, tag: str, attrs: Iterable[tuple[str, str | None]]) -> None:  # noqa: ARG002
        if tag in _UNSEEN:
            self._hidden += 1
        if tag in _BLOCKS or tag == "br":
            self.end_line(blank=tag != "br")
        if tag == "pre":
            self._verbatim += 1
        if tag in {"h1", "h2", "h3", "h4", "h5", "h6"}:
            self._said = "#" * int(tag[1]) + " "

    def handle_endtag(self, tag: str) -> None:
        if tag in _UNSEEN:
            self._hidden = max(self._hidden - 1, 0)
        if tag == "pre":
            self._verbatim = max(self._verbatim - 1, 0)
        if tag in _BLOCKS:
            self.end_line(blank=True)

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        if not self._verbatim:
            words = " ".join(data.split())
            before = " " if data[:1].isspace() and self._said and self._said[-1] != " " else ""
            self._add(
                before + words + (" " if words and data[-1:].isspace() else ""), self.getpos()[0]
            )
            return
        for offset, line in enumerate(data.split("\n")):
            if offset:
                self.end_line(blank=False)
            self._add(line, self.getpos()[0] + offset)

    def _add(self, text: str, at: int) -> None:
        if not self._said.strip(" #"):
            self._at = at
        self._said += text

    def end_line(self, *, blank: bool) -> None:
        """End a line; a block is followed by a blank one."""
        text = self._said.rstrip()
        if text.strip("# ") or self._verbatim:
            self.lines.append(NumberedLine(self._at, text))
        if blank and self.lines and self.lines[-1].text:
            self.lines.append(NumberedLine(self._at, ""))
        self._said = ""


def _from_html(text: str) -> list[NumberedLine]:
    page = _Page()
    try:
        page.feed(text)
        page.close()
    except AssertionError as error:  # Python's parser, of `<![` and a word that it does not know
        raise Unreadable("its HTML is damaged") from error
    page.end_line(blank=False)
    return page.lines


_DOCUMENTS: dict[str, Callable[[bytes], list[NumberedLine]]] = {
    ".pdf": _from_pdf,
    ".docx": _from_docx,
}

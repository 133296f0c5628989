"""Reading: what a file says, as numbered lines. Knows formats, and neither passages' sizes nor a database.

Text is numbered by its lines, a PDF by its pages, a DOCX by its paragraphs. HTML has the lines of its source.
"""

import logging
import re
from collections.abc import Callable
from io import BytesIO
from pathlib import PurePath
from zipfile import ZipFile

from localspec.errors import LocalspecError
from localspec.retrieval.passages import NumberedLine

MOST_TEXT_BYTES, MOST_DOCUMENT_BYTES = 2 << 20, 64 << 20
"""Of a file that is text; of a PDF or DOCX, packed and unpacked."""
_MOST_PAGES = 5000
_LOOKED_AT = 8192
_HTML = {".htm", ".html", ".xhtml"}
_TEXT_SUFFIXES = (
    " .adoc .asciidoc .csv .log .markdown .md .mdx .org .qmd .rmd .rst .tex .text .tsv .txt"
)
_TEXT = frozenset(_TEXT_SUFFIXES.split(" "))
_BLOCK_TAGS = (
    "address article aside blockquote body br caption dd details dialog div dl dt fieldset figcaption figure footer form"
    " h1 h2 h3 h4 h5 h6 header hr html li main nav ol option p pre section summary table tbody td tfoot th thead title tr ul"
)
_BLOCKS = frozenset(_BLOCK_TAGS.split())
_UNSEEN = ("script", "style", "template", "noscript", "svg")
_HEADING = re.compile(r"(?i)title|(?:heading ?|h)([1-6])")
_DOCUMENTS_EXTRA = "`pip install 'localspec[documents]'`"


class Unreadable(LocalspecError):
    """A file has no text that can be had; says why in a few words, such as `it is not text`."""


class NotText(Unreadable):
    """A file is of a kind that holds no text, such as a picture."""


def most_bytes(name: str) -> int:
    """Return how long a file of this name may be."""
    return MOST_DOCUMENT_BYTES if _suffix(name) in _DOCUMENTS else MOST_TEXT_BYTES


def read(name: str, content: bytes) -> tuple[list[NumberedLine], bool]:
    """Return what a file says, and whether it is code.

    Args:
        name: of the file; its ending tells the format.
        content: all of it.

    Raises:
        NotText: it holds none.
        Unreadable: it is damaged, or needs a package that is not there.
    """
    document = _DOCUMENTS.get(_suffix(name))
    if document is not None:
        return document(content), False
    if b"\0" in content[:_LOOKED_AT]:
        raise NotText("it is not text")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise NotText("it is not UTF-8 text") from None
    if _suffix(name) in _HTML:
        return _from_html(text), False
    lines = [NumberedLine(number, each.rstrip()) for number, each in enumerate(text.split("\n"), 1)]
    # Manual pages end in a section's number: `tar.1`, `open.3p`.
    return lines, _suffix(name) not in _TEXT and not _suffix(name)[1:2].isdigit()


def place(name: str, first: int, last: int) -> str:
    """Return where in a file something stands, for people: `guide.md:10-14`, `paper.pdf:p3`, `letter.docx:¶2`."""
    sign = {".pdf": "p", ".docx": "¶"}.get(_suffix(name), "")
    return f"{name}:{sign}{first}" + (f"-{last}" if last > first else "")


def _suffix(name: str) -> str:
    return PurePath(name).suffix.lower()


def _from_pdf(content: bytes) -> list[NumberedLine]:
    try:
        from pypdf import PdfReader  # noqa: PLC0415 - an extra; few have PDFs
    except ImportError:
        raise Unreadable("PDF needs pypdf: `pip install 'localspec[pdf]'`") from None
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # else it reports every flaw
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
        from docx import Document  # noqa: PLC0415 - an extra; few have DOCX
        from docx.oxml.ns import qn  # noqa: PLC0415
        from docx.text.paragraph import Paragraph  # noqa: PLC0415
    except ImportError:
        raise Unreadable(f"DOCX needs python-docx: {_DOCUMENTS_EXTRA}") from None
    try:
        with ZipFile(BytesIO(content)) as packed:
            size = sum(each.file_size for each in packed.infolist())
        if size <= MOST_DOCUMENT_BYTES:
            document = Document(BytesIO(content))
            lines = []
            for number, each in enumerate(document.element.body.iter(qn("w:p")), 1):
                style = Paragraph(each, document).style
                # A paragraph's own text leaves out what was inserted with changes tracked.
                parts = each.iter(qn("w:t"), qn("w:tab"), qn("w:br"))
                words = "".join(part.text or " " for part in parts).split()
                lines.append(
                    NumberedLine(number, _signs((style and style.name) or "") + " ".join(words))
                )
            return lines
    except Exception as error:
        # So does damage in a DOCX.
        raise Unreadable("its DOCX is damaged or encrypted") from error
    raise Unreadable("its text is too long")


def _from_html(text: str) -> list[NumberedLine]:
    try:
        from lxml import etree, html  # noqa: PLC0415 - an extra; few have HTML
    except ImportError:
        raise Unreadable(f"HTML needs lxml: {_DOCUMENTS_EXTRA}") from None
    parser = html.HTMLParser(
        encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True
    )
    try:
        page = html.document_fromstring(text.encode(), parser, ensure_head_body=True)
    except etree.LxmlError:  # it is empty
        return []
    etree.strip_elements(page, *_UNSEEN, with_tail=False)
    lines, at, verbatim = [NumberedLine(1, "")], 1, 0
    for event, element in etree.iterwalk(page, ("start", "end")):
        begins = event == "start"
        if begins:
            at = max(at, element.sourceline or 1)
        if element.tag == "pre":
            verbatim += 1 if begins else -1
        if element.tag in _BLOCKS and (begins or element.tag != "br"):
            signs = _signs(element.tag) if begins and element.tag != "title" else ""
            lines.append(NumberedLine(at, signs))
        text = (element.text if begins else element.tail) or ""
        first, *others = text.split("\n") if verbatim else [re.sub(r"\s+", " ", text)]
        last = lines[-1]
        if last.text.strip("# "):
            lines[-1] = NumberedLine(last.number, last.text + first)
        else:
            lines[-1] = NumberedLine(at, last.text + (first if verbatim else first.lstrip()))
        lines += (NumberedLine(number, each) for number, each in enumerate(others, at + 1))
        at += text.count("\n")
    # Between blocks one blank line is enough.
    filled = [bool(each.text.strip("# ")) for each in lines]
    return [
        NumberedLine(line.number, line.text.rstrip() if is_filled else "")
        for line, is_filled, after_filled in zip(lines, filled, [False, *filled], strict=False)
        if is_filled or after_filled
    ]


def _signs(style: str) -> str:
    """Return what stands before a heading in Markdown, by the name of its style or tag; nothing before other text."""
    heading = _HEADING.fullmatch(style)
    return "#" * int(heading[1] or 1) + " " if heading else ""


_DOCUMENTS: dict[str, Callable[[bytes], list[NumberedLine]]] = {
    ".pdf": _from_pdf,
    ".docx": _from_docx,
}

"""Small PDF and DOCX files."""

from collections.abc import Sequence
from io import BytesIO

from docx import Document


def docx(*paragraphs: tuple[str, str]) -> bytes:
    """Return a DOCX of paragraphs, each with a style, which may be empty."""
    document, packed = Document(), BytesIO()
    for style, text in paragraphs:
        document.add_paragraph(text, style or None)
    document.save(packed)
    return packed.getvalue()


def pdf(pages: Sequence[str]) -> bytes:
    """Return a PDF with one line of text on each page."""
    kids = " ".join(f"{4 + 2 * at} 0 R" for at in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for at, text in enumerate(pages):
        drawn = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * at} 0 R /Resources << /Font << /F1 3 0 R >> >> >>",
            f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream",
        ]
    made, starts = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        starts.append(len(made))
        made += f"{number} 0 obj\n{each}\nendobj\n".encode()
    table = "".join(f"{start:010} 00000 n \n" for start in starts)
    xref = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(made)}\n"
    return made + f"{xref}{trailer}%%EOF\n".encode()

"""Ten answers in the styles of ten kinds of model, full of HTML, generics and Markdown, by name."""

from pathlib import Path

ANSWERS = {each.stem: each.read_text() for each in sorted(Path(__file__).parent.glob("*.md"))}

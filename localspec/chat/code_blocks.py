"""The blocks of code in an answer: what stands between fences."""

import re

# Small models copy the tags around an attached file.
_TAGS = re.compile(r'\A<file name="[^"\n]*">\n|\n?</file>\Z')
_FENCED = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n(.*?)(?:^ {0,3}\1|\Z)", re.DOTALL | re.MULTILINE)


def code_blocks(text: str) -> list[str]:
    """Return the blocks of code in an answer, without their fences, nor the tags of an attached file."""
    blocks = (match[2].rstrip("\n") for match in _FENCED.finditer(text))
    return [_TAGS.sub("", each) for each in blocks]

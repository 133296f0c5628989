"""Workload: what kind of text a reply is, guessed by cheap features of prompt and reply. Words and shapes, no model.

The kinds differ in how far a draft is right: code and structured text repeat patterns, an edit repeats the prompt, a
summary repeats parts of it, chat and creative writing neither.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import UsageError

CODE, EDIT, CHAT = "code", "edit", "chat"
SUMMARISE, STRUCTURED, CREATIVE = "summarise", "structured", "creative"
WORKLOADS = (CODE, EDIT, CHAT, SUMMARISE, STRUCTURED, CREATIVE)
_READ_CHARS = 20_000
"""Of prompt and reply; what is longer is judged by its beginning, and by the prompt's end."""
_INSTRUCTION_CHARS = 240
_MATERIAL_CHARS = 30
_SHAPE = 1.2
"""What the shape of a reply weighs: more than nothing, less than a clear request."""


def required(workload: str) -> str:
    """Return a kind of text that a user named.

    Raises:
        UsageError: there is no such kind.
    """
    if workload not in WORKLOADS:
        raise UsageError(f"workload {workload!r}: choose one of {', '.join(WORKLOADS)}")
    return workload


def workload_of(asked: str, reply: str = "") -> str:
    """Return what kind of text it is: one of `WORKLOADS`.

    Args:
        asked: what the user said last.
        reply: the answer, as far as it is there.
    """
    request = _Request.of(asked)
    scores = dict.fromkeys(WORKLOADS, 0.0)
    scores[CHAT] = 1.0
    for workload, clues in _CLUES.items():
        for clue, weight in clues:
            if clue.search(request.instruction):
                scores[workload] += weight
    if not request.has_material:
        # What there is not cannot be edited or summed up.
        scores[EDIT] *= 0.3
        scores[SUMMARISE] *= 0.4
    elif request.is_code:
        scores[EDIT] += 0.5
        scores[SUMMARISE] *= 0.5
    if request.unfinished_code:
        scores[CODE] += 2.0
    if reply:
        _add_reply(scores, request, reply[:_READ_CHARS])
    return max(WORKLOADS, key=lambda workload: scores[workload])


@dataclass(frozen=True, slots=True)
class _Request:
    """A prompt, taken apart: what is to be done, in lower case, and with what."""

    instruction: str
    material: str
    is_code: bool
    unfinished_code: bool

    @property
    def has_material(self) -> bool:
        return len(self.material) >= _MATERIAL_CHARS

    @classmethod
    def of(cls, asked: str) -> "_Request":
        text = asked.strip()
        if len(text) > _READ_CHARS:
            text = text[: _READ_CHARS // 2] + text[-_READ_CHARS // 2 :]
        fenced = "\n".join(_FENCED.findall(text))
        parts = [part for part in _PARAGRAPHS.split(_FENCED.sub("\n\n", text)) if part.strip()]
        first, begun = _announced(parts[0] if parts else "", alone=len(parts) == 1 and not fenced)
        middle, last = parts[1:], ""
        if middle and len(middle[-1]) <= _INSTRUCTION_CHARS and not _looks_like_code(middle[-1]):
            *middle, last = middle
        material = "\n".join((begun, *middle, fenced)).strip()
        if not material:  # two short paragraphs: the second one is what the first speaks about
            material = last
        is_code = bool(fenced) or _looks_like_code(material)
        return cls(
            f"{first}\n{last}".lower(),
            material,
            is_code,
            is_code and bool(_UNFINISHED.search(text)),
        )


def _announced(paragraph: str, *, alone: bool) -> tuple[str, str]:
    """Return what of the first paragraph is an instruction, and what is the text that it is about."""
    if not alone:
        if len(paragraph) <= _INSTRUCTION_CHARS:
            return paragraph, ""
        return paragraph[:_INSTRUCTION_CHARS], paragraph
    found = re.search(r":\s+|\s[\"«“]", paragraph)
    if found and len(paragraph) - found.end() >= _MATERIAL_CHARS:
        return paragraph[: found.end()], paragraph[found.end() :]
    _, _, rest = paragraph.partition(". ")
    return paragraph[: 2 * _INSTRUCTION_CHARS], rest


def _looks_like_code(text: str) -> bool:
    lines = [line for line in text.splitlines() if line.strip()]
    return sum(bool(_CODE_LINE.search(line)) for line in lines) > 0.3 * len(lines)


def _add_reply(scores: dict[str, float], request: _Request, reply: str) -> None:
    lines = [line.strip() for line in reply.splitlines() if line.strip()]
    if not lines:
        return
    fenced = _FENCED_OPEN.search(reply)
    language = fenced.group(1).lower() if fenced else ""
    body = reply[fenced.end() :] if fenced else reply
    if language in _DATA or _DATA_START.match(body.strip()) or _TABLE_LINE.match(lines[0]):
        scores[STRUCTURED] += _SHAPE
    elif fenced:
        scores[CODE] += _SHAPE
    copied = _copied(request.material, reply)
    if request.has_material and copied > 0.5:
        scores[EDIT] += 1.5 * copied
        scores[CODE] -= 1.0
    short = sum(len(line) < 60 and line[-1] not in ":;{}|" for line in lines)
    if not fenced and len(lines) >= 4 and short > 0.8 * len(lines) and not _LISTED.match(lines[1]):
        scores[CREATIVE] += 0.7


def _copied(material: str, reply: str) -> float:
    """Return which share of the reply's word triples stands in the material."""
    given, said = _WORD.findall(material.lower()), _WORD.findall(reply.lower())
    triples = list(zip(said, said[1:], said[2:], strict=False))
    if not triples:
        return 0.0
    known = set(zip(given, given[1:], given[2:], strict=False))
    return sum(triple in known for triple in triples) / len(triples)


_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_FENCED_OPEN = re.compile(r"```(\w*)[^\n]*\n")
_PARAGRAPHS = re.compile(r"\n\s*\n|\n(?=\S)")
_WORD = re.compile(r"\w+")
_CODE_LINE = re.compile(
    r"[;{}]\s*$|^\s*(?:def|class|import|from|return|if|for|while|else|fn|func|function|public|private|const|let|var"
    r"|int|float|void|#include|//|#|/\*|@|<\w+)\b|^\s*[\w.]+ ?[-+*|]?= ?\S|^\s*\w[\w.]*\(.*\)\s*:?$|^\s*\w+:\s*\S+$|^\s+\S+:\s*\S*$"
)
_UNFINISHED = re.compile(r"\.\.\.\s*\n?```|\{\s*\n?```|\b(?:todo|your code here)\b", re.IGNORECASE)
_DATA = {"json", "yaml", "yml", "csv", "xml", "toml"}
_DATA_START = re.compile(
    r"[\[{]\s*[\"{\[\n]|<\?xml|<\w+>\s*\n|---\n|\w+:\s*\n\s+-?\s*\w+:|\w+(?:,\w+){2,}\n"
)
_TABLE_LINE = re.compile(r"\|.*\|.*\|")
_LISTED = re.compile(r"[-*•\d]")


def _clues() -> dict[str, list[tuple[re.Pattern[str], float]]]:
    """Return by kind of text what to look for in an instruction, and what it weighs."""
    found: dict[str, list[tuple[re.Pattern[str], float]]] = {}
    for line in Path(__file__).with_name("clues.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            workload, weight, pattern = line.split(maxsplit=2)
            found.setdefault(workload, []).append((re.compile(pattern), float(weight)))
    return found


_CLUES = _clues()

"""Workload: what kind of text a reply is, guessed by cheap features of prompt and reply. Words and shapes, no model.

The kinds differ in how far a draft is right: code and structured text repeat patterns, an edit repeats the prompt, a
summary repeats parts of it, chat and creative writing neither.
"""

import re
from pathlib import Path

from localspec.options.recording import WORKLOADS

_READ_CHARS = 20_000
"""Of prompt and reply; what is longer is judged by its beginning, and by the prompt's end."""
_INSTRUCTION_CHARS = 240
_MATERIAL_CHARS = 30

_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_PARAGRAPHS = re.compile(r"\n\s*\n|\n(?=\S)")
_WORD = re.compile(r"\w+")
_CODE_LINE = re.compile(
    r"[;{}]\s*$|^\s*(?:def|class|import|from|return|if|for|while|else|fn|func|function|public|private|const|let|var"
    r"|int|float|void|#include|//|#|/\*|@|<\w+)\b|^\s*[\w.]+ ?[-+*|]?= ?\S|^\s*\w[\w.]*\(.*\)\s*:?$|^\s*\w+:\s*\S+$|^\s+\S+:\s*\S*$"
)
_UNFINISHED = re.compile(r"\.\.\.\s*\n?```|\{\s*\n?```|\b(?:todo|your code here)\b", re.IGNORECASE)


def workload_of(question: str, reply: str = "") -> str:
    """Return what kind of text it is: one of `WORKLOADS`.

    Args:
        question: what the user said last.
        reply: the answer, as far as it is there.
    """
    question, reply = question.strip(), reply[:_READ_CHARS]
    if len(question) > _READ_CHARS:
        question = question[: _READ_CHARS // 2] + question[-_READ_CHARS // 2 :]
    instruction, material = _parted(question)
    texts = {"asked": instruction.lower(), "reply": reply}
    scores = dict.fromkeys(WORKLOADS, 0.0) | {"chat": 1.0}
    for workload, where, weight, clue in _CLUES:
        if clue.search(texts[where]):
            scores[workload] += weight
    is_code = "```" in question or _looks_like_code(material)
    if len(material) < _MATERIAL_CHARS:
        # What there is not cannot be edited or summed up.
        scores["edit"] *= 0.3
        scores["summarise"] *= 0.4
    else:
        if is_code:
            scores["edit"] += 0.5
            scores["summarise"] *= 0.5
        if (copied := _copied(material, reply)) > 0.5:
            scores["edit"] += 1.5 * copied
            scores["code"] -= 1.0
    if is_code and _UNFINISHED.search(question):
        scores["code"] += 2.0
    return max(WORKLOADS, key=lambda workload: scores[workload])


def _parted(question: str) -> tuple[str, str]:
    """Return what of a prompt is an instruction, and what is the text that it is about."""
    fenced = "\n".join(_FENCED.findall(question))
    parts = [part for part in _PARAGRAPHS.split(_FENCED.sub("\n\n", question)) if part.strip()]
    if len(parts) == 1 and not fenced:
        return _announced(parts[0])
    first, *middle = parts or [""]
    last = ""
    if middle and len(middle[-1]) <= _INSTRUCTION_CHARS and not _looks_like_code(middle[-1]):
        *middle, last = middle
    long = [first] if len(first) > _INSTRUCTION_CHARS else []
    material = "\n".join((*long, *middle, fenced)).strip()
    # Two short paragraphs: the second one is what the first speaks about.
    return f"{first[:_INSTRUCTION_CHARS]}\n{last}", material or last


def _announced(paragraph: str) -> tuple[str, str]:
    """Return the same of a prompt in one paragraph."""
    sign = re.search(r":\s+|\s[\"«“]", paragraph)
    if sign and len(paragraph) - sign.end() >= _MATERIAL_CHARS:
        return paragraph[: sign.end()], paragraph[sign.end() :]
    return paragraph[: 2 * _INSTRUCTION_CHARS], paragraph.partition(". ")[2]


def _looks_like_code(text: str) -> bool:
    lines = [line for line in text.splitlines() if line.strip()]
    return sum(bool(_CODE_LINE.search(line)) for line in lines) > 0.3 * len(lines)


def _copied(material: str, reply: str) -> float:
    """Return which share of the reply's word triples stands in the material."""
    given, words = (_triples(text) for text in (material, reply))
    return sum(triple in given for triple in words) / max(1, len(words))


def _triples(text: str) -> set[tuple[str, ...]]:
    words = _WORD.findall(text.lower())
    return set(zip(words, words[1:], words[2:], strict=False))


def _clues() -> list[tuple[str, str, float, re.Pattern[str]]]:
    """Return what kind of text each clue tells of, whether it is sought in the question or in the reply, and its weight."""
    lines = Path(__file__).with_name("clues.txt").read_text(encoding="utf-8").splitlines()
    fields = [line.split(maxsplit=3) for line in lines if line and not line.startswith("#")]
    return [(kind, where, float(weight), re.compile(clue)) for kind, where, weight, clue in fields]


_CLUES = _clues()

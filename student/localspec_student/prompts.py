"""Prompts to train on, of six kinds; those of `localspec bench` are held out."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from localspec.bench.prompts import BenchPrompt

_LONGEST_ANSWER = 1500
"""Characters of an earlier answer in a prompt."""


_TABLES = tomllib.loads(Path(__file__).with_name("prompts.toml").read_text("utf-8"))
Answers = Mapping[str, Sequence[str]]
"""Texts by kind."""


def made_prompt(number: int, answers: Answers) -> BenchPrompt:
    """Return the prompt of a number.

    Args:
        number: from 0; kinds take turns.
        answers: of the target to earlier prompts, by kind. A kind that needs some is replaced by `code` while there are none.
    """
    tables, random = _TABLES, Random(number)  # noqa: S311 - no secret
    kind = [*tables["templates"]][number % len(tables["templates"])]
    needed = tables["answers"].get(kind, ())
    pool = [text for each in needed for text in answers.get(each, ())]
    if needed and not pool:
        kind = "code"
    text = random.choice(tables["templates"][kind])
    for _ in range(3):  # what fills a slot may have others
        for slot, values in tables["slots"].items():
            while f"{{{slot}}}" in text:
                text = text.replace(f"{{{slot}}}", random.choice(values), 1)
    if pool:
        text = text.replace("{answer}", random.choice(pool)[:_LONGEST_ANSWER])
    return BenchPrompt(kind, text)

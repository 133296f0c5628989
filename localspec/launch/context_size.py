"""How large a context a prompt needs, with its answer: guessed from its text before a model is loaded, then counted."""

import re

ANSWER_TOKENS = 2048
"""What an answer gets that nobody gave a length."""
_AROUND = 256
"""What a template adds, at most, as far as was seen."""
_TOOLS_TOKENS = 4096
"""Descriptions of tools and what they return."""
_CHARS_PER_TOKEN = 3
# Many vocabularies have a token for each digit, sign and character of another script.
_DENSE = re.compile(r"[^A-Za-z\s]")


def guessed_context(text: str, max_tokens: int | None, *, tools: bool = False) -> int:
    """Return about how many tokens of context a prompt and its answer need; rather too many."""
    others = len(_DENSE.sub("", text))
    guess = len(text) - others + others // _CHARS_PER_TOKEN
    return guess + _AROUND + (max_tokens or ANSWER_TOKENS) + tools * _TOOLS_TOKENS


def may_need_more(text: str, max_tokens: int | None, n_ctx: int) -> bool:
    """Return whether a prompt may need more than a context holds: no token is shorter than a byte."""
    return len(text.encode()) + _AROUND + (max_tokens or ANSWER_TOKENS) > n_ctx

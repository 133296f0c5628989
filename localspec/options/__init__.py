"""Options: every one is declared once, with its type, default, range, flag and setting beside it.

Imports only the standard library, and little of it: the start of the chat waits for this room.
"""

from localspec.options.launch import LaunchOptions
from localspec.options.load import KV_TYPES, LOAD_MODES, SPLITS, LoadOptions
from localspec.options.option import (
    Option,
    changed,
    cut,
    descriptions,
    option,
    options_of,
    values_of,
)
from localspec.options.reply import (
    FORBIDDEN,
    GRAMMARS,
    LEAST_PASSAGE_TOKENS,
    PASSAGE_TOKENS,
    ReplyOptions,
    SamplingParams,
)

__all__ = [
    "FORBIDDEN",
    "GRAMMARS",
    "KV_TYPES",
    "LEAST_PASSAGE_TOKENS",
    "LOAD_MODES",
    "PASSAGE_TOKENS",
    "SPLITS",
    "LaunchOptions",
    "LoadOptions",
    "Option",
    "ReplyOptions",
    "SamplingParams",
    "changed",
    "cut",
    "descriptions",
    "option",
    "options_of",
    "values_of",
]

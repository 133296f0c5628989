"""The process in which `compiler` has grammars compiled first: llguidance crashes on some that are valid, and some never end."""

import sys
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from localspec.bounded_process import answer_questions

# The compiled part alone is here in a third of the time.
if (_spec := find_spec("llguidance")) is not None and _spec.submodule_search_locations:
    sys.modules["llguidance"] = ModuleType("llguidance")
    sys.modules["llguidance"].__path__ = list(_spec.submodule_search_locations)

from llguidance._lib import LLMatcher, LLParserLimits, LLTokenizer


@cache
def _bytes() -> LLTokenizer:
    return LLTokenizer("byte")


def _refusal(question: Any) -> str:
    """Return why a grammar is refused; empty where it is taken, up to its first mask."""
    source, most_items, most_fuel = question
    limits = LLParserLimits(
        step_max_items=most_items, step_lexer_fuel=most_fuel, verbose_errors=False
    )
    matcher = LLMatcher(_bytes(), source, log_level=0, limits=limits)
    if matcher.is_error():
        return matcher.get_error()
    matcher.compute_bitmask()  # what fails there fails where that text is written
    return ""


if __name__ == "__main__":
    answer_questions(_refusal)

"""The process in which `compiler` has grammars compiled first: llguidance crashes on some that are valid, and some never end."""

import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from localspec.bounded_process import answer_questions


def _compiler() -> Callable[[Any], str]:
    """Return what returns why a grammar is refused; empty where it is taken, up to its first mask."""
    # The compiled part alone, which is here in a third of the time.
    spec = find_spec("llguidance")
    assert spec is not None  # noqa: S101 - it is installed with localspec
    sys.modules["llguidance"] = package = ModuleType("llguidance")
    package.__path__ = list(spec.submodule_search_locations or ())
    from llguidance._lib import LLMatcher, LLParserLimits, LLTokenizer  # noqa: PLC0415

    single_bytes = LLTokenizer("byte")

    def refusal(question: Any) -> str:
        source, most_items, most_fuel = question
        limits = LLParserLimits(
            step_max_items=most_items, step_lexer_fuel=most_fuel, verbose_errors=False
        )
        matcher = LLMatcher(single_bytes, source, log_level=0, limits=limits)
        if matcher.is_error():
            return matcher.get_error()
        matcher.compute_bitmask()  # what fails there fails where that text is written
        return ""

    return refusal


if __name__ == "__main__":
    answer_questions(_compiler())

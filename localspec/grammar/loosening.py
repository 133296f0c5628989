"""Which functions keep their schemas: one that a grammar cannot keep is loosened alone, also where that shows only when all is compiled."""

from collections.abc import Callable, Sequence

from localspec.calls import Tool
from localspec.errors import UsageError
from localspec.grammar.call_grammar import loosened, looser, tool_error
from localspec.grammar.compiler import require_compiles
from localspec.grammar.matcher import GrammarRefused


def kept_calls(grammar: Callable[[Sequence[Tool]], str], tools: Sequence[Tool]) -> str:
    """Return the grammar of calls of some functions, which can be compiled.

    Args:
        grammar: returns that of functions as they are.
        tools: that may be called.

    Raises:
        UsageError: a function that is strict cannot be kept, or all cannot be together.
    """
    source = grammar(tools)
    try:
        require_compiles(source)
    except GrammarRefused:
        return _together(grammar, [_alone(grammar, each) for each in tools])
    return source


def _alone(grammar: Callable[[Sequence[Tool]], str], tool: Tool) -> Tool:
    """Return a function as far as a grammar of it alone can be compiled."""
    for each in (tool, *looser(tool)):
        try:
            require_compiles(grammar([each]))
        except (GrammarRefused, UsageError) as error:
            refusal = error
        else:
            return each
    raise tool_error(tool, refusal)


def _together(grammar: Callable[[Sequence[Tool]], str], tools: list[Tool]) -> str:
    """Return the grammar of functions of which each can be kept; where that is too large, the largest are loosened."""
    by_size = sorted(range(len(tools)), key=lambda at: -len(grammar([tools[at]])))
    for count in (0, *(1 << power for power in range(len(tools).bit_length())), len(tools)):
        for at in by_size[:count]:
            tools[at] = tools[at] if tools[at].strict else loosened(tools[at])
        source = grammar(tools)
        try:
            require_compiles(source)
        except GrammarRefused as error:
            refusal = error
        else:
            return source
    raise UsageError(f"the calls of these tools cannot be enforced: {refusal}")

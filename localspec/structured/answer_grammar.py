"""The grammar of an answer: given as GBNF, or as a JSON schema; sound either way."""

from functools import lru_cache

from localspec.structured.json_schema import schema_from_text, schema_gbnf
from localspec.structured.soundness import require_sound
from localspec.structured.unrolling import unrolled


@lru_cache(maxsize=64)
def sound_grammar(gbnf: str) -> str:
    """Return a grammar as it is.

    Raises:
        UsageError: it is wrong, with line and column.
    """
    return require_sound(gbnf)


@lru_cache(maxsize=64)
def schema_grammar(schema: str) -> str:
    """Return a grammar of texts that are valid under a JSON schema; one that contains itself nests only so deep.

    Args:
        schema: the text of one.

    Raises:
        UsageError: it is none, allows nothing, or says what a grammar cannot keep, with the place.
    """
    return require_sound(unrolled(schema_gbnf(schema_from_text(schema))))

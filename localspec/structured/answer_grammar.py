"""The grammar of an answer: given as GBNF, or as a JSON schema; sound either way."""

from functools import lru_cache

from localspec.options import ReplyOptions
from localspec.structured.json_schema import schema_from_text, schema_gbnf
from localspec.structured.soundness import require_sound
from localspec.structured.unrolling import unrolled


def answer_gbnf(options: ReplyOptions) -> str | None:
    """Return the grammar that binds a reply, in GBNF; None where it is free.

    Raises:
        UsageError: the grammar or the schema is wrong, or says what cannot be kept.
    """
    if options.grammar is not None:
        return sound_grammar(options.grammar)
    if options.json_schema is None:
        return None
    assert isinstance(options.json_schema, str), "kept as text"  # noqa: S101
    return schema_grammar(options.json_schema)


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

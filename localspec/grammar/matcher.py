"""llguidance's matcher: a grammar compiled for a vocabulary. Nothing else in localspec imports llguidance.

It raises nothing, but goes into an error state, in which its masks allow an end everywhere; so it is looked at after every
call. Its limits count steps, not seconds: the same grammar fails at the same place on every machine.
"""

# ruff: noqa: PLC0415 - llguidance takes 30 ms to load, and most runs do not need it

import json
import re
from collections.abc import Collection
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

from localspec.display import printable_line
from localspec.errors import LocalspecError, PassFailed

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_LONGEST = 300
MOST_ITEMS, MOST_FUEL = 5_000_000, 2_000_000
"""What a step of the parser, and of the lexer, may take."""
_JSON: Any = {
    # A blank, or a new line with its indentation: so no model writes line ends for ever.
    "whitespace_pattern": r" |\n[ \t]{0,20}",
    # No \u0061: as the name of a property it would be another one than "a" for llguidance, and the same for a reader.
    "json_allowed_escapes": 'nrbtf\\"',
}
_INTERNAL = re.compile(r"(<state>|<backtrace>|\n *\d+ \| ).*", re.DOTALL)
"""The state of its parser, and lines of the grammar."""
_ESCAPE = re.compile(r"\\.", re.DOTALL)
_ASCII = {r"\d": "[0-9]", r"\D": "[^0-9]", r"\w": "[0-9A-Za-z_]", r"\W": "[^0-9A-Za-z_]"}
"""Rust's are of all scripts: an answer of `\\d{4}` in Arabic digits is no number for most that read it."""
_WRONG_REGEX = re.compile(r"(invalid regex .*)?regex parse error:.*error: ", re.DOTALL)


class GrammarVocabulary(Protocol):
    """What of a tokenizer a grammar needs."""

    @property
    def eog(self) -> Collection[int]:
        """Ids that end a generation."""

    def pieces(self) -> list[bytes]:
        """Return the bytes that each token stands for; none for control tokens."""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Return the ids of a text."""


class GrammarRefused(LocalspecError):
    """llguidance does not take a grammar; the message is its own, on one line."""


def compiled(source: str, tokenizer: "LLTokenizer") -> "LLMatcher":
    """Return a matcher at the beginning of a grammar's texts; `require_compiles` has to come before.

    Args:
        source: grammar in Lark, or the JSON that llguidance makes of other kinds.
        tokenizer: of the vocabulary.

    Raises:
        GrammarRefused: the grammar is wrong, or goes beyond a limit.
    """
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(
        step_max_items=MOST_ITEMS, step_lexer_fuel=MOST_FUEL, verbose_errors=False
    )
    matcher = LLMatcher(tokenizer, source, log_level=0, limits=limits)
    if matcher.is_error():
        raise GrammarRefused(one_line(matcher.get_error()))
    return matcher


def schema_source(schema: str) -> str:
    """Return a grammar of the JSON texts that are valid under a schema that was rewritten."""
    from llguidance import LLMatcher

    source: str = LLMatcher.grammar_from_json_schema(schema, overrides=_JSON)
    return source


def embedded_schema(schema: dict[str, Any]) -> str:
    """Return a rewritten schema as it stands behind `%json` in a grammar in Lark."""
    return json.dumps({**schema, "x-guidance": _JSON})


def regex_source(regex: str) -> str:
    r"""Return a grammar of the texts that a regular expression matches as a whole; `\d` and `\w` are those of ASCII."""
    from llguidance import LLMatcher

    ascii_only = _ESCAPE.sub(lambda each: _ASCII.get(each[0], each[0]), regex)
    source: str = LLMatcher.grammar_from_regex(ascii_only)
    return source


def tokenizer_of(vocabulary: GrammarVocabulary) -> "LLTokenizer":
    """Return the vocabulary as llguidance knows it: 152k tokens take half a second."""
    from llguidance import LLTokenizer

    wrapped: Any = _Wrapped(vocabulary)  # which need not be of llguidance's own class
    return LLTokenizer(wrapped, eos_token=sorted(vocabulary.eog))


def require_sane(matcher: "LLMatcher") -> None:
    """Fail where a matcher is in its error state.

    Raises:
        PassFailed: a text can be read in too many ways, or another limit was reached.
    """
    if matcher.is_error():
        raise PassFailed(
            f"the grammar gives no mask here: {one_line(matcher.get_error())}; give its alternatives different beginnings"
        )


def one_line(message: str) -> str:
    """Return what llguidance says, as far as it is about the grammar, on one line that is safe for a terminal."""
    text = printable_line(_WRONG_REGEX.sub("wrong pattern: ", _INTERNAL.sub("", message)))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


class _Wrapped:
    """What `LLTokenizer` asks for."""

    is_tokenizer_wrapper = True
    bos_token_id = None
    special_token_ids: tuple[int, ...] = ()
    """None: a control token stands for no bytes, so it may follow nowhere."""

    def __init__(self, vocabulary: GrammarVocabulary) -> None:
        self._vocabulary = vocabulary
        self.tokens = vocabulary.pieces()
        for token in vocabulary.eog:
            self.tokens[token] = b""
        self.eos_token_id = min(vocabulary.eog)

    def __call__(self, text: str) -> list[int]:
        """Return the tokens of a text that is forced, which stands behind others."""
        wanted = text.encode()
        # Some tokenizers write a blank before the first word of a text; a new line in front takes that blank.
        for before in ("", "\n"):
            ids = self._vocabulary.tokenize(before + text, add_special=False, parse_special=False)
            ends = [*accumulate((len(self.tokens[token]) for token in ids), initial=0)]
            first = ends.index(ends[-1] - len(wanted)) if ends[-1] - len(wanted) in ends else 0
            if b"".join(self.tokens[token] for token in ids[first:]) == wanted:
                return ids[first:]
        return []

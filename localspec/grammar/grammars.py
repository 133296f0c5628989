"""Grammars: the automata that hold answers to what their options say. Imports little: most answers are free."""

# ruff: noqa: PLC0415

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

from localspec.calls.openings import heads, openings, without_opener
from localspec.errors import UsageError
from localspec.options import ReplyOptions

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from localspec.calls import CallFormat, Tool
    from localspec.calls.policy import OfferedCalls
    from localspec.grammar.automaton import GrammarAutomaton
    from localspec.grammar.combined import AfterTrigger, Pieces, Trigger, Watch
    from localspec.grammar.matcher import GrammarVocabulary

_MOST_COMPILED = 64


def require_sound(options: ReplyOptions) -> None:
    """Find out whether an answer can be held to its options, without a vocabulary.

    Raises:
        UsageError: what they say is wrong, or cannot be kept, with the place.
    """
    if options.answer_grammar is not None:
        from localspec.grammar.compiler import start_compiler

        start_compiler()  # while the rest is imported
        from localspec.grammar.sources import source_of

        source_of(*options.answer_grammar)


def require_arguments(schema: str) -> None:
    """Find out whether calls can be held to a schema of arguments, or at least to the names of its properties.

    Raises:
        UsageError: it names none, or ends what compiles it.
    """
    from localspec.grammar.sources import CompilerLost, source_of

    try:
        source_of("json_schema", schema)
    except CompilerLost:
        raise
    except UsageError:
        given = json.loads(schema)
        if not isinstance(given, dict) or not isinstance(given.get("properties"), dict):
            raise


class Grammars:
    """Makes automata for one vocabulary; several threads may ask for them.

    Args:
        vocabulary: spells the texts; read with the first grammar.
    """

    def __init__(self, vocabulary: "GrammarVocabulary") -> None:
        self._vocabulary = vocabulary
        self._lock = Lock()
        self._matchers: dict[tuple[str, str], LLMatcher] = {}
        self._triggers: dict[str, Trigger] = {}
        self._spelled: dict[tuple[tuple[str, int], ...], Pieces] = {}

    def __call__(self, options: ReplyOptions) -> "GrammarAutomaton":
        """Return what holds an answer to its options, which do not leave it free.

        Raises:
            UsageError: what they say is wrong, or cannot be kept.
        """
        grammar = options.answer_grammar
        assert grammar is not None, "the caller looked"  # noqa: S101
        from localspec.grammar.sources import source_of

        return self._automaton(grammar, source_of, f"the {grammar[0]}")

    def of_calls(self, calls: "OfferedCalls", *, begun: bool = False) -> "GrammarAutomaton":
        """Return what holds a text to valid calls of some functions.

        Args:
            calls: of at least one function.
            begun: the trigger stands there already.

        Raises:
            UsageError: a schema of arguments is wrong, or cannot be kept.
        """
        from localspec.grammar.call_grammar import CallGrammar
        from localspec.grammar.loosening import kept_calls

        names = calls.offer.names

        def grammar(tools: "Sequence[Tool]") -> str:
            writer = CallGrammar(calls.form, calls.control, self._vocabulary.eog)
            return writer.source(tools, names, calls.offer.most, begun=begun)

        source = kept_calls(grammar, [each for each in calls.tools if each.name in names])
        return self._automaton(("calls", source), lambda _, lark: lark, "the calls of these tools")

    def of_answers(self, calls: "OfferedCalls") -> "AfterTrigger":
        """Return what leaves an answer free up to its first call, as `of_calls` has it; without any, a call cannot begin."""
        from localspec.grammar.combined import AfterTrigger, Trigger

        form, pieces = calls.form, self._pieces_with(calls.control)
        trigger = self._triggers.get(form.trigger)
        if trigger is None:
            trigger = self._triggers[form.trigger] = Trigger(form.trigger, pieces)
        if not calls.offer.names:
            return AfterTrigger(None, trigger)
        rule, bare = self.of_calls(calls, begun=True), without_opener(form)
        return AfterTrigger(rule, trigger, None if bare is None else self._watch((bare,), calls))

    def in_thoughts(self, calls: "OfferedCalls") -> "Watch":
        """Return what leaves thoughts free up to a call of a function that may be called, as `of_calls` has it."""
        return self._watch(openings(calls.form), calls)

    def _watch(self, forms: "Sequence[CallFormat]", calls: "OfferedCalls") -> "Watch":
        from localspec.grammar.combined import Opening, Watch

        found = [
            Opening(
                each.trigger.encode(),
                [head.encode() for head in heads(each, calls.offer.names)],
                [tail.encode() for tail in heads(replace(each, begin=each.trigger), ("",))],
                self.of_calls(replace(calls, form=each), begun=True),
            )
            for each in forms
        ]
        return Watch(found, self._pieces_with(calls.control), self._tokenizer.tokenize_bytes)

    def _pieces_with(self, control: Mapping[str, int]) -> "Pieces":
        from localspec.grammar.combined import Pieces

        known = tuple(sorted(control.items()))
        pieces = self._spelled.get(known)
        if pieces is None:
            texts = {token: text.encode() for text, token in known}
            pieces = Pieces(self._vocabulary.pieces(), texts)
            self._spelled = {known: pieces}
        return pieces

    def _automaton(
        self, grammar: tuple[str, str], source: Callable[[str, str], str], what: str
    ) -> "GrammarAutomaton":
        from localspec.grammar.automaton import GrammarAutomaton
        from localspec.grammar.compiler import require_compiles
        from localspec.grammar.matcher import GrammarRefused, compiled

        with self._lock:
            matcher = self._matchers.pop(grammar, None)
        if matcher is None:
            try:
                lark = source(*grammar)
                require_compiles(lark)
                matcher = compiled(lark, self._tokenizer)
            except GrammarRefused as error:
                raise UsageError(f"{what} cannot be enforced: {error}") from None
        with self._lock:
            self._matchers[grammar] = matcher  # what was asked for last stays longest
            if len(self._matchers) > _MOST_COMPILED:
                del self._matchers[next(iter(self._matchers))]
        return GrammarAutomaton(matcher, self._vocabulary.eog, self._tokenizer.vocab_size)

    @property
    def _tokenizer(self) -> "LLTokenizer":
        with self._lock:  # it is large, and made once
            return self._known_tokenizer

    @cached_property
    def _known_tokenizer(self) -> "LLTokenizer":
        from localspec.grammar.matcher import tokenizer_of

        return tokenizer_of(self._vocabulary)

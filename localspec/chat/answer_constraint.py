"""The constraint that a reply's options ask for: a grammar that begins where the answer does, and leaves the thoughts before it free, and what those may take."""

# ruff: noqa: PLC0415 - most answers are free

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from localspec.chat.loaded_models import LoadedModels
from localspec.chat.template import ChatTemplate
from localspec.chat.thinking import ThinkingTags, tag_pieces
from localspec.chat.thinking_budget import ThinkingBudget
from localspec.chat.token_prefix import Conversation
from localspec.chat.tokenizer import Tokenizer, spelling, tokenize_rendered
from localspec.decoding.constraint import AnswerConstraint, Automaton, Constraint
from localspec.errors import UsageError
from localspec.options import ReplyOptions

if TYPE_CHECKING:
    from localspec.chat.calling import Calling
    from localspec.grammar.combined import Watch


_THOUGHTS_BEFORE_A_CALL = 0.75
"""How much of a reply thoughts may take that has to call: else they could take all of it, as none of them may end it."""

Opening = tuple[tuple[int, ...], ThinkingTags]
"""A tag that the reply may be spelling: ids that it needs yet, and what it opens."""


@dataclass(frozen=True, slots=True)
class ThinkingState:
    """Where a reply is.

    Args:
        answer: state of the rule; None where no answer can have begun.
        openings: tags that the reply may be spelling.
        thoughts: the tags that they stand between; None outside of them.
        tail: end of the thoughts, in which the closing tag may have begun.
        blank: whether white space may still come between thoughts and answer.
        watched: state of what looks for calls in thoughts, once it begins one in place of the answer, too.
    """

    answer: Any | None
    openings: tuple[Opening, ...] = ()
    thoughts: ThinkingTags | None = None
    tail: bytes = b""
    blank: bool = False
    watched: Any = None


class AfterThinking:
    """A rule that binds the answer and leaves the thoughts before it free; see `Automaton`.

    A block of thoughts that the prompt has opened, or that the model opens at once, runs to its closing tag; from there on
    the rule holds. A model that does not think answers under the rule from its first token.

    Args:
        rule: binds the answer.
        tags: what the template knows as thoughts.
        opened: the block that the prompt has opened, if any.
        tokenizer: spells the tags.
        pieces: bytes of control tokens that tags are made of, by id.
        eog: ids that end a generation: no thought may.
        watch: ends thoughts that never closed where a call begins; None where none may.
    """

    def __init__(
        self,
        rule: Automaton[Any],
        tags: Sequence[ThinkingTags],
        opened: ThinkingTags | None,
        tokenizer: Tokenizer,
        pieces: Mapping[int, bytes],
        eog: Collection[int],
        watch: "Watch | None" = None,
    ) -> None:
        self._rule = rule
        self._watch = watch
        self._spell = spelling(tokenizer, pieces)
        self._eog = np.array(sorted(eog), dtype=np.int64)
        self._opened = opened
        ids = (
            tokenizer.tokenize(each.open, add_special=False, parse_special=True) for each in tags
        )
        self._openings = tuple((tuple(some), each) for some, each in zip(ids, tags, strict=True))

    def start(self) -> ThinkingState:
        """Return the state where the prompt ends."""
        if self._opened is not None:
            return self._begun(self._opened)
        return ThinkingState(self._rule.start(), self._openings)

    def step(self, state: ThinkingState, token: int) -> ThinkingState:
        """Return the state after a token that `allows` lets follow."""
        if state.thoughts is not None:
            return self._thought(state.thoughts, state, token)
        if self._watch is not None and state.watched is not None:
            return replace(state, watched=self._watch.step(state.watched, token))
        if state.blank and self._spell(token).isspace():
            return ThinkingState(state.answer)
        answer = state.answer
        if answer is not None:
            allowed = self._rule.allows(answer, np.array([token], dtype=np.int64))[0]
            answer = self._rule.step(answer, token) if allowed else None
        met = [(ids[1:], tags) for ids, tags in state.openings if ids[0] == token]
        openings = tuple(each for each in met if each[0])
        for ids, tags in met:
            if not ids and tags.words:
                return ThinkingState(self._rule.start(), openings, blank=True)
            if not ids:
                return self._begun(tags)
        return ThinkingState(answer, openings)

    def allows(self, state: ThinkingState, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say for each of `ids`, shape (n,), whether it may follow."""
        pieces = map(self._spell, ids.tolist())
        if state.thoughts is not None:
            # A token that closes the thoughts and begins the answer at once: the rule would not see that.
            close = state.thoughts.close.encode()
            rests = ((state.tail + piece).partition(close)[2] for piece in pieces)
            apart = [not rest or rest.isspace() for rest in rests]
            allowed = ~np.isin(ids, self._eog) & np.array(apart, dtype=np.bool_)
            if self._watch is not None and state.watched is not None:
                allowed &= self._watch.allows(state.watched, ids)
            return allowed
        if self._watch is not None and state.watched is not None:
            return self._watch.allows(state.watched, ids)
        allowed = np.isin(ids, [opening[0] for opening, _ in state.openings])
        if state.answer is not None:
            allowed |= self._rule.allows(state.answer, ids)
        if state.blank:
            allowed |= np.array([piece.isspace() for piece in pieces], dtype=np.bool_)
        return allowed

    def forced(self, state: ThinkingState) -> tuple[int, ...]:
        """Return what the rule forces, once nothing but the answer can follow."""
        if self._watch is not None and state.watched is not None and state.thoughts is None:
            return self._watch.forced(state.watched)
        if state.answer is None or state.openings or state.blank:
            return ()
        return self._rule.forced(state.answer)

    def behind(self, more: bool) -> ThinkingState:
        """Return the state where thoughts were ended and the answer begins, or `more` of them."""
        return ThinkingState(self._rule.start(), self._openings if more else ())

    def calls(self, state: ThinkingState) -> bool:
        """Return whether a call ended thoughts that never closed."""
        return state.thoughts is None and state.watched is not None

    def _begun(self, tags: ThinkingTags) -> ThinkingState:
        watches = self._watch is not None and not tags.words and not tags.more
        watched = self._watch.start() if self._watch is not None and watches else None
        return ThinkingState(None, thoughts=tags, watched=watched)

    def _thought(self, tags: ThinkingTags, state: ThinkingState, token: int) -> ThinkingState:
        tail = state.tail + self._spell(token)
        watched, close = state.watched, tags.close.encode()
        if close in tail:
            openings = self._openings if tags.more else ()
            return ThinkingState(self._rule.start(), openings, blank=tail.endswith(close))
        if self._watch is not None and watched is not None:
            watched = self._watch.step(watched, token)
            if watched.bound is not None:
                return ThinkingState(None, watched=watched)
        tail = tail[-len(close) + 1 :] if len(close) > 1 else b""
        return ThinkingState(None, thoughts=tags, tail=tail, watched=watched)


@dataclass(frozen=True, slots=True)
class ReplyRules:
    """What binds a reply, compiled.

    Args:
        answer: what the answer has to look like; None where it is free.
        in_thoughts: ends thoughts where a call begins; None where the reply may have none.
    """

    answer: Automaton[Any] | None = None
    in_thoughts: "Watch | None" = None


class Preparation:
    """Makes the rules of a reply in a thread, beside the passes of others, since a schema may take long, or never end.

    Args:
        make: returns them.
    """

    def __init__(self, make: Callable[[], ReplyRules]) -> None:
        self._rules = Future[ReplyRules]()
        # A program that ends does not wait for it.
        run = threading.Thread(target=self._run, args=(make,), name="rules of a reply", daemon=True)
        run.start()

    @property
    def ended(self) -> bool:
        """Whether there are rules, or an error."""
        return self._rules.done()

    def wait(self, most_s: float) -> None:
        """Wait until it has ended, but not for longer."""
        wait([self._rules], most_s)

    def rules(self) -> ReplyRules:
        """Return the rules.

        Raises:
            UsageError: there are none yet, since the request was cancelled; or whatever making them has raised.
        """
        if not self._rules.done():
            raise UsageError("the request was cancelled")
        return self._rules.result()

    def _run(self, make: Callable[[], ReplyRules]) -> None:
        try:
            self._rules.set_result(make())
        except Exception as error:  # whatever it is, the request gets it
            self._rules.set_exception(error)


def reply_rules(
    options: ReplyOptions, models: LoadedModels, calling: "Calling | None", *, thinks: bool
) -> ReplyRules:
    """Return what binds a reply; any thread may ask for it.

    Args:
        options: say what the answer has to look like.
        models: spell it.
        calling: the calls that it may have; None where no functions are offered.
        thinks: whether thoughts may come before it.

    Raises:
        UsageError: it cannot be bound by this grammar or schema.
    """
    watch = _in_thoughts(models, calling) if thinks else None
    return ReplyRules(_rule(options, models, calling), watch)


def answer_constraint(
    options: ReplyOptions,
    models: LoadedModels,
    conversation: Conversation | None,
    prompt_tokens: int,
    calling: "Calling | None" = None,
    rules: ReplyRules | None = None,
) -> Constraint | None:
    """Return what binds the reply to a prompt; None where it is free.

    Args:
        options: say what the answer has to look like.
        models: spell it.
        conversation: whose last prompt it is; None where the prompt is a text as it is, without thoughts.
        prompt_tokens: number of its ids.
        calling: the calls that the reply may have; None where no functions are offered.
        rules: `reply_rules` of these; None makes them.

    Raises:
        UsageError: this reply cannot be bound, or not by this grammar or schema.
    """
    thinks = conversation is not None and bool(conversation.thinking_tags[0])
    rules = rules or reply_rules(options, models, calling, thinks=thinks)
    rule = rules.answer
    template = None if conversation is None else conversation.template
    budget = None if template is None else template.thinking.budget
    if budget is None and calling is not None and calling.offer.required:
        room = models.target.n_ctx - prompt_tokens
        budget = int(min(options.max_tokens or room, room) * _THOUGHTS_BEFORE_A_CALL)
    if conversation is None or template is None or (rule is None and budget is None):
        return None if rule is None else AnswerConstraint(rule, prompt_tokens)
    bound = options.answer_grammar is not None or (calling is not None and calling.offer.required)
    if conversation.goes_on and bound:
        raise UsageError(
            "a grammar or a required call cannot continue a partly written assistant message: remove that message"
        )
    (tags, opened), tokenizer = conversation.thinking_tags, models.tokenizer
    pieces = tag_pieces(tags, tokenizer)
    behind: Callable[[bool], Any] | None = None
    calls: Callable[[Any], bool] | None = None
    if rule is not None and tags and not conversation.goes_on:
        rule = thinking = AfterThinking(
            rule, tags, opened, tokenizer, pieces, models.eog, rules.in_thoughts
        )
        behind, calls = thinking.behind, thinking.calls
    if budget is not None and tags:
        rule = ThinkingBudget(
            budget,
            sorted(tags, key=lambda each: -len(each.open)),
            opened,
            conversation.begun,
            spelling(tokenizer, pieces),
            partial(tokenize_rendered, tokenizer=tokenizer, at_start=False),
            _ending(template, tags, calls=calling is not None),
            rule,
            behind,
            calls,
        )
    return None if rule is None else AnswerConstraint(rule, prompt_tokens)


def _ending(
    template: ChatTemplate, tags: Sequence[ThinkingTags], *, calls: bool
) -> Callable[[ThinkingTags], tuple[str, str]]:
    """Return what returns the texts before and behind closing tags that a budget forces.

    Where another block has to follow, that is the answer's, unless it may be one of `calls`.
    """

    @cache
    def ending(block: ThinkingTags) -> tuple[str, str]:
        if not block.more:
            return template.thoughts_end(block.close)
        return "", "" if calls else next((each.open for each in tags if not each.close), "")

    return ending


def _in_thoughts(models: LoadedModels, calling: "Calling | None") -> "Watch | None":
    """Return what ends thoughts where a call begins; None where the reply may have none."""
    if calling is None or not calling.offer.names or models.grammar is None:
        return None
    return models.grammar.in_thoughts(calling.calls)


def _rule(
    options: ReplyOptions, models: LoadedModels, calling: "Calling | None"
) -> Automaton[Any] | None:
    """Return what the answer has to look like: a text of the grammar, valid calls, or either of them."""
    bound = options.answer_grammar is not None
    if not bound and calling is None:
        return None
    if models.grammar is None or not models.eog:
        raise UsageError(
            f"{models.target_name} cannot follow a grammar: it has no token that ends an answer"
        )
    if calling is None:
        return models.grammar(options)
    if calling.offer.required:
        return models.grammar.of_calls(calling.calls)
    if not bound:
        return models.grammar.of_answers(calling.calls)
    if not calling.offer.names:
        return models.grammar(options)
    from localspec.grammar.combined import Either

    return Either(models.grammar(options), models.grammar.of_calls(calling.calls))

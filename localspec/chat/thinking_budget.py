"""ThinkingBudget: after so many tokens of thoughts, nothing but their closing tag may follow. A constraint, so that drafting does not change it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.chat.thinking import ThinkingTags, overlap
from localspec.decoding.constraint import Automaton

_LONGEST_CHARACTER = 4
"""Bytes in UTF-8."""


@dataclass(frozen=True, slots=True)
class BudgetState:
    """Where a reply is.

    Args:
        rule: state of what else binds the reply; None where nothing does.
        block: the tags that it stands between; None outside of them.
        text: end of the block, in which its closing tag may have begun; outside of one, what may become an opening tag.
        spent: tokens of thoughts so far.
        closing: ids that are forced next.
        answers: whether the answer has begun, so that no tag counts any more.
        ended: whether thoughts were ended already, so that those that begin again are followed by the answer.
    """

    rule: Any = None
    block: ThinkingTags | None = None
    text: bytes = b""
    spent: int = 0
    closing: tuple[int, ...] = ()
    answers: bool = False
    ended: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ThinkingBudget:
    """Ends thoughts after so many tokens, and leaves the rest to another rule; see `Automaton`.

    Thoughts are what `ThinkingFilter` takes for them, whatever tokens spell their tags; those of several blocks count
    together. A character that the last token has begun is finished first.

    Args:
        budget: most tokens of thoughts.
        tags: what may open the reply, of two with the same beginning the longer first.
        opened: the block that the prompt has opened, if any.
        begun: ids of what the reply says already, where it goes on.
        spell: returns the bytes of an id, also of control tokens that tags are made of.
        tokenize: returns the ids of a text that ends thoughts.
        ending: returns what stands before closing tags, and behind them.
        rule: binds the reply, too; None where nothing does.
        behind: returns the rule's state behind closing tags that were forced, given whether other tags may follow; None
            lets it be.
        calls: returns whether a call ended the thoughts, given the rule's state; None where none does.
    """

    budget: int
    tags: Sequence[ThinkingTags]
    opened: ThinkingTags | None
    begun: Sequence[int]
    spell: Callable[[int], bytes]
    tokenize: Callable[[str], Sequence[int]]
    ending: Callable[[ThinkingTags], tuple[str, str]]
    rule: Automaton[Any] | None = None
    behind: Callable[[bool], Any] | None = None
    calls: Callable[[Any], bool] | None = None

    def start(self) -> BudgetState:
        """Return the state where the prompt ends."""
        state = BudgetState(None if self.rule is None else self.rule.start(), self.opened)
        for token in self.begun:
            state = self._followed(state, token)
        return self._bounded(state)

    def step(self, state: BudgetState, token: int) -> BudgetState:
        """Return the state after a token that `allows` lets follow."""
        if state.closing:
            rest, block = state.closing[1:], state.block
            if rest or block is None:
                return replace(state, closing=rest)
            more = block.more and not self._ending(state, block)[1]
            rule = state.rule if self.behind is None else self.behind(more)
            return BudgetState(rule, spent=state.spent, answers=not more, ended=True)
        if self.rule is not None:
            state = replace(state, rule=self.rule.step(state.rule, token))
            if self.calls is not None and not state.answers and self.calls(state.rule):
                return replace(state, block=None, text=b"", answers=True)
        return self._bounded(self._followed(state, token))

    def allows(self, state: BudgetState, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say for each of `ids`, shape (n,), whether it may follow."""
        if state.closing:
            return np.asarray(ids == state.closing[0])
        if self.rule is not None:
            return self.rule.allows(state.rule, ids)
        return np.ones(ids.size, dtype=np.bool_)

    def forced(self, state: BudgetState) -> tuple[int, ...]:
        """Return the rest of closing tags, or what the rule forces."""
        if state.closing or self.rule is None:
            return state.closing
        return self.rule.forced(state.rule)

    def _followed(self, state: BudgetState, token: int) -> BudgetState:
        """Return where a token leads, as if there were no budget."""
        if state.answers:
            return state
        text, block = state.text + self.spell(token), state.block
        if block is None:
            return self._outside(state, text)
        close = block.close.encode()
        _, closed, rest = text.partition(close)
        if closed:
            after = replace(state, block=None, text=b"", answers=not block.more)
            return after if after.answers else self._outside(after, rest)
        kept = text[1 - max(len(close), _LONGEST_CHARACTER) :]
        return replace(state, text=kept, spent=state.spent + (not block.words))

    def _outside(self, state: BudgetState, text: bytes) -> BudgetState:
        """Return the state outside of blocks, where a text may be the beginning of one."""
        text = text.decode(errors="surrogateescape").lstrip().encode(errors="surrogateescape")
        if _splits(text) and text[0] >= 0xC0 and len(text) < _LONGEST_CHARACTER:
            return replace(state, text=text)  # a character that may be white space
        opens = [each.open.encode() for each in self.tags]
        if any(each.startswith(text) and each != text for each in opens):
            return replace(state, text=text)
        at = next((at for at, each in enumerate(opens) if text.startswith(each)), None)
        if at is None or not self.tags[at].close:
            return replace(state, text=b"", answers=True)
        return replace(state, block=self.tags[at], text=text[len(opens[at]) :])

    def _ending(self, state: BudgetState, block: ThinkingTags) -> tuple[str, str]:
        before, behind = self.ending(block)
        if state.ended and block.more and not behind:
            behind = next((each.open for each in self.tags if not each.close), "")
        return before, behind

    def _bounded(self, state: BudgetState) -> BudgetState:
        """Return a state with the ids that end its thoughts, if they took all that they may."""
        block = state.block
        if block is None or block.words or state.spent < self.budget or _splits(state.text):
            return state
        before, behind = self._ending(state, block)
        text = state.text.decode("latin-1")  # tags are ASCII
        begun = overlap(text, block.close)
        if begun or text.endswith(before):
            before = ""
        closing = self.tokenize(f"{before}{block.close[begun:]}{behind}")
        return replace(state, closing=tuple(closing))


def _splits(text: bytes) -> bool:
    """Return whether a text ends within a character."""
    for size, byte in enumerate(reversed(text[1 - _LONGEST_CHARACTER :]), 1):
        if byte < 0x80:
            return False
        if byte >= 0xC0:
            return size < 2 + (byte >= 0xE0) + (byte >= 0xF0)
    return False

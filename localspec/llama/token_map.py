"""TokenMap: the ids of two different vocabularies, brought together by the bytes that they stand for.

A target's text is cut into the draft model's ids the draft model's own way, a stretch at a time, so that what was cut
stays as the text grows. What the draft model proposes is written the way the target writes it: an id may stand for
several tokens of the target's, and several ids for one, as `(` and `self` for `(self`.
"""

import codecs
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_SHORT, _LONG = 24, 128
"""Tokens of a stretch: it ends before the next word after a single space, or else where a character ends."""
_LINE = "\n"
_JOINED = 1 << 16
"""Joins of two tokens that are remembered."""


class TokenSet(Protocol):
    """What is asked of a vocabulary; see `Vocabulary`."""

    n_vocab: int
    bos_id: int | None
    eos_id: int | None
    add_bos: bool
    eog: frozenset[int]

    def pieces(self) -> list[bytes]:
        """Return the bytes of every token, by id; control tokens have none."""

    def text(self, token: int) -> str:
        """Return the text of a token as its file writes it."""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Return the ids of a text."""


class _Side:
    """One vocabulary: its bytes, and how it cuts text."""

    def __init__(self, tokens: TokenSet) -> None:
        self._tokens = tokens
        self.pieces = tokens.pieces()
        # SentencePiece puts a space before a text of its own accord.
        begins = self._raw("x")
        self.adds_space = bool(begins) and self.pieces[begins[0]].startswith(b" ")

    def cut(self, text: str) -> list[int]:
        """Return the ids of a text, as they would be in the midst of one."""
        return self._raw(text[1:] if self.adds_space and text[:1] == " " else text)

    def exactly(self, content: bytes) -> tuple[int, ...]:
        """Return the ids of these bytes; none where it has no ids for just these."""
        try:
            text = content.decode()
        except UnicodeDecodeError:
            return ()
        result = self._within(text) if self.adds_space and text[:1] != " " else self.cut(text)
        return tuple(result) if b"".join(self.pieces[each] for each in result) == content else ()

    def _within(self, text: str) -> list[int]:
        """Return the ids of a text before which no space is put, since a line ends there; none where that is no token."""
        result, length = self._raw(_LINE + text), len(f" {_LINE}")
        for at, token in enumerate(result, start=1):
            length -= len(self.pieces[token])
            if length <= 0:
                return result[at:] if length == 0 else []
        return []

    def controls(self) -> dict[str, int]:
        """Return the ids that stand for no bytes, by their texts."""
        result = (token for token, piece in enumerate(self.pieces) if not piece)
        return {text: token for token in result if (text := self._tokens.text(token))}

    def _raw(self, text: str) -> list[int]:
        return self._tokens.tokenize(text, add_special=False, parse_special=False)


class TokenMap:
    """Two vocabularies; what is the same for every sequence.

    Args:
        target: the target's.
        draft_model: the draft model's.

    Attributes:
        alone: by id of the draft model's, the target's tokens that it stands for; none where there are none.
        bos: what a text begins with for the draft model.
        eog: ids of the target that end a generation.
        n_vocab: ids of the target.
    """

    def __init__(self, target: TokenSet, draft_model: TokenSet) -> None:
        self._target, self._draft_model = _Side(target), _Side(draft_model)
        self.n_vocab, self.eog = target.n_vocab, target.eog
        self.alone = self._spellings(target, draft_model)
        self.bos: tuple[int, ...] = ()
        self._controls = self._control_ids(target, draft_model)
        if draft_model.add_bos and draft_model.bos_id is not None:
            self.bos = (draft_model.bos_id,)
            if target.bos_id is not None:
                self._controls.pop(target.bos_id, None)
        self._joined: dict[tuple[int, int], tuple[int, ...]] = {}
        firsts = np.array([each[0] if each else -1 for each in self.alone], dtype=np.int64)
        order = np.argsort(firsts, kind="stable")[np.count_nonzero(firsts < 0) :]
        self._tokens, starts = np.unique(firsts[order], return_index=True)
        self._ids = np.split(order, starts[1:]) if order.size else []
        sizes = np.diff([*starts, order.size])
        one = sizes == 1
        self._singles, self._single_ids = self._tokens[one], order[starts[one]]
        self._several = self._tokens[~one]
        self._several_ids = order[np.repeat(~one, sizes)]
        self._several_starts = np.cumsum([0, *sizes[~one]])[:-1]

    def spelling(self) -> "MappedIds":
        """Return the spelling of one sequence."""
        return MappedIds(self)

    def control(self, token: int) -> tuple[int, ...] | None:
        """Return what a control token of the target's is for the draft model; None of a token that stands for bytes."""
        if token < 0:
            return ()  # of a picture
        if self._target.pieces[token]:
            return None
        result = self._controls.get(token)
        return () if result is None else (result,)

    def target_bytes(self, token: int) -> bytes:
        """Return the bytes of a token of the target's."""
        return self._target.pieces[token]

    def draft_bytes(self, token: int) -> bytes:
        """Return the bytes of an id of the draft model's."""
        return self._draft_model.pieces[token]

    def cut(self, text: str, *, begins: bool) -> list[int]:
        """Return the draft model's ids of a text.

        Args:
            text: of the target's tokens.
            begins: whether nothing precedes it: then the target may have put a space before it.
        """
        added = begins and self._target.adds_space and text[:1] == " "
        return self._draft_model.cut(text[1:] if added else text)

    def row(self, logits: NDArray[np.float32], row: NDArray[np.float32]) -> None:
        """Write a row of the draft model's by the target's ids: into what it stands for, or begins with.

        Args:
            logits: shape (n_vocab of the draft model,).
            row: shape (n_vocab,); only the places of tokens that an id begins with are written.
        """
        row[self._singles] = logits[self._single_ids]
        if self._several.size:
            with np.errstate(invalid="ignore", divide="ignore"):  # whoever chooses checks the row
                best = logits.max()
                weights = np.exp(logits[self._several_ids] - best)
                row[self._several] = np.log(np.add.reduceat(weights, self._several_starts)) + best

    def ids(self, token: int) -> NDArray[np.int64]:
        """Return the draft model's ids that begin with a token of the target's; there is one, as `row` has it."""
        result = self._ids[int(np.searchsorted(self._tokens, token))]
        return np.asarray(result, dtype=np.int64)

    def joined(self, before: int, drafted: int) -> tuple[int, ...]:
        """Return how the target writes a token and an id of the draft model's after it."""
        known = self._joined.get((before, drafted))
        if known is None:
            if len(self._joined) >= _JOINED:
                self._joined.clear()
            known = self._joined[before, drafted] = self._join(before, drafted)
        return known

    def _join(self, before: int, drafted: int) -> tuple[int, ...]:
        left, right = self._target.pieces[before], self._draft_model.pieces[drafted]
        apart = (before, *self.alone[drafted])
        return (self._target.exactly(left + right) or apart) if left and right else apart

    def _spellings(self, target: TokenSet, draft_model: TokenSet) -> list[tuple[int, ...]]:
        """Return by id of the draft model's the target's tokens with the same bytes, or of the same text if it has none."""
        known, twice = dict[bytes, int](), set[bytes]()
        for token, piece in enumerate(self._target.pieces):
            if known.setdefault(piece, token) != token:
                twice.add(piece)
        controls, eos = self._target.controls(), target.eos_id
        result: list[tuple[int, ...]] = []
        for token, piece in enumerate(self._draft_model.pieces):
            if piece:
                one = known.get(piece) if piece not in twice else None
                result.append(self._target.exactly(piece) if one is None else (one,))
                continue
            end = eos if token in draft_model.eog else None
            one = controls.get(draft_model.text(token), end)
            result.append(() if one is None else (one,))
        return result

    def _control_ids(self, target: TokenSet, draft_model: TokenSet) -> dict[int, int]:
        """Return the draft model's ids of the target's control tokens, as far as there are such."""
        named = self._draft_model.controls()
        result = {token: named.get(text) for text, token in self._target.controls().items()}
        for token in target.eog & result.keys():
            result[token] = draft_model.eos_id if result[token] is None else result[token]
        return {token: each for token, each in result.items() if each is not None}


class MappedIds:
    """The `VocabMap` of a pair with two vocabularies.

    A text is read in stretches, which end by what the text says up to there; each is cut once, and
    only the one that still grows is cut again.

    Args:
        table: what the ids stand for.
    """

    def __init__(self, table: TokenMap) -> None:
        self._table = table
        self._row = np.full(table.n_vocab, -np.inf, dtype=np.float32)
        self._text: list[int] = []
        self._read = list(table.bos)
        self._all: list[int] | None = list(table.bos)
        self._ends: list[tuple[int, int]] = []

    def begin(self) -> None:
        """Do nothing: what was read is compared with every text; see `VocabMap`."""

    def read(self, tokens: Sequence[int]) -> Sequence[int] | None:
        """Return a text as the draft model cuts it; None while it ends within a character."""
        tokens = list(tokens)
        if tokens != self._text:
            self._return_to(tokens)
            start = self._ends[-1][0] if self._ends else 0
            for at in range(start + 1, len(tokens)):
                if self._ends_before(tokens, start, at):
                    self._read += self._cut(tokens, start, at) or ()
                    self._ends.append((at, len(self._read)))
                    start = at
            last = self._cut(tokens, start, len(tokens))
            self._all = None if last is None else [*self._read, *last]
            self._text = tokens
        return self._all

    def row(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return a row by the target's ids: the chance of a token is that of all ids that begin with it."""
        self._table.row(logits, self._row)
        return self._row

    def next(self, logits: NDArray[np.float32], token: int) -> int:
        """Return the likeliest of the ids that begin with the token."""
        ids = self._table.ids(token)
        return int(ids[np.argmax(logits[ids])])

    def spell(self, before: int | None, drafted: int) -> tuple[int, ...]:
        """Return how the target would cut both; see `VocabMap`."""
        table = self._table
        return table.alone[drafted] if before is None else table.joined(before, drafted)

    def _return_to(self, tokens: list[int]) -> None:
        """Forget the stretches that this text has not; the token behind a stretch is what ends it."""
        known = self._text
        same = len(known)
        if tokens[:same] != known:
            pairs = enumerate(zip(known, tokens, strict=False))
            same = next((at for at, (one, other) in pairs if one != other), len(tokens))
        while self._ends and self._ends[-1][0] >= same:
            self._ends.pop()
        del self._read[self._ends[-1][1] if self._ends else len(self._table.bos) :]

    def _ends_before(self, tokens: Sequence[int], start: int, at: int) -> bool:
        """Say whether a stretch from `start` on ends before the token at `at`."""
        table = self._table
        if table.control(tokens[at]) is not None or table.control(tokens[at - 1]) is not None:
            return True
        if at - start < _SHORT:
            return False
        before, piece = table.target_bytes(tokens[at - 1]), table.target_bytes(tokens[at])
        if not before[-1:].isspace() and piece[:1] == b" " and piece[1:2].isalpha():
            return True  # a run of spaces may be one token with the word's own
        return at - start >= _LONG and self._decoded(tokens[start:at])[1]

    def _cut(self, tokens: Sequence[int], start: int, end: int) -> Sequence[int] | None:
        """Return the draft model's ids of a stretch; None where it ends within a character."""
        table = self._table
        control = table.control(tokens[start]) if start < end else ()
        if control is not None:
            return control
        text, whole = self._decoded(tokens[start:end])
        begins = start == 0 or table.control(tokens[start - 1]) is not None
        return table.cut(text, begins=begins) if whole else None

    def _decoded(self, stretch: Sequence[int]) -> tuple[str, bool]:
        """Return the text of tokens, and whether it ends where a character does."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(b"".join(self._table.target_bytes(each) for each in stretch))
        return text, not decoder.getstate()[0]

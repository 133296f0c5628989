"""Embedder: texts become vectors or scores, several in a pass, pooled as the model's file says."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.cancel import CancelFlag
from localspec.errors import ContextOverflow, ModelLoadError, PassFailed, UsageError
from localspec.llama.batch import Part
from localspec.llama.buffer_log import RAM
from localspec.llama.model import LlamaModel
from localspec.llama.native import native
from localspec.llama.native_context import NativeContext
from localspec.options import LoadOptions
from localspec.resources import Usage, free_ram_bytes
from localspec.storage.files import size_text

_AUTO = -1
_NONE, _MEAN, _LAST, _RANK = 0, 1, 3, 4
"""llama.cpp's numbers of ways to pool."""
_TOKENS_OF_A_TEXT, _TOKENS_OF_A_PASS = 512, 256
"""At most, of an index and of several texts; a longer text is a pass by itself. llama.cpp reserves a row of logits for each
token, and computes attention over all texts of a pass: two of 250 tokens together take a third longer than one after the other."""
_TEXTS_OF_A_PASS = 32

Vectors = NDArray[np.float32]


class Embedder:
    """Makes vectors of texts, or scores, one caller at a time.

    Args:
        model: closing it closes this. One whose file names no pooling is a model for text: the mean of its last layer's rows
            says a little.
        cancel: stops passes when set.

    Attributes:
        ranks: whether it makes no vectors, but scores of how well texts answer a question.
        width: floats of a vector; 1 of a score.
        most_tokens: of a text of `vectors`; what is longer is cut.
        longest: tokens of the longest text that the model was trained for.
        most_texts: of a pass.

    Raises:
        ModelLoadError: llama.cpp cannot make a context.
    """

    most_texts = _TEXTS_OF_A_PASS

    def __init__(self, model: LlamaModel, cancel: CancelFlag | None = None) -> None:
        self._model = model
        self._cancel = cancel or CancelFlag()
        self._vocabulary = model.vocabulary
        self._turn = threading.Lock()
        self.ranks = _pooling(model) == _RANK
        self.width = 1 if self.ranks else int(native.llama_model_n_embd_out(model.handle))
        self.longest = model.n_ctx_train
        self._splits = False
        self._native = self._context(min(_TOKENS_OF_A_TEXT, self.longest))
        self._splits = self._native.splits
        self.most_tokens = self._native.size

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Return a vector of each text, shape (len(texts), width).

        Raises:
            PassFailed: llama.cpp failed.
        """
        rows = np.zeros((len(texts), self.width), np.float32)
        tokens = [
            _cut(self._tokens(each, parse_special=False) or [0], self.most_tokens) for each in texts
        ]
        # Texts of like length fill passes best.
        order = sorted(range(len(texts)), key=lambda at: len(tokens[at]))
        for some in self.passes([len(tokens[at]) for at in order]):
            chosen = [order[at] for at in some]
            rows[chosen] = self.pooled([tokens[at] for at in chosen])
        return normalised(rows)

    def tokens(self, text: str | Sequence[int], *, cut: bool = False) -> list[int]:
        """Return the tokens of a text, with what the file wants around them; ids are taken as they are.

        Args:
            text: its control tokens are read as such.
            cut: take the first tokens and the end of a text that is too long.

        Raises:
            ContextOverflow: it is too long.
            UsageError: it is empty, or an id is none of the model's.
        """
        if isinstance(text, str):
            tokens = self._tokens(text, parse_special=True)
        else:
            tokens = list(text)
            most = self._vocabulary.n_vocab - 1
            wrong = next((each for each in tokens if not 0 <= each <= most), None)
            if wrong is not None:
                raise UsageError(f"token {wrong} is none of this model: give ids from 0 to {most}")
        return self._checked(tokens, cut=cut)

    def pair_tokens(self, query: str, text: str, *, cut: bool = False) -> list[int]:
        """Return the tokens of a question and what may answer it, as a model that ranks wants them.

        Source: `format_prompt_rerank` of llama.cpp's server.

        Raises:
            ContextOverflow: they are too long together.
        """
        vocabulary = self._vocabulary
        form = native.llama_model_chat_template(self._model.handle, b"rerank")
        if form is not None:
            # The question first, as llama-server has it: what it says of a document stays.
            whole = form.decode(errors="replace").replace("{query}", query)
            whole = whole.replace("{document}", text)
            tokens = vocabulary.tokenize(whole, add_special=False, parse_special=True)
            return self._checked(tokens, cut=cut)
        before, between, after = vocabulary.around_pairs()
        one, other = (
            vocabulary.tokenize(each, add_special=False, parse_special=False)
            for each in (query, text)
        )
        return self._checked([*before, *one, *between, *other, *after], cut=cut)

    def passes(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Yield which texts go into a pass, in this order, as many as there is room for.

        Args:
            lengths: their tokens.
        """
        some, size = list[int](), 0
        for at, length in enumerate(lengths):
            if some and (size + length > _TOKENS_OF_A_PASS or len(some) == self.most_texts):
                yield some
                some, size = [], 0
            some.append(at)
            size += length
        if some:
            yield some

    def pooled(self, texts: Sequence[Sequence[int]]) -> Vectors:
        """Return a row of each text, as the model has it, by one pass; one of `passes`.

        Raises:
            Cancelled: the flag was set.
            ModelLoadError: the memory does not hold so long a text.
            PassFailed: llama.cpp failed.
        """
        with self._turn:
            self._grow(max(map(len, texts)))
            return self._native.pooled(texts, self.width)

    def _tokens(self, text: str, *, parse_special: bool) -> list[int]:
        return self._vocabulary.tokenize(text, add_special=True, parse_special=parse_special)

    @property
    def allocated(self) -> Mapping[str, Usage]:
        """What its caches and scratch took, by places."""
        return self._native.allocated

    def close(self) -> None:
        """Free the model."""
        self._model.close()

    def _checked(self, tokens: list[int], *, cut: bool) -> list[int]:
        tokens = _cut(tokens, self.longest) if cut else tokens
        if not tokens:
            raise UsageError("a text is empty, and this model adds nothing to it: send some text")
        if len(tokens) > self.longest:
            raise ContextOverflow(
                f"a text has {len(tokens)} tokens and the model takes {self.longest}: shorten it"
            )
        return tokens

    def _context(self, tokens: int) -> "_PoolingContext":
        n_batch = min(tokens, _TOKENS_OF_A_TEXT) if self._splits else tokens
        options = replace(self._model.options, n_ctx=tokens, n_batch=n_batch)
        return _PoolingContext(self._model, self._cancel, options, tokens)

    def _grow(self, tokens: int) -> None:
        """Make a larger context for a text that is longer than all before it."""
        size = self._native.size
        if tokens <= size:
            return
        larger = min(self.longest, 1 << (tokens - 1).bit_length())
        used = self._native.allocated.get(RAM, Usage())
        needed = (used.kv_bytes + used.compute_bytes) * larger // size
        free = free_ram_bytes()
        if free is not None and needed > free:
            raise ModelLoadError(
                f"a text of {tokens} tokens takes {size_text(needed)} of memory, and {size_text(free)} are free: send shorter texts"
            )
        self._native.close()
        try:
            self._native = self._context(larger)
        except ModelLoadError:
            self._native = self._context(size)
            raise


def normalised(rows: Vectors) -> Vectors:
    """Return rows of length 1."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Vectors = rows / np.maximum(lengths, np.finfo(np.float32).tiny)
    return unit


def _cut(tokens: list[int], most: int) -> list[int]:
    """Return tokens of which there are so many at most: of too many the first, and the last."""
    return tokens if len(tokens) <= most else [*tokens[: most - 1], tokens[-1]]


class _PoolingContext(NativeContext):
    """A context of several short sequences that share its cells, of which each gives one row.

    Attributes:
        size: most tokens of a text.
        splits: whether a text may be evaluated in several passes: its row is its last token's, and the others are kept.
    """

    # A question comes after a pause, and is a pass of ten milliseconds: looking on for forty would be most of it.
    _moments = 1

    def __init__(
        self, model: LlamaModel, cancel: CancelFlag, options: LoadOptions, tokens: int
    ) -> None:
        self._pooling = _pooling(model) or _MEAN
        rows = options.n_batch or tokens
        super().__init__(model, cancel, options, rows, _TEXTS_OF_A_PASS)
        self.size = tokens
        architecture = model.metadata("general.architecture")
        causal = model.metadata(f"{architecture}.attention.causal") != "false"
        self.splits = bool(self._memory()) and causal and self._pooling in {_LAST, _RANK}

    def _params(self, options: LoadOptions, rows: int) -> native.llama_context_params:
        params = super()._params(options, rows)
        params.n_ctx = options.n_ctx or rows  # all of them together
        params.kv_unified = True
        params.embeddings = True
        params.pooling_type = self._pooling
        params.flash_attn_type = _AUTO  # where it is slower, in narrow passes, there are none
        return params

    def _truncates(self) -> bool:
        return False

    def pooled(self, texts: Sequence[Sequence[int]], width: int) -> Vectors:
        """Return a row of each text, as the model has it."""
        native.llama_memory_clear(self._memory(), False)
        if len(texts) > 1:
            self.decode([Part(at, each, 0, len(each)) for at, each in enumerate(texts)])
        else:
            for at in range(0, len(texts[0]), self.n_batch):
                piece = texts[0][at : at + self.n_batch]
                self.decode([Part(0, piece, at, len(piece))])
        return np.stack([self._row(at, width) for at in range(len(texts))])

    def _row(self, sequence: int, width: int) -> Vectors:
        row = native.llama_get_embeddings_seq(self.handle, sequence)
        if not row:
            raise PassFailed("llama.cpp returned no vector: this is a bug in localspec, report it")
        return np.ctypeslib.as_array(row, (width,)).astype(np.float32)


def _pooling(model: LlamaModel) -> int:
    """Return how a model's file says that vectors are pooled; 0 where it does not."""
    architecture = model.metadata("general.architecture")
    return int(model.metadata(f"{architecture}.pooling_type") or _NONE)

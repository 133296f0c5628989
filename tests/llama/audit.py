"""Audit: every native pass and every row that is read, checked against what llama.cpp says of them; what a process holds."""

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import llama_cpp.llama_cpp as native
import pytest

from localspec.decoding.model import Logits
from localspec.llama.batch import Part
from localspec.llama.native_context import NativeContext


@dataclass(slots=True)
class Audit:
    """What was seen of passes, and every view of rows that was handed out.

    Ctypes checks nothing: a row too many is whatever lies behind the buffer, and a row of a context that was
    freed is whatever lies there now.
    """

    passes: int = 0
    rows: int = 0
    views: list["weakref.ref[Logits]"] = field(default_factory=list)
    _given: dict[int, int] = field(default_factory=dict)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Check all contexts from now on."""
        decode, rows = NativeContext.decode, NativeContext.rows

        def audited_decode(context: NativeContext, parts: Sequence[Part]) -> None:
            self._given[id(context)] = 0
            self._check_pass(context, parts)
            decode(context, parts)
            self.passes += 1
            self._given[id(context)] = sum(part.rows for part in parts)

        def audited_rows(context: NativeContext, count: int) -> Logits:
            view = rows(context, count)
            self._check_rows(context, count, view)
            self.views.append(weakref.ref(view))
            return view

        monkeypatch.setattr(NativeContext, "decode", audited_decode)
        monkeypatch.setattr(NativeContext, "rows", audited_rows)

    def _check_pass(self, context: NativeContext, parts: Sequence[Part]) -> None:
        assert 1 <= sum(len(part.tokens) for part in parts) <= context.n_batch
        assert sum(part.rows for part in parts) <= context.max_rows
        for part in parts:
            assert 0 <= part.rows <= len(part.tokens)
            assert 0 <= part.n_past <= part.n_past + len(part.tokens) <= context.n_ctx
            assert all(0 <= token < context.model.vocabulary.n_vocab for token in part.tokens)
            assert part.n_past == context.held(part.sequence)

    def _check_rows(self, context: NativeContext, count: int, view: Logits) -> None:
        """See that rows are those of the last pass, no more, and lie where llama.cpp has them."""
        assert count == self._given[id(context)], "rows of another pass"
        assert view.shape == (count, native.llama_vocab_n_tokens(_vocab(context)))
        assert view.flags.c_contiguous
        for row in range(count):
            # Counted from the end, llama.cpp checks the number itself, and gives nothing beyond.
            pointer = native.llama_get_logits_ith(context.handle, row - count)
            assert view[row].ctypes.data == ctypes.cast(pointer, ctypes.c_void_p).value
        assert not native.llama_get_logits_ith(context.handle, -count - 1), "more rows than asked"
        self.rows += count


def _vocab(context: NativeContext) -> object:
    return native.llama_model_get_vocab(context.model.handle)


@dataclass(frozen=True, slots=True)
class Held:
    """What this process holds."""

    anonymous_kb: int
    threads: int
    descriptors: int


def held() -> Held:
    """Return it, as Linux tells."""
    lines = Path("/proc/self/status").read_text().splitlines()
    named = dict(line.split(":", 1) for line in lines)
    return Held(
        int(named["RssAnon"].split()[0]),
        int(named["Threads"]),
        len(list(Path("/proc/self/fd").iterdir())),
    )

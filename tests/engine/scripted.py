"""Models that tell a script, at the pace that it sets, and die or fail where it says so."""

import math
import os
import signal
import time
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.choose import Chooser
from localspec.decoding.drafters.drafter import Plan
from localspec.decoding.model import Logits, Pass
from localspec.decoding.round import Draft, Round
from localspec.errors import PassFailed
from localspec.storage.read_store import common_beginning
from tests.chat.toy_tokenizer import ToyTokenizer, spelled

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content }}<|im_end|>\n{% endfor %}{{ '<|im_start|>assistant\n' }}"
)
THINKING_TEMPLATE = TEMPLATE + "{# <think></think> #}"
TOKENIZER = ToyTokenizer()
BEGIN, END = 2, 3
N_VOCAB = 356
CHUNK = 64
_SLICE_S = 0.01


@dataclass(frozen=True, slots=True)
class Death:
    """Where the process ends, and how: `SIGKILL`, `SIGSEGV`, or an exit code."""

    on: str
    at: int = 0
    how: str | int = "SIGKILL"

    def strike(self, on: str, at: int) -> None:
        if (on, at) != (self.on, self.at):
            return
        if isinstance(self.how, int):
            os._exit(self.how)
        os.kill(os.getpid(), signal.Signals[self.how])
        time.sleep(60)


NEVER = Death("never")


@dataclass(frozen=True, slots=True)
class Script:
    """What is said after which tokens, and where saying it fails; see `tests.engine.double`."""

    answers: Mapping[str, str]
    otherwise: Sequence[str]
    fails: Mapping[str, tuple[str, int]]

    def next_token(self, tokens: Sequence[int]) -> int:
        """Return what is said after `tokens`: nothing after a text that has no turns."""
        if BEGIN not in tokens:
            return END
        script, said = self._answer(tokens), self.said(tokens)
        return script[said] if said < len(script) else END

    def said(self, tokens: Sequence[int]) -> int:
        return len(tokens) - len(_prompt(tokens)) - 3  # behind "<|im_start|>assistant\n"

    def fail(self, where: str, tokens: Sequence[int], error: Exception) -> None:
        last = _questions(_prompt(tokens))[-1] if self.fails else ""
        for part, (place, at) in self.fails.items():
            if part in last and place == where and self.said(tokens) >= at:
                raise error

    def _answer(self, tokens: Sequence[int]) -> list[int]:
        questions = _questions(_prompt(tokens))
        answer = self.otherwise[(len(questions) - 1) % len(self.otherwise)]
        for part, told in self.answers.items():
            if questions and part in questions[-1]:
                answer = told
        return _ids(answer)


def _prompt(tokens: Sequence[int]) -> tuple[int, ...]:
    """Return what comes before the reply that `tokens` end in; all where there are no turns."""
    if BEGIN not in tokens:
        return tuple(tokens)
    return tuple(tokens[: len(tokens) - 1 - list(reversed(tokens)).index(BEGIN)])


@lru_cache(maxsize=100)
def _questions(prompt: tuple[int, ...]) -> list[str]:
    pieces = (_piece(token) for token in prompt)
    turns = b"".join(pieces).decode(errors="replace").split("\0")
    return [turn.partition("\n")[2] for turn in turns if turn.startswith(("user\n", "tool\n"))]


def _piece(token: int) -> bytes:
    if token < 0:  # of a picture or a sound
        return b"~"
    return b"\x00" if token == BEGIN else TOKENIZER.piece(token)


@lru_cache(maxsize=100)
def _ids(answer: str) -> list[int]:
    return TOKENIZER.tokenize(answer, add_special=False, parse_special=False)


@dataclass(slots=True, eq=False)
class ScriptedModel:
    """One sequence: answers the last question, and keeps a cache like a real model's."""

    script: Script
    n_ctx: int
    death: Death
    cells: list[int] = field(default_factory=list)
    n_vocab: int = N_VOCAB
    truncate_s: float = 0.0
    in_chunks: int = 0
    copies: bool = True
    owner: str = ""

    @property
    def n_cached(self) -> int:
        return len(self.cells)

    def common_prefix(self, tokens: Sequence[int]) -> int:
        return common_beginning(self.cells, tokens)

    def truncate(self, n_past: int) -> None:
        del self.cells[n_past:]

    def prefill(self, tokens: Sequence[int]) -> int:
        missing = len(tokens) - self.common_prefix(tokens)
        self.evaluate(tokens, 0, missing)
        return missing

    def evaluate(self, tokens: Sequence[int], rows: int, count: int) -> None:
        """Cache the next `count` tokens of a request for so many rows."""
        assert len(tokens) <= self.n_ctx
        self.truncate(min(self.common_prefix(tokens), len(tokens) - rows))
        start = len(self.cells)
        self.cells += tokens[start : start + count]
        self.death.strike("prefill", start // CHUNK)

    def logits(self, tokens: Sequence[int], rows: int) -> Logits:
        self.script.fail("pass", tokens, PassFailed("llama_decode returned -3"))
        self.script.fail("model", tokens, RuntimeError("a model out of its mind"))
        self.evaluate(tokens, rows, len(tokens))
        row = np.zeros((rows, N_VOCAB), dtype=np.float32)
        for index in range(rows):
            row[index, self.script.next_token(tokens[: len(tokens) - rows + 1 + index])] = 50
        self.death.strike("token", self.script.said(tokens))
        return row


@dataclass(frozen=True, slots=True, eq=False)
class ScriptedSequences:
    views: Sequence[ScriptedModel]
    pass_s: float | str
    chunk_s: float | str
    cancel: CancelFlag
    rests: tuple[int, str] | None = None
    most_rows: int = CHUNK
    n_batch: int = CHUNK

    def chunk(self, slot: int) -> int:
        return CHUNK

    def missing(self, slot: int, request: Pass) -> int:
        cached = self.views[slot].common_prefix(request.tokens)
        return max(request.rows, len(request.tokens) - cached)

    def evaluate(self, slot: int, request: Pass, count: int) -> int:
        wait(self.chunk_s, self.cancel)
        self._rest({self.views[slot].n_cached})
        self.views[slot].evaluate(request.tokens, request.rows, count)
        return count

    def together(self, asked: Sequence[tuple[int, Pass]]) -> Sequence[Logits]:
        wait(self.pass_s, self.cancel)
        self._rest({self.views[slot].script.said(each.tokens) for slot, each in asked})
        return [self.views[slot].logits(each.tokens, each.rows) for slot, each in asked]

    def _rest(self, done: Collection[int]) -> None:
        if self.rests is not None and self.rests[0] in done:
            wait(self.rests[1], self.cancel)

    def compact(self, running: Collection[int]) -> None:
        assert set(running) <= set(range(len(self.views)))


def wait(seconds: float | str, cancel: CancelFlag) -> None:
    """Let time go by as a native call does, which looks at its flag now and then; or wait for a file."""
    end_s = math.inf if isinstance(seconds, str) else time.monotonic() + seconds
    while not cancel.is_set and (left_s := end_s - time.monotonic()) > 0:
        if isinstance(seconds, str) and Path(seconds).exists():
            break
        time.sleep(min(left_s, _SLICE_S))
    if cancel.is_set:
        raise Cancelled


@dataclass(frozen=True, slots=True)
class KnowingDrafter:
    """Knows the script; every fourth token that it proposes is wrong, and every other draft is `lookup`."""

    script: Script
    name: str = "model"
    reserve: float = 0.0

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:
        pass

    def forecast(self, tokens: Sequence[int]) -> None:
        pass

    def propose(
        self, tokens: Sequence[int], plan: Plan, chooser: Chooser
    ) -> Generator[Pass, Logits, Draft]:
        yield from ()
        self.script.fail("draft", tokens, RuntimeError("a drafter out of its mind"))
        drafted: list[int] = []
        for _ in range(plan.draft_length):
            token = self.script.next_token([*tokens, *drafted])
            wrong = (len(tokens) + len(drafted)) % 4 == 0
            drafted.append(spelled("#")[0] if wrong else token)
        name = "lookup" if len(tokens) % 2 else "model"
        return Draft(tuple(drafted), (0.5,) * len(drafted), name)

    def learn(self, done: Round) -> None:
        pass


def script_of(document: dict[str, Any]) -> Script:
    return Script(
        answers=document.get("answers", {}),
        otherwise=document.get("otherwise", ["Hello **world**."]),
        fails={part: (where, at) for part, (where, at) in document.get("fails", {}).items()},
    )


def sequences_of(document: dict[str, Any], script: Script, cancel: CancelFlag) -> ScriptedSequences:
    death = Death(**document["death"]) if "death" in document else NEVER
    n_ctx, count = document.get("n_ctx", 4000), document.get("parallel", 1)
    return ScriptedSequences(
        views=[ScriptedModel(script, n_ctx, death) for _ in range(count)],
        pass_s=document.get("pass_s", 0.0),
        chunk_s=document.get("chunk_s", 0.0),
        cancel=cancel,
        rests=(rests["at"], rests["until"]) if (rests := document.get("rests")) else None,
    )

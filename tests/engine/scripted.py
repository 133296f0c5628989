"""Models that tell a script, at the pace that it sets, and die where it says so."""

import os
import signal
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from localspec.decoding.drafter import Draft

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.choose import Chooser
from localspec.decoding.model import Logits, Pass
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
        """End the process if this is the moment."""
        if (on, at) != (self.on, self.at):
            return
        if isinstance(self.how, int):
            os._exit(self.how)
        os.kill(os.getpid(), signal.Signals[self.how])
        time.sleep(60)


NEVER = Death("never")


@dataclass(slots=True, eq=False)
class ScriptedModel:
    """Answers the last question with what the script has for it, and keeps a cache like a real model.

    Args:
        answers: a part of a question, and the answer to it.
        otherwise: answers to all other questions, by their number in the conversation.
        n_ctx: tokens of context.
        pass_s: how long a pass takes.
        chunk_s: how long a chunk of a prompt takes.
        cancel: stops both.
        death: where the process is to end.
    """

    answers: dict[str, str]
    otherwise: list[str]
    n_ctx: int
    pass_s: float
    chunk_s: float
    cancel: CancelFlag
    death: Death
    cells: list[int] = field(default_factory=list)
    watch: Callable[[int, int], None] | None = None
    n_vocab: int = N_VOCAB

    def common_prefix(self, tokens: Sequence[int]) -> int:
        shorter = min(len(self.cells), len(tokens))
        if self.cells[:shorter] == list(tokens[:shorter]):
            return shorter
        return next(i for i in range(shorter) if self.cells[i] != tokens[i])

    def truncate(self, n_past: int) -> None:
        del self.cells[n_past:]

    def prefill(self, tokens: Sequence[int]) -> int:
        self.truncate(self.common_prefix(tokens))
        todo = list(tokens[len(self.cells) :])
        for start in range(0, len(todo), CHUNK):
            many = len(todo) > CHUNK
            wait(self.chunk_s if many else self.pass_s, self.cancel)
            self.cells += todo[start : start + CHUNK]
            if many and self.watch is not None:
                self.watch(len(todo[: start + CHUNK]), len(todo))
            self.death.strike("prefill", start // CHUNK)
        return len(todo)

    def logits(self, tokens: Sequence[int], rows: int) -> Logits:
        assert len(tokens) <= self.n_ctx
        self.truncate(min(self.common_prefix(tokens), len(tokens) - rows))
        self.prefill(tokens)
        row = np.zeros((rows, N_VOCAB), dtype=np.float32)
        for index in range(rows):
            row[index, self.next_token(tokens[: len(tokens) - rows + 1 + index])] = 50
        self.death.strike("token", self._said(tokens))
        return row

    def next_token(self, tokens: Sequence[int]) -> int:
        """Return what the script says after `tokens`."""
        script, said = self._script(tokens), self._said(tokens)
        return script[said] if said < len(script) else END

    def _said(self, tokens: Sequence[int]) -> int:
        return list(reversed(tokens)).index(BEGIN) - 2  # behind "assistant\n"

    def _script(self, tokens: Sequence[int]) -> list[int]:
        text = b"".join(
            b"\x00" if token == BEGIN else TOKENIZER.piece(token) for token in tokens
        ).decode(errors="replace")
        questions = [
            turn.removeprefix("user\n") for turn in text.split("\0") if turn.startswith("user\n")
        ]
        answer = self.otherwise[(len(questions) - 1) % len(self.otherwise)]
        for part, told in self.answers.items():
            if questions and part in questions[-1]:
                answer = told
        return TOKENIZER.tokenize(answer, add_special=False, parse_special=False)


def wait(seconds: float, cancel: CancelFlag) -> None:
    """Let time go by as a native call does, which looks at its flag now and then."""
    end_s = time.monotonic() + seconds
    while not cancel.is_set and (left_s := end_s - time.monotonic()) > 0:
        time.sleep(min(left_s, _SLICE_S))
    if cancel.is_set:
        raise Cancelled


@dataclass(frozen=True, slots=True)
class KnowingDrafter:
    """Knows the script; every fourth token that it proposes is wrong, and every other draft is `lookup`."""

    model: ScriptedModel
    name: str = "model"

    def propose(
        self, tokens: Sequence[int], draft_length: int, chooser: Chooser
    ) -> Generator[Pass, Logits, Draft]:
        yield from ()
        drafted: list[int] = []
        for _ in range(draft_length):
            token = self.model.next_token([*tokens, *drafted])
            wrong = (len(tokens) + len(drafted)) % 4 == 0
            drafted.append(spelled("#")[0] if wrong else token)
        name = "lookup" if len(tokens) % 2 else "model"
        return Draft(tuple(drafted), (0.5,) * len(drafted), name)


def script_of(document: dict[str, Any], cancel: CancelFlag) -> ScriptedModel:
    """Return the model of a script; see `tests.engine.double`."""
    return ScriptedModel(
        answers=document.get("answers", {}),
        otherwise=document.get("otherwise", ["Hello **world**."]),
        n_ctx=document.get("n_ctx", 4000),
        pass_s=document.get("pass_s", 0.0),
        chunk_s=document.get("chunk_s", 0.0),
        cancel=cancel,
        death=Death(**document["death"]) if "death" in document else NEVER,
    )

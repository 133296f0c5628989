"""Collecting: a target answers prompts, many at once, and what its layers took in is kept of every token.

It is kept in parts, of two files each: rows of floats, written first, and the conversations, whose file makes the part count.
"""

import io
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from localspec.bench.prompts import BenchPrompt
from localspec.chat.conversation import Conversation
from localspec.chat.events import Finished, RequestFailed
from localspec.chat.request import Request
from localspec.decoding.model import Logits
from localspec.decoding.top import ranked_ids
from localspec.launch.load import Runtime
from localspec.llama.batch import Part
from localspec.llama.staging import keep_layer_inputs, layer_inputs
from localspec.messages import Message
from localspec.options import ReplyOptions, SamplingParams
from localspec.storage.files import write_atomic
from localspec.tailor.lessons import Lesson, RecordedReply
from localspec_student.head import Target
from localspec_student.prompts import Answers, made_prompt

N_CTX, TOP = 1024, 16
"""Tokens of a conversation; ids of each row that are kept, the likeliest."""
_ANSWER, _TEMPERATURE = 200, 0.8
_HALF_MAX = 60_000.0  # some channels of some targets are beyond what 16 bits hold


@dataclass(slots=True, eq=False)
class Talk:
    """A prompt and the target's answer.

    Args:
        key: which prompt it is, see `jobs`.
        kind: of text.
        n_prompt: tokens of the prompt.
        tokens: all of them.
        rows: by token, inputs of the target's layers side by side, as 16-bit floats.
        ids: by token, the likeliest next ones.
        logs: logarithms of their probabilities, as 16-bit floats.
    """

    key: str
    kind: str
    n_prompt: int
    tokens: list[int]
    rows: Any = None
    ids: Any = None
    logs: Any = None

    @property
    def is_held_out(self) -> bool:
        """Whether it is never trained on."""
        return self.key.startswith("held:")


def add_part(folder: Path, talks: Sequence[Talk]) -> None:
    """Write conversations as one more part; raises OSError where the disk does not take it."""
    number = 1 + max((int(each.stem[6:]) for each in folder.glob("talks-*.msgpack")), default=0)
    content = io.BytesIO()
    np.save(content, np.concatenate([each.rows for each in talks]))
    write_atomic(folder / f"rows-{number:05}.npy", content.getvalue())
    done = [(t.key, t.kind, t.n_prompt, t.tokens, t.ids.tobytes(), t.logs.tobytes()) for t in talks]
    write_atomic(folder / f"talks-{number:05}.msgpack", msgspec.msgpack.encode(done))


def read_talks(folder: Path) -> Iterator[Talk]:
    """Yield all conversations, in the order in which they came; their rows stay on the disk until they are used."""
    for path in sorted(folder.glob("talks-*.msgpack")):
        rows = np.load(folder / f"rows-{path.stem[6:]}.npy", mmap_mode="r")
        for *known, ids, logs in msgspec.msgpack.decode(path.read_bytes()):
            talk, n = Talk(*known), len(known[-1])
            talk.rows, rows = rows[:n], rows[n:]
            talk.ids = np.frombuffer(ids, np.int32).reshape(n, -1)
            talk.logs = np.frombuffer(logs, np.float16).reshape(n, -1)
            yield talk


Job = tuple[str, Lesson]
"""A lesson, and the key by which it is known to be done."""


def jobs(first: Mapping[str, Lesson], done: set[str], answers: Answers) -> Iterator[Job]:
    """Yield lessons without end, those that are not done: the first by their keys, then bundled prompts.

    Args:
        first: those that are held out, and the user's own.
        done: keys of those that are done.
        answers: of the target, by kind; grows meanwhile.
    """
    yield from ((key, each) for key, each in first.items() if key not in done)
    made = ((f"made:{number}", number) for number in count())
    yield from ((key, made_prompt(number, answers)) for key, number in made if key not in done)


class Teacher:
    """A target that answers, and whose layers are looked into while it does.

    Args:
        runtime: the target, loaded for several answers at once.
        target: its file, which says which layers.
    """

    def __init__(self, runtime: Runtime, target: Target) -> None:
        self._native, self._target = runtime.target.native, target
        self._assistant, self._piece = runtime.assistant, runtime.target.model.vocabulary.piece
        self._evaluated = defaultdict[int, Talk](lambda: _blank(target))
        for layer in target.layers:
            keep_layer_inputs(self._native.handle, layer)
        self._native.on_pass = self._take

    def _take(self, parts: Sequence[Part]) -> None:
        """Keep of every token of a pass its row, and where logits were wanted, what is likeliest."""
        n, width, handle = (
            sum(len(each.tokens) for each in parts),
            self._target.width,
            self._native.handle,
        )
        inputs = np.hstack([layer_inputs(handle, each, n, width) for each in self._target.layers])
        inputs = inputs.clip(-_HALF_MAX, _HALF_MAX).astype(np.float16)
        n_rows = sum(each.rows for each in parts)
        ids, logs = likeliest(self._native.rows(n_rows)) if n_rows else (None, None)
        start = row = 0
        for part in parts:
            talk, n = self._evaluated[part.sequence], len(part.tokens)
            end = part.place + n
            del talk.tokens[part.place :]
            talk.tokens += part.tokens
            talk.rows[part.place : end] = inputs[start : start + n]
            if part.rows:
                talk.ids[end - part.rows : end] = ids[row : row + part.rows]
                talk.logs[end - part.rows : end] = logs[row : row + part.rows]
            start, row = start + n, row + part.rows

    def text(self, talk: Talk) -> str:
        """Return the text of an answer; nothing of what is held out, so that no prompt is made of it."""
        answer = [] if talk.is_held_out else talk.tokens[talk.n_prompt :]
        return b"".join(map(self._piece, answer)).decode(errors="replace")

    def talks(self, waiting: Iterator[Job]) -> Iterator[Talk]:
        """Yield the conversations that lessons begin, given with their keys, in the order in which they end.

        Raises:
            Cancelled: the flag was set.
        """
        running, numbers = dict[int, Talk](), count()
        while True:
            while len(running) < self._assistant.count:
                running[number := next(numbers)] = talk = self._begun(*next(waiting))
                greedy = talk.is_held_out or number % 2
                sampling = SamplingParams(temperature=0.0 if greedy else _TEMPERATURE)
                most = _ANSWER if len(talk.tokens) == talk.n_prompt else 1
                options = ReplyOptions(sampling, seed=number, max_tokens=most)
                # Nothing of an earlier prompt is used again: every row comes from a pass of its own.
                request = Request(number, (), options, ephemeral=True, raw=(*talk.tokens,), keep=0)
                self._assistant.submit(request)
            self._assistant.step()
            for number, event in self._assistant.take():
                if isinstance(event, RequestFailed):
                    raise event.error
                if isinstance(event, Finished):
                    yield self._ended(running.pop(number), event.reply.tokens)

    def _begun(self, key: str, lesson: Lesson) -> Talk:
        """Return the conversation of a lesson, or the end of one that is too long."""
        if isinstance(lesson, RecordedReply):
            tokens, n_answer = [*lesson.tokens], len(lesson.tokens) - lesson.n_prompt
        else:
            turns = [Message.user(lesson.prompt)] if isinstance(lesson, BenchPrompt) else lesson
            conversation = Conversation(messages=turns)
            tokens = self._assistant.prompt_tokens(conversation)
            n_answer = len(conversation.begun)
        tokens = tokens[-(N_CTX - _ANSWER) :]
        return Talk(key, getattr(lesson, "workload", "own"), max(1, len(tokens) - n_answer), tokens)

    def _ended(self, talk: Talk, answer: Sequence[int]) -> Talk:
        """Return a conversation with its answer and what was computed of it; the last token was not evaluated."""
        at = len(talk.tokens) - 1
        talk.tokens = [*talk.tokens, *answer][:-1]
        n = len(talk.tokens)
        (its,) = [each for each in self._evaluated.values() if each.tokens[:n] == talk.tokens][:1]
        talk.rows, talk.ids, talk.logs = (each[:n].copy() for each in (its.rows, its.ids, its.logs))
        # Of what was given, no logits were wanted: what is likely there is what it says.
        talk.ids[:at, 0], talk.ids[:at, 1:] = talk.tokens[1 : at + 1], 0
        talk.logs[:at, 0], talk.logs[:at, 1:] = 0, -np.inf
        return talk


def _blank(target: Target) -> Talk:
    """Return a conversation with room for what a sequence evaluates."""
    ids, logs = np.zeros((N_CTX, TOP), np.int32), np.zeros((N_CTX, TOP), np.float16)
    rows = np.zeros((N_CTX, len(target.layers) * target.width), np.float16)
    return Talk("", "", 0, [], rows, ids, logs)


def likeliest(logits: Logits) -> tuple[Any, Any]:
    """Return the `TOP` ids of each row, the likeliest first, and the logarithms of their probabilities, as 16-bit floats."""
    ids = np.array([ranked_ids(row, TOP) for row in logits], np.int32)
    values = np.take_along_axis(logits, ids, 1)
    total = values[:, :1] + np.log(np.exp(logits - values[:, :1]).sum(1, keepdims=True))
    return ids, (values - total).astype(np.float16)

"""Collecting: a target answers prompts, many at once, and what its layers took in is kept of every token.

It is kept in parts, of two files each: rows of floats, written first, and the conversations, whose file makes the part count.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from localspec.bench.prompts import BenchPrompt
from localspec.chat.conversation import Conversation
from localspec.chat.events import Finished, RequestFailed
from localspec.chat.request import Request
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.model import Logits
from localspec.decoding.top import ranked_ids
from localspec.launch.load import Runtime
from localspec.llama.batch import Part
from localspec.llama.sequence import LlamaContext
from localspec.llama.staging import keep_layer_inputs, layer_inputs
from localspec.messages import Message
from localspec.options import ReplyOptions, SamplingParams
from localspec.storage.files import write_atomic
from localspec.tailor.lessons import Lesson, RecordedReply
from localspec_student.head import Target
from localspec_student.prompts import Answers, made_prompt

N_CTX, ROWS, TOP = 1024, 64, 16
"""Tokens of a conversation; rows of logits of a pass; ids of each row that are kept, the likeliest."""
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
    """A target that answers, and whose layers are looked into.

    Args:
        runtime: the target, loaded for several answers at once.
        target: its file, which says which layers.
        cancel: stops it.
    """

    def __init__(self, runtime: Runtime, target: Target, cancel: CancelFlag) -> None:
        model = runtime.target.model
        options = replace(model.options, n_ctx=N_CTX, max_rows=ROWS)
        self._context, self._target = LlamaContext(model, cancel, options), target
        self._assistant, self._piece = runtime.assistant, model.vocabulary.piece
        self._rows = list[Any]()
        for layer in target.layers:
            keep_layer_inputs(self._context.native.handle, layer)
        self._context.native.on_pass = self._take

    def _take(self, parts: Sequence[Part]) -> None:
        """Keep the rows of a pass."""
        n, width, handle = len(parts[0].tokens), self._target.width, self._context.native.handle
        rows = np.hstack([layer_inputs(handle, each, n, width) for each in self._target.layers])
        self._rows.append(rows.clip(-_HALF_MAX, _HALF_MAX).astype(np.float16))

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
                request = Request(number, (), options, ephemeral=True, raw=(*talk.tokens,))
                self._assistant.submit(request)
            self._assistant.step()
            for number, event in self._assistant.take():
                if isinstance(event, RequestFailed):
                    raise event.error
                if isinstance(event, Finished):
                    talk = running.pop(number)
                    talk.tokens += event.reply.tokens
                    self._look_into(talk)
                    yield talk

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

    def _look_into(self, talk: Talk) -> None:
        """Add to a conversation what the target computes of it; raises Cancelled where the flag was set."""
        likely, tokens = list[tuple[Any, Any]](), talk.tokens
        self._context.truncate(0)
        self._rows.clear()
        for start in range(0, len(tokens), ROWS):
            part = tokens[: start + ROWS]
            likely.append(likeliest(self._context.logits(part, len(part) - start)))
        talk.rows = np.concatenate(self._rows)
        talk.ids, talk.logs = map(np.concatenate, zip(*likely, strict=True))


def likeliest(logits: Logits) -> tuple[Any, Any]:
    """Return the `TOP` ids of each row, the likeliest first, and the logarithms of their probabilities."""
    ids = np.array([ranked_ids(row, TOP) for row in logits], np.int32)
    values = np.take_along_axis(logits, ids, 1)
    total = values[:, :1] + np.log(np.exp(logits - values[:, :1]).sum(1, keepdims=True))
    return ids, (values - total).astype(np.float16)

"""Collecting: a target answers prompts of many kinds, many at once, and what its layers took in is kept of every token.

The prompts of `localspec bench` are held out.

It is kept in parts, of two files each: rows of floats, written first, and the conversations, whose file makes the part count.
"""

import io
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np

from localspec.chat.events import Finished, RequestFailed
from localspec.chat.request import Request
from localspec.chat.token_prefix import Conversation
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.model import Logits
from localspec.decoding.top import ranked_ids
from localspec.launch.load import Runtime
from localspec.llama.batch import Part
from localspec.llama.unstable_api import keep_layer_inputs, layer_inputs
from localspec.messages import Message
from localspec.options import ReplyOptions, SamplingParams
from localspec.plugins.bench.prompts import BenchPrompt
from localspec.plugins.tailor.lessons import Lesson, RecordedReply
from localspec.storage.files import write_atomic
from localspec_student.head import Target

N_CTX, TOP = 1024, 16  # tokens of a conversation; ids that are noted of each, the likeliest
_ANSWER, _TEMPERATURE = 200, 0.8
_LONGEST_ANSWER = 1500  # characters of an earlier answer in a prompt
_TABLES = tomllib.loads(Path(__file__).with_name("prompts.toml").read_text("utf-8"))
ASKED = BenchPrompt("asked", "")  # a prompt that the target writes itself; see `Teacher`
Jobs = Iterator[tuple[str, Lesson]]  # lessons with their keys
Answers = Mapping[str, Sequence[str]]  # texts by kind
_HALF_MAX = 60_000.0  # some channels of some targets are beyond what 16 bits hold


@dataclass(slots=True, eq=False)
class Talk:
    """A prompt and the target's answer.

    Args:
        key: which prompt it is, see `jobs`.
        kind: of text.
        n_prompt: tokens of the prompt.
        tokens: all of them.
        noted: of each token, see `noted_type`.
    """

    key: str
    kind: str
    n_prompt: int
    tokens: list[int]
    noted: Any = None

    @property
    def is_held_out(self) -> bool:
        """Whether it is never trained on."""
        return self.key.startswith("held:")


def noted_type(target: Target) -> np.dtype[Any]:
    """Return the type of what is noted of a token: inputs of the target's layers, the likeliest next ids, and the logarithms of their probabilities."""
    row = np.float16, len(target.layers) * target.width
    return np.dtype([("row", *row), ("ids", np.int32, TOP), ("logs", np.float16, TOP)])


def add_part(folder: Path, talks: Sequence[Talk]) -> None:
    """Write conversations as one more part; raises OSError where the disk does not take it."""
    number = 1 + max((int(each.stem[6:]) for each in folder.glob("talks-*.msgpack")), default=0)
    content = io.BytesIO()
    np.save(content, np.concatenate([each.noted for each in talks]))
    write_atomic(folder / f"rows-{number:05}.npy", content.getvalue())
    done = [(each.key, each.kind, each.n_prompt, each.tokens) for each in talks]
    write_atomic(folder / f"talks-{number:05}.msgpack", msgspec.msgpack.encode(done))


def read_talks(folder: Path) -> Iterator[Talk]:
    """Yield all conversations, in the order in which they came; what is noted stays on the disk until it is used."""
    for path in sorted(folder.glob("talks-*.msgpack")):
        noted = np.load(folder / f"rows-{path.stem[6:]}.npy", mmap_mode="r")
        for key, kind, n_prompt, tokens in msgspec.msgpack.decode(path.read_bytes()):
            yield Talk(key, kind, n_prompt, tokens, noted[: len(tokens)])
            noted = noted[len(tokens) :]


def made_prompt(number: int, answers: Answers) -> BenchPrompt:
    """Return the prompt of a number.

    Args:
        number: from 0; kinds take turns, and then the target asks as often.
        answers: of the target to earlier prompts, by kind. A kind that needs some is replaced by `code` while there are none.
    """
    tables, random = _TABLES, Random(number)  # noqa: S311 - no secret
    kinds = [*tables["templates"]]
    if number % (2 * len(kinds)) >= len(kinds):
        return ASKED
    kind = kinds[number % len(kinds)]
    needed = tables["answers"].get(kind, ())
    pool = [text for each in needed for text in answers.get(each, ())]
    kind = "code" if needed and not pool else kind
    text = random.choice(tables["templates"][kind])
    for _ in range(3):  # what fills a slot may have others
        for slot, values in tables["slots"].items():
            while f"{{{slot}}}" in text:
                text = text.replace(f"{{{slot}}}", random.choice(values), 1)
    answer = random.choice(pool)[:_LONGEST_ANSWER] if pool else ""
    return BenchPrompt(kind, text.replace("{answer}", answer))


def jobs(first: Mapping[str, Lesson], done: set[str], answers: Answers) -> Jobs:
    """Yield lessons without end, those that are not done: the first by their keys, then bundled prompts.

    Args:
        first: those that are held out, and the user's own.
        done: keys of those that are done.
        answers: of the target, by kind; grows meanwhile.
    """
    yield from ((key, each) for key, each in first.items() if key not in done)
    yield from ((key, made_prompt(n, answers)) for n in count() if (key := f"made:{n}") not in done)


class Teacher:
    """A target that answers, and whose layers are looked into while it does.

    Of no words but those with which a user's turn begins, it writes that turn, as users write (Xu et al. 2024, arXiv:2406.08464),
    and then answers itself: nothing else gives as many different prompts.

    Args:
        runtime: the target, loaded for several answers at once.
        target: its file, which says which layers.
        cancel: stops it.
    """

    def __init__(self, runtime: Runtime, target: Target, cancel: CancelFlag) -> None:
        self._native, self._target, self._cancel = runtime.target.native, target, cancel
        self._assistant, self._piece = runtime.assistant, runtime.target.model.vocabulary.piece
        kind = self._type = noted_type(target)
        self._noted = defaultdict[int, Any](lambda: (np.zeros(N_CTX, int), np.zeros(N_CTX, kind)))
        for layer in target.layers:
            keep_layer_inputs(self._native.handle, layer)
        self._native.on_pass = self._take
        some, other = (self._begun("", BenchPrompt("", each)).tokens for each in "AB")
        begin = next(at for at, each in enumerate(some) if each != other[at])
        self._opening, self._closing = some[:begin] or some[:1], some[begin + 1 :]

    def _take(self, parts: Sequence[Part]) -> None:
        """Note of every token of a pass its row, and where logits were wanted, what is likeliest."""
        wanted = [at >= -each.rows for each in parts for at in range(-len(each.tokens), 0)]
        new, sizes = np.zeros(len(wanted), self._type), (len(wanted), self._target.width)
        rows = [layer_inputs(self._native.handle, each, *sizes) for each in self._target.layers]
        new["row"] = np.hstack(rows).clip(-_HALF_MAX, _HALF_MAX)
        new["logs"][:, 1:] = -np.inf
        if any(wanted):
            new["ids"][wanted], new["logs"][wanted] = likeliest(self._native.rows(sum(wanted)))
        for part in parts:
            n, (tokens, noted) = len(part.tokens), self._noted[part.sequence]
            tokens[part.place : part.place + n] = part.tokens
            noted[part.place : part.place + n], new = new[:n], new[n:]

    def text(self, talk: Talk) -> str:
        """Return the text of an answer; nothing of what is held out, so that no prompt is made of it."""
        answer = [] if talk.is_held_out else talk.tokens[talk.n_prompt :]
        return b"".join(map(self._piece, answer)).decode(errors="replace")

    def talks(self, waiting: Jobs) -> Iterator[Talk]:
        """Yield the conversations that lessons begin, given with their keys, in the order in which they end.

        Raises:
            Cancelled: the flag was set.
        """
        running, asked, numbers = dict[int, Talk](), list[Talk](), count()
        while True:
            while len(running) < self._assistant.count:
                number, talk = next(numbers), asked.pop() if asked else self._begun(*next(waiting))
                running[number] = talk
                greedy = (talk.is_held_out or number % 2) and talk.tokens != self._opening
                sampling = SamplingParams(temperature=0.0 if greedy else _TEMPERATURE)
                most = _ANSWER if len(talk.tokens) == talk.n_prompt else 1
                options = ReplyOptions(sampling, seed=number, max_tokens=most)
                # Nothing of an earlier prompt is used again: every row comes from a pass of its own.
                request = Request(number, (), options, ephemeral=True, raw=(*talk.tokens,), most_cached=0)  # fmt: skip
                self._assistant.submit(request)
            self._assistant.step()
            for number, event in self._assistant.take():
                if isinstance(event, RequestFailed):
                    raise event.error
                if isinstance(event, Finished):
                    if self._cancel.is_set:  # answers end, of which a pass is missing
                        raise Cancelled
                    talk = running.pop(number)
                    if talk.tokens == self._opening:
                        talk.tokens = [*talk.tokens, *event.reply.tokens, *self._closing]
                        talk.n_prompt = len(talk.tokens)
                        asked.append(talk)
                    else:
                        yield self._ended(talk, event.reply.tokens)

    def _begun(self, key: str, lesson: Lesson) -> Talk:
        """Return the conversation of a lesson, or the end of one that is too long."""
        if isinstance(lesson, RecordedReply):
            tokens, n_answer = [*lesson.tokens], len(lesson.tokens) - lesson.n_prompt
        else:
            turns = [Message.user(lesson.prompt)] if isinstance(lesson, BenchPrompt) else lesson
            conversation = Conversation(messages=turns)
            prompt = self._assistant.prompt_tokens(conversation)
            tokens = self._opening if lesson is ASKED else prompt
            n_answer = len(conversation.begun)
        tokens = tokens[-(N_CTX - _ANSWER) :]
        return Talk(key, getattr(lesson, "workload", "own"), max(1, len(tokens) - n_answer), tokens)

    def _ended(self, talk: Talk, answer: Sequence[int]) -> Talk:
        """Return a conversation with its answer and what was noted of it; the last token was not evaluated."""
        given, talk.tokens = talk.tokens, [*talk.tokens, *answer][:-1]
        n = len(talk.tokens)
        every = (noted for its, noted in self._noted.values() if its[:n].tolist() == talk.tokens)
        talk.noted = next(every)[:n].copy()
        # Of what was given, no logits were wanted: what is likely there is what it says.
        talk.noted["ids"][: len(given) - 1, 0] = given[1:]
        return talk


def likeliest(logits: Logits) -> tuple[Any, Any]:
    """Return the `TOP` ids of each row, the likeliest first, and the logarithms of their probabilities, as 16-bit floats."""
    ids = np.array([ranked_ids(row, TOP) for row in logits], np.int32)
    values = np.take_along_axis(logits, ids, 1)
    total = values[:, :1] + np.log(np.exp(logits - values[:, :1]).sum(1, keepdims=True))
    return ids, (values - total).astype(np.float16)

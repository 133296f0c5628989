"""Collecting: a target answers prompts, many at once, and what its layers took in is kept of every token."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from localspec.bench.measure import prompt_tokens
from localspec.bench.prompts import BenchPrompt
from localspec.chat.assistant import Assistant
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.model import Logits, Pass, Role
from localspec.errors import ContextOverflow
from localspec.llama.batch import Part
from localspec.llama.model import LlamaModel
from localspec.llama.native import native
from localspec.llama.sequences import LlamaSequences
from localspec.llama.staging import keep_layer_inputs, layer_inputs
from localspec_student.corpus import TOP, Corpus, Talk, halved
from localspec_student.prompts import held_out, made_prompt

N_CTX, ANSWER, LONGEST_PROMPT = 1024, 200, 700
_ROWS = 256
"""Most rows of logits of a pass."""
_CHUNK = 64
_TALKS = 32
"""Conversations of a part on the disk."""
_TEMPERATURE, _LEAST_TEXT = 0.8, 200

Job = tuple[str, BenchPrompt]
"""A prompt, and the key by which it is known to be answered."""


def jobs(
    done: set[str],
    own: Mapping[str, BenchPrompt],
    per_kind: int,
    answers: Mapping[str, Sequence[str]],
) -> Iterator[Job]:
    """Yield prompts without end: first those that are held out, then the user's own, then bundled ones.

    Args:
        done: keys of those that were answered.
        own: the user's, by their keys.
        per_kind: how many are held out of each kind of the bundled ones.
        answers: of the target, by kind; grows meanwhile.
    """
    held = {f"held:{n}": each for n, each in enumerate(held_out(per_kind))}
    for key, prompt in {**held, **own}.items():
        if key not in done:
            yield key, prompt
    for number in count():
        if (key := f"made:{number}") not in done:
            yield key, made_prompt(number, answers)


class Collector:
    """Has a target answer.

    Args:
        assistant: makes prompts of texts.
        model: the target.
        layers: whose inputs are kept.
        slots: how many answers at once.
        cancel: stops it.
    """

    def __init__(
        self,
        assistant: Assistant,
        model: LlamaModel,
        layers: Sequence[int],
        slots: int,
        cancel: CancelFlag,
    ) -> None:
        options = replace(model.options, n_ctx=N_CTX, n_batch=_ROWS)
        self._sequences = LlamaSequences(model, cancel, options, slots, _ROWS, sharing=False)
        self._assistant, self._vocabulary = assistant, model.vocabulary
        self._layers, self._rows = layers, dict[int, NDArray[np.float16]]()
        self._context = self._sequences.native
        self._width = int(native.llama_model_n_embd(model.handle))
        for layer in layers:
            keep_layer_inputs(self._context.handle, layer)
        self._context.on_pass = self._take

    def close(self) -> None:
        """Free the context."""
        self._sequences.close()

    def _take(self, parts: Sequence[Part]) -> None:
        """Keep the rows of a pass, by sequence."""
        total, start = sum(len(part.tokens) for part in parts), 0
        each = [layer_inputs(self._context.handle, n, total, self._width) for n in self._layers]
        rows = halved(np.hstack(each))
        for part in parts:
            self._rows[part.sequence] = rows[start : start + len(part.tokens)]
            start += len(part.tokens)

    def collect(
        self,
        corpus: Corpus,
        waiting: Iterator[Job],
        answers: dict[str, list[str]],
        goes_on: Callable[[int], bool],
    ) -> None:
        """Answer prompts, and write the conversations, part by part.

        Args:
            corpus: takes them.
            waiting: prompts.
            answers: gets the texts of answers, by kind.
            goes_on: says, given the tokens of conversations to train on that ended since the last call, whether more are wanted.

        Raises:
            Cancelled: the flag was set; what is not in a part yet is lost.
            OSError: the disk takes no more.
        """
        running, ended, wanted = dict[int, Talk](), list[Talk](), goes_on(0)
        while wanted or running:
            for slot in range(len(self._sequences.views)):
                if wanted and slot not in running and (talk := self._begun(waiting)) is not None:
                    running[slot] = talk
            if not running:
                break
            for slot in self._step(running):
                talk = running.pop(slot)
                talk.join()
                ended.append(talk)
                if len(text := self._text(talk)) >= _LEAST_TEXT and not talk.is_held_out:
                    answers.setdefault(talk.kind, []).append(text)
                wanted = goes_on(0 if talk.is_held_out else len(talk.tokens))
            if ended and (len(ended) >= _TALKS or not (running or wanted)):
                corpus.add(ended)
                ended = []

    def _begun(self, waiting: Iterator[Job]) -> Talk | None:
        """Return the conversation of the next prompt that is short enough; None where there is no more."""
        for key, prompt in waiting:
            try:
                tokens = prompt_tokens(self._assistant, [prompt])[0]
            except ContextOverflow:
                continue
            if 2 <= len(tokens) <= LONGEST_PROMPT:
                greedy = key.startswith("held:") or sum(key.encode()) % 2 == 0
                return Talk(key, prompt.workload, len(tokens), tokens, greedy)
        return None

    def _step(self, running: Mapping[int, Talk]) -> list[int]:
        """Make a pass for those that are answered; return the slots of those that end."""
        left, passes = _ROWS, list[tuple[int, Pass]]()
        for at, (slot, talk) in enumerate(running.items()):
            begin = sum(map(len, talk.ids))
            # Everybody else needs a row, too.
            most = min(_CHUNK, left - (len(running) - at - 1))
            end = min(len(talk.tokens), begin + most)
            passes.append((slot, Pass(Role.TARGET, talk.tokens[:end], end - begin)))
            left -= end - begin
        answered = self._sequences.together(passes)
        return [
            slot
            for (slot, each), logits in zip(passes, answered, strict=True)
            if self._ends(slot, running[slot], len(each.tokens), logits)
        ]

    def _ends(self, slot: int, talk: Talk, evaluated: int, logits: Logits) -> bool:
        """Add what a pass computed to a conversation, and choose its next token; return whether it ends here."""
        ids, logs = likeliest(logits)
        talk.rows.append(self._rows[self._sequences.views[slot].number])
        talk.ids.append(ids)
        talk.logs.append(logs)
        if evaluated < len(talk.tokens):
            return False
        chosen = int(ids[-1, 0])
        if not talk.greedy:
            weights = np.exp(logs[-1].astype(np.float64) / _TEMPERATURE)
            random = np.random.default_rng([len(talk.tokens), *talk.key.encode()])
            chosen = int(random.choice(ids[-1], p=weights / weights.sum()))
        talk.tokens.append(chosen)
        most = min(talk.n_prompt + ANSWER, N_CTX)
        return chosen in self._vocabulary.eog or len(talk.tokens) > most

    def _text(self, talk: Talk) -> str:
        piece = self._vocabulary.piece
        return b"".join(map(piece, talk.tokens[talk.n_prompt :])).decode(errors="replace")


def likeliest(logits: Logits) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the `TOP` ids of each row, the likeliest first, and the logarithms of their probabilities."""
    top = min(TOP, logits.shape[1])
    ids = np.argpartition(logits, -top, axis=1)[:, -top:]
    values = np.take_along_axis(logits, ids, 1)
    order = np.argsort(-values, axis=1)
    ids, values = np.take_along_axis(ids, order, 1), np.take_along_axis(values, order, 1)
    total = values[:, :1] + np.log(np.exp(logits - values[:, :1]).sum(1, keepdims=True))
    return ids.astype(np.int32), values - total

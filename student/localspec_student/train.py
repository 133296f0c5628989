"""Training and measuring: a head learns to foretell the target's likeliest tokens, several in a row."""

import io
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.storage.files import write_atomic
from localspec_student.corpus import Talk
from localspec_student.head import Head, Tensor, new_weights
from localspec_student.recipe import Recipe
from localspec_student.target import Floats, Integers, Target

LENGTH = 5
"""Drafted tokens of a round, for figures."""
_SKIPPED = 24
"""Tokens at the beginning of a conversation that are not learnt: mostly the same template."""
_WARM_UP, _CLIP, _BETAS, _LAST_RATE = 30, 1.0, (0.9, 0.95), 0.01
_SAVE_S, _SAMPLED = 60.0, 60

Figures = dict[str, float]


def device() -> str:
    """Return torch's name of the device to train on."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def likely_ids(talks: Sequence[Talk], most: int, n_vocab: int, ends: Sequence[int]) -> Integers:
    """Return the ids that a head can propose, ascending: what the target finds likeliest, and what ends an answer."""
    mass = np.zeros(n_vocab)
    for each in talks:
        np.add.at(mass, each.ids, np.exp(each.logs.astype(np.float32)))
    mass[list(ends)] = np.inf
    return np.sort(np.argsort(-mass, kind="stable")[: min(most, n_vocab)])


def groups(talks: Sequence[Talk], batch: int) -> list[list[Talk]]:
    """Return conversations of about the same length, `batch` tokens together."""
    every, group = list[list[Talk]](), list[Talk]()
    for each in sorted(talks, key=lambda talk: len(talk.tokens)):
        if group and (len(group) + 1) * len(each.tokens) > batch:
            every.append(group)
            group = []
        group.append(each)
    return [*every, group] if group else every


class Batch:
    """Conversations side by side, as tensors.

    Args:
        talks: the conversations.
        recipe: says what a token counts.
        on: the device.
    """

    def __init__(self, talks: Sequence[Talk], recipe: Recipe, on: str) -> None:
        self.lengths = [len(each.tokens) for each in talks]
        longest = max(self.lengths)

        def padded(values: Sequence[Any], kind: type[np.generic]) -> Tensor:
            room = np.zeros((len(values), longest, *np.shape(values[0])[1:]), kind)
            for at, each in enumerate(values):
                room[at, : len(each)] = each
            return torch.from_numpy(room).to(on)

        self.tokens = padded([each.tokens for each in talks], np.int64)
        self.rows = padded([each.rows for each in talks], np.float32)
        self.ids = padded([each.ids for each in talks], np.int64)
        self.logs = padded([each.logs for each in talks], np.float32)
        counts = np.zeros((len(talks), longest), np.float32)
        for at, each in enumerate(talks):
            counts[at, min(_SKIPPED, each.n_prompt - 1) : len(each.tokens)] = recipe.prompt_weight
            counts[at, each.n_prompt - 1 : len(each.tokens)] = 1.0
        self.counts = torch.from_numpy(counts).to(on)


@dataclass(slots=True, eq=False)
class Progress:
    """What training is at.

    Args:
        step: of how many are done.
        steps: how many there are.
        loss: of the last steps, a mean.
        expected: tokens a round on what is trained on, by how often each depth is right.
        left_s: seconds that the rest takes.
    """

    step: int
    steps: int
    loss: float = 0.0
    expected: float = 1.0
    left_s: float = 0.0


class Trainer:
    """Trains one head.

    Args:
        target: the teacher's file.
        recipe: how.
        talks: to train on.
        ids: that the head can propose; of a head to go on from, its own.
        before: weights to go on from; None begins as the recipe says.

    Attributes:
        head: what is trained.
        step: how many steps are done.
        steps: how many there are.
    """

    def __init__(
        self,
        target: Target,
        recipe: Recipe,
        talks: Sequence[Talk],
        ids: Integers,
        before: Mapping[str, Tensor] | None = None,
    ) -> None:
        self._recipe, self._on, self._ids = recipe, device(), ids
        if before is None:
            sample = np.concatenate([each.rows for each in talks[:_SAMPLED]]).astype(np.float32)
            before = new_weights(target, ids, sample, warm=recipe.warm, even=recipe.even)
        weights = {name: each.detach().clone().to(self._on) for name, each in before.items()}
        self.head = Head(target.shape, weights, recipe.dropout)
        embedding = target.embedding()
        self._places = torch.full((len(embedding),), -1, dtype=torch.int64)
        self._places[torch.from_numpy(ids)] = torch.arange(len(ids))
        self._places = self._places.to(self._on)
        self._embedding = torch.from_numpy(embedding).to(self._on)
        self._groups = groups(talks, recipe.batch)
        self.step, self.steps = 0, recipe.epochs * len(self._groups)
        for each in self.head.trained:
            each.requires_grad_(True)
        wide = [each for each in self.head.trained if each.ndim > 1]
        flat = [each for each in self.head.trained if each.ndim == 1]
        parts = [
            {"params": wide, "weight_decay": recipe.decay},
            {"params": flat, "weight_decay": 0},
        ]
        self._optimizer = torch.optim.AdamW(parts, lr=recipe.rate, betas=_BETAS)

    def save(self, path: Path) -> None:
        """Write all that going on needs, whole or not at all."""
        ids, optimizer = torch.from_numpy(self._ids), self._optimizer.state_dict()
        state = {"step": self.step, "ids": ids, "optimizer": optimizer}
        write_atomic(path, saved({**state, "weights": self.head.weights}))

    def restore(self, path: Path) -> None:
        """Go on from what was saved, if anything was."""
        if not path.exists():
            return
        state = load(path)
        self.step = state["step"]
        with torch.no_grad():
            for name, each in state["weights"].items():
                self.head.weights[name].copy_(each)
        self._optimizer.load_state_dict(state["optimizer"])

    def run(self, path: Path, cancel: CancelFlag, report: Callable[[Progress], None]) -> None:
        """Train to the end, saving now and then.

        Raises:
            Cancelled: the flag was set; all steps are saved.
            OSError: the disk does not take it.
        """
        begun_s, first, saved_s, took_s = time.monotonic(), self.step, time.monotonic(), 0.0
        loss, hits = 0.0, np.zeros(self._recipe.depths, np.float32)
        while self.step < self.steps:
            if cancel.is_set:
                self.save(path)
                raise Cancelled
            epoch, at = divmod(self.step, len(self._groups))
            order = np.random.default_rng(epoch).permutation(len(self._groups))
            new_loss, new_hits = self._learn(self._groups[order[at]])
            share = 0.1 if self.step > first else 1.0
            loss, hits = loss + share * (new_loss - loss), hits + share * (new_hits - hits)
            self.step += 1
            now_s = time.monotonic()
            left_s = (now_s - begun_s) / (self.step - first) * (self.steps - self.step)
            expected = 1 + float(np.cumprod(hits).sum())
            report(Progress(self.step, self.steps, loss, expected, left_s))
            if now_s - saved_s > _SAVE_S + 20 * took_s:
                self.save(path)
                saved_s = time.monotonic()
                took_s = saved_s - now_s
        self.save(path)

    def step_s(self) -> float:
        """Return the seconds of a step over the first conversations, the second time; nothing is learnt."""
        for _ in range(2):
            begun_s = time.monotonic()
            self._loss(self._groups[0])[0].backward()
        self._optimizer.zero_grad(set_to_none=True)
        return time.monotonic() - begun_s

    def _learn(self, group: Sequence[Talk]) -> tuple[float, Floats]:
        """Make a step; return its loss, and how often each depth was right."""
        recipe, steps = self._recipe, self.steps
        warm_up = min(1.0, (self.step + 1) / _WARM_UP)
        cosine = 0.5 + 0.5 * math.cos(math.pi * self.step / steps)
        for each in self._optimizer.param_groups:
            each["lr"] = recipe.rate * warm_up * max(cosine, _LAST_RATE)
        torch.manual_seed(self.step)
        loss, hits = self._loss(group)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.head.trained, _CLIP)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return float(loss.detach()), hits

    def _loss(self, group: Sequence[Talk]) -> tuple[Tensor, Floats]:
        recipe, batch = self._recipe, Batch(group, self._recipe, self._on)
        places = self._places[batch.ids]
        chances = batch.logs.exp() * (places >= 0)
        compared, correction = self._compared(places[places >= 0])
        if compared is not None:
            where = torch.full((len(self._ids),), -1, dtype=torch.int64, device=self._on)
            where[compared] = torch.arange(len(compared), device=self._on)
            places = torch.where(places >= 0, where[places.clamp(min=0)], places)
        embedded = F.embedding(batch.tokens, self._embedding)
        total, weights, hits = 0.0, 0.0, np.zeros(recipe.depths, np.float32)
        unrolled = self.head.unrolled(embedded, batch.rows, recipe.depths)
        for depth, row in enumerate(unrolled):
            counts = batch.counts[:, 1 + depth :]
            kept = counts > 0
            if not kept.any():
                break
            counts, wanted = counts[kept], places[:, 1 + depth :][kept]
            logits = self.head.logits(row[kept], compared)
            hits[depth] = float((logits.argmax(-1) == wanted[:, 0]).float().mean())
            if correction is not None:
                logits = logits + correction
            each = logits.log_softmax(-1).gather(1, wanted.clamp(min=0))
            loss = -(chances[:, 1 + depth :][kept] * each).sum(-1)
            weight = recipe.depth_weight**depth
            total = total + weight * (loss * counts).sum() / counts.sum()
            weights += weight
        return total / max(weights, 1e-9), hits

    def _compared(self, wanted: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return the ids that a step compares, and what that adds to their logits; None for all.

        Those drawn stand for all that were not: each for as many as there are to one.
        """
        likely = wanted.unique()
        rest = len(self._ids) - len(likely)
        drawn = self._recipe.negatives
        if not 0 < drawn < rest:
            return None, None
        every = torch.ones(len(self._ids), dtype=torch.bool, device=self._on)
        every[likely] = False
        others = every.nonzero()[:, 0]
        others = others[torch.randperm(rest, device=self._on)[:drawn]]
        correction = torch.zeros(len(likely) + drawn, device=self._on)
        correction[len(likely) :] = math.log(rest / drawn)
        return torch.cat([likely, others]), correction


def saved(state: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file that `load` reads."""
    content = io.BytesIO()
    torch.save(dict(state), content)
    return content.getvalue()


def load(path: Path) -> dict[str, Any]:
    """Return the state of a head: weights, ids and what else was saved."""
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def measure(target: Target, state: Mapping[str, Any], talks: Sequence[Talk]) -> Figures:
    """Return the tokens a round on recorded greedy answers, by kind and by kind and length: `code`, `code:3`.

    Rounds of a length are replayed: where a draft is wrong, the recorded text goes on.

    Args:
        target: the teacher's file.
        state: of a head, see `load`.
        talks: the conversations; those that are not greedy are left out.
    """
    on, ids = device(), state["ids"]
    head = Head(target.shape, {name: each.to(on) for name, each in state["weights"].items()})
    embedding = torch.from_numpy(target.embedding()).to(on)
    tokens, rounds = dict[str, int](), dict[str, int]()
    with torch.no_grad():
        for group in groups([each for each in talks if each.greedy], Recipe().batch):
            batch = Batch(group, Recipe(), on)
            embedded = F.embedding(batch.tokens, embedding)
            right = torch.zeros(LENGTH, *batch.tokens.shape, dtype=torch.bool)
            for depth, row in enumerate(head.unrolled(embedded, batch.rows, LENGTH)):
                if row.shape[1] > 1:
                    drafted = ids[head.logits(row[:, :-1]).argmax(-1).cpu()]
                    said = batch.tokens[:, 2 + depth :].cpu()
                    right[depth, :, 1 : 1 + drafted.shape[1]] = drafted == said
            for at, talk in enumerate(group):
                hits = right[:, at, talk.n_prompt : len(talk.tokens)].numpy()
                for length in range(1, LENGTH + 1):
                    for name in (f"{talk.kind}:{length}", talk.kind)[: 1 + (length == LENGTH)]:
                        tokens[name] = tokens.get(name, 0) + max(0, hits.shape[1] - 1)
                        rounds[name] = rounds.get(name, 0) + _rounds(hits[:length])
    return {name: tokens[name] / rounds[name] for name in tokens if rounds[name]}


def _rounds(hits: Any) -> int:
    """Return how many rounds confirm all tokens after the first, given whether each depth is right at each place."""
    at, rounds = 0, 0
    while at < hits.shape[1] - 1:
        chain = hits[: hits.shape[1] - 1 - at, at]
        at += 1 + (len(chain) if chain.all() else int(chain.argmin()))
        rounds += 1
    return rounds


def mean(figures: Mapping[str, float]) -> float:
    """Return the mean over kinds."""
    of_kinds = [each for name, each in figures.items() if ":" not in name]
    return sum(of_kinds) / len(of_kinds) if of_kinds else 0.0

"""Training and measuring: a head learns to foretell the target's likeliest tokens, several in a row."""

import io
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch.utils.benchmark import Timer

from localspec.storage.files import write_atomic
from localspec_student.collect import Talk
from localspec_student.head import Floats, Head, Target, Tensor, last_layer, new_weights
from localspec_student.recipe import Recipe

LENGTH = 5  # drafted tokens of a round, for figures
_WARM_UP, _CLIP, _BETAS, _LAST_RATE, _SAMPLED, _TRIED = 30, 1.0, (0.9, 0.95), 0.01, 60, 768
_CHECKED, _AGREES = 8, 0.9  # conversations to choose from; likeliest tokens in common
_FALL = 0.8  # weight of a depth in the loss, of that of the one before
# Tokens, rows and ids of a product are multiples of it, since kernels are made for each shape; unlikely ids that a step compares.
_SHAPE, _UNLIKELY = 64, 4096
_NOTED = ("ids", np.int64), ("logs", np.float32), ("row", np.float32)

# Where torch computes.
ON = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
State = Mapping[str, Any]  # of a head: `weights` and `ids`, and what else is noted with them
Figures = dict[tuple[str, int], float]  # tokens a round by kind of text and length of drafts


def groups(talks: Sequence[Talk], batch: int) -> list[list[Talk]]:
    """Return conversations of about the same length, about `batch` tokens together."""
    every = list[list[Talk]]()
    for each in sorted(talks, key=lambda talk: len(talk.tokens)):
        if not every or (len(every[-1]) + 1) * len(each.tokens) > batch:
            every.append([])
        every[-1].append(each)
    return every


def fastest_products() -> tuple[float, bool]:
    """Return the operations a second of matrix products here, and whether with numbers of 16 bits: some processors emulate these."""
    speeds = list[tuple[float, bool]]()
    for kind in (torch.float32, torch.bfloat16):
        matrix = torch.ones(_TRIED, _TRIED, dtype=kind, device=ON)
        product = Timer("m @ m", globals={"m": matrix}, num_threads=torch.get_num_threads())
        speeds.append((2 * _TRIED**3 / product.timeit(5).mean, kind == torch.bfloat16))
    return max(speeds)


def padded(values: Sequence[Any], kind: type[Any], step: int = 1) -> Tensor:
    """Return what is of several lengths as one tensor, with zeros behind the shorter ones, of a multiple of `step` in length."""
    longest = -(-max(map(len, values)) // step) * step
    room = np.zeros((len(values), longest, *np.shape(values[0])[1:]), kind)
    for at, each in enumerate(values):
        room[at, : len(each)] = each
    return torch.from_numpy(room).to(ON)


def new_head(target: Target, recipe: Recipe, talks: list[Talk], ends: Sequence[int]) -> State:
    """Return a head as a recipe begins with it, which proposes what the target finds likeliest, and what ends an answer."""
    mass = np.zeros(len(target.weights("token_embd")))
    for each in talks:
        np.add.at(mass, each.noted["ids"], np.exp(each.noted["logs"].astype(np.float32)))
    mass[[*ends]] = np.inf
    ids = np.sort(np.argsort(-mass, kind="stable")[: recipe.ids])
    sample = np.concatenate([each.noted["row"] for each in talks[:_SAMPLED]]).astype(np.float32)
    return {"weights": new_weights(target, ids, sample), "ids": torch.from_numpy(ids)}


def right_teacher(target: Target, talk: Talk) -> Head | None:
    """Return the target's last layer as a head that takes no token in, without an output matrix.

    None where it is none of a llama's, or finds other tokens likeliest than the target did: some do more than is computed here.
    """
    weights, width = last_layer(target), target.width
    if "q" not in weights or not all(each.size for each in weights.values()):
        return None
    weights["token_norm"] = np.ones(width, np.float32)
    weights |= {each: np.pad(weights[each], ((0, 0), (width, 0))) for each in "qkv"}
    head = Head(target, {name: torch.from_numpy(each).to(ON) for name, each in weights.items()})
    ids = head.logits(head.outputs(padded([talk.noted["row"]], np.float32)))[0].argmax(-1)
    del head.weights["out"]
    # Of what was given, the target was not asked what is likely.
    same = (ids.cpu().numpy() == talk.noted["ids"][:, 0])[np.isfinite(talk.noted["logs"][:, 1])]
    return head if same.size and same.mean() > _AGREES else None


class Trainer:
    """Trains one head.

    Args:
        target: the teacher's file.
        recipe: how.
        talks: to train on.
        before: the head to go on from; with a step, it was left in the midst.

    Attributes:
        step: how many steps are done.
        steps: how many there are.
    """

    def __init__(self, target: Target, recipe: Recipe, talks: list[Talk], before: State) -> None:
        self._recipe, self._ids = recipe, before["ids"]
        weights = {name: each.detach().clone().to(ON) for name, each in before["weights"].items()}
        self._head = Head(target, weights)
        self._embedding = torch.from_numpy(target.weights("token_embd")).to(ON)
        self._places = torch.full((len(self._embedding),), -1, dtype=torch.int64, device=ON)
        self._places[self._ids.to(ON)] = torch.arange(len(self._ids), device=ON)
        answered = [each for each in talks if len(each.tokens) > each.n_prompt + 1]
        self._groups = groups(answered, recipe.batch)
        self.step, self.steps = 0, recipe.epochs * len(self._groups)
        self._trained = [each.requires_grad_() for name, each in weights.items() if name != "out"]
        matrices, vectors = ([each for each in self._trained if each.ndim == n] for n in (2, 1))
        muon = torch.optim.Muon(matrices, weight_decay=recipe.decay, adjust_lr_fn="match_rms_adamw")
        self._optimizers = muon, torch.optim.AdamW(vectors, betas=_BETAS, weight_decay=0)
        self._in_halves = fastest_products()[1]
        asked = max(talks[-_CHECKED:], key=lambda talk: len(talk.tokens) - talk.n_prompt)
        self._teacher = right_teacher(target, asked) if recipe.hidden else None
        if "step" in before:
            self.step = before["step"]
            for each, state in zip(self._optimizers, before["optimizers"], strict=True):
                each.load_state_dict(state)

    @property
    def state(self) -> State:
        """All that going on needs."""
        state = {"step": self.step, "ids": self._ids, "weights": self._head.weights}
        return {**state, "optimizers": [each.state_dict() for each in self._optimizers]}

    def train(self) -> Iterator[tuple[float, float]]:
        """Make the steps that are left; after each, yield its loss, and the tokens a round that its hits foretell."""
        while self.step < self.steps:
            epoch, at = divmod(self.step, len(self._groups))
            self.step += 1
            order = np.random.default_rng(epoch).permutation(len(self._groups))
            cosine = 0.5 + 0.5 * math.cos(math.pi * self.step / self.steps)
            rate = self._recipe.rate * min(self.step / _WARM_UP, max(cosine, _LAST_RATE))
            torch.manual_seed(self.step)  # one that is made again is the same
            with torch.autocast(ON.type, torch.bfloat16, enabled=self._in_halves):
                loss, hits = self._loss(self._groups[order[at]])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self._trained, _CLIP)
            for each in self._optimizers:
                each.param_groups[0]["lr"] = rate
                each.step()
                each.zero_grad(set_to_none=True)
            yield float(loss.detach()), 1 + float(np.cumprod(hits).sum())

    def _loss(self, group: Sequence[Talk]) -> tuple[Tensor, Floats]:
        ids, logs, rows = (padded([t.noted[n] for t in group], kind, _SHAPE) for n, kind in _NOTED)
        tokens = padded([each.tokens for each in group], np.int64, _SHAPE)
        answers = [np.arange(len(each.tokens)) >= each.n_prompt - 1 for each in group]
        is_answer, places = padded(answers, np.bool_, _SHAPE), self._places[ids]
        chances = logs.exp() * (places >= 0)
        compared, correction = self._compared(places[places >= 0])
        where = torch.zeros(len(self._ids), dtype=torch.int64, device=ON)
        where[compared] = torch.arange(len(compared), device=ON)
        places = torch.where(places < 0, -1, where[places.clamp(min=0)])
        total, hits = torch.zeros((), device=ON), np.zeros(self._recipe.depths, np.float32)
        taught: Tensor = self._teacher and self._head.norm(self._teacher.outputs(rows))
        embedded = F.embedding(tokens, self._embedding)
        unrolled = self._head.unrolled(embedded, rows, self._recipe.depths)
        for depth, row in enumerate(unrolled):
            at = is_answer[:, 1 + depth :].flatten().nonzero()[:, 0]
            if n := len(at):
                at = F.pad(at, (0, -n % _SHAPE))  # the first again, and not counted
                wanted = places[:, 1 + depth :].flatten(0, 1)[at]
                rows_at = row.flatten(0, 1)[at]
                logits = self._head.logits(rows_at, compared).float()
                hits[depth] = float((logits[:n].argmax(-1) == wanted[:n, 0]).float().mean())
                foretold = (logits + correction).log_softmax(-1).gather(1, wanted.clamp(min=0))
                loss = -(chances[:, 1 + depth :].flatten(0, 1)[at] * foretold).sum(-1)
                if self._teacher:
                    apart = self._head.norm(rows_at) - taught[:, 1 + depth :].flatten(0, 1)[at]
                    loss = loss + self._recipe.hidden * apart.square().mean(-1)
                total = total + _FALL**depth * loss[:n].mean()
        return total * (1 - _FALL) / (1 - _FALL**self._recipe.depths), hits

    def _compared(self, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ids that a step compares, as places among the head's, and what that adds to their logits.

        Those that are drawn stand for all that are not: each for as many as there are to one.
        """
        is_wanted = torch.bincount(wanted, minlength=len(self._ids)) > 0
        likely, others = is_wanted.nonzero()[:, 0], (~is_wanted).nonzero()[:, 0]
        drawn = min(_UNLIKELY + -len(likely) % (32 * _SHAPE), len(others))
        others = others[torch.randperm(len(others), device=ON)[:drawn]]
        correction = torch.zeros(len(likely) + drawn, device=ON)
        correction[len(likely) :] = math.log(max(1, len(self._ids) - len(likely)) / max(1, drawn))
        return torch.cat([likely, others]), correction


def write(path: Path, state: State) -> None:
    """Replace a file by a state; raises OSError where the disk does not take it."""
    content = io.BytesIO()
    torch.save(dict(state), content)
    write_atomic(path, content.getvalue())


def load(path: Path) -> State:
    """Return the state in a file."""
    return dict(torch.load(path, map_location="cpu", weights_only=True))


def measure(target: Target, state: State, talks: Sequence[Talk]) -> Figures:
    """Return the tokens a round on recorded greedy answers, by kind and by the length of drafts.

    Rounds are replayed: where a draft is wrong, the recorded text goes on.

    Args:
        target: the teacher's file.
        state: of a head.
        talks: the conversations.
    """
    head = Head(target, {name: each.to(ON) for name, each in state["weights"].items()})
    embedding = torch.from_numpy(target.weights("token_embd"))
    counts = defaultdict[tuple[str, int], list[int]](lambda: [0, 0])
    for talk in sorted(talks, key=lambda each: each.kind):
        tokens = F.embedding(torch.tensor([talk.tokens]), embedding).to(ON)
        # By depth and place, whether the token after the place is foretold.
        right = np.zeros((LENGTH, len(talk.tokens)), bool)
        with torch.no_grad():
            unrolled = head.unrolled(tokens, padded([talk.noted["row"]], np.float32), LENGTH)
            for depth, row in enumerate(unrolled):
                drafted = state["ids"][head.logits(row[0, :-1]).argmax(-1).cpu()].numpy()
                right[depth, 1 : 1 + len(drafted)] = drafted == talk.tokens[2 + depth :]
        last = max(0, len(talk.tokens) - talk.n_prompt - 1)
        for length in range(1, LENGTH + 1):
            chains, at = right[:length, talk.n_prompt :].cumprod(0).sum(0), 0
            while at < last:
                at += 1 + int(chains[at])
                counts[talk.kind, length][1] += 1
            counts[talk.kind, length][0] += last
    return {key: tokens / max(1, rounds) for key, (tokens, rounds) in counts.items()}

"""Making a head for a pair: collect, train, measure, write, register; each stage's files are replaced whole.

So a run that was ended anywhere is gone on with by the same command.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch

from localspec.bench.prompts import BenchPrompt
from localspec.calibration.calibrated import calibrated
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.costs import PassCosts, best_count
from localspec.display import duration_text
from localspec.errors import LocalspecError, PairMismatch, UsageError
from localspec.launch.fit import sequences_that_fit
from localspec.launch.load import load as load_models
from localspec.launch.plan import make_plan
from localspec.models.architectures import why_no_draft_model
from localspec.models.entries import MODEL_NAME, Chances, HeadsEntry, ModelEntry, TailoredFor
from localspec.models.gguf import read_header
from localspec.models.ledger import TAILORED
from localspec.models.store import Store, model_sha256
from localspec.storage.files import free_bytes, size_text, write_atomic
from localspec.storage.paths import data_dir
from localspec.tailor.tailor import TailoringJob
from localspec_student.collect import N_CTX, Collector, jobs
from localspec_student.corpus import TOP, Corpus, Talk, split
from localspec_student.export import write_head
from localspec_student.folders import work_folder
from localspec_student.recipe import Recipe
from localspec_student.target import Target
from localspec_student.train import (
    Figures,
    Progress,
    Trainer,
    likely_ids,
    load,
    mean,
    measure,
    saved,
)

_MOST_SLOTS = 32
_STATE_BYTES = 12  # of a trained weight: itself, and the optimizer's two
_PROMPTS = 1.3
"""What a collected token takes beside its share of a pass: prompts, rows and likely ids."""
_HELD_TOKENS = 300  # of a prompt that is held out, with its answer
_LEAST = 1e-3

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wish:
    """What to make.

    Args:
        job: the pair, and how to load its target.
        recipe: how.
        own: the user's prompts, by their keys.
        held: prompts of each bundled kind that are held out.
        again: go on from the head that there is, with as many tokens more.
        trial: print figures, and change nothing else.
    """

    job: TailoringJob
    recipe: Recipe
    own: Mapping[str, BenchPrompt]
    held: int
    again: bool = False
    trial: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it.

    Args:
        figures: of the new head, see `measure`.
        before: of the head that there was, on the same answers; empty without one.
        tokens: that it was trained on.
        name: of the head that the pair now drafts with, if that is new; else None.
    """

    figures: Figures
    before: Figures
    tokens: int
    name: str | None


def make(wish: Wish, cancel: CancelFlag, say: Report, draw: Report) -> Outcome:
    """Make a head for a pair, and let the pair draft with it if it is better than the one before.

    Args:
        wish: what to make.
        cancel: ends the work; the same wish goes on from there.
        say: takes lines for the user.
        draw: takes a line of progress, over the one before.

    Raises:
        Cancelled: the flag was set.
        LocalspecError: it cannot be made.
        OSError: the disk takes no more.
    """
    job, recipe = wish.job, wish.recipe
    target = Target(job.target, job.pair.target)
    sha256 = model_sha256([job.target], data_dir())
    with work_folder(job.pair.name, sha256) as folder:
        corpus = Corpus(folder, 3 * target.shape.width)
        kept = load(folder / "head.pt") if (folder / "head.pt").exists() else None
        if wish.again and kept is None:
            raise UsageError(f"there is no head of {job.pair.name} yet: leave out --again")
        goal = recipe.tokens + (kept["tokens"] if kept is not None and wish.again else 0)
        ends = _collect(wish, target, corpus, goal, cancel, say, draw)
        train, held = split([*corpus.talks()], goal)
        if not train or not held:
            raise UsageError(f"tokens is {recipe.tokens}: that is not one conversation; give more")
        base = kept if wish.again and kept is not None else None
        tokens = sum(len(each.tokens) for each in train)
        key = recipe.key(str(goal), str(tokens), base["key"] if base is not None else "")
        state_file = folder / f"training-{key}.pt"
        n_vocab = len(target.embedding())
        ids = likely_ids(train, recipe.ids, n_vocab, ends)
        if base is not None:
            ids = base["ids"].numpy()
        trainer = Trainer(target, recipe, train, ids, base["weights"] if base else None)
        trainer.restore(state_file)
        trainer.run(state_file, cancel, lambda at: draw(_line(at)))
        state = {**load(state_file), "key": key, "tokens": tokens}
        figures = measure(target, state, held)
        before = measure(target, kept, held) if kept is not None and kept["key"] != key else {}
        name = None
        if not wish.trial and mean(figures) > mean(before):
            write_head(target, state, folder / "head.gguf")
            name = register(job, folder / "head.gguf", figures, tokens).name
            fields = ("weights", "ids", "key", "tokens")
            write_atomic(folder / "head.pt", saved({each: state[each] for each in fields}))
        return Outcome(figures, before, tokens, name)


def _collect(
    wish: Wish,
    target: Target,
    corpus: Corpus,
    goal: int,
    cancel: CancelFlag,
    say: Report,
    draw: Report,
) -> list[int]:
    """Have the target answer until there are as many tokens as wanted; return the ids that end an answer."""
    request = replace(wish.job.request, load=replace(wish.job.request.load, n_ctx=N_CTX))
    runtime = load_models(make_plan(request), cancel, lambda at: draw(f"loading {at.share:.0%}"))
    with closing(runtime.assistant):
        model = runtime.target.model
        ends = [*model.vocabulary.eog]
        done = {each.key: len(each.tokens) for each in corpus.talks()}
        n_tokens = sum(n for key, n in done.items() if not key.startswith("held:"))
        measured = calibrated(model, None, cancel, lambda *at: draw(f"measuring {at[1]:.0%}"))
        fits = sequences_that_fit(target.header, model.options) or 1
        slots = best_count(measured.costs.target, max(1, min(_MOST_SLOTS, fits)))
        _announce(wish, target, corpus, measured.costs.target, slots, goal - n_tokens, goal, say)
        held = {key for key in (*done, *wish.own) if key.startswith("held:")} - done.keys()
        if n_tokens >= goal and not held:
            return ends
        begun_s, begun = monotonic(), n_tokens
        count = [n_tokens]

        def goes_on(new: int) -> bool:
            count[0] += new
            share = count[0] / goal
            left_s = (monotonic() - begun_s) * (goal - count[0]) / max(1, count[0] - begun)
            left = f", {duration_text(left_s)} left" if count[0] > begun and share < 1 else ""
            draw(f"collecting {_bar(share)} {count[0]:,} of {goal:,} tokens{left}")
            return count[0] < goal

        answers = dict[str, list[str]]()
        for each in corpus.talks():
            answers.setdefault(each.kind, []).append(_text(model, each))
        collector = Collector(runtime.assistant, model, target.shape.layers, slots, cancel)
        collector.collect(corpus, jobs({*done}, wish.own, wish.held, answers), answers, goes_on)
        return ends


def _text(model: Any, talk: Talk) -> str:
    pieces = map(model.vocabulary.piece, talk.tokens[talk.n_prompt :])
    return b"".join(pieces).decode(errors="replace")


def _announce(
    wish: Wish,
    target: Target,
    corpus: Corpus,
    costs: PassCosts,
    slots: int,
    missing: int,
    goal: int,
    say: Report,
) -> None:
    """Say how long it takes, by passes and a step as measured here, and how much disk.

    Raises:
        LocalspecError: the disk has no room for it.
    """
    missing = max(0, missing) + 6 * wish.held * _HELD_TOKENS
    recipe, random = wish.recipe, np.random.default_rng(0)
    n_vocab, length = len(target.embedding()), max(2, min(256, recipe.batch))
    likely = random.integers(0, n_vocab, (length, min(TOP, n_vocab)))
    talk = Talk("", "", 2, [*range(2)] * (length // 2), greedy=True)
    talk.rows = random.normal(size=(len(talk.tokens), 3 * target.shape.width)).astype(np.float16)
    talk.ids = likely[: len(talk.tokens)]
    talk.logs = np.full(talk.ids.shape, -3.0, np.float16)
    ids = np.arange(min(recipe.ids, n_vocab))
    talks = [talk] * max(1, recipe.batch // length)
    trainer = Trainer(target, recipe, talks, ids)
    steps = recipe.epochs * goal / max(1, len(talks) * len(talk.tokens))
    collect_s = _PROMPTS * missing * costs.of(slots) / slots
    weights = sum(each.numel() for each in trainer.head.trained)
    needed = missing * corpus.token_bytes + 2 * (_STATE_BYTES * weights + 4 * ids.size * 1024)
    say(
        f"{wish.job.pair.name}: about {duration_text(collect_s)} to collect {missing:,} tokens, {slots} answers at once, and "
        f"{duration_text(steps * trainer.step_s())} to train on {goal:,} ({weights / 1e6:.1f} M weights); up to {size_text(needed)} "
        "of disk. Ctrl-C stops it, and the same command goes on"
    )
    free = free_bytes(data_dir())
    if needed > free:
        raise LocalspecError(
            f"it needs {size_text(needed)} of disk, and {size_text(free)} are free: make room, or give fewer --tokens"
        )


def _line(at: Progress) -> str:
    share = at.step / at.steps
    return (
        f"training {_bar(share)} loss {at.loss:.3f}, expected {at.expected:.2f} tokens a round, "
        f"{duration_text(at.left_s)} left"
    )


def _bar(share: float, cells: int = 20) -> str:
    done = round(cells * min(1.0, share))
    return f"[{'#' * done}{'.' * (cells - done)}] {min(1.0, share):.0%}"


def register(job: TailoringJob, file: Path, figures: Figures, tokens: int) -> ModelEntry:
    """Let a pair draft with a head; return its entry. The file moves into the store.

    Raises:
        PairMismatch: the file does not fit the target.
    """
    header = read_header(file)
    reason = why_no_draft_model(read_header(job.target), header)
    if reason is not None:
        raise PairMismatch(f"the head does not fit {job.pair.target}: {reason}")
    store, pair = Store(data_dir()), job.pair
    name = f"{pair.name}-student"
    before = TAILORED.load(store.root).get(name)
    known = {"code", "chat", "creative"} & figures.keys()
    chances = {
        kind: min(max(figures[f"{kind}:1"] - 1, _LEAST), 1 - _LEAST) for kind in sorted(known)
    }
    path = store.take(file)
    result = f"{mean(figures):.2f} tokens a round on prompts that were held out"
    entry = ModelEntry(
        name,
        path.stat().st_size,
        path.name,
        heads=HeadsEntry(
            kind="eagle3",
            source="made on this machine",
            date=datetime.now(UTC).date().isoformat(),
            target=pair.target if re.fullmatch(MODEL_NAME, pair.target) else pair.name,
            chances=Chances(**chances),
            published="measured on this machine" if chances else "",
        ),
        origin=f"trained for pair {pair.name} on {tokens} tokens: {result}",
        tailored=TailoredFor(pair.name, pair.target, pair.draft_model or ""),
    )
    TAILORED.add(store.root, name, entry)
    if before is not None and before.sha256 != entry.sha256:
        store.remove(before)
    return entry


def threads(count: int) -> None:
    """Let torch compute on so many threads."""
    torch.set_num_threads(count)


def rows(outcome: Outcome, lengths: Sequence[int]) -> list[list[str]]:
    """Return a table of figures: a row for each kind, a column for each length of drafts."""
    kinds = [name for name in outcome.figures if ":" not in name]
    table = [["TOKENS A ROUND", *(f"length {n}" for n in lengths), "before"]]
    for kind in kinds:
        old = outcome.before.get(kind)
        cells = [f"{outcome.figures[f'{kind}:{n}']:.2f}" for n in lengths]
        table.append([kind, *cells, "-" if old is None else f"{old:.2f}"])
    return table

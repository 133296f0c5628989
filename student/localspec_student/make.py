"""Making a head for a pair: collect, train, measure, write, register; each stage's files are replaced whole.

So a run that was ended anywhere is gone on with by the same command.
"""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from time import monotonic
from typing import Any

import click

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.display import bar, duration_text
from localspec.errors import UsageError
from localspec.launch.load import Runtime, load
from localspec.models.store import model_sha256
from localspec.plan.make import make_plan
from localspec.plugins.bench.prompts import bundled, per_workload
from localspec.plugins.tailor.lessons import REPLY, Lesson
from localspec.plugins.tailor.tailor import TailoringJob, register_trained, require_free
from localspec.storage.files import free_bytes, private_directory, size_text
from localspec.storage.locks import exclusive
from localspec.storage.paths import data_dir
from localspec_student import train
from localspec_student.collect import Talk, Teacher, add_part, jobs, noted_type, read_talks
from localspec_student.head import Target, write_head
from localspec_student.recipe import MakeFlags, Recipe
from localspec_student.train import LENGTH, Figures, State

_FOLDER, _SAVE_S, _PART, _KEPT = "student", 120.0, 32, ("weights", "ids", "key", "tokens")
_HELD_TOKENS = 300  # of a prompt that is held out, with its answer
_STATE_BYTES = 40  # of each weight: in two files, with the optimizer's two numbers
_STEP = 10.0  # operations of a weight in training, for each token and depth: 6, and as much time again for what is no product


@dataclass(frozen=True, slots=True)
class Making:
    """A head to make.

    Args:
        job: the pair, and how to load its target.
        recipe: how.
        wanted: what else the user says.
        own: the user's own lessons, by their keys.
        cancel: ends the work; the same command goes on from there.
        draw: takes a line of progress, over the one before.
    """

    job: TailoringJob
    recipe: Recipe
    wanted: MakeFlags
    own: Mapping[str, Lesson]
    cancel: CancelFlag
    draw: Callable[[str], None]

    def make(self) -> None:
        """Make it, and let the pair draft with it if it is better than the one before.

        Raises:
            Cancelled: the flag was set.
            LocalspecError: it cannot be made.
            OSError: the disk takes no more.
        """
        pair, target = self.job.pair, Target(self.job.target, self.job.pair.target)
        sha256 = model_sha256([self.job.target], data_dir())
        folder = data_dir() / _FOLDER / f"{pair.name}@{sha256[:12]}"
        private_directory(folder.parent)
        with exclusive(folder, f"another `localspec-student` works for {pair.name}: wait for it"):
            for each in folder.glob(".*"):  # of a process that was killed while it wrote
                each.unlink()
            kept = train.load(folder / "head.pt") if (folder / "head.pt").exists() else None
            base = kept if self.wanted.again else None
            if self.wanted.again and base is None:
                raise UsageError(f"there is no head of {pair.name} yet: leave out --again")
            goal = self.recipe.tokens + (base["tokens"] if base else 0)
            ends = self._collect(target, folder, goal)
            taught, held, tokens = list[Talk](), list[Talk](), 0
            # The user's own come first: they may have been wanted when there were enough of others.
            for talk in sorted(self._talks(folder), key=lambda each: each.key not in self.own):
                (held if talk.is_held_out else taught if tokens < goal else []).append(talk)
                tokens += 0 if talk.is_held_out else len(talk.tokens)
            own = (each.key for each in taught if each.key in self.own)
            settings = repr((self.recipe, goal, base and base["key"], *own))
            key = hashlib.sha256(settings.encode()).hexdigest()[:12]
            file = folder / f"training-{key}.pt"
            begun = train.load(file) if file.exists() else base
            begun = begun or train.new_head(target, self.recipe, taught, ends)
            self._train(train.Trainer(target, self.recipe, taught, begun), file)
            state = {**train.load(file), "key": key, "tokens": goal}
            self._judge(target, folder, state, kept, held)

    def _talks(self, folder: Path) -> list[Talk]:
        """Return what is collected, without replies that are not wanted any more: they may be marked bad by now."""
        return [t for t in read_talks(folder) if REPLY not in t.key or t.key in self.own]

    def _collect(self, target: Target, folder: Path, goal: int) -> list[int]:
        """Have the target answer until there are as many tokens as wanted; return the ids that end an answer."""
        runtime = load(make_plan(self.job.request, parallel=None), self.cancel)
        with closing(runtime.assistant):
            teacher, old = Teacher(runtime, target, self.cancel), self._talks(folder)
            done = sum(len(each.tokens) for each in old if not each.is_held_out)
            mine = sum(len(t.tokens) for t in old if t.key in self.own and not t.is_held_out)
            bundled_ones = enumerate(per_workload(bundled(), self.wanted.held))
            first = {f"held:{number}": each for number, each in bundled_ones} | {**self.own}
            known, answers = {each.key for each in old}, dict[str, list[str]]()
            due = {*first} - known
            held = _HELD_TOKENS * sum("held:" in key for key in due)
            missing = held + max(0, goal - done, min(goal - mine, _HELD_TOKENS * len(due) - held))
            self._announce(target, runtime, missing, goal)
            part, begun_s, n_new = list[Talk](), monotonic(), 0
            for each in old:
                answers.setdefault(each.kind, []).append(teacher.text(each))
            waiting = teacher.talks(jobs(first, known, answers))
            try:
                while done < goal or (due and (mine < goal or any("held:" in key for key in due))):
                    talk = next(waiting)
                    part.append(talk)
                    answers.setdefault(talk.kind, []).append(teacher.text(talk))
                    due.discard(talk.key)
                    n_new += len(talk.tokens)
                    lesson = 0 if talk.is_held_out else len(talk.tokens)
                    done, mine = done + lesson, mine + lesson * (talk.key in self.own)
                    left_s = (monotonic() - begun_s) * max(0.0, missing / n_new - 1)
                    left = f", {duration_text(left_s)} left" * (n_new > _HELD_TOKENS * _PART)
                    self.draw(f"collecting {bar(done / goal)} {done:,} of {goal:,} tokens{left}")
                    if len(part) == _PART:
                        add_part(folder, part)
                        part = []
            finally:
                if part:
                    add_part(folder, part)
            return [*runtime.target.model.vocabulary.eog]

    def _announce(self, target: Target, runtime: Runtime, missing: int, goal: int) -> None:
        """Print how long it takes, as passes and products take here, and how much disk; raises LocalspecError where that is not free."""
        assert runtime.costs is not None, "they are measured for several"  # noqa: S101
        costs, slots = runtime.costs.target, runtime.assistant.count
        weights = target.width * (8 * target.width + 3 * target.inner + self.recipe.ids // 3)
        steps = _STEP * weights * self.recipe.epochs * self.recipe.depths * goal
        needed = missing * noted_type(target).itemsize + _STATE_BYTES * weights
        took = f"{duration_text(missing * costs.of(slots) / slots)} to collect {missing:,} tokens, {slots} at once, "
        took += f"and {duration_text(steps / train.fastest_products()[0])} to train on {goal:,}; "
        took += f"up to {size_text(needed)} of disk. Ctrl-C stops it, and the same command goes on"
        click.echo(f"{self.job.pair.name}: about {took}")
        require_free("disk", needed, free_bytes(data_dir()))

    def _train(self, trainer: train.Trainer, file: Path) -> None:
        """Train to the end, saving now and then."""
        begun_s, first, saved_s = monotonic(), trainer.step, monotonic()
        for loss, expected in trainer.train():
            share, now_s = trainer.step / trainer.steps, monotonic()
            left_s = (now_s - begun_s) / (trainer.step - first) * (trainer.steps - trainer.step)
            text = f"loss {loss:.3f}, {expected:.2f} tokens a round expected"
            self.draw(f"training {bar(share)} {text}, {duration_text(left_s)} left")
            if self.cancel.is_set or now_s > saved_s + _SAVE_S:
                train.write(file, trainer.state)
                saved_s = monotonic()
            if self.cancel.is_set:
                raise Cancelled
        train.write(file, trainer.state)

    def _judge(self, target: Target, folder: Path, new: State, old: Any, held: list[Talk]) -> None:
        """Measure a head, print what came of it, and register it if it is better than the one before."""
        figures = train.measure(target, new, held)
        before = train.measure(target, old, held) if old and old["key"] != new["key"] else {}
        now, then = mean_of(figures), mean_of(before)
        click.echo(f"tokens a round with drafts of 1 to {LENGTH}, and before:")
        for kind in sorted({kind for kind, _ in figures}):
            cells = "  ".join(f"{figures[kind, n]:.2f}" for n in range(1, LENGTH + 1))
            click.echo(f"  {kind:<12}{cells}   {before.get((kind, LENGTH), 0.0):.2f}")
        text = f"{now:.2f} tokens a round in the mean, trained on {new['tokens']:,} tokens"
        if now <= then:
            click.echo(f"{text}; the head before has {then:.2f}, and stays")
            return
        best = max([each for (_, length), each in figures.items() if length == 1])
        write_head(target, new, folder / ".head.gguf", best - 1)
        name = register_trained(self.job.pair, folder / ".head.gguf", text).name
        train.write(folder / "head.pt", {key: new[key] for key in _KEPT})
        uses = f"{self.job.pair.name} now drafts with {name}: `localspec rm` removes it"
        click.echo(f"{text}; {uses}")


def mean_of(figures: Figures) -> float:
    """Return the tokens a round of the longest drafts, in the mean of kinds."""
    return mean([each for (_, length), each in figures.items() if length == LENGTH] or [0.0])

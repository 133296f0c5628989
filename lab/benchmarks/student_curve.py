"""Heads of more and more of what was collected: PYTHONPATH=student python -m lab.benchmarks.student_curve [MODEL]."""

import sys
from typing import Any

import numpy as np
from localspec_student.collect import Talk, read_talks
from localspec_student.head import Head, Target
from localspec_student.make import mean_of
from localspec_student.recipe import Recipe
from localspec_student.train import LENGTH, Trainer, measure, new_head, padded

from localspec.models.store import model_sha256
from localspec.options import LaunchOptions
from localspec.storage.paths import data_dir
from localspec.tailor.tailor import tailoring_job

RECIPE, PARTS = Recipe(), (1 / 8, 1 / 4, 1 / 2, 1)


def agreement(target: Target, trainer: Trainer, talks: list[Talk]) -> Any:
    """Return by depth the share of the answers' tokens that a head proposes, behind those that the target wrote."""
    head, hits = Head(target, trainer.state["weights"]), np.zeros((LENGTH, 2))
    embedding = target.weights("token_embd")
    for talk in talks:
        rows = (
            padded([talk.noted["row"]], np.float32),
            padded([embedding[talk.tokens]], np.float32),
        )
        for depth, row in enumerate(head.unrolled(rows[1], rows[0], LENGTH)):
            drafted = trainer.state["ids"][head.logits(row[0, :-1]).argmax(-1).cpu()].numpy()
            right = (drafted == talk.tokens[2 + depth :])[talk.n_prompt - 1 :]
            hits[depth] += right.sum(), len(right)
    return (hits[:, 0] / hits[:, 1]).round(3)


def main(name: str = "smollm2-135m") -> None:
    """Print each part's figures, then by kind a line through them over the logarithm of tokens."""
    job = tailoring_job(name, LaunchOptions())
    target, sha256 = Target(job.target, name), model_sha256([job.target], data_dir())
    talks = [*read_talks(data_dir() / "student" / f"{job.pair.name}@{sha256[:12]}")]
    held, lessons = ([each for each in talks if each.is_held_out is its] for its in (True, False))
    totals = np.cumsum([len(each.tokens) for each in lessons])
    counts = [int(np.searchsorted(totals, part * totals[-1])) + 1 for part in PARTS]
    ends, points = [target.header.number("tokenizer.ggml.eos_token_id") or 0], list[Any]()
    for count in counts:
        some = lessons[:count]
        trainer = Trainer(target, RECIPE, some, new_head(target, RECIPE, some, ends))
        for loss, _ in trainer.train():
            print(f"\r{trainer.step} of {trainer.steps}: {loss:.3f} ", end="", file=sys.stderr)
        figures, depths = measure(target, trainer.state, held), agreement(target, trainer, held)
        figures["mean", LENGTH] = mean_of(figures)
        points.append({kind: round(each, 3) for (kind, n), each in figures.items() if n == LENGTH})
        print(f"{totals[count - 1]:,} tokens: agreement {depths}; {points[-1]}", flush=True)
    x, million = np.log2(totals[np.array(counts) - 1]), np.log2(1e6)
    for kind in points[0]:
        y = np.array([each[kind] for each in points])
        slope, base = np.polyfit(x, y, 1)
        off, then = np.abs(y - slope * x - base).max(), min(base + slope * million, LENGTH + 1)
        print(f"{kind}: {slope:+.3f} a doubling, {off:.3f} off; a million: {then:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Tailoring: candidates are made, measured, and the best of them kept; nothing half made is left, whenever it ends."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.bench.prompts import BenchPrompt
from localspec.calibration.calibrated import calibrated
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.costs import PairCosts, PassCosts
from localspec.decoding.lengths import WORTH_TRYING
from localspec.launch.cut_head import cut_head
from localspec.launch.load import Runtime, load
from localspec.launch.plan import make_plan
from localspec.llama.build import build
from localspec.llama.calibrate import measure_pass_costs
from localspec.llama.model import LlamaModel
from localspec.models.gguf import GgufHeader, read_model
from localspec.models.gguf_layout import read_layout
from localspec.models.layers import Switchable, separable_layers
from localspec.models.pairs import require_compatible
from localspec.models.store import Store, model_sha256
from localspec.models.tailored import TailoredDraft, keep_tailored, load_tailored
from localspec.storage.files import size_text
from localspec.storage.paths import data_dir
from localspec.tailor.candidates import (
    Candidate,
    of_draft_model,
    of_layers,
    of_target,
    requantised,
    with_adapter,
    with_layers,
)
from localspec.tailor.job import OnShare, TailoringJob
from localspec.tailor.making import cut, make
from localspec.tailor.measure import (
    N_CTX,
    ROWS,
    RecordedAnswer,
    answers,
    foretold,
    likelihood,
    often_spoken,
    spoken,
    step_costs,
)
from localspec.tailor.room import require_memory
from localspec.tailor.search import dispensable
from localspec.tailor.worth import Replayed, could_pay, replayed, what_could_pay

_ANOTHER = "that is another model, with other answers"
_BETTER = 1.01
"""What a candidate has to earn beyond what is there: less is noise."""


@dataclass(frozen=True, slots=True, eq=False)
class Tried:
    """A candidate, measured.

    Args:
        candidate: what was made.
        file: where it is; a made one until the workshop is cleared.
        size_bytes: of the file.
        hits: by kind of text, for each answer, whether it foretold each token.
        costs: of its passes of 1 and 2 tokens.
        step: what drafting a token costs, in plain steps of the target.
        earned: on the recorded answers.
    """

    candidate: Candidate
    file: Path
    size_bytes: int
    hits: dict[str, list[list[bool]]]
    costs: PassCosts
    step: float
    earned: Replayed

    @property
    def agrees(self) -> float:
        """Share of the target's tokens that it foretold."""
        every = [hit for answers in self.hits.values() for hits in answers for hit in hits]
        return sum(every) / len(every)

    @property
    def pays_on(self) -> list[str]:
        """Kinds of text that it makes faster by a tenth."""
        return [kind for kind, speed in self.earned.by_kind.items() if speed >= WORTH_TRYING]


class Tailor:
    """Measures what drafts are worth for a loaded target, and makes draft models for it.

    Args:
        job: what to do.
        cancel: ends it.
        on_load: told how far loading is.
        on_measure: told how far measuring is.

    Attributes:
        costs: of the target's passes.
    """

    def __init__(
        self, job: TailoringJob, cancel: CancelFlag, on_load: OnShare, on_measure: OnShare
    ) -> None:
        self._job = job
        self._cancel = cancel
        self._on_load = on_load
        self._on_measure = on_measure
        self._spoken: list[NDArray[np.float64]] | None = None
        asked = replace(
            job.request, pair=None, target=job.pair.target, draft_model=None, draft_lora=None
        )
        plan = make_plan(replace(asked, exact=False))
        self._runtime: Runtime = load(plan, cancel, on_load)
        self._target = self._runtime.target.model
        name = job.pair.target
        try:
            found = calibrated(
                self._target, None, cancel, lambda _role, share: on_measure(name, share)
            )
        except BaseException:
            self.close()
            raise
        self.costs: PairCosts = found.costs

    def close(self) -> None:
        """Free the models."""
        self._runtime.assistant.close()

    def recorded(self, prompts: Sequence[BenchPrompt]) -> list[RecordedAnswer]:
        """Return the target's answers to prompts."""
        name = f"answers of {self._job.pair.target}"
        return answers(
            self._runtime.assistant, prompts, lambda share: self._on_measure(name, share)
        )

    def candidates(self) -> list[Candidate]:
        """Return what is to be tried, first what the pair has."""
        job, found = self._job, list[Candidate]()
        target = read_model(job.target)
        if job.draft_model is not None and job.pair.draft_model is not None:
            header = read_model(job.draft_model)
            require_compatible(target, header)
            found += of_draft_model(job.draft_model, job.pair.draft_model, header)
            if job.request.draft_lora is not None:
                found += with_adapter(tuple(found), Path(job.request.draft_lora).expanduser())
        own = (job.target, job.pair.target, target)
        return [*found, *of_target(*own), *of_layers(*own)]

    def searched(self, texts: Sequence[RecordedAnswer], workshop: Path) -> Iterator[Candidate]:
        """Yield sets of the target's layers that were found to foretell it best, as large as those of its first layers.

        Raises:
            Cancelled: the flag was set.
            LocalspecError: there is no room for them.
        """
        source, name = self._job.target, self._job.pair.target
        header = read_model(source)
        counts = {len(each.left_out) for each in of_layers(source, name, header)}
        n_layers = separable_layers(header) or 0
        if not counts:
            return
        file = self._made(with_layers(source, name, header, ()), workshop)
        require_memory(file, replace(self._target.options, n_ctx=N_CTX, max_rows=ROWS))
        options = replace(self._target.options, repack=False, load_mode="mmap")
        layers, tries = Switchable(file, read_layout(file)), 0

        def worth(left_out: tuple[int, ...]) -> float:
            nonlocal tries
            tries += 1
            # Half of the first ones alone, and then two for each that goes.
            share = tries / (n_layers + 2 * max(counts) + 1)
            self._on_measure(f"layers that {name} can do without", min(share, 0.99))
            layers.leave_out(left_out)
            model = LlamaModel(file, options, self._cancel)
            try:
                return likelihood(model, texts, model.n_vocab, self._cancel)
            finally:
                model.close()

        for left_out, _ in dispensable(n_layers, max(counts), worth):
            if len(left_out) in counts:
                yield with_layers(source, name, header, left_out)
        file.unlink()

    def tried(self, candidate: Candidate, texts: Sequence[RecordedAnswer], workshop: Path) -> Tried:
        """Make a candidate, and measure it.

        Raises:
            Cancelled: the flag was set.
            LocalspecError: it cannot be made or loaded, or there is no room for it.
        """
        label = candidate.label
        self._on_measure(label, 0.0)
        file, heads = self._made(candidate, workshop), None
        if candidate.n_ids is not None:
            heads = self._heads(texts, candidate.n_ids)
        longest = max(len(each.prompt) + len(each.answer) for each in texts)
        with self._loaded(file, longest) as model:
            self._on_measure(label, 0.5)
            shared = min(self._target.n_vocab, model.n_vocab)
            hits = foretold(model, texts, shared, self._cancel, heads)
            costs = None if heads else self._step_costs(model)
        if costs is None:
            ids = often_spoken(self._said(texts), candidate.n_ids or 0)
            file = cut(file, ids, workshop)
            with self._loaded(file, N_CTX) as model:
                costs = self._step_costs(model)
        self._on_measure(label, 1.0)
        earned = replayed(hits, self.costs.target, costs)
        step = costs.of(1) / self.costs.target.of(1)
        return Tried(candidate, file, read_model(file).size_bytes, hits, costs, step, earned)

    def _step_costs(self, model: LlamaModel) -> PassCosts:
        return step_costs(self._target, model, self.costs.target.of(1), self._cancel)

    @contextmanager
    def _loaded(self, file: Path, n_ctx: int) -> Iterator[LlamaModel]:
        """Load a model beside the target, if there is memory for it, for as long as it is looked at."""
        options = self._target.options
        require_memory(file, replace(options, n_ctx=n_ctx, max_rows=ROWS))
        model = LlamaModel(file, options, self._cancel, head=cut_head(file))
        try:
            yield model
        finally:
            model.close()

    def _said(self, texts: Sequence[RecordedAnswer]) -> list[NDArray[np.float64]]:
        """Return how often the target said each id, in each text."""
        if self._spoken is None:
            self._spoken = spoken(self._target, texts, self._cancel)
        return self._spoken

    def _heads(self, texts: Sequence[RecordedAnswer], n_ids: int) -> list[NDArray[np.int64]]:
        """Return for each text the ids of a head that was chosen by the other half of the texts."""
        counts = self._said(texts)
        halves = [often_spoken(counts[1 - half :: 2] or counts, n_ids) for half in (0, 1)]
        return [halves[place % 2] for place in range(len(texts))]

    def _made(self, candidate: Candidate, workshop: Path) -> Path:
        return make(candidate, workshop, self._target.options, self._cancel)

    def otherwise(self, best: Tried | None, workshop: Path) -> str | None:
        """Return the advice to take the target in another type, where drafting would pay with it and does not now.

        Args:
            best: of the candidates; None if none was tried.
            workshop: where the target is made.

        Raises:
            Cancelled: the flag was set.
            LocalspecError: there is no room for it.
        """
        header: GgufHeader = read_model(self._job.target)
        other = requantised(self._job.target, self._job.pair.target, header)
        if other is None or (best is not None and best.pays_on):
            return None
        self._on_measure(other.label, 0.0)
        file = self._made(other, workshop)
        with self._loaded(file, N_CTX) as model:
            costs = measure_pass_costs(model, model.options, cancel=self._cancel).costs
        file.unlink()
        wide, wide_now = (each.of(4) / each.of(1) for each in (costs, self.costs.target))
        what = (
            f"with the target in Q4_0 ({size_text(other.size_bytes)}), whose passes of 4 tokens take {wide:.1f} steps, not"
            f" {wide_now:.1f},"
        )
        if best is None:
            return f"{what} {what_could_pay(costs)}; {_ANOTHER}" if could_pay(costs) else None
        earned = replayed(best.hits, costs, best.costs)
        kinds = [kind for kind, speed in earned.by_kind.items() if speed >= WORTH_TRYING]
        if not kinds:
            return None
        most = max(earned.by_kind.values())
        return f"{what} {best.candidate.label} would make {', '.join(kinds)} up to {most:.2f} times as fast; {_ANOTHER}"

    def keep(self, best: Tried, found: str) -> TailoredDraft:
        """Make the best candidate the draft model of the pair."""
        store, pair, candidate = Store(data_dir()), self._job.pair, best.candidate
        source_sha256 = model_sha256([candidate.source], store.root)
        before = load_tailored(store.root).get(pair.name)
        path = store.take(best.file)
        made = TailoredDraft(
            pair=pair.name,
            target=pair.target,
            replaces=pair.draft_model or "",
            source=candidate.name,
            source_sha256=source_sha256,
            recipe=candidate.recipe,
            found=found,
            llama_cpp=build().version,
            size_bytes=path.stat().st_size,
            sha256=path.name,
        )
        keep_tailored(made, store.root)
        if before is not None and before.sha256 != made.sha256:
            store.remove(before.entry)
        return made


def best_of(tried: Sequence[Tried]) -> Tried | None:
    """Return the made candidate that earns most, if it earns more than the draft model that the pair has."""
    made = [each for each in tried if each.candidate.recipe and each.pays_on]
    there = max((each.earned.speed for each in tried if not each.candidate.recipe), default=1.0)
    best = max(made, key=lambda each: each.earned.speed, default=None)
    return best if best is not None and best.earned.speed >= _BETTER * there else None

"""Tailoring: draft models are made of the models on the disk and measured, and the best one is kept if it pays."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from secrets import token_hex
from statistics import geometric_mean
from time import gmtime, strftime

import numpy as np

from localspec.api import (
    LaunchOptions,
    LocalspecError,
    data_dir,
    load_registry,
    make_plan,
    size_text,
)
from localspec.calibration.calibrated import calibrated
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.costs import WORTH_TRYING, PairCosts
from localspec.errors import ModelUnavailable
from localspec.launch.load import load
from localspec.llama.calibrate import OF_DRAFT_MODEL, measure_pass_costs
from localspec.llama.model import LlamaModel
from localspec.llama.quantize import quantise
from localspec.models.architectures import corrections
from localspec.models.entries import HeadsEntry, HubName, ModelEntry, PairEntry, TailoredFor
from localspec.models.gguf import GgufHeader, TensorInfo, read_model
from localspec.models.inventory import plan_removal, remove
from localspec.models.ledger import TAILORED
from localspec.models.names import resolve
from localspec.models.pairs import require_compatible
from localspec.models.registry import Registry
from localspec.models.store import Store
from localspec.plugins.tailor.measure import (
    MOST_TOKENS,
    ROWS,
    Prompts,
    RecordedAnswer,
    agreement,
    prompt_length,
    record_answers,
    speed_up,
)
from localspec.resources import free_ram_bytes
from localspec.storage.locks import try_lock

_MADE = "Q4_0"  # what CPUs rearrange for their widest kernels, and what is quantised in seconds
_BLOCK, _BLOCK_BYTES = 32, 18
_SMALLER = 0.5
_SHARES = (0.75, 0.9)
"""Of a target's layers, those that a draft model of them has."""
# Architectures whose layers do not depend on their number: others attend to a window, or leave positions out, in every
# so manieth layer.
_ALIKE = {"llama", "qwen2", "qwen3", "gemma", "granite", "internlm2"}
_BETTER = 1.01
"""Speed-up beyond the present draft model's that a candidate needs: less is noise."""
_WORKING_BYTES = 6  # of an element of the largest tensor while its type changes: as F32, and packed
_BYTES_A_SECOND = 2e7  # requantised or copied, a rough figure
_N_CTX = 256

OnShare = Callable[[str, float], None]
"""Progress callback: the name of what is under way, and the share of it that is done, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A draft model to try.

    Args:
        recipe: how it differs from its source, in a phrase; empty for the source itself.
        source: a model's file.
        name: the source's name.
        size_bytes: of the file, about.
        made: the type of its weights; None where all stay as they are.
        left_out: layers of the source that it lacks.
    """

    recipe: str
    source: Path
    name: str
    size_bytes: int
    made: str | None = _MADE
    left_out: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        """Its name in a table."""
        return f"{self.name}, {self.recipe or 'as it is'}"


@dataclass(frozen=True, slots=True, eq=False)
class Tried:
    """A candidate, measured.

    Args:
        candidate: the candidate.
        file: its file, in the work folder if it was made.
        size_bytes: of the file.
        agrees: share of the target's tokens that it would have proposed.
        step: the cost of drafting a token, in plain steps of the target.
        by_kind: its speed-up on the recorded answers, by kind of text.
        sure: whether its passes were measured while the machine was quiet.
    """

    candidate: Candidate
    file: Path
    size_bytes: int
    agrees: float
    step: float
    by_kind: Mapping[str, float]
    sure: bool = True

    @property
    def speed(self) -> float:
        """The mean speed-up."""
        return geometric_mean(self.by_kind.values())

    @property
    def pays_on(self) -> list[str]:
        """Kinds of text that it makes faster by a tenth."""
        return [kind for kind, speed in self.by_kind.items() if speed >= WORTH_TRYING]


@dataclass(frozen=True, slots=True)
class TailoringJob:
    """A pair to tailor for, with its own draft model if it has one; all files are on this machine."""

    pair: PairEntry
    target: Path
    draft_model: Path | None
    request: LaunchOptions


def tailoring_job(name: str, request: LaunchOptions) -> TailoringJob:
    """Return the job for a pair, by its name or its target's.

    Raises:
        ModelUnavailable: no such pair, or a file of it is not here.
    """
    registry = load_registry(tailored=False)
    pair = pair_of(name, registry)

    def file(reference: str, flag: str = "") -> Path:
        model = resolve(reference, registry)
        path = Store(data_dir()).path_of(model) if isinstance(model, ModelEntry) else model
        if path is None or isinstance(path, HubName):
            command = f"localspec pull {pair.name}{flag}"
            raise ModelUnavailable(f"{reference} is not on this machine: `{command}` downloads it")
        return path

    target = file(pair.target)
    drafter, draft_model = registry.drafter_of(pair), None
    if pair.draft_model is not None and (drafter is None or drafter.heads is None):
        draft_model = file(pair.draft_model, " --with-draft")
    request = replace(request, pair=None, target=pair.target, draft_model=None, exact=False)
    return TailoringJob(pair, target, draft_model, request)


def pair_of(name: str, registry: Registry) -> PairEntry:
    """Return the pair that a name means: its own, or its target's."""
    name = registry.name(name)
    if name not in registry.pairs:
        of_target = (each.name for each in registry.pairs.values() if each.target == name)
        name = next(of_target, name)
    return registry.pair(name)


def candidates(job: TailoringJob) -> list[Candidate]:
    """Return the draft models to try: the pair's own and the same in Q4_0; the target in Q4_0 and its first layers.

    Raises:
        PairMismatch: the pair's models do not fit each other.
    """
    target, own, every = read_model(job.target), (job.target, job.pair.target), list[Candidate]()
    if job.draft_model is not None and job.pair.draft_model is not None:
        header, source = read_model(job.draft_model), (job.draft_model, job.pair.draft_model)
        require_compatible(target, header)
        every.append(Candidate("", *source, header.size_bytes, None))
        if any(map(_can_be_made, header.tensors)):
            every.append(Candidate(f"all {_MADE}", *source, _size(header, _MADE)))
    halved = _size(target, _MADE) <= _SMALLER * target.size_bytes
    if halved:
        every.append(Candidate(f"all {_MADE}", *own, _size(target, _MADE)))
    made, n_layers = _MADE if halved else None, prunable_layers(target) or 0
    for count in sorted({int(share * n_layers) for share in _SHARES} - {0}):
        recipe = f"its first {count} of {n_layers} layers" + (f", {made}" if made else "")
        left_out = tuple(range(count, n_layers))
        every.append(Candidate(recipe, *own, _size(target, made, left_out), made, left_out))
    return every


def prunable_layers(header: GgufHeader) -> int | None:
    """Return how many layers a model has, of which any may be left out; None where that makes another kind of model."""
    prefix = f"{header.architecture}."
    own = (value for key, value in header.metadata.items() if key.startswith(prefix))
    if header.architecture not in _ALIKE or any(isinstance(each, np.ndarray) for each in own):
        return None
    return header.number(f"{prefix}block_count")


def _size(header: GgufHeader, made: str | None, left_out: Sequence[int] = ()) -> int:
    """Return about how large a file with other types, or without some layers, is."""
    size, gone = header.size_bytes, tuple(f"blk.{layer}." for layer in left_out)
    for each in header.tensors:
        if each.name.startswith(gone):
            size -= each.size_bytes or 0
        elif made is not None and _can_be_made(each):
            size += prod(each.shape) // _BLOCK * _BLOCK_BYTES - (each.size_bytes or 0)
    return size


def _can_be_made(tensor: TensorInfo) -> bool:
    """Return whether llama.cpp can give a tensor the type of candidates, and it does not have it."""
    is_matrix = len(tensor.shape) > 1 and tensor.name.endswith("weight")
    return is_matrix and tensor.shape[0] % _BLOCK == 0 and tensor.type_name != _MADE


@contextmanager
def work_folder() -> Iterator[Path]:
    """Give an empty folder on the store's disk, removed at the end.

    Raises:
        LocalspecError: another process has it.
    """
    folder = data_dir() / "tailoring"
    lock = try_lock(folder)
    if lock is None:
        raise LocalspecError("another `localspec tailor` is running: wait until it has ended")
    try:
        for left in folder.iterdir():  # of a process that was killed
            left.unlink()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


class Tailor:
    """Measures candidates for a loaded target.

    Args:
        job: the pair, and how to load it.
        cancel: ends the work.
        on_load: progress callback of loading.
        on_measure: progress callback of measuring.

    Attributes:
        costs: of the target's passes.
    """

    def __init__(
        self, job: TailoringJob, cancel: CancelFlag, on_load: OnShare, on_measure: OnShare
    ) -> None:
        self._name = job.pair.target
        self._cancel = cancel
        self._on_measure = on_measure
        runtime = load(
            make_plan(job.request), cancel, lambda loading: on_load(loading.model, loading.share)
        )
        self._assistant, self._target = runtime.assistant, runtime.target.model
        try:
            self.costs: PairCosts = calibrated(
                self._target, None, cancel, lambda _, share, __: on_measure(self._name, share)
            ).costs
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Free the models."""
        self._assistant.close()

    def expected_s(self, prompts: Prompts, every: Sequence[Candidate]) -> float:
        """Return about how many seconds it takes to record the answers, and to make and measure candidates."""
        read = prompt_length(self._assistant, prompts)
        answered, costs = len(prompts) * MOST_TOKENS, self.costs.target
        read_s = (read + answered) * costs.of(ROWS) / ROWS  # by each candidate, as by the target
        made = sum(each.source.stat().st_size for each in every if each.recipe)
        return answered * costs.of(1) + read_s * (1 + len(every)) + made / _BYTES_A_SECOND

    def record(self, prompts: Prompts) -> list[RecordedAnswer]:
        """Return the target's answers to prompts."""
        name = f"answers of {self._name}"
        return record_answers(self._assistant, prompts, lambda share: self._on_measure(name, share))

    def measure_all(
        self,
        every: Sequence[Candidate],
        answers: Sequence[RecordedAnswer],
        folder: Path,
        on_refused: Callable[[Candidate, LocalspecError], None],
    ) -> list[Tried]:
        """Make and measure candidates in a folder; of the files made, only the best one's is left.

        Args:
            every: the candidates.
            answers: of the target.
            folder: for the files.
            on_refused: called with a candidate that cannot be made or loaded, and why.

        Raises:
            Cancelled: the flag was set.
        """
        tried = list[Tried]()
        for each in every:
            try:
                tried.append(self.measure(each, answers, folder))
            except LocalspecError as error:
                on_refused(each, error)
            best = best_of(tried)
            for file in folder.iterdir():
                if best is None or file != best.file:
                    file.unlink()
        return tried

    def measure(
        self, candidate: Candidate, answers: Sequence[RecordedAnswer], folder: Path
    ) -> Tried:
        """Make a candidate in a folder, and measure it.

        Raises:
            Cancelled: the flag was set.
            LocalspecError: it cannot be made or loaded, or there is no room for it.
        """
        self._on_measure(candidate.label, 0.0)
        file = self._make(candidate, folder) if candidate.recipe else candidate.source
        size_bytes = file.stat().st_size
        require_free("memory", size_bytes, free_ram_bytes())
        options = replace(self._target.options, n_ctx=_N_CTX, max_rows=ROWS)
        corrected = corrections(read_model(file))
        model = LlamaModel(file, options, self._cancel, corrections=corrected)
        try:
            self._on_measure(candidate.label, 0.5)
            shared = min(self._target.n_vocab, model.n_vocab)
            hits = agreement(model, answers, shared, self._cancel)
            measured = measure_pass_costs(model, options, OF_DRAFT_MODEL, self._cancel)
        finally:
            model.close()
        self._on_measure(candidate.label, 1.0)
        agrees = float(np.mean([hit for each in hits.values() for row in each for hit in row]))
        step = measured.costs.of(1) / self.costs.target.of(1)
        by_kind = speed_up(hits, self.costs.target, measured.costs)
        return Tried(candidate, file, size_bytes, agrees, step, by_kind, not measured.disturbed)

    def _make(self, candidate: Candidate, folder: Path) -> Path:
        """Return the file of a candidate, made in the folder."""
        require_free("disk", candidate.size_bytes, shutil.disk_usage(folder).free)
        largest = max(prod(each.shape) for each in read_model(candidate.source).tensors)
        require_free("memory", _WORKING_BYTES * largest, free_ram_bytes())
        file = folder / f"{token_hex(4)}.gguf"
        quantise(candidate.source, file, candidate.made, candidate.left_out, self._cancel)
        return file


def require_free(what: str, needed_bytes: int, free_bytes: int | None) -> None:
    """Raise LocalspecError where less `memory` or `disk` is free than is needed, as far as that is known."""
    if free_bytes is not None and needed_bytes > free_bytes:
        needed, free = size_text(needed_bytes), size_text(free_bytes)
        advice = {"memory": "end other programs", "disk": "make room"}[what]
        raise LocalspecError(f"it needs {needed} of {what}, and {free} are free: {advice}")


def best_of(tried: Sequence[Tried]) -> Tried | None:
    """Return the made candidate with the highest speed-up, if it pays: a tenth on some kind of text, and more than the pair's own."""
    made = [each for each in tried if each.candidate.recipe and each.pays_on]
    own = max((each.speed for each in tried if not each.candidate.recipe), default=1.0)
    best = max(made, key=lambda each: each.speed, default=None)
    return best if best is not None and best.speed >= _BETTER * own else None


def keep(job: TailoringJob, best: Tried, result: str) -> ModelEntry:
    """Make a candidate the draft model of its pair; return its entry.

    Args:
        job: the pair.
        best: the candidate; its file moves into the store.
        result: what was measured, in a line that stays with it.
    """
    made = best.candidate
    origin = f"{made.name}, {made.recipe}, for pair {job.pair.name}: {result}"
    return register(job.pair, best.file, "tailored", origin)


def register(
    pair: PairEntry, file: Path, kind: str, origin: str, heads: HeadsEntry | None = None
) -> ModelEntry:
    """Make a file the draft model of a pair, in place of the one before of its kind; return its entry.

    Args:
        pair: the pair, as the registry has it.
        file: beside the store; it moves there.
        kind: how its name ends.
        origin: how it was made, in a line.
        heads: what it is, where it holds heads alone.
    """
    store, name = Store(data_dir()), f"{pair.name}-{kind}"
    before = TAILORED.load(store.root).get(name)
    path = store.take(file)
    made_for = TailoredFor(pair.name, pair.target, pair.draft_model or "")
    size = path.stat().st_size
    entry = ModelEntry(name, size, path.name, origin=origin, tailored=made_for, heads=heads)
    TAILORED.add(store.root, name, entry)
    if before is not None and before.sha256 != entry.sha256:
        store.remove(before)
    return entry


def register_trained(pair: PairEntry, file: Path, result: str) -> ModelEntry:
    """Make heads that were trained here the draft model of their target; return their entry.

    Args:
        pair: of the target.
        file: beside the store; it moves there.
        result: what was measured of them.
    """
    day = strftime("%Y-%m-%d", gmtime())
    heads = HeadsEntry(kind="eagle3", target=pair.name, source="made here", date=day)
    origin = f"trained here for pair {pair.name}: {result}, on held-out prompts"
    return register(pair, file, "student", origin, heads)


def undo(name: str) -> tuple[ModelEntry, TailoredFor, int]:
    """Remove the draft model that was made for a pair; return it, its pair, and how many bytes that freed.

    Args:
        name: the pair's, or its target's.

    Raises:
        ModelUnavailable: there is no such pair, or nothing was made for it.
    """
    registry, store = load_registry(), Store(data_dir())
    tailored = TAILORED.load(store.root)
    # Of a pair that the registry has no longer, the list may still have the name.
    pair = name if f"{name}-tailored" in tailored else pair_of(name, registry).name
    entry = tailored.get(f"{pair}-tailored")
    if entry is None or entry.tailored is None:
        raise ModelUnavailable(f"nothing was tailored for {pair}: `localspec tailor` does that")
    if entry.name in registry.models:
        freed = remove(plan_removal([entry.name], registry, store), store)
    else:  # not loaded: the pair has changed
        TAILORED.remove(store.root, entry.name)
        freed = store.remove(entry)
    return entry, entry.tailored, freed

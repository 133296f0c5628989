"""The payoff: whether a draft model or heads can pay on this machine, before they are fetched and before they are loaded.

Pure: what was measured comes in; why a draft model stays out comes out. Whether a draft pays in a text, `decoding.policy` learns.
"""

from dataclasses import dataclass
from pathlib import Path

from localspec.calibration.calibrated import Measurements
from localspec.decoding.costs import (
    DOUBT,
    WORTH_TRYING,
    PairCosts,
    PassCosts,
    at_best_of,
    draft_model_could_win,
)
from localspec.decoding.model import Role
from localspec.decoding.policy import LONGEST_DRAFT
from localspec.models.entries import ModelEntry
from localspec.options import LoadOptions
from localspec.plan.fit import FreeMemory
from localspec.plan.load_plan import LoadPlan
from localspec.storage.files import size_text


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model that was asked for.

    Args:
        name: as it was asked for.
        model: what that means.
        path: its file; None where it is not here.
        newer: of an older file, the model whose file has its bare name elsewhere, and what has heads for that.
    """

    name: str
    model: ModelEntry | Path
    path: Path | None
    newer: tuple[ModelEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """What to tell the user; empty for nothing. `once`, if it says anything, tells it from others that are told once on a machine."""

    text: str = ""
    once: str = ""


def could_pay(
    target: ModelEntry,
    draft_model: ModelEntry,
    options: LoadOptions,
    costs: Measurements,
    *,
    path: Path | None,
    on_gpu: bool,
) -> bool | None:
    """Say whether drafts of a model that is not here could pay; None where that is not sure.

    By what passes of the target cost here; where that was not measured, by those of the largest model
    that was measured, or of a CPU as it is known. What was measured beside busy programs does not
    count, or the answer would change with them. A step of the draft model takes as long as reading
    its weights, at the target's pace. On a GPU passes of several tokens cost little more than one,
    so there it could.

    Args:
        target: with a known size.
        draft_model: with a known size, too.
        options: how they would be loaded.
        costs: what was measured.
        path: the target's file; None where it is not here.
        on_gpu: whether layers would be on a GPU.
    """
    stored = None if path is None else costs.of(path, options, Role.TARGET)
    passes = stored.costs if stored is not None and stored.sure else None
    if passes is None and on_gpu:
        return True
    # Passes of other models, by width, are as many times as dear as one of a token. With those of a CPU, a draft model of a
    # third of the target's size does not pay, and one of a quarter may.
    passes = passes or costs.largest(options)
    if passes is None:
        from localspec.plan.recommend import ON_A_CPU  # noqa: PLC0415 - few starts need it

        passes = ON_A_CPU
    step_s = passes.of(1) * draft_model.read_bytes / target.read_bytes
    in_one_pass = draft_model.heads is not None and draft_model.heads.in_one_pass
    pair = PairCosts(passes, PassCosts((1,), (step_s,)), in_one_pass=in_one_pass)
    if draft_model_could_win(pair, LONGEST_DRAFT, by=WORTH_TRYING * DOUBT):
        return True
    return None if draft_model_could_win(pair, LONGEST_DRAFT, by=WORTH_TRYING / DOUBT) else False


def not_taken(
    pair: str,
    target: NamedModel,
    draft_model: NamedModel,
    options: LoadOptions,
    costs: Measurements,
    free: FreeMemory,
    *,
    pulled: bool = False,
) -> Note | None:
    """Return a note on a draft model that stays out, which `auto` may use and nothing else needs; None where it is here, or worth its download.

    Beside a target that is here nothing is fetched unasked, unless the pair is `pulled`.
    """
    big, small = target.model, draft_model.model
    if isinstance(big, Path) or isinstance(small, Path) or draft_model.path is not None:
        return None
    if not (big.is_known and small.is_known):
        return None
    on_gpu = bool(free.gpus(options))
    pays = could_pay(big, small, options, costs, path=target.path, on_gpu=on_gpu)
    what = "the file of heads" if small.heads else "the draft model"
    described = f"{what} {small.name} ({size_text(small.size_bytes)})"
    how = f"`localspec pull {pair} --with-draft` downloads it"
    if pulled or target.path is None:
        verb = "may" if pays is None else "would"
        why = (
            f"{described} is not downloaded, because it {verb} not make this machine faster: {how}"
        )
        return None if pays else Note(why)
    faster = f"{described} could make answers faster on this machine: {how}"
    return Note(faster, f"draft model of {pair}") if pays else Note()


def never_pays(plan: LoadPlan, costs: Measurements) -> PairCosts | None:
    """Return what the pair costs where only `auto` wants the draft model or the heads, and they never pay.

    Where that is not sure, they are loaded, and measured with the target.
    """
    options, file = plan.options, plan.draft_model or plan.target
    if not plan.drafts_by_passes or plan.needs_passes:
        return None
    target = costs.of(plan.target, options, Role.TARGET)
    draft_options = plan.draft_options or options
    if plan.heads is None:
        draft_model = costs.of(file, draft_options, Role.DRAFT_MODEL, plan.draft_lora)
    else:
        draft_model = costs.of_heads(file, draft_options)
    if target is None or draft_model is None or plan.parallel is None:
        return None
    in_one_pass = plan.heads is not None and plan.heads.block is not None
    at_best = at_best_of(None if plan.heads is None else plan.heads.accepted)
    sure = target.sure and draft_model.sure
    pair = PairCosts(target.costs, draft_model.costs, sure, in_one_pass, at_best)
    by = WORTH_TRYING if pair.sure else WORTH_TRYING / DOUBT
    return None if draft_model_could_win(pair, plan.longest_draft, plan.parallel, by) else pair


def is_idle(plan: LoadPlan, costs: PairCosts | None, parallel: int) -> bool:
    """Say whether only `auto` wants the draft model or the heads, and by what was measured they never pay beside so many."""
    return not plan.needs_passes and not (
        costs is not None and draft_model_could_win(costs, plan.longest_draft, parallel)
    )

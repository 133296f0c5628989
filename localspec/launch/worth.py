"""Whether the draft model of a pair could pay on this machine, judged before it is fetched."""

from pathlib import Path

from localspec.calibration.calibrated import stored_costs
from localspec.decoding.costs import (
    DOUBT,
    WORTH_TRYING,
    PairCosts,
    PassCosts,
    draft_model_could_win,
)
from localspec.decoding.model import Role
from localspec.decoding.policy import LONGEST_DRAFT
from localspec.llama.devices import offloads
from localspec.models.entries import ModelEntry
from localspec.models.inventory import inventory
from localspec.models.recommend import ON_A_CPU
from localspec.models.registry import Registry, load_registry
from localspec.models.store import Store, is_here
from localspec.options import LoadOptions
from localspec.storage.files import size_text
from localspec.storage.paths import data_dir, first_time

_LEAST_BYTES = 400_000_000  # passes of less cost something else than reading weights


def draft_model_could_pay(
    target: ModelEntry, draft_model: ModelEntry, options: LoadOptions | None = None
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
    """
    options = options or LoadOptions()
    costs = _costs(target, options)
    if costs is None:
        return True
    step_s = costs.of(1) * draft_model.read_bytes / target.read_bytes
    in_one_pass = draft_model.heads is not None and draft_model.heads.in_one_pass
    pair = PairCosts(costs, PassCosts((1,), (step_s,)), in_one_pass=in_one_pass)
    if draft_model_could_win(pair, LONGEST_DRAFT, by=WORTH_TRYING * DOUBT):
        return True
    return None if draft_model_could_win(pair, LONGEST_DRAFT, by=WORTH_TRYING / DOUBT) else False


def why_idle(
    name: str,
    target: ModelEntry | Path,
    draft_model: ModelEntry | Path,
    options: LoadOptions | None = None,
) -> str | None:
    """Return why a pair comes without its draft model; None where it comes with it, being here or worth it.

    Args:
        name: of the pair.
        target: its target.
        draft_model: its draft model, which `auto` may use and nothing else needs.
        options: how they would be loaded.
    """
    models = _absent(target, draft_model)
    pays = None if models is None else draft_model_could_pay(*models, options)
    if models is None or pays:
        return None
    verb = "may" if pays is None else "would"
    return f"{_described(models[1])} is not downloaded, because it {verb} not make this machine faster: {_how(name)}"


def without_draft_model(
    name: str,
    target: ModelEntry | Path,
    draft_model: ModelEntry | Path,
    options: LoadOptions | None = None,
) -> str | None:
    """Return None where a pair is loaded with its draft model; else what to tell of that, which may be nothing.

    Beside a target that is here nothing is fetched unasked: of what could pay there is one note, once. The arguments
    are those of `why_idle`.
    """
    models = _absent(target, draft_model)
    if models is None:
        return None
    if not is_here(models[0]):
        return why_idle(name, target, draft_model, options)
    if not draft_model_could_pay(*models, options) or not first_time(f"draft model of {name}"):
        return ""
    return f"{_described(models[1])} could make answers faster on this machine: {_how(name)}"


def newer_file(entry: ModelEntry, registry: Registry) -> list[str]:
    """Return a note, once on this machine, where the bare name of an older file means another one elsewhere."""
    newer = registry.newer(entry)
    if newer is None or entry.name != entry.base or not first_time(f"file {newer.sha256}"):
        return []
    drafter = registry.with_heads_for(newer)[:1]
    models = list(dict.fromkeys([newer, *drafter]))
    names, size = " ".join(each.name for each in models), sum(each.size_bytes for each in models)
    heads = ", with heads that draft for it" if drafter else ""
    return [
        f"there is a newer file of {entry.name}{heads}: `localspec pull {names}` downloads {size_text(size)}"
    ]


def _absent(
    target: ModelEntry | Path, draft_model: ModelEntry | Path
) -> tuple[ModelEntry, ModelEntry] | None:
    """Return both models where the draft model would have to be fetched; else None."""
    if isinstance(target, Path) or isinstance(draft_model, Path):
        return None
    known = target.is_known and draft_model.is_known and not is_here(draft_model)
    return (target, draft_model) if known else None


def _described(draft_model: ModelEntry) -> str:
    what = "the file of heads" if draft_model.heads else "the draft model"
    return f"{what} {draft_model.name} ({size_text(draft_model.size_bytes)})"


def _how(name: str) -> str:
    return f"`localspec pull {name} --with-draft` downloads it"


def _costs(target: ModelEntry, options: LoadOptions) -> PassCosts | None:
    """Return what passes of a target cost, measured or foreseen; None where they may be of any kind."""
    path = Store(data_dir()).path_of(target)
    costs = None if path is None else _sure_costs(path, options)
    if costs is not None:
        return costs
    if offloads(options):
        return None
    # Passes of other models, by width, are as many times as dear as one of a token.
    here = [each for each in inventory(load_registry(), Store(data_dir())) if each.path is not None]
    for item in sorted(here, key=lambda each: -each.entry.read_bytes):
        if item.entry.read_bytes >= _LEAST_BYTES and item.path is not None:
            costs = _sure_costs(item.path, options)
            if costs is not None:
                return costs
    # With these, a draft model of a third of the target's size does not pay, and one of a quarter may.
    return ON_A_CPU


def _sure_costs(path: Path, options: LoadOptions) -> PassCosts | None:
    stored = stored_costs(path, options, Role.TARGET)
    return stored.costs if stored is not None and stored.sure else None

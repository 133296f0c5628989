"""Make a plan: names are looked up, files fetched, facts gathered, and `decide` decides; nothing is loaded yet."""

import time
from collections.abc import Callable
from dataclasses import replace

from localspec.calibration.calibrated import Measurements
from localspec.entry_points import prepare_engine
from localspec.errors import MemoryShort
from localspec.messages import Held
from localspec.models.registry import load_registry
from localspec.models.transfer import Progress
from localspec.options import LaunchOptions
from localspec.plan.decide import Refusal, Wish, decide, take, wanted
from localspec.plan.facts import Facts, fetched, gather, known_devices, name_models
from localspec.plan.load_plan import LoadPlan
from localspec.storage.paths import first_time

_AGAIN_S = 0.5


def make_plan(
    launch: LaunchOptions,
    on_download: Callable[[Progress], None] = lambda _: None,
    *,
    parallel: int | None = 1,
    roomy: bool = False,
    least_ctx: int = 0,
    others: Held | None = None,
) -> LoadPlan:
    """Obtain and check what is to be loaded, all of it before the first, slow load begins.

    Args:
        launch: what to load.
        on_download: called while a missing model is fetched.
        parallel: as in `Wish`.
        roomy: as there.
        least_ctx: as there.
        others: as there.

    Raises:
        NoRoom: it would fit better without those others.
        ModelUnavailable: a model is not here and cannot be fetched.
        PairMismatch: draft model and target do not fit.
        ModelFileError: a file is no sound GGUF.
        ModelLoadError: the memory that is free does not hold the target.
        UsageError: the request contradicts itself.
    """
    wish = Wish(launch, parallel, roomy, least_ctx, others)
    return decided(gathered(wish, on_download), wish)


def gathered(wish: Wish, on_download: Callable[[Progress], None] = lambda _: None) -> Facts:
    """Return what there is to decide a wish by, once its files are here; raises as `make_plan` does."""
    launch = wish.launch
    prepare_engine("workers", launch.workers)
    registry = load_registry()
    models = name_models(wanted(wish, registry), registry, offline=launch.offline)
    models, notes = take(wish, models, registry.default_pair, Measurements(), known_devices())
    about_files = tuple(each.text for each in notes if not each.once or first_time(each.once))
    facts = gather(launch, fetched(models, on_download, offline=launch.offline))
    return replace(facts, notes=about_files)


def decided(facts: Facts, wish: Wish) -> LoadPlan:
    """Return what is decided; the memory is looked at once more before that is a refusal, which is raised."""
    plan = decide(facts, wish)
    if isinstance(plan, Refusal) and isinstance(plan.error, MemoryShort):
        time.sleep(_AGAIN_S)  # what has just ended may still be giving its memory back
        plan = decide(facts.later(), wish)
    if isinstance(plan, Refusal):
        raise plan.error
    return plan

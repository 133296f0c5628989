"""The campaign's command; see `lab.gpu_campaign`."""

import argparse
import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from lab.gpu_campaign.page import page
from lab.gpu_campaign.results import DONE, FAILED, Outcome, Results
from lab.gpu_campaign.runner import run
from lab.gpu_campaign.stages import Stage, Subject, Tools, by_name, stages
from lab.synthetic import heavier
from localspec.config.resolve import resolve
from localspec.errors import LocalspecError, UsageError
from localspec.llama.handshake import require_worker, workers_in
from localspec.models.gguf import read_header
from localspec.models.registry import load_registry
from localspec.models.store import Store
from localspec.storage.files import write_atomic
from localspec.storage.paths import data_dir, shown

TIMES = (4, 16)
PAIR = "qwen2.5-coder-1.5b"
_BRIEF_MINUTES = 15
_LEAST_S = 5.0
_FREE_WITHIN_S = 120.0
_MAKING = "making files"
_LONG_STEM = 40  # a blob's name is its sha256
_LIBRARIES = ("libllama.so", "libllama.dylib", "llama.dll")


def libraries(build: Path) -> Path:
    """Return the folder of a build that has llama.cpp's shared library.

    Raises:
        LocalspecError: there is none.
    """
    for name in _LIBRARIES:
        for found in sorted(build.rglob(name)):
            return found.parent
    raise LocalspecError(
        f"{shown(build)} has no {_LIBRARIES[0]}: build llama.cpp with -DBUILD_SHARED_LIBS=ON, of the version that "
        "llama-cpp-python binds"
    )


def library_environment(build: Path) -> dict[str, str]:
    """Return what has every program take the libraries of a build, wherever the build was moved to since it was made.

    Raises:
        LocalspecError: there are none.
    """
    folder, others = str(libraries(build)), os.environ.get("LD_LIBRARY_PATH")
    searched = os.pathsep.join(each for each in (folder, others) if each)
    return {"LLAMA_CPP_LIB_PATH": folder, "LD_LIBRARY_PATH": searched}


def program(build: Path, name: str) -> Path | None:
    """Return a program of a build; None where it was not built."""
    found = [each for each in build.rglob(name) if each.is_file() and os.access(each, os.X_OK)]
    return found[0].absolute() if found else None


def subjects(model: Path, pair: Sequence[Path] | None, out: Path) -> list[Subject]:
    """Return what is measured: the model, heavier ones of the same function that it drafts for, and a pair.

    Args:
        model: a GGUF of a plain transformer.
        pair: target and draft model; None takes those of the registry that are here.
        out: where heavier models are made.
    """
    named = read_header(model).metadata.get("general.name")
    name = str(named) if named and len(model.stem) > _LONG_STEM else model.stem
    found = [Subject(name, model)]
    for times in TIMES:
        try:
            made = heavier(model, times, out / "models")
        except LocalspecError as error:  # a deep model has no sixteen times as many layers
            print(f"without {times} x {name}: {error}", file=sys.stderr)
        else:
            found.append(Subject(f"{times} x {name}", made, model))
    pair = pair or _pair_here()
    if pair is not None:
        found.insert(1, Subject("pair", *pair))
    return found


def _pair_here() -> Sequence[Path] | None:
    """Return the files of the pair that the registry knows, where both are in the store."""
    registry, store = load_registry(), Store(data_dir())
    known = registry.pair(PAIR)
    names = [known.target, known.draft_model]
    files = [store.path_of(registry.model(name)) for name in names if name is not None]
    here = [each for each in files if each is not None]
    return here if len(here) == 2 else None


def with_workers(settings: Sequence[str]) -> list[str]:
    """Return settings with the workers of the environment or a file, which `localspec bench` would take by itself, and alone."""
    workers = resolve({})["workers"].value
    if "workers" in by_name(settings) or not isinstance(workers, tuple) or not workers:
        return list(settings)
    return [*settings, f"workers={','.join(workers)}"]


def wanted(listed: Iterable[Stage], only: Sequence[str]) -> list[Stage]:
    """Return the stages whose names begin with one of `only`; all without any."""
    return [each for each in listed if not only or each.name.startswith(tuple(only))]


def limit_s(stage: Stage, left: Sequence[Stage], left_s: float) -> float:
    """Return how long a stage may take: its share of what is left, and half as much again, for others take less.

    Args:
        stage: the next one.
        left: all that are to be run, this one included.
        left_s: seconds.
    """
    share = stage.weight / sum(each.weight for each in left)
    return min(left_s, max(_LEAST_S, 1.5 * share * left_s))


def wait_for(workers: str, patience_s: float = _FREE_WITHIN_S) -> None:
    """Wait until workers answer: a stage that was killed leaves one computing, and it serves one program at a time.

    Args:
        workers: addresses with commas between. What is wrong with one, the next stage says.
        patience_s: how long to wait for each.
    """
    with suppress(UsageError):
        for each in workers_in([workers]):
            require_worker(each, patience_s)


def main() -> int:
    """Run what is missing, and write what was found after every stage."""
    parser = argparse.ArgumentParser(prog="python -m lab.gpu_campaign", description=__doc__)
    parser.add_argument(
        "--build", type=Path, help="where llama.cpp was built; the wheel's own libraries without it"
    )
    parser.add_argument("--model", type=Path, required=True, help="a GGUF of a plain transformer")
    parser.add_argument("--pair", type=Path, nargs=2, metavar=("TARGET", "DRAFT"))
    parser.add_argument("--out", type=Path, default=Path("campaign"))
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--only", action="append", default=[], metavar="STAGE")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="as in gpu_layers=0"
    )
    parser.add_argument(
        "--brief", action="store_true", help=f"ask little, as below {_BRIEF_MINUTES} minutes"
    )
    asked = parser.parse_args()
    settings = with_workers(asked.set)
    out = asked.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    environment = {"LOCALSPEC_DATA_DIR": str(out / "data")}
    tools = Tools()
    if asked.build is not None:
        environment |= library_environment(asked.build.absolute())
        tools = Tools(program(asked.build, "llama-server"), program(asked.build, "llama-bench"))
    results = Results(out / "campaign.json")
    start = time.monotonic()
    measured = subjects(asked.model.absolute(), asked.pair, out)
    if (took_s := time.monotonic() - start) > 1:
        sizes = {each.name: each.target.stat().st_size for each in measured}
        results.add(_MAKING, Outcome(_MAKING, "all", DONE, round(took_s, 1), [sizes]))
    brief = asked.brief or asked.minutes < _BRIEF_MINUTES
    listed = list(stages(measured, tools, settings, brief=brief))
    left = [each for each in wanted(listed, asked.only) if not results.is_settled(each.name)]
    left.sort(
        key=lambda each: results.cut_short_after_s(each.name) > 0
    )  # what nothing is known of first
    workers = by_name(settings).get("workers")
    while left:
        left_s = 60 * asked.minutes - results.spent_s
        if left_s < _LEAST_S:
            print(f"the time is over: {len(left)} stages are left", file=sys.stderr)
            break
        may_take_s, stage = limit_s(left[0], left, left_s), left.pop(0)
        had_s = results.cut_short_after_s(stage.name)
        if may_take_s <= had_s:
            continue
        if workers is not None:
            wait_for(workers)
        print(f"{stage.name}: up to {may_take_s:.0f} s", file=sys.stderr, flush=True)
        outcome = run(stage, may_take_s, environment)
        if not had_s or outcome.status != FAILED:  # a part is more than nothing
            results.add(stage.name, outcome)
        order = {each.name: each for each in listed}
        write_atomic(out / "campaign.md", page(results.outcomes, list(order)).encode())
        print(
            f"  {outcome.status} after {outcome.seconds:.0f} s {outcome.complaint}", file=sys.stderr
        )
    failed = [name for name, each in results.outcomes.items() if each.status == FAILED]
    print(f"{out / 'campaign.md'}: {len(results.outcomes)} stages, {len(failed)} failed")
    return int(bool(failed))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LocalspecError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)

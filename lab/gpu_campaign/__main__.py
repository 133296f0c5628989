"""The campaign's command; see `lab.gpu_campaign`."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lab.gpu_campaign.outcomes import DONE, FAILED, read, run, write
from lab.gpu_campaign.stages import Stage, Subject, Tools, stages
from lab.synthetic.heavier import heavier
from lab.synthetic.wider import wider
from localspec.errors import LocalspecError
from localspec.models.gguf import read_header
from localspec.models.registry import load_registry
from localspec.models.store import Store
from localspec.storage.paths import data_dir, shown

PAIR = "qwen2.5-coder-1.5b"
_BRIEF_MINUTES = 15
_LEAST_S = 5.0
_LONG_STEM = 40  # a blob's name is its sha256


def library_environment(build: Path) -> dict[str, str]:
    """Return environment variables with which every program takes the libraries of a build, wherever it was moved to.

    Raises:
        LocalspecError: the build has none.
    """
    libraries = [*build.rglob("libllama.so"), *build.rglob("libllama.dylib")]
    if not libraries:
        raise LocalspecError(
            f"{shown(build)} has no libllama.so: build llama.cpp with -DBUILD_SHARED_LIBS=ON, of the version that "
            "llama-cpp-python binds"
        )
    folder, others = str(libraries[0].parent), os.environ.get("LD_LIBRARY_PATH")
    searched = os.pathsep.join(each for each in (folder, others) if each)
    return {"LLAMA_CPP_LIB_PATH": folder, "LD_LIBRARY_PATH": searched}


def program(build: Path, name: str) -> Path | None:
    """Return a program of a build; None where it was not built."""
    found = [each for each in build.rglob(name) if each.is_file() and os.access(each, os.X_OK)]
    return found[0].absolute() if found else None


def subjects(
    model: Path, pair: Sequence[Path] | None, out: Path, deep: Sequence[int], wide: Sequence[int]
) -> list[Subject]:
    """Return what is measured: the model, larger ones of the same function that it drafts for, and a pair.

    Args:
        model: a GGUF of a plain transformer.
        pair: target and draft model; None takes those of the registry that are in the store.
        out: where larger models are made.
        deep: how many times the layers of heavier models.
        wide: how many times the channels of wider models.
    """
    named = read_header(model).metadata.get("general.name")
    name = str(named) if named and len(model.stem) > _LONG_STEM else model.stem
    found = [Subject(name, model)]
    makers = [(f"{times} x", heavier, times) for times in deep]
    makers += [(f"{times} x as wide", wider, times) for times in wide]
    for label, made, times in makers:
        try:
            found.append(Subject(f"{label} {name}", made(model, times, out / "models"), model))
        except LocalspecError as error:  # a deep model has no sixteen times as many layers
            print(f"without {label} {name}: {error}", file=sys.stderr)
    if pair is None:
        registry, store = load_registry(), Store(data_dir())
        names = [registry.pair(PAIR).target, registry.pair(PAIR).draft_model]
        files = [store.path_of(registry.model(each)) for each in names if each is not None]
        pair = [each for each in files if each is not None]
    if len(pair) == 2:
        found.insert(1, Subject("pair", *pair))
    return found


def limit_s(stage: Stage, left: Sequence[Stage], left_s: float) -> float:
    """Return how long a stage may take: its share of what is left, and half as much again, for others take less.

    Args:
        stage: the next one.
        left: all that are to be run, this one included.
        left_s: seconds.
    """
    share = stage.weight / sum(each.weight for each in left)
    return min(left_s, max(_LEAST_S, 1.5 * share * left_s))


def main() -> int:
    """Run what is missing, and write the outcome of every stage."""
    parser = argparse.ArgumentParser(prog="python -m lab.gpu_campaign", description=__doc__)
    parser.add_argument(
        "--build", type=Path, help="where llama.cpp was built; default: the wheel's own"
    )
    parser.add_argument("--model", type=Path, required=True, help="a GGUF of a plain transformer")
    parser.add_argument("--pair", type=Path, nargs=2, metavar=("TARGET", "DRAFT"))
    parser.add_argument("--deep", default="4,16", help="times the layers of heavier targets")
    parser.add_argument("--wide", default="", help="times the width of wider targets")
    parser.add_argument("--out", type=Path, default=Path("campaign"))
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--only", action="append", default=[], metavar="STAGE")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument(
        "--brief",
        action=argparse.BooleanOptionalAction,
        help="short stages; default: below 15 minutes",
    )
    flags = parser.parse_args()
    out = flags.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    end_s = time.monotonic() + 60 * flags.minutes
    environment = {"LOCALSPEC_DATA_DIR": str(out / "data")}
    tools = Tools()
    if flags.build is not None:
        environment |= library_environment(flags.build.absolute())
        tools = Tools(program(flags.build, "llama-server"), program(flags.build, "llama-bench"))
    outcomes = read(out / "campaign.json")
    deep, wide = (
        [int(each) for each in text.split(",") if each] for text in (flags.deep, flags.wide)
    )
    measured = subjects(flags.model.absolute(), flags.pair, out, deep, wide)
    brief = flags.minutes < _BRIEF_MINUTES if flags.brief is None else flags.brief
    left = [
        each
        for each in stages(measured, tools, flags.set, brief=brief)
        if not flags.only or each.name.startswith(tuple(flags.only))
        if each.name not in outcomes or outcomes[each.name].status != DONE
    ]
    left.sort(key=lambda each: each.name in outcomes)  # those without an outcome first
    while left and (left_s := end_s - time.monotonic()) > _LEAST_S:
        may_take_s, stage = limit_s(left[0], left, left_s), left.pop(0)
        print(f"{stage.name}: up to {may_take_s:.0f} s", file=sys.stderr, flush=True)
        outcome = run(stage, may_take_s, environment)
        if stage.name not in outcomes or outcome.status != FAILED:  # a part is more than nothing
            outcomes[stage.name] = outcome
            write(out / "campaign.json", outcomes)
        print(
            f"  {outcome.status} after {outcome.seconds:.0f} s {outcome.complaint}", file=sys.stderr
        )
    failed = sum(each.status == FAILED for each in outcomes.values())
    print(f"{out / 'campaign.md'}: {len(outcomes)} stages, {failed} failed, {len(left)} left")
    return int(failed > 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LocalspecError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)

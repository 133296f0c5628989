"""Stages: what a campaign measures, in which order, and for how long. Knows no process and no file but by its path."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.options import LaunchOptions, options_of

_OWN = ("-m", "lab.gpu_campaign.measured")
_BRIEF = Path(__file__).with_name("brief.jsonl")


@dataclass(frozen=True, slots=True)
class Subject:
    """A target, and what may draft for it.

    Args:
        name: how the page calls it.
        target: its file.
        draft_model: its file; None without one.
    """

    name: str
    target: Path
    draft_model: Path | None = None

    @property
    def flags(self) -> tuple[str, ...]:
        """What programs take to load it."""
        small = () if self.draft_model is None else ("--draft-model", str(self.draft_model))
        return ("--target", str(self.target), *small)


@dataclass(frozen=True, slots=True)
class Tools:
    """What the build has beside its libraries; None of each that is not there."""

    server: Path | None = None
    bench: Path | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """One measurement of one subject.

    Args:
        kind: what is measured.
        subject: of what.
        weight: its share of the time, in seconds of a campaign of 25 minutes.
        command: program and arguments; it prints JSON on stdout, and again whenever it has found more.
        told_by: fields of what it prints that say what an object is of; none where there is but one.
    """

    kind: str
    subject: str
    weight: float
    command: tuple[str, ...]
    told_by: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How results and `--only` call it."""
        return f"{self.kind} {self.subject}"


def stages(
    subjects: Sequence[Subject], tools: Tools, settings: Sequence[str], *, brief: bool
) -> Iterator[Stage]:
    """Yield all stages, the most telling ones first.

    Args:
        subjects: the first is the plain model.
        tools: of the build.
        settings: options of loading, each as NAME=VALUE.
        brief: ask little of each, for a slow machine or a trial.
    """
    own = tuple(word for each in settings for word in ("--set", each))
    plain, heaviest = subjects[0], subjects[-1]

    def measured(kind: str, subject: Subject, weight: float, *more: str) -> Stage:
        command = (sys.executable, *_OWN, kind.replace(" ", "-"), str(subject.target), *own, *more)
        return Stage(kind, subject.name, weight, command)

    yield Stage("devices", "machine", 15, (sys.executable, *_OWN, "devices", *own))
    depths = "64,256" if brief else "64,1000,3000"
    widths = ("--widths", "1,2,4,8") if brief else ()
    for subject in subjects:
        yield measured("cost of a pass", subject, 50, "--depths", depths, *widths)
        yield _speed(subject, tools, settings, brief=brief)
        if subject in {plain, heaviest}:
            yield measured("memory", subject, 20, "--lengths", "60" if brief else "600")
            yield measured("cancelling", subject, 25, *(("--times", "3") if brief else ()))
            yield measured(
                "first token", subject, 30, "--lengths", "60,200" if brief else "100,1000,3000"
            )
    for subject in subjects:
        for exact in (True, False):
            yield _same_text(subject, own, exact=exact, brief=brief)
        yield measured("safe widths", subject, 40, *(("--depths", "120") if brief else ()))
        yield _several(subject, own, brief=brief)
        if tools.bench is not None:
            yield _llama_bench(tools.bench, subject, settings, brief=brief)


def _speed(subject: Subject, tools: Tools, settings: Sequence[str], *, brief: bool) -> Stage:
    """Return plain and drafted speed, beside llama-server where there is one, as `localspec bench` measures it."""
    modes = ["off", "auto", "lookup"]
    if subject.draft_model is not None:
        modes += ["model:3", "model:7"]
    program: tuple[str, ...] = ("localspec", "bench")
    if tools.server is not None:
        of_server = "server:none" if subject.draft_model is None else "server:none,server:draft"
        program = ("lab.peers", str(tools.server), "--server-modes", of_server, "--")
    command = (
        *(sys.executable, "-m", *program, "--json", "--offline"),
        *subject.flags,
        *("--modes", ",".join(modes), "--temperature", "0" if brief else "0,0.8"),
        *(("--prompts", str(_BRIEF)) if brief else ("--per-workload", "2")),
        *("--max-tokens", "16" if brief else "128"),
        *_flags(settings),
    )
    return Stage("speed", subject.name, 170, command)


def _same_text(subject: Subject, own: Sequence[str], *, exact: bool, brief: bool) -> Stage:
    modes = ["off", "auto", "lookup", *(["model:3"] if subject.draft_model is not None else [])]
    name = f"{subject.name}{' --exact' if exact else ''}"
    command = (
        *(sys.executable, "-m", "lab.same_text", "/dev/null", *subject.flags),
        *("--modes", ",".join(modes), "--kernels", "exact" if exact else "default"),
        *("--prompts", "1" if brief else "6", "--max-tokens", "8" if brief else "96"),
        *own,
    )
    return Stage("same text", name, 45, command, told_by=("mode", "temperature"))


def _several(subject: Subject, own: Sequence[str], *, brief: bool) -> Stage:
    """Return plain and drafted speed of several at a time; of other kinds, prompts have 500 tokens and more."""
    command = (
        *(sys.executable, "-m", "lab.benchmarks.parallel", *subject.flags),
        *("--parallel", "2" if brief else "8", "--count", "2" if brief else "16"),
        *("--rounds", "1" if brief else "2", "--max-tokens", "8" if brief else "64"),
        *(("--kinds", "code,chat") if brief else ()),
        *own,
    )
    return Stage("several sequences", subject.name, 50, command)


def _llama_bench(program: Path, subject: Subject, settings: Sequence[str], *, brief: bool) -> Stage:
    """Return what llama-bench says of the same file: a prompt, plain decoding, and passes by their width."""
    known = by_name(settings)
    layers = known.get("gpu_layers", "auto")
    command = (
        *(str(program), "-m", str(subject.target), "-o", "jsonl"),
        *("-r", "1" if brief else "3", "-n", "8" if brief else "64"),
        *("-p", "1,4,32" if brief else "1,2,4,8,16,32,512"),
        *("-ngl", "99" if layers == "auto" else layers),
        *(("-t", known["threads"]) if "threads" in known else ()),
        *_bench_devices(known.get("device", "auto")),
    )
    return Stage("llama-bench", subject.name, 35, command, told_by=("n_prompt", "n_gen"))


def _bench_devices(named: str) -> Iterator[str]:
    """Yield what llama-bench takes for devices; between several it has a slash, as a comma begins another test."""
    words = [word for each in named.split(",") if (word := each.strip())]
    names = [each for each in words if each.lower() not in {"auto", "cpu"}]
    if names or [each.lower() for each in words] == ["cpu"]:
        yield from ("-dev", "/".join(names) or "none")


def by_name(settings: Sequence[str]) -> dict[str, str]:
    """Return the values of settings, each of which is NAME=VALUE."""
    return {name: value for name, _, value in (each.partition("=") for each in settings)}


def _flags(settings: Sequence[str]) -> Iterator[str]:
    """Yield what `localspec bench` takes for settings: a switch has no value there."""
    options = {each.name: each for each in options_of(LaunchOptions)}
    for name, value in by_name(settings).items():
        flag, option = name.replace("_", "-"), options.get(name)
        if option is None or option.kind != "switch":
            yield from (f"--{flag}", value)
        elif option.parse(value) != option.default:
            yield f"--no-{flag}" if option.default else f"--{flag}"

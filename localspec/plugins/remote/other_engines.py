"""The command lines that start a pair in other programs: llama-server, vLLM, SGLang and LM Studio, with the draft length that costs suggest.

Sources: llama.cpp's docs/speculative.md; vLLM's docs/features/speculative_decoding and `SpeculativeMethod`; SGLang's
docs/advanced_features/speculative_decoding; LM Studio's docs of `lms load` and its help.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import asdict

from localspec.api import UsageError
from localspec.calibration.calibrated import stored_costs
from localspec.decoding.costs import PassCosts
from localspec.decoding.drafters.draft_length import best_length
from localspec.decoding.model import Role
from localspec.errors import ModelUnavailable
from localspec.models.entries import HEADS, HubName, ModelEntry
from localspec.models.mmproj import mmproj_of
from localspec.models.names import resolve
from localspec.models.registry import Registry
from localspec.models.repository import local_file
from localspec.options import LoadOptions
from localspec.plan.recommend import ON_A_GPU

PROGRAMS = ("llama-server", "vllm", "sglang", "lmstudio")
_LONGEST, _CTX, _STEP = 15, 8192, 0.1
_USUAL = 0.7
"""The chance of a drafted token where nobody has published one: of small models of the same family, in chat."""
# How each program calls what drafts, by our kind of heads; the draft model has none. What is missing it cannot, or no source says so.
_LLAMA = {
    "draft_model": "draft-simple",
    **dict.fromkeys(("mtp", "assistant"), "draft-mtp"),
    "eagle3": "draft-eagle3",
    "dflash": "draft-dflash",
}
_SGLANG = {"draft_model": "STANDALONE", "mtp": "NEXTN"}
_LM_STUDIO = {"draft_model": "--speculative-draft-simple", "mtp": "--speculative-draft-mtp"}
_GUESSED = "the names of weights are those of the GGUF repositories without -GGUF: check them"


@dataclass(frozen=True, slots=True)
class Launch:
    """How a pair is started elsewhere.

    Args:
        commands: as words, one after the other.
        draft_length: tokens to draft at a time; None without drafting.
        notes: where that comes from, and what is to be checked; a sentence each.
    """

    commands: tuple[tuple[str, ...], ...]
    draft_length: int | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Model:
    """A model, and where other programs find it."""

    entry: ModelEntry | None
    path: Path | None
    name: str

    @classmethod
    def of(cls, reference: str, registry: Registry) -> "_Model":
        model = resolve(reference, registry)
        if isinstance(model, Path):
            return cls(None, model, model.name)
        if isinstance(model, HubName):
            return cls(None, None, model.text)
        return cls(model, local_file(model), model.name)

    @property
    def repo(self) -> str:
        """The repository and quantisation on the hub; raises ModelUnavailable where it is in none."""
        hub = None if self.entry is None else self.entry.hub
        if self.entry is not None and hub is not None:
            return f"{hub.repo}:{self.entry.quant}" if self.entry.quant else hub.repo
        if self.entry is None and self.path is None:
            return self.name
        raise ModelUnavailable(f"{self.name} is in no repository of the hub: name one that is")

    @property
    def weights(self) -> str:
        """The repository of the weights that were made into this GGUF, by its name."""
        repo = self.repo.partition(":")[0]
        return repo[:-5] if repo.lower().endswith("-gguf") else repo

    def shares_repository(self, target: "_Model") -> bool:
        """Return whether it is in the repository of its target, where it has no name of its own."""
        return self.path is None and self.repo.partition(":")[0] == target.repo.partition(":")[0]

    def llama(self, *flags: str) -> tuple[str, str]:
        """Return the flag of llama-server and its value: for a file that is here the first flag, else the second."""
        return (flags[0], str(self.path)) if self.path is not None else (flags[1], self.repo)

    @property
    def mmproj(self) -> Path | None:
        """Its mmproj file, where both are here: a program that fetches a model finds that by itself."""
        model = self.entry or self.path
        return None if model is None or self.path is None else mmproj_of(model)


@dataclass(frozen=True, slots=True)
class _Drafting:
    """What drafts: `kind` is that of heads, or draft_model; without a model it is in the target's file."""

    kind: str
    model: _Model | None
    length: int


def launch_of(name: str, program: str, registry: Registry) -> Launch:
    """Return how a pair, or a model, is started by one of `PROGRAMS`.

    Raises:
        ModelUnavailable: there is no such model, or it is where the program cannot get it.
        UsageError: it is no model that writes.
    """
    known = registry.name(name)
    if (entry := registry.find(known)) is not None and not entry.writes:
        raise UsageError(f"{entry.name} writes no texts by itself: name a model or a pair")
    pair = registry.pairs.get(known)
    target = _Model.of(pair.target if pair else known, registry)
    heads = None if pair is None else registry.drafter_of(pair)
    model = None
    if pair is not None and pair.draft_model is not None:
        model = _Model.of(pair.draft_model, registry)
    elif target.entry is not None and target.entry.heads is not None:
        heads = target.entry
    drafting, notes = None, list[str]()
    if model is not None or heads is not None:
        length, why = _length(target, model, heads)
        kind = heads.heads.kind if heads is not None and heads.heads is not None else "draft_model"
        drafting, notes = _Drafting(kind, model, length), [why]
    context = target.entry.context if target.entry is not None else None
    make = {"llama-server": _llama, "vllm": _vllm, "sglang": _sglang, "lmstudio": _lm_studio}
    commands, can = make[program](target, drafting, str(min(context or _CTX, _CTX)))
    if program in {"vllm", "sglang"}:
        notes.append(_GUESSED)
    if drafting is not None and not can:
        what = HEADS.get(drafting.kind, "a draft model")
        notes = [f"without drafting: it is not known how {program} gets {what}", *notes[1:]]
    elif drafting is not None and program == "lmstudio":
        notes.append(
            "some versions of lms ask in spite of the flags: then set the draft in the app"
        )
    return Launch(
        tuple(map(tuple, commands)),
        drafting.length if drafting is not None and can else None,
        tuple(notes),
    )


def _length(target: _Model, model: _Model | None, heads: ModelEntry | None) -> tuple[int, str]:
    """Return the draft length of the highest rate, and by which figures."""
    facts = None if heads is None else heads.heads
    chances = {} if facts is None else {k: v for k, v in asdict(facts.chances).items() if v}
    kind, chance = next(iter(chances.items()), ("", _USUAL))
    accepted = f"an acceptance of {chance:g}"
    accepted += f" ({kind}, {facts.published})" if facts and chances else " (assumed)"
    measured = _measured(target, Role.TARGET)
    own = None if model is None else _measured(model, Role.DRAFT_MODEL)
    step = _STEP if facts is None or facts.step is None else facts.step
    if model is not None and model.entry is not None and target.entry is not None:
        step = model.entry.read_bytes / (target.entry.read_bytes or 1) or step
    in_one_pass, but = facts is not None and facts.in_one_pass, ""
    for costs, whose in ((measured, "measured on this machine"), (ON_A_GPU, "published of a GPU")):
        if costs is None:
            continue
        mine = own.of(1) / costs.of(1) if own is not None and costs is measured else step
        passes = [min(n, 1) if in_one_pass else n for n in range(_LONGEST + 1)]
        rounds = [costs.of(n + 1) / costs.of(1) + passes[n] * mine for n in range(_LONGEST + 1)]
        length = best_length([chance] * _LONGEST, rounds)[0]
        if length:
            return length, f"draft length {length}{but}: by costs of passes {whose}, and {accepted}"
        but = ", which would not pay on this machine"
    return 1, f"draft length 1, which hardly pays: by costs of passes, and {accepted}"


def _measured(model: _Model, role: Role) -> PassCosts | None:
    stored = None if model.path is None else stored_costs(model.path, LoadOptions(), role)
    return stored.costs if stored is not None and stored.sure else None


_Made = tuple[Sequence[Sequence[str]], bool]


def _llama(target: _Model, drafting: _Drafting | None, ctx: str) -> _Made:
    words = ["llama-server", *target.llama("-m", "-hf"), "-c", ctx]
    words += [] if target.mmproj is None else ["--mmproj", str(target.mmproj)]
    if drafting is not None:
        if drafting.model is not None and drafting.model.shares_repository(target):
            return [words], False
        if drafting.model is not None:
            words += drafting.model.llama("-md", "-hfd")
        words += ["--spec-type", _LLAMA[drafting.kind], "--spec-draft-n-max", str(drafting.length)]
    return [words], True


def _is_apart(drafting: _Drafting) -> bool:
    """Return whether heads are in a file of their own: a GGUF of them does not say whose weights they are."""
    return drafting.kind != "draft_model" and drafting.model is not None


def _vllm(target: _Model, drafting: _Drafting | None, ctx: str) -> _Made:
    words = ["vllm", "serve", target.weights, "--max-model-len", ctx]
    if drafting is not None and _is_apart(drafting):
        return [words], False
    if drafting is not None:
        config: dict[str, object] = {"method": drafting.kind}
        if drafting.model is not None:
            config["model"] = drafting.model.weights
        config["num_speculative_tokens"] = drafting.length
        words += ["--speculative-config", json.dumps(config)]
    return [words], True


def _sglang(target: _Model, drafting: _Drafting | None, ctx: str) -> _Made:
    words = ["python", "-m", "sglang.launch_server", "--model-path", target.weights]
    words += ["--context-length", ctx]
    algorithm = None if drafting is None else _SGLANG.get(drafting.kind)
    if drafting is None or algorithm is None or _is_apart(drafting):
        return [words], False
    words += ["--speculative-algorithm", algorithm]
    if drafting.model is not None:
        words += ["--speculative-draft-model-path", drafting.model.weights]
    words += ["--speculative-num-steps", str(drafting.length), "--speculative-eagle-topk", "1"]
    return [[*words, "--speculative-num-draft-tokens", str(drafting.length + 1)]], True


def _lm_studio(target: _Model, drafting: _Drafting | None, ctx: str) -> _Made:
    gets = [["lms", "get", target.repo.replace(":", "@"), "-y"]]
    load = ["lms", "load", target.repo.partition(":")[0], "-y", "--context-length", ctx]
    flag = None if drafting is None else _LM_STUDIO.get(drafting.kind)
    if drafting is not None and flag is not None:
        load.append(flag)
        if drafting.model is not None:
            gets.append(["lms", "get", drafting.model.repo.replace(":", "@"), "-y"])
            load += ["--speculative-draft-model", drafting.model.repo.partition(":")[0]]
        load += ["--speculative-draft-max-tokens", str(drafting.length)]
    return [*gets, load, ["lms", "server", "start"]], flag is not None

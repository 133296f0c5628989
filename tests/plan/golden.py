"""The answers of the golden table. `answer` is the seam: facts and a wish in, a plan as plain values out."""

import importlib
import json
import tempfile
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from localspec.calibration.calibrated import Measurements, StoredCosts
from localspec.cli.main import localspec
from localspec.decoding.costs import PassCosts
from localspec.decoding.model import Role
from localspec.diagnosis.doctor import memory
from localspec.errors import LocalspecError
from localspec.models.architectures import Heads
from localspec.models.entries import ModelEntry
from localspec.models.registry import load_registry
from localspec.options import LaunchOptions, LoadOptions
from localspec.plan.decide import Refusal, Wish, decide
from localspec.plan.facts import Facts
from localspec.plan.load_plan import LoadPlan
from localspec.plan.make import make_plan
from localspec.session.model_lines import hint, line, sizes_of
from localspec.session.model_list import measured_choices
from tests.plan.cases import Case
from tests.plan.files import MADE, own_files, put
from tests.plan.machines import MACHINES, Computer

Row = dict[str, Any]

DECIDED: list[tuple[Facts, Wish, LoadPlan | Refusal]] = []
"""What was decided on the way to the rows, by which facts."""


class TableCosts(Measurements):
    """What was measured, see `Costs`, as a case says it."""

    def __init__(self, case: Case) -> None:
        self._case = case

    def stored(self, role: str, file: Path) -> StoredCosts | None:
        known = self._case.costs.get(f"{role} {called(file)}")
        return None if known is None else StoredCosts(PassCosts(*known[:2]), *known[2:])

    def of(
        self, file: Path, _options: LoadOptions, role: Role, _lora: Path | None = None
    ) -> StoredCosts | None:
        return self.stored("target" if role is Role.TARGET else "draft", file)

    def of_heads(self, file: Path, _options: LoadOptions) -> StoredCosts | None:
        return self.stored("heads", file)

    def of_reading(self, file: Path, options: LoadOptions) -> StoredCosts | None:
        return self.stored("repacked" if options.repack else "plain", file)

    def largest(self, _options: LoadOptions) -> PassCosts | None:
        here = [load_registry().model(name.removesuffix("+")) for name in self._case.here]
        for entry in sorted(here, key=lambda each: -each.read_bytes):
            stored = self.stored("target", Path(entry.sha256))
            if stored is not None and stored.sure and entry.read_bytes >= 400_000_000:
                return stored.costs
        return None


def answer(case: Case) -> str:
    """Return a row of the table, as JSON."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        for name in case.here:
            put(data, name)
        fetched = _on(MACHINES[case.machine], case, data, patch)
        row: Row = {"name": case.name, "machine": case.machine, **_asked(case)}
        try:
            row["text" if case.command else "plan"] = _answers(case, data)
        except (LocalspecError, click.ClickException) as error:
            row["refusal"] = f"{type(error).__name__}: {error}"
        if fetched:
            row["fetched"] = fetched
        return json.dumps(row, ensure_ascii=False).replace(folder, "<data>")


def _asked(case: Case) -> Row:
    wish = {name: _plain_values(value) for name, value in case.wish.items()}
    parts = {
        "launch": dict(case.launch),
        "here": list(case.here),
        "wish": wish,
        "costs": dict(case.costs),
        "command": list(case.command),
    }
    return {name: part for name, part in parts.items() if part}


def _plain_values(value: object) -> object:
    names = getattr(value, "__struct_fields__", None)
    return value if names is None else {name: getattr(value, name) for name in names}


def _answers(case: Case, data: Path) -> Any:
    launch = dict(case.launch)
    if not case.command:
        load = LoadOptions(**launch.pop("load", {}))
        return plain(make_plan(LaunchOptions(load=load, **launch), **case.wish))
    if case.command[0] == "doctor":
        return [f"{fact.state} {fact.name} {fact.value}" for fact in memory(data, launch)]
    if case.command[0] == "choices":
        return [f"{line(row, 32)} | {hint(row)} | {sizes_of(row)}" for row in measured_choices()]
    done = CliRunner().invoke(localspec, case.command)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return [*done.stdout.splitlines(), *(f"stderr: {each}" for each in done.stderr.splitlines())]


def _on(machine: Computer, case: Case, data: Path, patch: pytest.MonkeyPatch) -> list[str]:
    """Stand on a machine; return the list that gets the names of what is fetched."""
    patch.setenv("LOCALSPEC_DATA_DIR", str(data))
    patch.setenv("HF_HUB_OFFLINE", "1")
    patch.chdir(own_files())
    patch.setattr("platform.machine", lambda: "x86_64")
    patch.setattr("time.sleep", lambda _: None)
    patch.setattr("localspec.llama.devices.devices", lambda: machine.devices)
    patch.setattr("localspec.llama.devices.total_ram_bytes", lambda: machine.total)
    patch.setattr("localspec.plugins.workers.rpc.use_workers", lambda _: None)
    fetched: list[str] = []

    def fetch(models: list[ModelEntry | Path], **_: object) -> list[Path]:
        entries = [each for each in models if isinstance(each, ModelEntry)]
        fetched.extend(each.name for each in entries)
        for name in filter(None, (called(Path(each.sha256)) for each in entries)):
            if name.removesuffix(" mmproj") in MADE:
                put(data, name.replace(" mmproj", "+"))
        return [each if isinstance(each, Path) else data / "blobs" / each.sha256 for each in models]

    def recorded(facts: Facts, wish: Wish) -> LoadPlan | Refusal:
        result = decide(facts, wish)
        DECIDED.append((facts, wish, result))
        return result

    def measured(file: Path, _options: LoadOptions, _role: Role) -> StoredCosts | None:
        return costs.stored("target", file)

    costs = TableCosts(case)
    for name, value in (
        ("plan.make.decide", recorded),
        ("plan.make.Measurements", lambda: costs),
        ("plan.facts.Measurements", lambda: costs),
        ("session.memories.stored_costs", measured),
        ("plan.facts.free_ram_bytes", lambda: machine.free),
        ("plan.facts.devices", lambda: machine.devices),
        ("session.model_list.free_ram_bytes", lambda: machine.free),
        ("session.memories.free_ram_bytes", lambda: machine.free),
        ("session.memories.usable_ram_bytes", lambda: machine.total),
        ("session.memories.copied_per_second", lambda _: machine.copied_per_s),
        ("session.memories.default_threads", lambda: 4),
        ("models.pull.fetch", fetch),
        ("cli.pull.fetch", fetch),
        ("cli.pull.taken_by_others", lambda: None),
    ):
        module, _, attribute = name.rpartition(".")
        patch.setattr(importlib.import_module(f"localspec.{module}"), attribute, value)
    return fetched


def called(file: Path | None) -> str | None:
    """Return the name of a file of the registry, and the path of another."""
    if file is None:
        return None
    return _names().get(file.name, str(file))


@cache
def _names() -> dict[str, str]:
    """Return the names of the registry's files by their sha256."""
    names: dict[str, str] = {}
    for each in load_registry().models.values():
        names.setdefault(each.sha256, each.name)
        if each.mmproj is not None:
            names.setdefault(each.mmproj.sha256, f"{each.name} mmproj")
    return names


def plain(plan: LoadPlan) -> Row:
    """Return a plan as values that JSON has, without what is as usual."""
    row: Row = {
        "target": called(plan.target),
        "draft_model": called(plan.draft_model),
        "draft_lora": called(plan.draft_lora),
        "names": list(plan.names.values()),
        "modes": [mode.name for mode in plan.modes],
        "shared_vocab": plan.shared_vocab,
        "options": _changed(plan.options, LoadOptions()),
        "draft_options": None if plan.draft_options is None else _changed(plan.draft_options, plan.options),
        "exact": plan.exact,
        "fit": plan.fit,
        "heads": None if plan.heads is None else _changed(plan.heads, Heads()),
        "left_out": None if plan.left_out is None else plan.left_out.at_best,
        "encoder": {
            "path": called(plan.encoder.path), "size": plan.encoder.size, "named": plan.encoder.named,
            "takes": dict(plan.encoder.takes),
        },
        "corrections": {called(file): dict(each) for file, each in plan.corrections.items() if each},
        "uses": [
            [each.place.name, each.place.free_bytes, _sizes(each.target), _sizes(each.draft_model)]
            for each in plan.uses
        ],
        "notes": list(plan.notes),
    }  # fmt: skip
    usual: Row = {
        "draft_lora": None,
        "exact": False,
        "fit": True,
        "left_out": None,
        "corrections": {},
        "heads": None,
    }
    return {name: value for name, value in row.items() if name not in usual or value != usual[name]}


def _sizes(usage: Any) -> list[int]:
    return [usage.weights_bytes, usage.kv_bytes, usage.compute_bytes, usage.output_bytes]


def _changed(value: Any, usual: Any) -> Row:
    names = [each.name for each in fields(value)]
    differing = [name for name in names if getattr(value, name) != getattr(usual, name)]
    return {
        name: str(getattr(value, name)) if name == "block" else getattr(value, name)
        for name in differing
    }

"""Models without a size and sha256 in any registry: learnt from the hub once, and wanted from then on."""

import json
import os
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from localspec.errors import LocalspecError, UsageError
from localspec.models import pull
from localspec.models.entries import HubSource, ModelEntry, Pin, of_shards
from localspec.models.ledger import PINS, with_pins
from localspec.models.registry import parse_registry
from localspec.storage.paths import data_dir
from tests.models.gguf_builder import model_file
from tests.models.loopback_hub import COMMIT, Fault, loopback_hub
from tests.models.sources import entry_for
from tests.models.toy_machine import REPO, ToyMachine

pytestmark = pytest.mark.slow

DATA, NEWER = model_file(pre="first"), model_file(pre="newer")
LATER = "e" * 40


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[ToyMachine]:
    with loopback_hub() as hub:
        machine = ToyMachine(tmp_path, hub)
        machine.offer("toy", DATA)
        machine.unsaid.add("toy")
        yield machine


def move_on(machine: ToyMachine) -> None:
    """Let the repository's main branch have another file of that name."""
    machine.hub.commit = LATER
    for revision in (LATER, "main"):
        machine.hub.files[f"/{REPO}/resolve/{revision}/toy.gguf"] = NEWER


def facts(machine: ToyMachine, name: str = "toy") -> dict[str, Any]:
    return dict(json.loads(machine.run("show", name, "--json").out))


def pulled(machine: ToyMachine, *arguments: str) -> list[Path]:
    return [Path(line) for line in machine.succeed("pull", *arguments).out.splitlines()]


def refused(machine: ToyMachine, word: str, name: str = "toy", **variables: str) -> None:
    """See that a pull ends with code 3 and one line that has a word, and leaves nothing."""
    done = machine.run("pull", name, **variables)
    assert (done.code, done.out) == (3, "")
    assert word in done.err
    assert machine.blobs == machine.partials == []


def test_what_the_hub_has_at_the_first_pull_counts_from_then_on(machine: ToyMachine) -> None:
    before = facts(machine)
    assert (before["size_bytes"], before["sha256"], before["learnt"]) == (None, None, None)
    (path,) = pulled(machine, "toy")
    assert path.read_bytes() == DATA
    after = facts(machine)
    assert date.fromisoformat(after["learnt"])
    assert (after["commit"], after["size_bytes"]) == (COMMIT, len(DATA))
    assert after["sha256"] == entry_for(DATA).sha256
    move_on(machine)
    machine.hub.requests.clear()
    assert pulled(machine, "toy") == pulled(machine, "--offline", "toy") == [path]
    assert machine.hub.requests == []
    # After the file is lost the same one is fetched.
    path.unlink()
    assert pulled(machine, "toy")[0].read_bytes() == DATA
    assert "re-hashed" in machine.run("doctor", "--offline", "--verify").out
    path.write_bytes(DATA[:-1] + b"x")
    assert "holds other bytes" in machine.run("doctor", "--offline", "--verify").out


@pytest.mark.parametrize("is_here", [True, False])
def test_rm_forgets_what_was_learnt(machine: ToyMachine, is_here: bool) -> None:
    (path,) = pulled(machine, "toy")
    move_on(machine)
    if not is_here:
        path.unlink()
    assert machine.run("rm", "toy").out.startswith("removed toy\n")
    assert facts(machine)["learnt"] is None
    assert pulled(machine, "toy")[0].read_bytes() == NEWER
    assert facts(machine)["commit"] == LATER
    # An entry that means another file now is learnt again.
    machine.pairs = f'[models.more]\nrepo = "{REPO}"\nfile = "toy.gguf"\nrevision = "{LATER}"\n'
    assert pulled(machine, "more")[0].read_bytes() == NEWER
    machine.pairs = machine.pairs.replace(LATER, COMMIT)
    assert facts(machine, "more")["learnt"] is None


def test_a_pull_that_was_cut_wants_the_same_file_when_it_goes_on(machine: ToyMachine) -> None:
    machine.offer("toy", DATA * 3000)
    machine.hub.faults.extend([Fault("cut", 500_000)] + [Fault("cut")] * 3)
    assert machine.run("pull", "toy").code == 3
    move_on(machine)
    assert machine.run("list").out.split()[-1] == "unfinished"
    (path,) = pulled(machine, "toy")
    assert machine.hub.offsets[-1] == 500_000
    assert path.read_bytes() == DATA * 3000


ELSE = "else/toy-GGUF"


def test_what_a_hub_does_not_have_or_may_not_say_is_not_learnt(machine: ToyMachine) -> None:
    machine.hub.files[f"/{ELSE}/resolve/{COMMIT}/toy-Q4_K_M.gguf"] = DATA
    for variables, word in (
        ({"HF_HUB_OFFLINE": "1"}, "or on the hub (HF_HUB_OFFLINE is set)"),
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "or on the hub (no connect"),
        ({"LOCALSPEC_OFFLINE": "1"}, "toy was not found locally, and localspec is offline"),
    ):
        refused(machine, word, **variables)
    for value in ("../../../escaped", "0" * 63, "G" * 64):
        machine.hub.listed_sha256 = value
        for name in ("toy", ELSE):
            refused(machine, name, name)
    machine.hub.listed_sha256, machine.hub.portal = "", True
    refused(machine, "a web page came")
    machine.hub.portal, machine.hub.status = False, 403
    refused(machine, "HTTP 403")
    assert not (machine.data / "pins.toml").exists()
    machine.hub.status = 200
    for entry, word in (
        ('size_bytes = 7\nfile = "toy.gguf"', f"of size {len(DATA)}, and models.toml promises 7"),
        (f'sha256 = "{"0" * 64}"\nfile = "toy.gguf"', "of sha256 "),
        ('file = "gone.gguf"', f"{REPO} has no gone.gguf with a sha256 at its main branch"),
    ):
        machine.pairs = f'[models.odd]\nrepo = "{REPO}"\n{entry}\n'
        refused(machine, word, "odd")


def test_a_hub_that_promises_other_bytes_than_it_sends_is_not_believed(machine: ToyMachine) -> None:
    machine.hub.listed_sha256 = "0" * 64
    refused(machine, ": `localspec rm toy` removes the pin")
    refused(machine, "the sha256 is ")
    machine.hub.listed_sha256 = ""
    assert machine.run("rm", "toy").code == 0
    pulled(machine, "toy")


def test_a_pair_of_ones_own_names_models_on_the_hub(machine: ToyMachine) -> None:
    draft_model = model_file(pre="draft")
    machine.hub.files[f"/else/small-GGUF/resolve/{COMMIT}/small-Q8_0.gguf"] = draft_model
    machine.hub.files[f"/else/large-GGUF/resolve/{COMMIT}/large-Q4_K_M.gguf"] = DATA
    names = 'target = "hf.co/else/large-GGUF"\ndraft_model = "else/small-GGUF:q8_0"\n'
    machine.pairs = f"[pairs.mine]\n{names}"
    paths = pulled(machine, "mine", "--with-draft")
    assert [path.read_bytes() for path in paths] == [DATA, draft_model]
    rows = json.loads(machine.run("search", "--json").out)
    (mine,) = (each for each in rows if each["name"] == "mine")
    assert (mine["size_bytes"], mine["draft_bytes"]) == (len(DATA), len(draft_model))
    assert (mine["here"], mine["draft_here"]) == (True, True)
    large, small = "else/large-GGUF:Q4_K_M", "else/small-GGUF:Q8_0"
    items = json.loads(machine.run("list", "--json").out)
    assert [item["name"] for item in items] == [large, small]
    assert pulled(machine, "--offline", "mine") == paths
    assert "stays, because pair mine uses it" in machine.run("rm", large).err
    assert f"removed {small}" in machine.run("rm", "mine").out


SHARDS = [
    replace(entry_for(data, HubSource("a/b", f"b-{number}.gguf", COMMIT)), params=None)
    for number, data in enumerate((DATA, NEWER))
]
ENTRY = replace(of_shards("a/b:Q4_0", SHARDS), quant="Q4_0", pin=Pin("2026-11-20", COMMIT))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"a/b"', '"../b"'),
        ('"b-0.gguf"', '"../../escaped.gguf"'),
        (ENTRY.sha256, "../../../escaped"),
        (COMMIT, "../../escaped"),
        ('"Q4_0"', '"Q4/0"'),
        (f"size_bytes = {len(DATA)}", "size_bytes = true"),
        ("", "\0"),
        ("", "a = " + "[" * 100_000),
    ],
    ids=lambda text: text[:20],
)
def test_a_damaged_list_is_set_aside_and_written_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    PINS.add(tmp_path, ENTRY.name, ENTRY)
    pins = tmp_path / "pins.toml"
    text = pins.read_text()
    assert old in text
    damaged = text.replace(old, new) if old else new
    pins.write_text(damaged)
    assert PINS.load(tmp_path) == PINS.load(tmp_path) == {}
    (line,) = capsys.readouterr().err.splitlines()
    assert "pins.toml is now pins.toml.damaged (" in line
    assert (tmp_path / "pins.toml.damaged").read_text() == damaged
    PINS.add(tmp_path, ENTRY.name, ENTRY)
    assert PINS.load(tmp_path) == with_pins({}, tmp_path) == {ENTRY.name: ENTRY}
    PINS.remove(tmp_path, ENTRY.name)
    assert PINS.load(tmp_path) == {}
    pins.unlink()
    os.mkfifo(pins)  # which is not waited for
    with pytest.raises(LocalspecError, match="not a regular file"):
        PINS.load(tmp_path)


def test_what_was_removed_since_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    entry = replace(SHARDS[0], name="a/b:Q4_0", pin=ENTRY.pin, quant="Q4_0")

    def obtain(entries: list[ModelEntry], *_: object) -> list[Path]:
        assert list(PINS.load(data_dir())) == ["a/b:Q4_0"]
        PINS.remove(data_dir(), entry.name)
        return [tmp_path]

    monkeypatch.setattr(pull, "obtain_together", obtain)
    assert pull.fetch([entry]) == [tmp_path]
    assert list(PINS.load(data_dir())) == ["a/b:Q4_0"]


def test_without_a_repository_nothing_can_be_learnt() -> None:
    source = '[[models.toy.sources]]\nkind = "wheels"\nrequirement = "toy==1"\nmember = "*/toy"\n'
    top = 'default_pair = "p"\n[pairs.p]\ntarget = "toy"\n[models.toy]\n'
    for more, key in (("", "size_bytes"), ("size_bytes = 5\n", "sha256")):
        with pytest.raises(UsageError, match=rf"models\.toy\.{key} is missing"):
            parse_registry(f"{top}{more}{source}", "my.toml")

"""Models without a size and sha256 in any registry: learnt from the hub once, and wanted from then on."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
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


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def pulled(machine: ToyMachine, *arguments: str) -> list[Path]:
    done = machine.run("pull", *arguments)
    assert done.code == 0, done.err
    return [Path(line) for line in done.out.splitlines()]


def refused(machine: ToyMachine, word: str, name: str = "toy", **variables: str) -> None:
    """See that a pull ends with code 3 and one line that has a word, and leaves nothing."""
    done = machine.run("pull", name, **variables)
    assert (done.code, done.out) == (3, "")
    assert word in done.err
    assert machine.blobs == machine.partials == []


def test_what_the_hub_has_at_the_first_pull_counts_from_then_on(machine: ToyMachine) -> None:
    before, began = facts(machine), today()
    assert (before["size_bytes"], before["sha256"], before["learnt"]) == (None, None, None)
    (path,) = pulled(machine, "toy")
    assert path.read_bytes() == DATA
    after = facts(machine)
    assert after["learnt"] in {began, today()}  # midnight may have been between
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
    done = machine.run("doctor", "--offline", "--verify")
    assert done.code == 1
    assert "holds other bytes, of sha256 " in done.out


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


@pytest.mark.slow
def test_a_pull_that_was_cut_wants_the_same_file_when_it_goes_on(machine: ToyMachine) -> None:
    machine.offer("toy", DATA * 10_000)
    machine.hub.faults.extend([Fault("cut", 1_500_000)] + [Fault("cut")] * 3)
    assert machine.run("pull", "toy").code == 3
    move_on(machine)
    assert machine.run("list").out.split()[-1] == "unfinished"
    (path,) = pulled(machine, "toy")
    assert machine.hub.offsets[-1] == 1_500_000
    assert path.read_bytes() == DATA * 10_000


ELSE = "else/toy-GGUF"
LEARNS_NOTHING: list[tuple[str, str, dict[str, Any], dict[str, str], str]] = [
    # A hub that has something else,
    ("odd", 'size_bytes = 7\nfile = "toy.gguf"', {}, {}, f"of size {len(DATA)}, and models.toml promises 7"),
    ("odd", f'sha256 = "{"0" * 64}"\nfile = "toy.gguf"', {}, {}, "of sha256 "),
    ("odd", 'file = "gone.gguf"', {}, {}, f"{REPO} has no gone.gguf with a sha256 at its main branch"),
    # or none, a portal and a refusal,
    ("toy", "", {}, {"HF_HUB_OFFLINE": "1"}, "or on the hub (HF_HUB_OFFLINE is set)"),
    ("toy", "", {}, {"HF_ENDPOINT": "http://127.0.0.1:9"}, "or on the hub (no connect"),
    ("toy", "", {}, {"LOCALSPEC_OFFLINE": "1"}, "toy was not found locally, and localspec is offline"),
    ("toy", "", {"portal": True}, {}, "a web page came"),
    ("toy", "", {"status": 403}, {}, "HTTP 403"),
    # and one that would choose names in the store.
    *((name, "", {"listed_sha256": each}, {}, name) for name in ("toy", ELSE) for each in ("../../../escaped", "0" * 63, "G" * 64)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "entry", "hub", "variables", "word"), LEARNS_NOTHING)
def test_what_a_hub_does_not_have_or_may_not_say_is_not_learnt(
    machine: ToyMachine,
    name: str,
    entry: str,
    hub: dict[str, Any],
    variables: dict[str, str],
    word: str,
) -> None:
    machine.hub.files[f"/{ELSE}/resolve/{COMMIT}/toy-Q4_K_M.gguf"] = DATA
    machine.pairs = f'[models.odd]\nrepo = "{REPO}"\n{entry}\n' if entry else ""
    for key, value in hub.items():
        setattr(machine.hub, key, value)
    refused(machine, word, name, **variables)
    assert entry or not (machine.data / "pins.toml").exists()


def test_a_hub_that_promises_other_bytes_than_it_sends_is_not_believed(machine: ToyMachine) -> None:
    machine.hub.listed_sha256 = "0" * 64
    refused(machine, ": `localspec rm toy` removes the pin")
    refused(machine, "the sha256 is ")
    machine.hub.listed_sha256 = ""
    assert machine.run("rm", "toy").code == 0
    pulled(machine, "toy")


def pair_of(machine: ToyMachine, name: str) -> list[Any]:
    """Return what the list of pairs has of one."""
    rows = json.loads(machine.run("search", "--json").out)
    row = next(each for each in rows if each["name"] == name)
    return [row.get(key) for key in ("size_bytes", "draft_bytes", "here", "draft_here")]


def test_a_pair_of_ones_own_names_models_on_the_hub(machine: ToyMachine) -> None:
    draft_model = model_file(pre="draft")
    machine.hub.files[f"/else/small-GGUF/resolve/{COMMIT}/small-Q8_0.gguf"] = draft_model
    machine.hub.files[f"/else/large-GGUF/resolve/{COMMIT}/large-Q4_K_M.gguf"] = DATA
    names = 'target = "hf.co/else/large-GGUF"\ndraft_model = "else/small-GGUF:q8_0"\n'
    machine.pairs = f"[pairs.mine]\n{names}"
    assert pair_of(machine, "mine")[:3] == [None, None, False]
    paths = pulled(machine, "mine", "--with-draft")
    assert [path.read_bytes() for path in paths] == [DATA, draft_model]
    assert pair_of(machine, "mine") == [len(DATA), len(draft_model), True, True]
    large, small = "else/large-GGUF:Q4_K_M", "else/small-GGUF:Q8_0"
    items = json.loads(machine.run("list", "--json").out)
    assert [item["name"] for item in items] == [large, small]
    assert pulled(machine, "--offline", "mine") == paths
    assert "stays, because pair mine uses it" in machine.run("rm", large).err
    assert f"removed {small}" in machine.run("rm", "mine").out


def test_a_split_model_on_the_hub_keeps_its_name(machine: ToyMachine) -> None:
    for number, data in enumerate((DATA, NEWER), 1):
        name = f"large-Q4_K_M-{number:05}-of-00002.gguf"
        machine.hub.files[f"/else/large-GGUF/resolve/{COMMIT}/{name}"] = data
    (path,) = pulled(machine, "else/large-GGUF:Q4_K_M")
    assert path.name == "model-00001-of-00002.gguf"
    assert path.with_name("model-00002-of-00002.gguf").read_bytes() == NEWER
    assert machine.run("list").out.split() == ["else/large-GGUF:Q4_K_M", "0", "MB", "store"]
    assert pulled(machine, "--offline", "else/large-GGUF") == [path]
    assert machine.run("rm", "else/large-GGUF:Q4_K_M").code == 0
    assert machine.run("list", "--json").out == "[]\n"


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
        (SHARDS[0].sha256, "../../../escaped"),
        (SHARDS[0].sha256, ""),
        (ENTRY.sha256, "../../../escaped"),
        (COMMIT, "../../escaped"),
        ("2026-11-20", "yesterday"),
        ('"Q4_0"', '"Q4/0"'),
        ('"a/b:Q4_0"', '"../b:Q4_0"'),
        ('file = "b-0.gguf"', "file = 7"),
        (".shards]]", ".lies]]"),
        (f"size_bytes = {len(DATA)}", "size_bytes = -1"),
        (f"size_bytes = {len(DATA)}", "size_bytes = true"),
        (f"size_bytes = {len(DATA)}", 'size_bytes = "1"'),
        ("", "[]"),
        ("", "{"),
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
    assert "pull the models again" in line
    assert (tmp_path / "pins.toml.damaged").read_text() == damaged
    PINS.add(tmp_path, ENTRY.name, ENTRY)
    assert PINS.load(tmp_path) == with_pins({}, tmp_path) == {ENTRY.name: ENTRY}
    PINS.remove(tmp_path, ENTRY.name)
    assert PINS.load(tmp_path) == {}
    pins.unlink()
    os.mkfifo(pins)  # which is not waited for
    with pytest.raises(LocalspecError, match="not a regular file"):
        PINS.load(tmp_path)


def test_what_was_removed_meanwhile_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    entry = replace(entry_for(DATA, HubSource("a/b", "b.gguf", COMMIT), name="a/b:Q4_0"))
    entry = replace(entry, pin=ENTRY.pin, quant="Q4_0")

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

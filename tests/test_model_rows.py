import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from localspec.cli.main import localspec as cli
from localspec.models.entries import ModelEntry
from localspec.models.registry import Registry, load_registry, parse_registry
from localspec.plan.recommend import Memory
from localspec.session.model_lines import line, marks_of, sizes_of
from localspec.session.model_list import ModelRow, choices, model_rows

GB = 1_000_000_000
SIZES = {"tiny": 100_000_000, "middle": 2 * GB, "huge": 500 * GB}
REGISTRY = """
default_pair = "toy"
[pairs]
toy = { target = "tiny", good_for = "a demonstration" }
large = { target = "huge", draft_model = "tiny", good_for = "much", caveat = "but slow" }
plain = { target = "tiny", good_for = "little" }
best = { target = "middle", draft_model = "tiny", good_for = "chat", caveat = "notes of maintainers", recommend = "chat" }
[models]
""" + "\n".join(
    f'{name} = {{ repo = "a/{name}", file = "{name}.gguf", size_bytes = {size}, sha256 = "{digit * 64}" }}'
    for (name, size), digit in zip(SIZES.items(), "abc", strict=True)
)


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("localspec.session.model_list.free_ram_bytes", lambda: 8 * GB)
    return parse_registry(REGISTRY, "test")


def memory(speed: float | None) -> list[Memory]:
    return [Memory("RAM", 8 * GB, speed, free_bytes=8 * GB)]


def place(folder: Path, *models: ModelEntry) -> None:
    blobs = folder / "data" / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    for model in models:
        with (blobs / model.sha256).open("wb") as file:
            file.truncate(model.size_bytes)


def test_what_suits_this_machine_comes_first_then_the_toy_and_what_does_not_fit(
    registry: Registry,
) -> None:
    assert [each.name for each in choices(registry)] == ["plain", "best", "toy", "large"]
    rows = choices(registry, memory(28 * GB))
    assert [each.name for each in rows] == ["best", "plain", "toy", "large"]
    assert [each.recommended for each in rows] == [True, False, False, False]
    assert [each.tokens_per_s for each in rows] == [14, 280, 280, None]
    assert [each.fits for each in rows] == [True, True, True, False]
    assert [each.drafts for each in rows] == [True, None, None, None]


def test_what_the_user_has_comes_first_imported_models_too(
    registry: Registry, tmp_path: Path
) -> None:
    own = ModelEntry("mine", 10, "d" * 64)
    place(tmp_path, registry.model("tiny"), registry.model("huge"), own)
    (tmp_path / "data" / "imports.toml").write_text(
        f'[models.mine]\norigin = "/tmp/mine.gguf"\nsize_bytes = 10\nsha256 = "{"d" * 64}"\n'
    )
    rows = choices(registry, memory(28 * GB))
    # The toy is not what anybody wanted.
    assert [each.name for each in rows] == ["mine", "plain", "toy", "large", "best"]
    assert [each.own for each in rows] == [True, True, False, True, False]


def test_one_line_has_all_that_matters_and_nothing_twice(registry: Registry) -> None:
    lines = [
        line(each, 5, loaded=each.name == "toy") for each in choices(registry, memory(28 * GB))
    ]
    assert lines == [
        "best ★ 2.0 GB  14/s  chat",
        "plain  100 MB 280/s  little",
        "toy  ● 100 MB 280/s  a demonstration",
        "large 500.0 GB        needs more memory than is free",
    ]
    widest = max(choices(), key=lambda each: len(each.name)).name
    row = line(ModelRow(widest, 120 * GB, False, True, "chat", True, 9.9), len(widest))
    assert row.index("  chat") <= 34, "forty columns"


def test_all_lists_agree_on_each_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`search`, `list`, `show`, `recommend`, the picker and the first run say one thing of each model."""
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path))
    registry = load_registry()
    here = [registry.model(each) for each in ("smollm2-135m", "qwen2.5-coder-1.5b")]
    here += [registry.model(each) for each in ("qwen2.5-coder-0.5b", "bge-small-en-v1.5")]
    place(tmp_path, *here)
    ram = Memory("RAM", 16 * GB, 60e9, free_bytes=9 * GB)
    rows = {row.name: row for row in model_rows(registry, [ram])}
    assert rows.keys() >= {*registry.pairs, *(model.name for model in here)}
    assert {name for name, row in rows.items() if row.here} == {model.name for model in here}

    run = CliRunner().invoke
    lines = run(cli, ["search"]).stdout.splitlines()
    searched = {line[2:].split()[0]: line for line in lines}
    facts = {each["name"]: each for each in json.loads(run(cli, ["search", "--json"]).stdout)}
    assert [*searched] == [*facts] == [*rows]
    for name, row in rows.items():
        assert searched[name].startswith("* " if row.here else "  ")
        assert sizes_of(row) in searched[name]
        assert row.about in searched[name]
        assert searched[name].endswith(marks_of(row))
        assert (facts[name]["here"], facts[name]["size_bytes"]) == (row.here, row.size_bytes)

    listed = json.loads(run(cli, ["list", "--json"]).stdout)
    assert {each["name"]: each["size_bytes"] for each in listed} == {
        model.name: rows[model.name].size_bytes for model in here
    }
    monkeypatch.setattr("localspec.cli.pull.memories", lambda _registry: [ram])
    for each in run(cli, ["recommend", "--code"]).stdout.splitlines():
        row = rows[each[2:].split()[0]]
        assert each.startswith(f"{'*' if row.here else ' '} {row.name}")
        assert sizes_of(row) in each

    picked = {row.name: row for row in choices(registry, [ram])}
    assert {name: rows[name] for name in picked} == picked
    assert [*registry.pairs] == [name for name in registry.pairs if name in picked]
    # What can answer is a choice where it is on the disk, even if it is a draft model, too.
    assert "qwen2.5-coder-0.5b" in picked
    assert "bge-small-en-v1.5" not in picked
    for name in ("qwen2.5-coder-1.5b", "gemma3-1b"):
        facts_of_one = json.loads(run(cli, ["show", name, "--json"]).stdout or "{}")
        if facts_of_one:  # of what is here, the file is no GGUF
            assert facts_of_one["size_bytes"] == rows[name].size_bytes
            assert facts_of_one["here"] == rows[name].here


def test_chat_models_come_before_draft_and_embedding_models_with_a_label() -> None:
    rows = model_rows(load_registry())
    ranks = [("draft", "other").count(row.kind) + 2 * (row.kind == "embedding") for row in rows]
    assert ranks == sorted(ranks)
    assert all(row.about for row in rows)
    labels = {row.name: row.about for row in rows}
    assert labels["bge-small-en-v1.5"].startswith("embedding model")
    assert labels["gemma3-270m"] == "draft model for gemma3-4b"
    tools = [row for row in rows if "tools" in row.about.split()]
    assert {"granite4.2-3b", "granite4.2-8b"} <= {row.name for row in tools}
    assert all(row.tools and "tools" in marks_of(row) for row in tools)


def test_a_draft_model_names_the_model_that_is_here_and_has_its_full_name_where_it_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    registry = load_registry()

    def label() -> str:
        return next(row for row in model_rows(registry) if row.name == "qwen3-0.6b").about

    assert label() == "draft model for qwen3-4b"  # the smallest
    place(tmp_path, registry.model("qwen3-8b"), registry.model("qwen3-1.7b:Q8_0"))
    assert label() == "draft model for qwen3-8b"
    # A bare name is a pair with other weights.
    rows = {row.name: row for row in choices(registry)}
    assert not rows["qwen3-1.7b"].here
    assert rows["qwen3-1.7b:Q8_0"].here
    assert rows["qwen3-1.7b:Q8_0"].about == "draft model for qwen3-32b"
    assert "draft model for qwen3-32b" in CliRunner().invoke(cli, ["list"]).stdout

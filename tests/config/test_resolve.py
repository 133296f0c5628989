"""Settings: flag over environment over the user's file over default, and what is refused, and how."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localspec.config.keys import KEYS, Setting
from localspec.config.resolve import Level, Resolved, misspelt_variables, resolve, with_recommended
from localspec.errors import UsageError
from localspec.models.registry import load_registry
from localspec.models.requested import without_files
from localspec.options import LaunchOptions

Settings = Callable[..., dict[str, Resolved]]


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user's own file belongs, in a home with nothing set."""
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    (tmp_path / "home").mkdir()
    (tmp_path / "settings").mkdir()
    return tmp_path / "settings/config.toml"


@pytest.fixture
def settings(user: Path) -> Settings:
    """Resolves under the flags and variables that are given."""

    def run(environ: dict[str, str] | None = None, **flags: Setting) -> dict[str, Resolved]:
        return resolve(flags, environ or {})

    return run


def problem(settings: Settings, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        settings(environ)
    assert str(caught.value).isprintable()
    return str(caught.value)


def test_a_wrong_file_is_refused_with_file_and_key(settings: Settings, user: Path) -> None:
    rows: list[tuple[Any, ...]] = [
        ("tempreature = 1", "'tempreature' is not a known setting: did you mean temperature?"),
        ("model = 'a'", "'model' is not a known setting: write `pair` for a name, `target` for"),
        ("ctx = true", "'ctx' is True, but takes a whole number"),
        ("temperature = 'hot'", "'temperature' is 'hot', but takes a number"),
        ("draft = 'maybe'", "'draft' is 'maybe', but takes one of auto, off, lookup, model"),
        ("draft = 'lookup:3'", "; a length is the setting draft_length"),
        ("ctx =", "is not TOML (Invalid value"),
        ('"a\\nb" = 1', r"'a\nb' is not a known setting"),
        ("#" * 70_000, "is longer than 64 KB"),
        ("# mine\n\ndraft_length = 64", ", line 3: 'draft_length' is"),
    ]
    for text, words in rows:
        user.write_bytes(text if isinstance(text, bytes) else text.encode())
        assert problem(settings).startswith(str(user))
        assert words in problem(settings)
    user.unlink()
    os.mkfifo(user)
    assert "not a regular file" in problem(settings)


def test_a_value_out_of_range_is_refused_wherever_it_stands(settings: Settings, user: Path) -> None:
    for key, value, words in [
        ("temperature", "-0.5", "is -0.5"),
        ("ctx", "1", "is 1: it must be from 2 to 16777216"),
    ]:
        variable = f"LOCALSPEC_{key.upper()}"
        told = problem(settings, {variable: value})
        assert told.startswith(f"environment variable {variable} {words}")
        user.write_text(f"# mine\n\n{key} = {value}\n")
        assert problem(settings).startswith(f"{user}, line 3: {key!r} {words}")


def test_defaults_are_in_range(settings: Settings, user: Path) -> None:
    assert [name for name, key in KEYS.items() if key.problem(key.default)] == []
    user.write_text(
        'target = "~/m.gguf"\nthreads = 2\ngpu_layers = 7\ndevice = ["CUDA0"]\noffline = true\n'
        'fit = false\nmirrors = ["/srv/models"]'
    )
    found = settings()
    values = [found[each].value for each in ("target", "gpu_layers", "mirrors", "offline", "fit")]
    assert values == ["~/m.gguf", 7, ("/srv/models",), True, False]


def test_the_higher_level_is_heard_key_by_key(settings: Settings, user: Path) -> None:
    def temperature(environ: dict[str, str] | None = None, **flags: float) -> tuple[object, str]:
        found = settings(environ, **flags)["temperature"]
        return found.value, str(found.origin)

    assert temperature() == (0.8, "default")
    user.write_text("temperature = 0.1\nthreads = 3")
    assert temperature() == (0.1, str(user))
    variable = {"LOCALSPEC_TEMPERATURE": "0.3"}
    assert temperature(variable) == (0.3, "LOCALSPEC_TEMPERATURE")
    assert temperature(variable, temperature=0.4) == (0.4, "--temperature")
    found = settings({"LOCALSPEC_DRAFT": "off"}, temperature=0.2, ctx=512)
    values = {name: found[name].value for name in ("temperature", "threads", "ctx", "draft")}
    assert values == {"temperature": 0.2, "threads": 3, "ctx": 512, "draft": "off"}


def test_recommendations_hold_where_nothing_is_set(settings: Settings, user: Path) -> None:
    def sampling(**flags: object) -> dict[str, tuple[object, str]]:
        found = with_recommended(settings(None, **flags), load_registry())
        names = ("temperature", "top_k", "repeat_penalty")
        return {name: (found[name].value, str(found[name].origin)) for name in names}

    of_toy, default = "recommended for smollm2-135m", "default"
    usual = {"temperature": (0.2, of_toy), "top_k": (40, default), "repeat_penalty": (1.1, of_toy)}
    assert sampling() == usual
    user.write_text("temperature = 0.8")
    assert sampling() == {**usual, "temperature": (0.8, str(user))}
    assert sampling(temperature=0.3, pair="qwen3-4b") == {
        "temperature": (0.3, "--temperature"),
        "top_k": (20, "recommended for qwen3-4b"),
        "repeat_penalty": (1.0, default),
    }
    assert sampling(target="mine.gguf")["repeat_penalty"] == (1.0, default)


def test_variables_are_read_as_what_their_key_takes(settings: Settings) -> None:
    for variable, text, value in [
        ("CTX", "2048", 2048),
        ("TOP_P", "1", 1.0),
        ("OFFLINE", "Yes", True),
        ("OFFLINE", "0", False),
        ("GPU_LAYERS", "auto", None),
        ("DEVICE", "CUDA0 'my card'", ("CUDA0", "my card")),
        ("PAIR", "smollm2-135m", "smollm2-135m"),
        ("CTX", "", None),
    ]:
        assert settings({f"LOCALSPEC_{variable}": text})[variable.lower()].value == value
        # Variables that are no keys are not looked at.
        assert settings({"LOCALSPEC_DATA_DIR": "x", "LOCALSPEC_NOVEL": "y"}) == settings()
    for variable, text, wanted in [
        ("CTX", "many", "a whole number"),
        ("OFFLINE", "maybe", "true or false"),
        ("DRAFT", "sometimes", "one of auto, off, lookup, model, heads, forced, client, store"),
        ("GPU_LAYERS", "all", "a number of layers or 'auto'"),
        ("DEVICE", "'open", "a list of texts"),
    ]:
        told = problem(settings, {f"LOCALSPEC_{variable}": text})
        assert told.startswith(f"environment variable LOCALSPEC_{variable} is ")
        assert told.endswith(f"but takes {wanted}")
        assert text.strip("'") in told


def test_a_target_puts_aside_what_was_set_for_another(settings: Settings, user: Path) -> None:
    user.write_text('pair = "big"\ndraft_model = "tiny"')
    assert settings()["pair"].value == "big"
    found = settings(target="mine.gguf")
    assert (found["pair"].value, found["draft_model"].value) == (None, None)
    assert found["pair"].origin.level is Level.DEFAULT
    assert settings(draft_model="d", target="t")["draft_model"].value == "d"
    assert settings(draft_model="d")["pair"].value == "big"
    for mmproj, stays in (("of-big.gguf", None), ("off", "off")):
        user.write_text(f'pair = "big"\nmmproj = "{mmproj}"')
        assert settings()["mmproj"].value == mmproj
        assert settings(target="mine.gguf")["mmproj"].value == stays
        bare = without_files(LaunchOptions(mmproj=mmproj, draft_model="d"))
        assert (bare.mmproj, bare.draft_model) == (stays, None)
    # Of one level, both are left to contradict each other.
    user.write_text('pair = "big"\ntarget = "other"')
    assert (settings()["pair"].value, settings()["target"].value) == ("big", "other")


@pytest.mark.parametrize(
    ("variable", "word"),
    [
        ("LOCALSPEC_TEMPERTURE", "did you mean LOCALSPEC_TEMPERATURE?"),
        ("LOCALSPEC_TEMP", "did you mean LOCALSPEC_TEMPERATURE or LOCALSPEC_TEMPLATE_KWARGS?"),
        ("LOCALSPEC_DATADIR", "did you mean LOCALSPEC_DATA_DIR?"),
        ("LOCALSPEC_SEVER_KEY", "did you mean LOCALSPEC_SERVER_KEY?"),
        ("LOCALSPEC_MODEL", "did you mean LOCALSPEC_PAIR for a name"),
        *((each, "") for each in ("LOCALSPEC_DATA_DIR", "LOCALSPEC_CTX", "LOCALSPEC_OF_ANOTHER", "TEMP")),
    ],
)  # fmt: skip
def test_a_misspelt_variable_is_named_with_what_was_meant(variable: str, word: str) -> None:
    lines = list(misspelt_variables({variable: "1", "LOCALSPEC_TEMPERATUR": ""}))
    assert len(lines) == (word != "")
    assert all(word in each and variable in each for each in lines)

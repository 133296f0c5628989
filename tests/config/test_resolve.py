"""Who is heard: flag, environment, user's file, default."""

from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.config.resolve import Level, Resolved, with_recommended
from localspec.errors import UsageError
from localspec.models.registry import load_registry

Settings = Callable[..., dict[str, Resolved]]


def test_the_higher_level_is_heard(settings: Settings, user: Path) -> None:
    def temperature(environ: dict[str, str] | None = None, **flags: float) -> tuple[object, str]:
        found = settings(environ, **flags)["temperature"]
        return found.value, str(found.origin)

    assert temperature() == (0.8, "default")
    user.write_text("temperature = 0.1")
    assert temperature() == (0.1, str(user))
    variable = {"LOCALSPEC_TEMPERATURE": "0.3"}
    assert temperature(variable) == (0.3, "LOCALSPEC_TEMPERATURE")
    assert temperature(variable, temperature=0.4) == (0.4, "--temperature")


def test_levels_are_heard_key_by_key(settings: Settings, user: Path) -> None:
    user.write_text("temperature = 0.1\nthreads = 3")
    found = settings({"LOCALSPEC_DRAFT": "off"}, temperature=0.2, ctx=512)
    values = {name: found[name].value for name in ("temperature", "threads", "ctx", "draft")}
    assert values == {"temperature": 0.2, "threads": 3, "ctx": 512, "draft": "off"}


def test_what_the_makers_recommend_is_heard_where_nobody_set_anything(
    settings: Settings, user: Path
) -> None:
    def sampling(**flags: object) -> dict[str, tuple[object, str]]:
        found = with_recommended(settings(None, **flags), load_registry())
        names = ("temperature", "top_k", "repeat_penalty")
        return {name: (found[name].value, str(found[name].origin)) for name in names}

    of_toy = "recommended for smollm2-135m"
    usual = {
        "temperature": (0.2, of_toy),
        "top_k": (40, "default"),
        "repeat_penalty": (1.1, of_toy),
    }
    assert sampling() == usual
    user.write_text("temperature = 0.8")
    assert sampling() == {**usual, "temperature": (0.8, str(user))}
    assert sampling(temperature=0.3, pair="qwen3-4b") == {
        "temperature": (0.3, "--temperature"),
        "top_k": (20, "recommended for qwen3-4b"),
        "repeat_penalty": (1.0, "default"),
    }
    assert sampling(target="mine.gguf")["repeat_penalty"] == (1.0, "default")


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("CTX", "2048", 2048),
        ("TOP_P", "1", 1.0),
        ("OFFLINE", "Yes", True),
        ("OFFLINE", "0", False),
        ("GPU_LAYERS", "auto", None),
        ("GPU_LAYERS", "12", 12),
        ("DEVICE", "CUDA0 'my card'", ("CUDA0", "my card")),
        ("PAIR", "smollm2-135m", "smollm2-135m"),
        ("CTX", "", None),
    ],
)
def test_variables_are_read_as_what_their_key_takes(
    settings: Settings, variable: str, text: str, value: object
) -> None:
    assert settings({f"LOCALSPEC_{variable}": text})[variable.lower()].value == value


@pytest.mark.parametrize(
    ("variable", "text", "wanted"),
    [
        ("CTX", "many", "a whole number"),
        ("CTX", "1.5", "a whole number"),
        ("TEMPERATURE", "nan", "a number"),
        ("OFFLINE", "maybe", "true or false"),
        ("DRAFT", "sometimes", "one of auto, off, lookup, model, store, heads, forced"),
        ("GPU_LAYERS", "all", "a number of layers or 'auto'"),
        ("DEVICE", "'open", "a list of texts"),
    ],
)
def test_a_variable_that_cannot_be_read_is_named_with_its_value(
    settings: Settings, variable: str, text: str, wanted: str
) -> None:
    with pytest.raises(UsageError) as caught:
        settings({f"LOCALSPEC_{variable}": text})
    assert str(caught.value).startswith(f"environment variable LOCALSPEC_{variable} is ")
    assert str(caught.value).endswith(f"but takes {wanted}")
    assert text.removeprefix("'").removesuffix("'") in str(caught.value)


def test_variables_that_are_no_keys_are_not_looked_at(settings: Settings) -> None:
    assert settings({"LOCALSPEC_DATA_DIR": "x", "LOCALSPEC_NOVEL": "y"}) == settings()


def test_a_flag_for_the_target_puts_aside_what_was_set_for_another(
    settings: Settings, user: Path
) -> None:
    user.write_text('pair = "big"\ndraft_model = "tiny"')
    assert settings()["pair"].value == "big"
    found = settings(target="mine.gguf")
    assert (found["pair"].value, found["draft_model"].value) == (None, None)
    assert found["pair"].origin.level is Level.DEFAULT
    assert settings(draft_model="d", target="t")["draft_model"].value == "d"
    assert settings(draft_model="d")["pair"].value == "big"


def test_pair_and_target_of_one_level_are_left_to_contradict_each_other(
    settings: Settings, user: Path
) -> None:
    user.write_text('pair = "big"\ntarget = "other"')
    found = settings()
    assert (found["pair"].value, found["target"].value) == ("big", "other")

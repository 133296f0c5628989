"""Values of the right type that the program refuses: the file, the line and the key are named."""

from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.config.keys import KEYS
from localspec.config.resolve import Resolved
from localspec.errors import UsageError

Settings = Callable[..., dict[str, Resolved]]

OUT_OF_RANGE = [
    ("temperature", "-0.5", "temperature is -0.5"),
    ("top_k", "-1", "top_k is -1"),
    ("top_p", "1.5", "top_p is 1.5"),
    ("min_p", "-0.1", "min_p is -0.1"),
    ("repeat_penalty", "0", "repeat_penalty is 0"),
    ("max_tokens", "0", "max_tokens is 0"),
    ("ctx", "1", "n_ctx is 1: it must be from 2 to 16777216"),
    ("threads", "0", "threads is 0: it must be from 1 to 512"),
    ("gpu_layers", "99999", "gpu_layers is 99999"),
    ("gpu_layers", "-1", "gpu_layers is -1: it must be from 0 to 10000"),
    ("draft_length", "64", "draft_length is 64: it must be from 1 to 63"),
]


@pytest.mark.parametrize(("key", "value", "told"), OUT_OF_RANGE)
def test_a_file_is_named_with_line_and_key(
    settings: Settings, user: Path, key: str, value: str, told: str
) -> None:
    user.write_text(f"# mine\n\n{key} = {value}\n")
    with pytest.raises(UsageError) as caught:
        settings()
    assert str(caught.value).startswith(f"{user}, line 3: {key!r} cannot be used: {told}")


@pytest.mark.parametrize(("key", "value", "told"), OUT_OF_RANGE)
def test_a_variable_is_named(settings: Settings, key: str, value: str, told: str) -> None:
    variable = f"LOCALSPEC_{key.upper()}"
    with pytest.raises(UsageError) as caught:
        settings({variable: value})
    assert str(caught.value).startswith(f"environment variable {variable} cannot be used: {told}")


def test_defaults_are_in_range() -> None:
    assert [name for name, key in KEYS.items() if key.problem(key.default)] == []

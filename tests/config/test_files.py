"""The user's file: what is refused, and how."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.config.resolve import Resolved
from localspec.errors import UsageError

Settings = Callable[..., dict[str, Resolved]]


def complaint(settings: Settings) -> str:
    with pytest.raises(UsageError) as caught:
        settings()
    assert str(caught.value).isprintable()
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tempreature = 1", "'tempreature' is not a known setting: did you mean temperature?"),
        ("xyzzy = 1", "'xyzzy' is not a known setting: use one of pair, "),
        ("ctx = true", "'ctx' is True, but takes a whole number"),
        ("ctx = 1.5", "'ctx' is 1.5, but takes a whole number"),
        ("temperature = 'hot'", "'temperature' is 'hot', but takes a number"),
        ("temperature = nan", "'temperature' is nan, but takes a number"),
        ("draft = 'maybe'", "'draft' is 'maybe', but takes one of auto, off, lookup, model"),
        ("pair = ''", "'pair' is '', but takes a text"),
        ("[run]\nctx = 1", "'run' is not a known setting"),
        ("ctx =", "is not TOML (Invalid value"),
        ('"a\\nb" = 1', r"'a\nb' is not a known setting"),
    ],
)
def test_what_cannot_be_is_one_line_with_file_and_key(
    settings: Settings, user: Path, text: str, problem: str
) -> None:
    user.write_text(text)
    assert complaint(settings).startswith(str(user))
    assert problem in complaint(settings)


def test_bytes_that_are_no_text_are_refused(settings: Settings, user: Path) -> None:
    user.write_bytes(b"\xff\xfe")
    assert "is not TOML" in complaint(settings)


def test_a_file_that_is_a_directory_a_pipe_or_endless_is_refused(
    settings: Settings, user: Path
) -> None:
    user.mkdir()
    assert "not a regular file" in complaint(settings)
    user.rmdir()
    os.mkfifo(user)
    assert "not a regular file" in complaint(settings)
    user.unlink()
    user.write_text("#" * 70_000)
    assert "is longer than 64 KB" in complaint(settings)


def test_the_user_may_set_every_key(settings: Settings, user: Path) -> None:
    user.write_text(
        'target = "~/m.gguf"\nthreads = 2\ngpu_layers = 7\ndevice = ["CUDA0"]\noffline = true\n'
        'fit = false\nmirrors = ["/srv/models"]'
    )
    found = settings()
    assert found["target"].value == "~/m.gguf"
    assert found["gpu_layers"].value == 7
    assert found["mirrors"].value == ("/srv/models",)
    assert (found["offline"].value, found["fit"].value) == (True, False)

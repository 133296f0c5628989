"""The two files: what is refused and how, and what a project's may not do."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.config.files import project_file
from localspec.config.keys import KEYS
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
        ("tempreature = 1", "'tempreature' is not a known setting: use one of pair, "),
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
@pytest.mark.parametrize("whose", ["user", "project"])
def test_what_cannot_be_is_one_line_with_file_and_key(
    settings: Settings, request: pytest.FixtureRequest, whose: str, text: str, problem: str
) -> None:
    file: Path = request.getfixturevalue(whose)
    file.write_text(text)
    assert complaint(settings).startswith(str(file))
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


@pytest.mark.parametrize(
    "text",
    ["offline = false", "mirrors = ['http://evil']", "threads = 9", "device = []", "fit = false"],
)
def test_a_project_does_not_decide_about_network_and_machine(
    settings: Settings, project: Path, user: Path, text: str
) -> None:
    project.write_text(text)
    key = text.partition(" ")[0]
    assert f"{key!r} cannot be set by a project: set it in {user}" in complaint(settings)


def test_no_key_of_a_project_takes_more_than_a_name_a_choice_or_a_number() -> None:
    names = {name for name, key in KEYS.items() if key.by_project == "known names"}
    assert names == {"pair", "target", "draft_model"}
    kinds = {key.kind for key in KEYS.values() if key.by_project == "yes"}
    assert kinds <= {"choice", "whole", "number"}


@pytest.mark.parametrize(
    "value",
    [
        "../x",
        "/etc/passwd",
        "model.gguf",
        "x.GGUF",
        "~/x",
        "user/repo:Q4",
        "http://x",
        "-x",
        "..",
        "a b",
    ],
)
@pytest.mark.parametrize("key", ["pair", "target", "draft_model"])
def test_a_project_names_no_file_and_no_address(
    settings: Settings, project: Path, key: str, value: str
) -> None:
    project.write_text(f"{key} = {value!r}")
    assert "a project may give the name of a known model" in complaint(settings)


def test_a_project_cannot_pass_a_file_of_its_own_for_a_name(
    settings: Settings, project: Path
) -> None:
    project.write_text("target = 'model'")
    assert settings()["target"].value == "model"
    (project.parent / "model").touch()
    assert "no path and no address" in complaint(settings)


def test_the_nearest_file_up_to_the_root_of_the_repository_is_found(
    home: Path, project: Path
) -> None:
    inner = project.parent / "a/b"
    inner.mkdir(parents=True)
    (home / "localspec.toml").touch()
    assert project_file(inner, home) is None
    project.touch()
    assert project_file(inner, home) == project
    (inner / "localspec.toml").touch()
    assert project_file(inner, home) == inner / "localspec.toml"


def test_without_a_repository_it_is_looked_for_up_to_the_home_and_not_elsewhere(
    home: Path, tmp_path: Path
) -> None:
    (tmp_path / "localspec.toml").touch()
    (home / "notes/deep").mkdir(parents=True)
    assert project_file(home / "notes/deep", home) is None
    (home / "localspec.toml").touch()
    assert project_file(home / "notes/deep", home) == home / "localspec.toml"
    (tmp_path / "shared/x").mkdir(parents=True)
    assert project_file(tmp_path / "shared/x", home) is None

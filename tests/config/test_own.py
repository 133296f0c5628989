"""The user's files are changed by several programs at once: what each reported as changed is there."""

import os
import tomllib
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from localspec.config.own import set_own, unset_own, write_keys
from localspec.session.preferences import keep_theme, read_preferences

ROUNDS = 3


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    return tmp_path / "settings"


def at_once(changes: Sequence[Callable[[], object]]) -> None:
    """Make each change in a process of its own, all begun together."""
    begin, begun = os.pipe()
    children = []
    for change in changes:
        if not (child := os.fork()):
            code = 1
            try:
                os.close(begun)
                os.read(begin, 1)
                change()
                code = 0
            except Exception:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    os.close(begin)
    os.close(begun)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)


VALUES = {
    "top_k": "30", "temperature": "0.3", "offline": "true", "gate": "usual", "top_p": "0.7", "ctx": "4096", "max_tokens": "99",
    "min_p": "0.25", "system": "Be brief.", "telemetry_days": "30",
}  # fmt: skip


@pytest.mark.parametrize(
    ("rounds", "is_link"),
    [(ROUNDS, False), (ROUNDS, True), pytest.param(20, False, marks=pytest.mark.slow)],
)
def test_ten_settings_at_once_are_all_kept(
    directory: Path, tmp_path: Path, rounds: int, is_link: bool
) -> None:
    file = directory / "config.toml"
    for number in range(rounds):
        if is_link:
            directory.mkdir(exist_ok=True)
            file.unlink(missing_ok=True)
            file.symlink_to(tmp_path / f"dotfile-{number}.toml")
        else:
            file.unlink(missing_ok=True)
        at_once([partial(set_own, *each) for each in VALUES.items()])
        assert tomllib.loads(file.read_text()).keys() == VALUES.keys()


def test_aliases_settings_and_removals_at_once_are_all_kept(directory: Path) -> None:
    file = directory / "config.toml"
    for _ in range(ROUNDS):
        set_own("top_p", "0.5")
        names = [f"name-{number}" for number in range(6)]
        aliases = [partial(write_keys, file, {name: "smollm2-135m"}, "aliases") for name in names]
        at_once([*aliases, partial(set_own, "top_k", "9"), partial(unset_own, "top_p")])
        assert tomllib.loads(file.read_text()) == {
            "top_k": 9,
            "aliases": dict.fromkeys(names, "smollm2-135m"),
        }
        file.unlink()


def test_a_theme_is_kept_beside_what_another_program_writes(directory: Path) -> None:
    file = directory / "chat.toml"
    for _ in range(ROUNDS):
        preferences = read_preferences()
        personas = [partial(write_keys, file, {name: "Be kind."}, "personas") for name in "abcde"]
        at_once([*personas, partial(keep_theme, preferences, "nord")])
        now = read_preferences()
        assert now.theme == "nord"
        assert now.personas.keys() == set("abcde")
        file.unlink()


def test_what_changes_nothing_makes_nothing(directory: Path) -> None:
    assert not write_keys(directory / "config.toml", {"top_k": None})
    assert not directory.exists()

"""`--tools`, where it cannot begin."""

from pathlib import Path

from tests.cli.command import assert_one_complaint, localspec


def test_a_folder_with_localspecs_own_files_is_not_opened(tmp_path: Path) -> None:
    """Its rules could be written there, and its conversations read."""
    places = {"LOCALSPEC_DATA_DIR": str(tmp_path / "share/localspec"), "HOME": str(tmp_path)}
    for verb in ("run", "chat"):
        done = localspec(
            verb, "--tools", *(["Hi"] if verb == "run" else []), cwd=tmp_path, env=places
        )
        assert_one_complaint(done, 2)
        assert "start it in the folder of a project" in done.err


def test_rules_that_are_none_are_told_before_anything_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings/tools.toml").write_text("permit = []")
    (tmp_path / "project").mkdir()
    places = {"LOCALSPEC_CONFIG_DIR": str(tmp_path / "settings")}
    done = localspec("run", "--tools", "Hi", cwd=tmp_path / "project", env=places)
    assert_one_complaint(done, 2)
    assert "tools.toml: 'permit' is unknown" in done.err

from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.toolbox.rules import Rule, Rules


def rules(tmp_path: Path, text: str) -> Rules:
    file = tmp_path / "tools.toml"
    file.write_text(text)
    return Rules.read(file)


def test_no_file_is_no_rule(tmp_path: Path) -> None:
    assert Rules.read(tmp_path / "none.toml") == Rules()


@pytest.mark.parametrize(
    "text", ["allow = 3", "allow = [1]", "allow = ['']", "permit = []", "allow = [", "deny = 'x'"]
)
def test_what_is_no_rule_is_refused_by_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"tools\.toml"):
        rules(tmp_path, text)


def test_paths_are_covered_by_parts(tmp_path: Path) -> None:
    found = rules(tmp_path, 'allow = ["write_file docs/", "edit_file *.py"]\ndeny = ["* secrets"]')
    assert found.allowed("write_file", "docs/a.md")
    assert not found.allowed("write_file", "docs2/a.md")
    assert not found.allowed("edit_file", "docs/a.md")
    assert found.allowed("edit_file", "src/a.py")
    assert found.denied("read_file", "secrets/key") == Rule("*", "secrets")
    assert found.denied("read_file", "SECRETS/key")
    assert not found.denied("read_file", "secrets2")
    assert not found.allowed("write_file", "docs/../../x")
    assert not found.allowed("write_file", "docs/a/..")


def test_a_denied_name_is_denied_at_every_depth(tmp_path: Path) -> None:
    found = rules(
        tmp_path, 'deny = ["* .env", "* secrets/", "* *.pem", "* a/b"]\nallow = ["* .env"]'
    )
    for path in (".env", "sub/.env", "a/b/.ENV", "sub/secrets/x", "sub/x.pem", "a/b/c"):
        assert found.denied("read_file", path), path
    for path in ("sub/.env2", "x.env", "secrets2/x", "sub/a/b"):
        assert not found.denied("read_file", path), path
    assert found.allowed("read_file", ".env")
    assert not found.allowed("read_file", "sub/.env")


@pytest.mark.parametrize(
    "command",
    [
        "pytest; rm -rf .", "pytest && rm x", "pytest | sh", "pytest $(rm x)", "pytest `rm x`", "pytest > .bashrc",
        "pytest\nrm x", "pytest & rm x", "PATH=. pytest", "pytestx", "python", "(pytest)",
    ],
)  # fmt: skip
def test_an_allowed_first_word_allows_nothing_behind_it(command: str) -> None:
    found = Rules(allow=(Rule("run_command", "pytest"),))
    assert found.allowed("run_command", "pytest -q 'a b'")
    assert not found.allowed("run_command", command)


@pytest.mark.parametrize(
    "command",
    [
        "git push", "git push -f", "true; git push", "true && git push x", "(git push)", "a | git  push",
    ],
)  # fmt: skip
def test_a_forbidden_command_is_found_among_others(command: str) -> None:
    found = Rules(deny=(Rule("run_command", "git push"),))
    assert found.denied("run_command", command)
    assert not found.denied("run_command", "git status")

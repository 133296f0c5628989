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


def test_paths_are_covered_by_parts_and_denied_at_every_depth(tmp_path: Path) -> None:
    found = rules(
        tmp_path,
        'allow = ["write_file docs/", "edit_file *.py", "* .env"]\n'
        'deny = ["* .env", "* secrets/", "* *.pem", "* a/b"]',
    )
    for tool, path, allowed in (
        ("write_file", "docs/a.md", True), ("write_file", "docs2/a.md", False), ("write_file", "docs/../../x", False),
        ("write_file", "docs/a/..", False), ("edit_file", "docs/a.md", False), ("edit_file", "src/a.py", True),
        ("read_file", ".env", True), ("read_file", "sub/.env", False),
    ):  # fmt: skip
        assert found.allowed(tool, path) is allowed, path
    assert found.denied("read_file", "secrets/key") == Rule("*", "secrets/")
    for path in (".env", "sub/.env", "a/b/.ENV", "SECRETS/x", "sub/secrets/x", "sub/x.pem", "a/b/c"):  # fmt: skip
        assert found.denied("read_file", path), path
    for path in ("sub/.env2", "x.env", "secrets2/x", "sub/a/b"):
        assert not found.denied("read_file", path), path


def test_an_allowed_command_allows_nothing_behind_it() -> None:
    found = Rules(allow=(Rule("run_command", "pytest"),))
    assert found.allowed("run_command", "pytest -q 'a b'")
    for command in (
        "pytest; rm -rf .", "pytest && rm x", "pytest | sh", "pytest $(rm x)", "pytest `rm x`", "pytest > .bashrc",
        "pytest\nrm x", "pytest & rm x", "PATH=. pytest", "pytestx", "python", "(pytest)",
    ):  # fmt: skip
        assert not found.allowed("run_command", command), command


def test_a_forbidden_command_is_found_among_others() -> None:
    found = Rules(deny=(Rule("run_command", "git push"),))
    for command in ("git push", "git push -f", "true; git push", "true && git push x", "(git push)", "a | git  push"):  # fmt: skip
        assert found.denied("run_command", command), command
    assert not found.denied("run_command", "git status")

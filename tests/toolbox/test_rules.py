from pathlib import Path

from localspec.toolbox.rules import Rule, Rules
from tests.support.checks import refuses


def rules(tmp_path: Path, text: str) -> Rules:
    file = tmp_path / "tools.toml"
    file.write_text(text)
    return Rules.read(file)


def test_what_is_no_rule_is_refused_by_name(tmp_path: Path) -> None:
    assert Rules.read(tmp_path / "none.toml") == Rules()
    for text in ("allow = 3", "allow = [1]", "allow = ['']", "permit = []", "allow = [", "deny = 'x'"):  # fmt: skip
        refuses(r"tools\.toml", rules, tmp_path, text)


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


def test_commands_are_read_as_the_shell_does() -> None:
    """An allowed command allows nothing behind it, and a forbidden one is found among others."""
    found = Rules(allow=(Rule("run_command", "pytest"),), deny=(Rule("run_command", "git push"),))
    assert found.allowed("run_command", "pytest -q 'a b'")
    for command in (
        "pytest; rm -rf .", "pytest && rm x", "pytest | sh", "pytest $(rm x)", "pytest `rm x`", "pytest > .bashrc",
        "pytest\nrm x", "pytest & rm x", "PATH=. pytest", "pytestx", "python", "(pytest)",
    ):  # fmt: skip
        assert not found.allowed("run_command", command), command
    for command in ("git push", "git push -f", "true; git push", "true && git push x", "(git push)", "a | git  push"):  # fmt: skip
        assert found.denied("run_command", command), command
    assert not found.denied("run_command", "git status")

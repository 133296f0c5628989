"""Files that no command may read: of every list, and of programs that none names; the rest of the home folder is readable."""

import os
from pathlib import Path

import pytest

from localspec.toolbox import hidden
from localspec.toolbox.hidden import hidden_paths
from tests.toolbox.test_command import confined, run

pytestmark = pytest.mark.process
LISTS = hidden._LISTS["home"]
UNNAMED = (
    ".newtool/credentials", ".newtool/credentials.json", ".newtool/auth.toml", ".config/other/tokens.yaml", ".config/other/api_key",
    ".config/other/refresh-token.txt", ".local/share/third/secrets.json", ".local/share/third/app-auth.json", ".local/state/fourth/cookies.sqlite",
    ".fifth/server.pem", ".fifth/id_ed25519", ".sixth/signing.p12",
)  # fmt: skip
ORDINARY = (
    ".bashrc", ".gitconfig", ".profile", ".cargo/config.toml", ".cargo/registry/index/x", ".config/other/settings.json", ".config/pypoetry/config.toml",
    ".rustup/settings.toml", ".local/share/third/authors.txt", ".local/bin/tool", ".m2/repository/a.pom", ".gradle/caches/x", ".npm/_cacache/x",
    ".cache/huggingface/hub/model.txt", ".hex/packages/x", ".conda/environments.txt", ".ollama/models/x", ".config/other/keyboard.json", "notes/auth.md",
)  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    (home / "project").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(home / "data"))
    for name in (*hidden._VARIABLES, *hidden._BASES):
        monkeypatch.delenv(name, raising=False)
    return home


def filled(home: Path, *names: str, text: str) -> list[Path]:
    """Write files, in a folder of the name where a list may mean one; return them."""
    files = []
    for name in names:
        file = home / name.replace("*", "x")
        if file.suffix == "" and "/" not in name and not file.exists():
            file /= "inner"
        if file.parent.is_file():
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.is_dir():
            file.write_text(text)
            files.append(file)
    return files


def read(home: Path, files: list[Path]) -> bytes:
    words = " ".join(f"'{each}'" for each in files)
    return run(home / "project", f"cat {words} 2> /dev/null").output


@confined
@pytest.mark.parametrize("which", LISTS)
def test_what_a_list_names_is_not_read(home: Path, which: str) -> None:
    files = filled(home, *LISTS[which], text="hidden ")
    assert len(files) > 10
    assert read(home, files) == b""


@confined
def test_what_no_list_names_is_known_by_its_name_and_the_rest_is_read(home: Path) -> None:
    assert read(home, filled(home, *UNNAMED, text="hidden ")) == b""
    ordinary = [home / each for each in ORDINARY]
    for each in ordinary:
        each.parent.mkdir(parents=True, exist_ok=True)
        each.write_text("shown ")
    assert read(home, ordinary) == b"shown " * len(ordinary)


@confined
def test_where_variables_and_links_lead_is_hidden(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = filled(home / "away", "kube/config", "codex/auth", "conf/rclone/x", "data/keyrings/x", "dots/npmrc", text="hidden")  # fmt: skip
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([f"{away[0]}", f"{home}/none"]))
    monkeypatch.setenv("CODEX_HOME", str(away[1].parent))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "away/conf"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "away/data"))
    monkeypatch.setenv("NETRC", str(home))  # all of the home folder is not meant
    (home / ".npmrc").symlink_to(away[4])
    assert read(home, [*away, home / ".npmrc"]) == b""
    assert str(home) not in hidden_paths()
    (home / "notes").write_text("shown")
    assert read(home, [home / "notes"]) == b"shown"

"""Servers of tools as users name them."""

from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.toolbox.mcp.servers import named_servers, of_command


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("uvx mcp-server-time --local-timezone UTC", "time"), ("npx -y @modelcontextprotocol/server-filesystem /tmp", "filesystem"),
        ("/opt/venv/bin/python -m mcp_server_git", "git"), ("node dist/everything.js stdio", "everything"),
        ("docker run -i --rm mcp/fetch@sha256:00", "fetch"), ("'/opt/My Tools/näme server.py' x", "n-me"), ("python", "python"),
    ],
)  # fmt: skip
def test_a_server_has_the_name_of_its_program(command: str, name: str) -> None:
    assert of_command(command).name == name


def test_servers_of_one_name_are_numbered(tmp_path: Path) -> None:
    file = tmp_path / "mcp.toml"
    file.write_text('[servers.time]\ncommand = "uvx mcp-server-time"\n')
    found = named_servers(["uvx mcp-server-time", "mcp-time"], file)
    assert [each.name for each in found] == ["time", "time-2", "time-3"]
    assert named_servers([], tmp_path / "none.toml") == ()


def test_a_file_says_all_of_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    file = tmp_path / "mcp.toml"
    file.write_text(
        """
[servers.files]
command = "npx -y 'a server' /tmp"
env = { KEY = "${TOKEN}", PRICE = "5$$" }
folder = "/srv"
tools = ["read"]
trust_hints = true
timeout_s = 5

[servers.web]
url = "https://example.org/mcp"
headers = { Authorization = "Bearer $TOKEN" }
"""
    )
    files, web = named_servers([], file)
    assert files.command == ("npx", "-y", "a server", "/tmp")
    assert files.env == {"KEY": "secret", "PRICE": "5$"}
    assert (files.folder, files.tools) == ("/srv", ("read",))
    assert (files.trust_hints, files.timeout_s) == (True, 5)
    assert (web.url, web.command, web.trust_hints) == ("https://example.org/mcp", (), False)
    assert web.headers == {"Authorization": "Bearer secret"}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[servers.a]\n", "not both"), ('[servers.a]\ncommand = "x"\nurl = "https://x"\n', "not both"), ('[servers.a]\ncommand = "x\'"\n', "quotes"),
        ('[servers.a]\ncommand = " "\n', "not both"), ('[servers.a]\nurl = "file:///etc/passwd"\n', "cannot be"),
        ('[servers.a_b]\ncommand = "x"\n', "usable name"), ('[servers.a]\ncommand = "x"\ntrust_hints = "yes"\n', "true or false"),
        ('[servers.a]\ncommand = "x"\ntools = "read"\n', "list"),
        ('[servers.a]\ncommand = "x"\nenv = { A = "${NOT_SET_AT_ALL}" }\n', "NOT_SET_AT_ALL"),
        ('[servers.a]\ncommand = "x"\nenv = { A = "5$" }\n', r"\$"), ('[servers.a]\ncommand = "x"\nshell = true\n', "not a known key"),
        ('[servers.a]\ncommand = "x"\nname = "b"\n', "name is not a known key"), ('[servers.a]\ncommand = "x"\ntimeout_s = inf\n', "at most 86400"),
        ('[servers.a]\ncommand = "x"\ntimeout_s = nan\n', "at least 1"), ("servers = 1\n", "must be a table"), ("servers", "not TOML"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_an_error(tmp_path: Path, text: str, word: str) -> None:
    file = tmp_path / "mcp.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=word) as caught:
        named_servers([], file)
    assert "mcp.toml" in str(caught.value)
    for command in ("", "  ", "'half"):
        with pytest.raises(UsageError, match="--mcp"):
            of_command(command)

"""Calls of a model that wants out of its folder, or wants more than there is. Every one is bounded by itself, too."""

import json
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from random import Random

from lab.faults.ground import Ground
from lab.faults.memory_group import NotHereError
from lab.faults.trial import Trial
from localspec.messages import ToolCall, ToolResult
from localspec.toolbox.built_in import BuiltIn
from localspec.toolbox.command import CommandLimits, confinement
from localspec.toolbox.folder import Folder

_SECRET = "what nobody may see"
_LIMITS = CommandLimits(seconds=20, output_bytes=4 << 20, processes=20, memory_bytes=256 << 20)


def _project(ground: Ground) -> Path:
    """Make a project with a secret beside it."""
    project = ground.folder / "project"
    (project / "sub").mkdir(parents=True)
    (project / "sub/file").write_text("seen\n")
    (ground.folder / "secret").write_text(_SECRET)
    return project


def _call(
    project: Path, name: str, stop: threading.Event | None = None, **given: str
) -> ToolResult:
    """Propose a call, and carry it out where it can be."""
    with closing(BuiltIn(Folder(project), limits=_LIMITS)) as box:
        call = ToolCall("c", name, json.dumps(given))
        error = box.propose(call).error
        if error is not None:
            return ToolResult("c", error, is_error=True)
        return box.call(call, stop or threading.Event())


def _assert_held(ground: Ground, project: Path, result: ToolResult) -> str:
    """See that a call failed, told nothing, and changed nothing outside; and that the next one works."""
    assert result.is_error, result.text
    assert _SECRET not in result.text
    assert (ground.folder / "secret").read_text() == _SECRET
    assert _call(project, "read_file", path="sub/file").text == "seen"
    return result.text.splitlines()[-1]


def _reached(ground: Ground, chance: Random, names: list[str]) -> str:
    project = _project(ground)
    name = chance.choice(names)
    if chance.random() < 0.5:
        result = _call(project, "read_file", path=name)
    else:
        result = _call(project, "write_file", path=name, content="x")
    return _assert_held(ground, project, result)


def dots(ground: Ground, chance: Random) -> str:
    ups = [
        "../secret",
        "sub/../../secret",
        "./sub/.././../secret",
        "sub/../../project/../secret",
        "..",
    ]
    return _reached(ground, chance, ups)


def absolute(ground: Ground, chance: Random) -> str:
    names = [
        str(ground.folder / "secret"),
        "/etc/passwd",
        f"{ground.folder}/project2/x",
        "//etc//passwd",
    ]
    return _reached(ground, chance, names)


def nul(ground: Ground, chance: Random) -> str:
    return _reached(ground, chance, ["sub/file\0", "\0", "../secret\0sub/file"])


def link(ground: Ground, chance: Random) -> str:
    project = _project(ground)
    (project / "door").symlink_to(chance.choice(["..", str(ground.folder)]))
    (project / "window").symlink_to(chance.choice(["../secret", str(ground.folder / "secret")]))
    name = chance.choice(["door/secret", "window", "sub/../door/secret"])
    told = _assert_held(ground, project, _call(project, "read_file", path=name))
    _assert_held(ground, project, _call(project, "write_file", path=name, content="x"))
    assert _SECRET not in _call(project, "search_folder", pattern=".").text
    return told


def flag(ground: Ground, chance: Random) -> str:
    project = _project(ground)
    name = chance.choice(["-rf", "--help", "-e", "--files-from=../secret"]).replace("/", "_")
    assert not _call(project, "write_file", path=name, content="a flag\n").is_error
    assert _call(project, "read_file", path=name).text == "a flag"
    found = _call(project, "search_folder", pattern="flag", path=name)
    assert _SECRET not in found.text
    return found.text.splitlines()[0]


def _confined() -> None:
    if not confinement()[1]:
        raise NotHereError("this system offers no sandbox")


def written_outside(ground: Ground, chance: Random) -> str:
    _confined()
    project = _project(ground)
    place = ground.folder / "secret"
    command = chance.choice(
        [
            f"echo x > {place}",
            f"rm -f {place}; exit 1",
            f"mv {place} .",
            "ln -s .. up; echo x > up/secret",
        ]
    )
    return _assert_held(ground, project, _call(project, "run_command", command=command))


def network(ground: Ground, chance: Random) -> str:
    _confined()
    project = _project(ground)
    family = chance.choice(["AF_INET", "AF_INET6", "AF_UNIX"])
    command = f'{sys.executable} -I -c "import socket; socket.socket(socket.{family})"'
    result = _call(project, "run_command", command=command)
    assert "PermissionError" in result.text, result.text
    return _assert_held(ground, project, result)


def output(ground: Ground, chance: Random) -> str:
    project = _project(ground)
    sink = chance.choice(["", " >&2"])
    result = _call(project, "run_command", command=f"head -c 1000000000 /dev/zero{sink}")
    assert len(result.text) < 20_000
    return _assert_held(ground, project, result)


def forks(ground: Ground, chance: Random) -> str:
    """It forks 300 processes and no more."""
    project = _project(ground)
    leaves = chance.choice(["os.setsid()", "pass"])
    code = f"import os,time\nfor _ in range(300):\n    if not os.fork():\n        {leaves}; time.sleep(60); os._exit(0)\ntime.sleep(60)\n"
    (project / "bomb.py").write_text(code)
    result = _call(project, "run_command", command=f"{sys.executable} -I -S {project}/bomb.py")
    _assert_gone(f"{project}/bomb.py")
    return _assert_held(ground, project, result)


def memory(ground: Ground, chance: Random) -> str:
    project = _project(ground)
    size = chance.randint(300, 900) << 20
    result = _call(project, "run_command", command=f'{sys.executable} -I -S -c "bytearray({size})"')
    assert "MemoryError" in result.text
    return _assert_held(ground, project, result)


def deaf(ground: Ground, chance: Random) -> str:
    project = _project(ground)
    (project / "deaf.sh").write_text("trap '' TERM INT HUP\nsleep 60\nsleep 60\n")
    command = chance.choice(["sh {}", "setsid sh {}", "(sh {} &) ; sh {}"]).replace(
        "{}", f"{project}/deaf.sh"
    )
    stop = threading.Event()
    threading.Timer(chance.uniform(0.1, 0.8), stop.set).start()
    result = _call(project, "run_command", stop, command=command)
    _assert_gone(f"{project}/deaf.sh")
    return _assert_held(ground, project, result)


def escapes(ground: Ground, chance: Random) -> str:
    project = _project(ground)
    raw = "".join(chance.choice("\x1b\x9b[]0;31mHJ52c\x07\r\nabc\\P_") for _ in range(400))
    (project / "noise").write_text(raw)
    result = _call(project, "run_command", command="cat noise")
    assert all(each.isprintable() or each in "\n\t" for each in result.text)
    return result.text.splitlines()[-1]


def _assert_gone(marker: str) -> None:
    for _ in range(100):
        if not _running(marker):
            return
        time.sleep(0.02)
    raise AssertionError(f"it runs on: {marker}")


def _running(marker: str) -> bool:
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = each.read_bytes()
        except OSError:
            continue
        if marker.encode() in words.split(b"\0"):
            return True
    return False


TRIALS = [
    Trial("a path with `..`", "tools", dots),
    Trial("an absolute path", "tools", absolute),
    Trial("a path with a NUL", "tools", nul),
    Trial("links that lead out", "tools", link),
    Trial("a name that looks like a flag", "tools", flag),
    Trial("a command that writes outside", "tools", written_outside),
    Trial("a command that opens a socket", "tools", network),
    Trial("a command with 1 GB of output", "tools", output),
    Trial("a command that forks and forks", "tools", forks),
    Trial("a command that takes all memory", "tools", memory),
    Trial("a command that ignores SIGTERM, stopped", "tools", deaf),
    Trial("a command that prints escapes", "tools", escapes),
]

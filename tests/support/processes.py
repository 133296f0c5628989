"""What runs on this machine, read from /proc."""

from pathlib import Path


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def running(word: str, **variables: str) -> list[int]:
    """Return the processes with a word in their command, and variables in their environment."""
    found = list[int]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
            known = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if word in command and all(f"{name}={each}" in known for name, each in variables.items()):
            found.append(int(folder.name))
    return found

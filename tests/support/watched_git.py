"""A `git` that only notes that it was started: none is to be, since git runs what a repository's settings name."""

import os
from pathlib import Path


def watched_git(folder: Path) -> tuple[str, Path]:
    """Make the program; return a PATH on which it comes first, and the file that it writes."""
    program, note = folder / "programs" / "git", folder / "git-was-started"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho started > '{note}'\n")
    program.chmod(0o755)
    return os.pathsep.join([str(program.parent), os.environ["PATH"]]), note

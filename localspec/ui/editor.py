"""The user's own editor, for what is long. Whoever opens it gives it the terminal."""

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from localspec.errors import UsageError

_USUAL = "vi"


def written(text: str) -> str:
    """Return a text as it stands when the user has left the editor of $VISUAL or $EDITOR, without blank lines around it.

    Raises:
        UsageError: the editor cannot be started, fails, or leaves something else than UTF-8.
    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or _USUAL
    with tempfile.TemporaryDirectory(prefix="localspec-") as folder:
        file = Path(folder) / "question.md"
        file.write_text(text, encoding="utf-8")
        try:
            subprocess.run([*shlex.split(editor), str(file)], check=True)  # noqa: S603 - the user's own
            return file.read_text(encoding="utf-8").strip("\n")
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UsageError(
                f"the editor {editor[:60]!r} failed ({reason[:200]}): set EDITOR to one that runs here"
            ) from None

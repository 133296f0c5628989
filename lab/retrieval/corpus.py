"""Texts that the system carries: manual pages of Debian, and what Python's own library says of itself.

Neither is part of the repository; versions differ from machine to machine, so that questions name a text that stands in
the passage that answers them, and are left out where it does not.
"""

import os
import pydoc
import re
import subprocess
from importlib import import_module
from pathlib import Path

MANUALS = (
    "tar.1 find.1 xargs.1 grep.1 sed.1 sort.1 uniq.1 cut.1 tr.1 wc.1 head.1 tail.1 cp.1 mv.1 rm.1 ls.1 ln.1 du.1 df.1 "
    "chmod.1 dd.1 date.1 env.1 tee.1 touch.1 gzip.1 xz.1 diff.1 patch.1 curl.1 wget.1 ssh.1 scp.1 git-rebase.1 "
    "git-stash.1 git-commit.1 git-log.1 git-bisect.1 git-clean.1 git-cherry-pick.1 make.1 tmux.1 ps.1 top.1 mount.8 "
    "fstab.5 shadow.5 useradd.8 apt-get.8 dpkg.1 stat.1 timeout.1 split.1 shuf.1 less.1 pgrep.1 watch.1 hosts.5 "
    "signal.7 regex.7 open.2 fork.2 mmap.2"
)
MODULES = (
    "argparse array asyncio.tasks base64 bisect calendar codecs collections configparser contextlib copy csv ctypes.util "
    "dataclasses datetime decimal difflib enum fileinput fnmatch fractions ftplib functools getpass glob gzip hashlib "
    "heapq hmac html.parser http.client http.server imaplib inspect io itertools json logging lzma math mimetypes "
    "multiprocessing.pool operator os os.path pathlib pickle random re sched secrets shelve shlex shutil smtplib socket "
    "sqlite3 statistics string struct subprocess tarfile tempfile textwrap threading timeit tomllib types typing "
    "unicodedata urllib.parse uuid weakref zipfile"
)
_LAYOUT = {"MANWIDTH": "80", "MANOPT": "--no-hyphenation --no-justification", "GROFF_NO_SGR": "1"}


def make(folder: Path) -> int:
    """Write the texts into a folder; return how many there are. What this machine lacks is left out."""
    for each in ("man", "python"):
        (folder / each).mkdir(parents=True, exist_ok=True)
    for manual in MANUALS.split():
        name, section = manual.rsplit(".", 1)
        shown = subprocess.run(
            ["man", "-P", "cat", section, name],
            env={**os.environ, **_LAYOUT},
            capture_output=True,
            check=False,
        )
        # Bold is a letter over itself.
        text = re.sub(".\b", "", shown.stdout.decode(errors="replace"))
        if shown.returncode == 0 and text.strip():
            (folder / "man" / manual).write_text(text)
    for name in MODULES.split():
        text = pydoc.plain(pydoc.render_doc(import_module(name), title="%s"))
        (folder / "python" / f"{name}.txt").write_text(text)
    return sum(each.is_file() for each in folder.rglob("*"))

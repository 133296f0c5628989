"""A full disk, one that can only be read, and one without shared memory: what is whole is read by every command, and none advises to remove it."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from localspec.errors import LocalspecError
from localspec.retrieval.index import Index
from localspec.retrieval.update import update
from localspec.storage.database import open_database, remove, shares_memory
from tests.cli.command import Done, localspec
from tests.warm import USER

pytestmark = pytest.mark.slow

# Killed in its midst: its log holds what it saved last.
WRITER = """
import os, sys
from pathlib import Path
from localspec.history.archive import History
from tests.history.test_archive import talk
from tests.telemetry.test_log import record
data = Path(sys.argv[1])
history = History(data / "history")
for number in range(5):
    talk(history, f"question {number} of a whale", "an answer " * 50)
record(data / "telemetry", 3)
os._exit(0)
"""


@pytest.fixture
def disk() -> Iterator[Path]:
    """A disk of 4 MB, in a directory where every user may write."""
    place = Path(tempfile.mkdtemp(), "disk")
    place.mkdir()
    place.parent.chmod(0o777)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", place],
        check=False,
        capture_output=True,
    )
    if made.returncode:
        pytest.skip("this user may not mount")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)
        shutil.rmtree(place.parent)


ROOT, NOBODY = "root", "nobody"


@pytest.fixture(params=[ROOT, NOBODY])
def user(request: pytest.FixtureRequest, disk: Path) -> dict[str, str]:
    """Variables by which a command runs as a user, with data on a disk."""
    (disk.parent / "config").mkdir(mode=0o777)
    folders = {
        "LOCALSPEC_DATA_DIR": str(disk / "data"),
        "LOCALSPEC_CONFIG_DIR": f"{disk}/../config",
    }
    return folders | ({USER: "65534"} if request.param == NOBODY else {})


def own(disk: Path, user: dict[str, str]) -> None:
    """Give what is on a disk to a user."""
    for each in (disk, *disk.rglob("*")):
        os.chown(each, int(user.get(USER, 0)), -1)


def fill(disk: Path) -> None:
    descriptor = os.open(disk / "filling", os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(descriptor, bytes(4096))
    except OSError:
        os.close(descriptor)


def remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", disk], check=True)


READERS = {
    "history": "whale", "history list --json": "whale", "history search whale": "question 4", "history show": "question 4",
    "history show 2 --json": "question 1", "history export 3 {out}": "out.md", "index": "1 file  ", "index status --json": "passages",
    "index search penguins": "penguins walk", "stats": "tokens", "stats --json": "{{", "stats --since 7d --json": "{{",
    "config show": "temperature", "list": "", "doctor --offline": "settings",
}  # fmt: skip


@pytest.mark.parametrize(
    ("state", "log", "user"),
    [
        ("full", "a log", ROOT), ("full", "a log without its index", NOBODY), ("full", "no log", ROOT),
        ("read-only", "a log", NOBODY), ("read-only", "a log without its index", ROOT), ("read-only", "no log", NOBODY),
    ],
    indirect=["user"],
)  # fmt: skip
def test_what_is_whole_is_read(
    disk: Path, tmp_path: Path, user: dict[str, str], state: str, log: str
) -> None:
    data, docs, out = disk / "data", tmp_path / "docs", disk.parent / "out.md"
    env = user | {"LOCALSPEC_TELEMETRY": "on"}
    docs.mkdir()
    (docs / "birds.md").write_text("# Birds\n\npenguins walk far\n")
    assert localspec("index", "add", str(docs), "--name", "docs", env=env | {USER: "0"}).code == 0
    subprocess.run([sys.executable, "-c", WRITER, data], check=True)
    own(disk, user)
    if log == "no log":
        assert localspec("history", "tag", "1", "seen", env=env).code == 0  # closes it
    elif log == "a log without its index" and state == "full":
        for each in data.glob("*/*-shm"):
            each.unlink()
    fill(disk) if state == "full" else remount(disk, "ro")
    for command, words in READERS.items():
        done = localspec(*command.format(out=out).split(), env=env)
        assert done.code == 0 or command.startswith("doctor"), (command, done)
        assert words.replace("{{", "{") in done.out, (command, done)
        check_advice(done)
    if state == "full":
        (disk / "filling").unlink()
    else:
        remount(disk, "rw")
    assert localspec("history", "tag", "2", "after", env=env).out == "after\n"


def check_advice(done: Done) -> None:
    assert "Traceback" not in done.err
    for words in ("index rm", "--wipe", "away to start again", "malformed", "afresh"):
        assert words not in done.out + done.err, done


@pytest.mark.parametrize("state", ["full", "read-only"])
def test_what_would_change_says_so_in_a_line(disk: Path, user: dict[str, str], state: str) -> None:
    subprocess.run([sys.executable, "-c", WRITER, disk / "data"], check=True)
    (disk / "data" / "index").mkdir()
    (disk / "data" / "index" / "docs.db").touch()
    own(disk, user)
    fill(disk) if state == "full" else remount(disk, "ro")
    done = localspec("history", "tag", "1", "new " * 50, env=user)
    if state == "read-only":
        assert done.code == 1
        assert done.err.count("\n") == 1
        assert "keeps trying" not in done.err, "it ends"
        assert "its disk" in localspec("index", "rm", "docs", env=user).err
    check_advice(done)


def test_an_index_that_does_not_fit_gives_its_room_back(disk: Path, tmp_path: Path) -> None:
    docs, env = tmp_path / "docs", {"LOCALSPEC_DATA_DIR": str(disk / "data")}
    docs.mkdir()
    for number in range(700):
        (docs / f"{number}.md").write_text(f"penguin{number} walks far " * 400)
    localspec("list", env=env)
    free = os.statvfs(disk).f_bavail
    done = localspec("index", "add", str(docs), "--name", "docs", env=env)
    assert done.code == 1
    assert "free some space" in done.err
    check_advice(done)
    assert free - os.statvfs(disk).f_bavail <= 1, "but for the directory"
    assert localspec("index", env=env).out == ""


@pytest.mark.parametrize("files_at_a_time", [1, 64])  # a slow machine writes few
def test_an_index_that_grows_too_far_stays_whole(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files_at_a_time: int
) -> None:
    docs, env = tmp_path / "docs", {"LOCALSPEC_DATA_DIR": str(disk / "data")}
    docs.mkdir()
    (docs / "first.md").write_text("penguins walk far")
    assert localspec("index", "add", str(docs), "--name", "docs", env=env).code == 0
    for number in range(700):
        (docs / f"{number}.md").write_text(f"whale{number} swims far " * 400)
    monkeypatch.setattr("localspec.retrieval.update._BATCH_FILES", files_at_a_time)
    with (
        closing(Index(disk / "data" / "index" / "docs.db")) as index,
        pytest.raises(LocalspecError, match="free some space"),
    ):
        update(index)
    done = localspec("index", "update", env=env)
    assert done.code == 1
    check_advice(done)
    assert "penguins" in localspec("index", "search", "penguins", env=env).out
    subprocess.run([sys.executable, "-c", WRITER, disk / "data"], check=True)
    assert "whale" in localspec("history", env=env).out, "others have room"
    assert localspec("history", "tag", "1", "seen", env=env).code == 0


@pytest.fixture
def unshared(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A place by FUSE with direct I/O, which maps no shared memory, and the directory behind it."""
    program, behind, place = shutil.which("bindfs"), tmp_path / "behind", tmp_path / "unshared"
    if program is None:
        pytest.skip("bindfs is not installed")
    for each in (behind, place):
        each.mkdir()
    made = subprocess.run(
        [program, "-o", "direct_io,attr_timeout=0,entry_timeout=0", behind, place],
        check=False,
        capture_output=True,
    )
    if made.returncode:
        pytest.skip("FUSE cannot be used here")
    try:
        yield place, behind
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_all_is_kept_without_shared_memory(unshared: tuple[Path, Path], tmp_path: Path) -> None:
    place, docs, out = unshared[0], tmp_path / "docs", tmp_path / "out.md"
    data = place / "data"
    env = {"LOCALSPEC_DATA_DIR": str(data), "LOCALSPEC_TELEMETRY": "on"}
    docs.mkdir()
    (docs / "birds.md").write_text("# Birds\n\npenguins walk far\n")
    assert localspec("index", "add", str(docs), "--name", "docs", env=env).code == 0
    subprocess.run([sys.executable, "-c", WRITER, data], check=True)
    for command, words in READERS.items():
        done = localspec(*command.format(out=out).split(), env=env)
        assert done.code == 0 or command.startswith("doctor"), (command, done)
        assert words.replace("{{", "{") in done.out, (command, done)
        check_advice(done)
    tried = " ".join(localspec("doctor", "--offline", env=env).out.split())
    assert "databases work, without shared memory" in tried
    assert localspec("history", "tag", "2", "after", env=env).out == "after\n"
    assert localspec("index", "rm", "docs", env=env).code == 0
    assert localspec("stats", "--wipe", "--yes", env=env).code == 0
    assert not list(data.glob("**/*-wal"))


STEPS = ("CREATE TABLE a(x)",)


def test_a_log_of_elsewhere_is_taken_in_without_shared_memory(
    unshared: tuple[Path, Path],
) -> None:
    place, behind = unshared
    writer = (
        "import os, sys; from pathlib import Path; from localspec.storage.database import open_database;"
        f"open_database(Path(sys.argv[1]), {STEPS!r}).execute('INSERT INTO a VALUES (1)'); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", writer, behind / "file.db"], check=True)
    assert (behind / "file.db-wal").stat().st_size
    for path, journal in ((place, "truncate"), (behind, "wal"), (place, "truncate")):
        with closing(open_database(path / "file.db", STEPS)) as file:
            assert file.execute("PRAGMA journal_mode").fetchone()[0] == journal
            file.execute("INSERT INTO a VALUES (1)")
    with closing(open_database(place / "file.db", STEPS)) as file:
        assert file.execute("SELECT count(*) FROM a").fetchone()[0] == 4
    assert remove(place / "file.db")
    assert not list(behind.iterdir())


def test_many_programs_at_once_without_shared_memory(unshared: tuple[Path, Path]) -> None:
    path = unshared[0] / "new" / "file.db"
    assert not shares_memory(unshared[0])
    writer = (
        "import sys; from pathlib import Path; from localspec.storage.database import open_database\n"
        f"for n in range(10): open_database(Path(sys.argv[1]), {STEPS!r}).execute('INSERT INTO a VALUES (1)').connection.close()"
    )
    programs = [subprocess.Popen([sys.executable, "-c", writer, path]) for _ in range(5)]
    assert [each.wait() for each in programs] == [0] * 5
    with closing(open_database(path, STEPS)) as file:
        assert file.execute("SELECT count(*) FROM a").fetchone()[0] == 50

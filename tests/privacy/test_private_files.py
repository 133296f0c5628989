"""Whatever the umask is, what the program keeps is its owner's alone."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.calibration import calibrated as cache
from localspec.history.archive import History
from localspec.messages import MediaPart, Message
from localspec.models.entries import HubSource, ModelEntry, Pin
from localspec.models.ledger import PINS
from localspec.models.names import import_file
from localspec.models.registry import Registry
from localspec.models.store import Store
from localspec.plugins.store.token_log import TokenLog
from localspec.storage.paths import data_dir
from tests.cli.command import PLAIN, localspec, succeed
from tests.models.gguf_builder import model_file
from tests.models.sources import begin
from tests.telemetry.talking import recording
from tests.test_media import png

_SOURCES, _PIN = (HubSource("a/b", "m.gguf", "a" * 40),), Pin("2026-11-20", "a" * 40)
_ENTRY = ModelEntry("a/b:Q8_0", 5, "0" * 64, sources=_SOURCES, pin=_PIN)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data directory that is not there yet, and a user whose files are open to all."""
    root = tmp_path / "share" / "localspec"
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(root))
    before = os.umask(0)
    yield root
    os.umask(before)


def _open_to_others(root: Path) -> list[str]:
    made = [root, *root.rglob("*")]
    return [
        f"{path.relative_to(root.parent)} {stat.S_IMODE(path.lstat().st_mode):o}"
        for path in made
        if not path.is_symlink() and path.lstat().st_mode & 0o077
    ]


def test_everything_that_is_stored_is_private(root: Path, tmp_path: Path) -> None:
    assert data_dir() == root
    history = History(root / "history")
    picture = MediaPart.of(png(), "a.png")
    history.add_user(history.create(), None, Message.user("Hi", media=[picture]))
    with recording(root / "telemetry") as talk:
        talk.reply()
    TokenLog(root / "store" / "said.db", megabytes=1).append("conversation 1", [1, 2, 3])
    assert not cache._store({"kind": "a"}, {"b": 1})
    PINS.add(root, _ENTRY.name, _ENTRY)
    store = Store(root)
    file = tmp_path / "mine.gguf"
    file.write_bytes(model_file())
    import_file(file, "mine", Registry({}, {}, ""), store)
    begin(store, _ENTRY, b"abc")
    assert (root / "history" / "media" / picture.sha256).is_file()
    assert _open_to_others(root.parent) == []
    history.close()
    assert len(list(root.rglob("*"))) > 10
    assert _open_to_others(root.parent) == []


@pytest.mark.slow
@pytest.mark.weights
def test_commands_leave_only_private_files(smollm2_path: Path, root: Path) -> None:
    model = (*PLAIN, "--target", str(smollm2_path), "--offline", "--max-tokens", "3")
    assert localspec("run", *model, "Hi").code == 0
    succeed("chat", *model, stdin=b"Hi\n/quit\n")
    assert "history.db" in {path.name for path in root.rglob("*")}
    assert _open_to_others(root.parent) == []

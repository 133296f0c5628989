"""A model's file that changes under a program: said so, loaded anew, and never mixed with what it was."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from localspec.chat.events import Finished
from localspec.chat.request import Request
from localspec.engine.engine import NoSignals
from localspec.engine.protocol import Failed, Load, Ready
from localspec.engine.remote_engine import RemoteEngine
from localspec.engine.sync import iterate, run_sync
from localspec.errors import ModelChanged
from localspec.launch.local_engine import LocalEngine
from localspec.llama import kept_reads
from localspec.messages import Message
from localspec.models.store import LoadedFiles
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from localspec.plugins.serve.http import status_of
from localspec.tui.models import Models
from tests.engine.talking import Heard, Talker, hear_all, hear_last

GREEDY = ReplyOptions(SamplingParams(temperature=0), max_tokens=24)
QUESTION = "Name three rivers of Europe."
SMALL = LoadOptions(threads=1, gpu_layers=0, n_ctx=1024)


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def shrink(path: Path) -> None:
    path.write_bytes(b"less")


def write_again(path: Path) -> None:
    path.write_bytes(path.read_bytes())


def write_second_part(path: Path) -> None:
    grow(path.with_name(path.name.replace("00001", "00002")))


@pytest.mark.parametrize("change", [grow, shrink, write_again, write_second_part])
def test_a_file_that_is_written_over_is_named(
    tmp_path: Path, change: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, files = tmp_path / "m-00001-of-00002.gguf", LoadedFiles()
    parts = [path, tmp_path / "m-00002-of-00002.gguf"]
    monkeypatch.setattr("localspec.models.gguf.model_files", lambda _path: parts)
    for each in parts:
        each.write_bytes(b"weights")
    files.note(path)
    files.check()
    assert callable(change)
    change(path)
    with pytest.raises(ModelChanged, match=r"m-0000[12]-of-00002.gguf was written over.*ask again"):
        files.check()


def test_a_file_that_is_moved_or_removed_stays_what_it_was(tmp_path: Path) -> None:
    path, link, other = (tmp_path / name for name in ("m.gguf", "link.gguf", "new.gguf"))
    path.write_bytes(b"weights")
    link.symlink_to(path)
    files = LoadedFiles()
    kept = path.open("rb")  # as a mapping does: else another file may get its place
    before = files.note(link)
    other.write_bytes(b"others")
    other.replace(path)
    files.check()
    path.unlink()
    files.check()
    kept.close()
    path.write_bytes(b"weights of another length")
    assert LoadedFiles().note(link) != before


def test_a_stored_file_that_was_written_over_is_another(tmp_path: Path) -> None:
    path = tmp_path / "blobs" / ("a" * 64)
    path.parent.mkdir()
    path.write_bytes(b"weights")
    before = LoadedFiles().note(path)
    assert LoadedFiles().note(path) == before
    path.write_bytes(b"other weights")
    assert LoadedFiles().note(path) != before


def test_clients_may_ask_again_and_see_what_is_loaded_then() -> None:
    assert status_of(ModelChanged("m.gguf was written over")) == 503
    models = Models(RemoteEngine(), LaunchOptions())
    ready = Ready("m.gguf", None, "off", 512, (), 0.1, thinks=False)
    models.watch(ready)
    assert models.ready is ready


@pytest.fixture
def copied(six_layers_path: Path, tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    shutil.copyfile(six_layers_path, path)
    return path


def write_over(path: Path, other: Path) -> None:
    """Write another file's content over a file, as `cp` does; but it is never shorter: pages of a mapping would be lost."""
    with path.open("r+b") as file:
        file.write(other.read_bytes())


def launch(path: Path) -> LaunchOptions:
    return LaunchOptions(target=str(path), draft="off", load=SMALL)


@pytest.fixture
def client(copied: Path) -> Iterator[Talker]:
    with closing(Talker()) as client:
        client.load(launch(copied))
        hear_last(client, Ready)
        yield client


def told(heard: Heard, path: Path) -> bool:
    failed = heard[-1]
    return isinstance(failed, Failed) and (failed.kind, str(path) in failed.reason) == (
        "ModelChanged",
        True,
    )


@pytest.mark.weights
def test_an_engine_says_so_and_loads_it_anew(
    client: Talker, copied: Path, smollm2_path: Path
) -> None:
    old = client.reply(QUESTION, GREEDY)
    write_over(copied, smollm2_path)
    assert told(client.reply(QUESTION, GREEDY), copied)
    hear_last(client, Ready)
    new = client.reply(QUESTION, GREEDY)
    with closing(Talker()) as other:
        other.load(launch(smollm2_path))
        hear_last(other, Ready)
        assert new.text == other.reply(QUESTION, GREEDY).text != old.text


@pytest.mark.weights
def test_a_copy_that_is_under_way_is_waited_for(
    client: Talker, copied: Path, smollm2_path: Path
) -> None:
    content = smollm2_path.read_bytes()
    with copied.open("r+b") as file:
        file.write(content[: len(content) * 3 // 4])
        file.flush()
        for _ in range(2):
            assert told(client.reply(QUESTION, GREEDY), copied)
        file.write(content[len(content) * 3 // 4 :])
    assert told(client.reply(QUESTION, GREEDY), copied)
    hear_last(client, Ready)
    assert client.reply(QUESTION, GREEDY).done


@pytest.mark.weights
def test_answers_of_both_are_none(client: Talker, copied: Path, smollm2_path: Path) -> None:
    long = ReplyOptions(SamplingParams(temperature=0), max_tokens=300)
    number = client.ask(QUESTION, long)
    write_over(copied, smollm2_path)
    assert told(hear_all(client, number), copied)
    hear_last(client, Ready)
    assert client.reply(QUESTION, GREEDY).done


def opened(path: Path) -> LocalEngine:
    load = Load(launch(path))
    engine = LocalEngine(load, None, lambda _notice: None, NoSignals(), lambda _text: None)
    run_sync(engine.loaded())
    return engine


REQUEST = Request(0, (Message.user(QUESTION * 12),), GREEDY)


@pytest.mark.weights
@pytest.mark.parametrize("when", ["before it", "in its midst"])
def test_an_answer_in_this_process_fails(copied: Path, six_layers_path: Path, when: str) -> None:
    with closing(opened(copied)) as engine:
        assert any(isinstance(each, Finished) for each in iterate(engine.stream(REQUEST)))
        events = iterate(engine.stream(REQUEST))
        if when == "in its midst":
            next(events)
        write_over(copied, six_layers_path)
        with pytest.raises(ModelChanged, match=r"model.gguf was written over"):
            list(events)


@pytest.mark.weights
@pytest.mark.parametrize("changes", [False, True])
def test_nothing_is_kept_of_it(
    copied: Path,
    six_layers_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: bool,
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    for name in ("LEAST_S", "TIMES"):
        monkeypatch.setattr(kept_reads, name, 0)
    with closing(opened(copied)) as engine:
        for _ in iterate(engine.stream(REQUEST)):
            pass
        if changes:
            write_over(copied, six_layers_path)
    assert bool([*(tmp_path / "data").glob("reads/*/*.*")]) is not changes

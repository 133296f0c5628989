"""The facts of doctor about this machine, its files and the hub, and every way in which something is not well."""

import hashlib
import socket
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from unittest.mock import Mock

import pytest

from localspec.calibration.calibrated import StoredCosts
from localspec.decoding.costs import PassCosts
from localspec.decoding.model import Role
from localspec.diagnosis import doctor
from localspec.diagnosis.doctor import Fact
from localspec.errors import UsageError
from localspec.llama.backend import build
from localspec.llama.devices import Device, devices
from localspec.llama.safe_widths import SafeWidths
from localspec.models.registry import load_registry
from localspec.options import LoadOptions
from localspec.plugins.store.token_log import FILE
from localspec.setup.plan import GpuFinding
from localspec.storage import database
from tests.models.shapes import LLAMA_1B, QWEN3_06B, sparse_model
from tests.models.test_mmproj import mmproj_file
from tests.waiting import PATIENCE_S


@pytest.fixture
def blobs(tmp_path: Path) -> Path:
    (tmp_path / "blobs").mkdir()
    return tmp_path / "blobs"


def add(blobs: Path, content: bytes, name: str = "") -> Path:
    path = blobs / (name or hashlib.sha256(content).hexdigest())
    path.write_bytes(content)
    return path


def test_a_whole_store_is_counted(tmp_path: Path) -> None:
    assert list(doctor.store(tmp_path, verify=True)) == [Fact("model files", "0, 0 MB (re-hashed)")]
    (tmp_path / "blobs").mkdir()
    names = [add(tmp_path / "blobs", bytes([at]) * at * 1_000_000).name for at in (2, 3)]
    read: list[str] = []
    (fact,) = doctor.store(tmp_path, verify=True, progress=read.append)
    assert fact.value == "2, 5 MB (re-hashed)"
    assert sorted(read) == sorted(names)


def evil(blobs: Path) -> None:
    add(blobs, b"good").write_bytes(b"evil")


def short(blobs: Path) -> None:
    add(blobs, b"short", str(load_registry().models["smollm2-135m"].sha256))


@pytest.mark.parametrize(
    ("damage", "words", "unread"),
    [
        (evil, "holds other bytes, of sha256 ", True),
        (short, "has 5 bytes instead of ", False),
        (lambda blobs: (blobs / ("0" * 64)).symlink_to("gone"), "points at gone, which is", False),
        (lambda blobs: add(blobs, b"x", "notes.txt"), "is not named by a sha256", False),
        (lambda blobs: (blobs / ("1" * 64)).mkdir(), "is not a file", False),
    ],
)
def test_a_damaged_store_is_found_out(
    blobs: Path, damage: Callable[[Path], object], words: str, unread: bool
) -> None:
    damage(blobs)
    for verify in (False, True):
        *broken, _ = doctor.store(blobs.parent, verify=verify)
        assert len(broken) == (verify or not unread)
    assert (broken[0].state, broken[0].value.startswith(words)) == ("broken", True)
    (path,) = blobs.iterdir()
    assert broken[0].value.endswith(f"remove {path}, and pull the model again")


def test_settings_without_passwords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("LOCALSPEC_MIRRORS", "https://me:s3cret@mirror.example/")
    facts = {fact.name: fact.value for fact in doctor.settings()}
    assert facts["mirrors"] == "['https://***@mirror.example/'] (LOCALSPEC_MIRRORS)"
    (tmp_path / "config.toml").write_text("ctx = 'x'")
    (fact,) = doctor.gather(doctor.settings)
    assert (fact.name, fact.state) == ("failed", "broken")
    assert "'ctx' is 'x'" in fact.value
    (tmp_path / "file").touch()
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "file"))
    assert doctor.gather(doctor.files)[-1].state == "broken"


def test_one_cause_is_given_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    (tmp_path / "models.toml").write_text("aliases = 3")
    sections = doctor.examine(offline=True, verify=False, progress=lambda _: None)
    broken = [each.value for facts in sections.values() for each in facts if each.state == "broken"]
    assert len(broken) > 1
    assert sum("models.toml" in each for each in broken) == 1
    assert {*broken[1:]} == {"for the reason under settings"}


def test_files_are_where_the_variables_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    facts = {fact.name: fact.value for fact in doctor.files()}
    assert facts["data"].startswith(f"{tmp_path / 'data'} (")
    assert facts["hub cache"] == str(tmp_path / "hub/hub")
    assert facts["user settings"] == f"{tmp_path / 'settings/config.toml'} (does not exist)"
    path = tmp_path / "data" / "store" / FILE
    path.parent.mkdir()
    path.write_text("no database " * 1000)
    (broken,) = (fact for fact in doctor.files() if fact.name == "store")
    assert broken.state == "broken"
    assert f"{path}: file is not a database: `localspec stats --wipe`" in broken.value


@pytest.mark.parametrize(
    ("problem", "state", "text"),
    [
        (None, "ok", "work"),
        ("memory", "note", "work, without shared memory, which this file system refuses"),
        ("disk", "broken", "cannot be kept (disk I/O error): check"),
    ],
)
def test_a_database_is_tried_in_the_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str | None, state: str, text: str
) -> None:
    if problem == "memory":
        monkeypatch.setattr(database, "shares_memory", lambda _directory: False)
    elif problem == "disk":
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        monkeypatch.setattr(database, "open_database", Mock(side_effect=error))
    fact = doctor.tried(tmp_path)
    assert (fact.name, fact.state, fact.value[: len(text)]) == ("databases", state, text)
    assert not list(tmp_path.iterdir())


def test_databases_that_are_damaged_are_named(tmp_path: Path) -> None:
    for name in ("index/sound.db", "index/torn.db", "history/history.db"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        with closing(database.open_database(tmp_path / name, ("CREATE TABLE a(x)",))) as file:
            file.executemany("INSERT INTO a VALUES (?)", [("some text " * 99,)] * 99)
    assert list(doctor.damaged(tmp_path)) == []
    torn = tmp_path / "index/torn.db"
    torn.write_bytes(torn.read_bytes()[: 5 * 4096] + bytes(4096) + torn.read_bytes()[6 * 4096 :])
    (fact,) = doctor.damaged(tmp_path)
    assert (fact.state, "torn.db is damaged" in fact.value) == ("broken", True)


def test_software_names_versions_and_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    features = ("CUDA : ARCHS = 890", "USE_GRAPHS = 1", "CPU : SSE3 = 1", "SVE_CNT = 16")
    monkeypatch.setattr(doctor, "build", lambda: replace(build(), features=features))
    facts = {fact.name: fact.value for fact in doctor.software()}
    assert facts["compiled with"] == "CUDA: ARCHS 890, USE_GRAPHS, CPU: SSE3, SVE_CNT 16"
    assert ("CPU" in facts["backends"], sys.executable in facts["Python"]) == (True, True)
    assert facts["llama.cpp"].startswith("llama-cpp-python 0.")


def test_the_gpu_build_says_what_setup_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for found, told, state in [
        (GpuFinding(), "no GPU was found", "ok"),
        (GpuFinding(("Card",), ("nvcc",)), "CUDA (Card) is not used: first install nvcc", "note"),
    ]:
        monkeypatch.setattr(doctor, "find_gpus", lambda it=found: {"cuda": it, "cpu": GpuFinding()})
        *_, fact = doctor.gpu_build()
        assert (fact.name, fact.value.startswith(told), fact.state) == ("setup", True, state)


@pytest.mark.parametrize(("taken", "noted"), [((1.3, 2), True), ((0.2, 2), False), (None, False)])
def test_hardware_names_memory_every_device_and_programs_that_slow_answers(
    monkeypatch: pytest.MonkeyPatch, taken: tuple[float, int] | None, noted: bool
) -> None:
    monkeypatch.setattr(doctor, "taken_by_others", lambda: taken)
    gpu = Device("CUDA0", "Card", 6_000_000_000, 8_000_000_000, "GPU", 0)
    facts = {fact.name: fact for fact in doctor.hardware([*devices(), gpu])}
    assert facts["device CUDA0"].value == "Card, 6.0 GB of 8.0 GB free"
    assert "device CPU" in facts
    assert facts["free RAM"].value.endswith("B")
    assert ("other programs" in facts) is noted
    assert not noted or facts["other programs"].value.startswith("using 1.3 of 2 cores")
    monkeypatch.setattr(doctor, "free_ram_bytes", lambda: None)
    assert {fact.name: fact.state for fact in doctor.hardware([])}["free RAM"] == "note"


def planned(folder: Path, **values: object) -> list[tuple[str, str]]:
    facts = doctor.memory(folder, {"pair": None, "gpu_layers": 0, **values})
    return [(fact.value, fact.state) for fact in facts]


def test_memory_is_planned_for_the_models_that_are_set(tmp_path: Path) -> None:
    target = str(sparse_model(tmp_path / "target.gguf", LLAMA_1B))
    draft_model = str(sparse_model(tmp_path / "draft.gguf", QWEN3_06B))
    ((line, state),) = planned(tmp_path, target=target)
    assert (line.startswith("needs RAM: 913 MB of "), state) == (True, "ok")
    both = planned(tmp_path, target=target, draft_model=draft_model)
    assert [state for _, state in both] == ["ok", "warning"]
    mmproj = tmp_path / "mmproj.gguf"
    sizes = {"image_size": 896, "patch_size": 14, "embedding_length": 1152}
    encoder = {f"vision.{name}": size for name, size in sizes.items()}
    mmproj.write_bytes(mmproj_file("image", width=2048, **encoder))
    ((line, _),) = planned(tmp_path, target=target, mmproj=str(mmproj))
    assert line.startswith("needs RAM: 951 MB of ")
    mmproj.write_bytes(mmproj_file("image", width=16))
    _, (line, state) = planned(tmp_path, target=target, mmproj=str(mmproj))[::-1]
    assert ("is for a model of width 16" in line, state) == (True, "warning")
    ((line, state),) = planned(tmp_path, pair="qwen2.5-coder-1.5b")
    assert (line.startswith("not on this machine"), state) == (True, "ok")
    ((line, state),) = planned(tmp_path, workers=("127.0.0.1:1", "127.0.0.1:2"))
    assert ("when 127.0.0.1:1, 127.0.0.1:2 will" in line, state) == (True, "ok")
    with pytest.raises(UsageError, match="choose one of"):
        planned(tmp_path, target=target, gpu_layers=None, devices=("CUDA7",), device=("CUDA7",))


def costs(role: Role, *seconds: float) -> Callable[[Path, LoadOptions, Role], StoredCosts | None]:
    def stored(_file: Path, options: LoadOptions, its: Role) -> StoredCosts | None:
        assert options.repack
        return StoredCosts(PassCosts((1, 16), seconds)) if its is role else None

    return stored


def widths(_file: Path, options: LoadOptions) -> SafeWidths:
    assert not options.repack
    return SafeWidths((1, 2, 4), {3: 0.25, 8: 1.5})


def test_the_speed_of_each_stored_model_as_far_as_it_was_measured(tmp_path: Path) -> None:
    assert list(doctor.speed(tmp_path)) == []
    (tmp_path / "blobs").mkdir()
    add(tmp_path / "blobs", b"model")
    (fact,) = doctor.speed(tmp_path, costs(Role.TARGET, 0.02, 0.15), widths)
    assert fact.value.startswith("20.0 ms per token, 150 ms for 16 at once; with --exact, ")
    assert "1, 2, 4 tokens are exact, other widths are off by up to 1.5" in fact.value
    for exact, text in (
        (SafeWidths((1,), {2: 0.0}, 2, 7, 1.2), "passes of 2 to 7 tokens are exact, and none"),
        (SafeWidths((1,), {2: 0.0}, price=1.9), "with --exact, nothing is drafted: passes of two"),
        (SafeWidths((1, 2), {}), "passes of 1, 2 tokens are exact"),
    ):
        (fact,) = doctor.speed(tmp_path, lambda *_: None, lambda *_, exact=exact: exact)
        assert text in fact.value
    (fact,) = doctor.speed(tmp_path, costs(Role.DRAFT_MODEL, 0.003, 0.02), lambda *_: None)
    assert fact.value == "3.0 ms per token as draft model"
    assert fact.state == "ok"
    known = StoredCosts(PassCosts((1, 16), (0.02, 0.15)), 1)
    (fact,) = doctor.speed(tmp_path, lambda *_: known, lambda *_: None)
    assert fact.state == "note"
    assert "measured while the machine was busy: the next start" in fact.value
    (fact,) = doctor.speed(tmp_path, lambda *_: None, lambda *_: None)
    assert fact.value.startswith("not measured yet")

    def reading(_: Path, options: LoadOptions) -> StoredCosts:
        return StoredCosts(PassCosts((1, 128), (0.02, 0.64 if options.repack else 0.4)))

    (fact,) = doctor.speed(tmp_path, lambda *_: None, lambda *_: None, reading)
    assert fact.value == "reads 320 tokens/s, by the faster of two copies"


seen: list[str] = []


@contextmanager
def serving(kind: str, status: int = 200, location: str = "") -> Iterator[str]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(str(self.headers))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            if location:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "HF_HUB_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def hub(
    monkeypatch: pytest.MonkeyPatch,
    endpoint: str,
    *,
    offline: bool = False,
    deadline_s: float = PATIENCE_S,
) -> Fact:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    return list(doctor.network(offline=offline, deadline_s=deadline_s))[-1]


LOGIN = "a web page came instead of the file: a login page of the network"


def test_a_hub_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, status, words, state in [
        ("application/json; charset=utf-8", 200, "answers", "ok"),
        ("text/html", 200, LOGIN, "warning"),
        ("text/plain", 302, LOGIN, "warning"),  # to a login page
        ("application/json", 503, "does not answer (HTTP 503); ", "warning"),
    ]:
        with serving("text/html") as portal, serving(kind, status, portal) as address:
            fact = hub(monkeypatch, address)
        assert (fact.name, fact.state) == ("hub 127.0.0.1", state)
        assert words in fact.value


def test_without_an_answer_it_says_what_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    for listens in [False, True]:
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            if listens:
                silent.listen()
            fact = hub(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}", deadline_s=0.5)
        assert fact.state == "warning"
        assert fact.value.endswith("; models on this machine work")


def test_no_token_is_sent_and_no_secret_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_s3cret")
    with serving("application/json") as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        seen.clear()
        facts = list(doctor.network(offline=False, deadline_s=PATIENCE_S))
        assert Fact("HF_TOKEN", "set") in facts
        assert "s3cret" not in f"{facts}{seen}"
        assert len(seen) == 1
    monkeypatch.setenv("HF_ENDPOINT", "http://me:s3cret@127.0.0.1:9")
    assert "s3cret" not in str(list(doctor.network(offline=True)))
    for proxy in ["http://me:s3cret", "socks9://me:s3cret@127.0.0.1:9"]:
        monkeypatch.setenv("HTTP_PROXY", proxy)
        fact = hub(monkeypatch, "http://hub.example")
        assert fact.state == "warning"
        assert "s3cret" not in fact.value


def test_offline_asks_nobody_and_no_address_needs_mending(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving("application/json") as address:
        seen.clear()
        assert hub(monkeypatch, address, offline=True).value == "not checked, offline"
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        assert hub(monkeypatch, address).value == "not checked, HF_HUB_OFFLINE"
        assert seen == []
    monkeypatch.delenv("HF_HUB_OFFLINE")
    assert hub(monkeypatch, "file:///etc/passwd").state == "broken"

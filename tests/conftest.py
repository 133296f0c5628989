"""Fixtures that need real weights, and hypothesis' profiles."""

import gc
import hashlib
import importlib
import os
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from localspec.models.pull import pull
from localspec.storage import network
from tests.vocabularies import real_vocabularies

# The programs of lab assert, and tests that run their short forms want to read why.
pytest.register_assert_rewrite("lab")

# Timed by nobody: these machines are noisy. In CI more examples, and the same ones every time.
_UNTIMED: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
}
settings.register_profile("default", **_UNTIMED, max_examples=40)
settings.register_profile("ci", **_UNTIMED, max_examples=60, derandomize=True, print_blob=True)
# Whoever runs the tests may have a registry and settings of their own.
os.environ["LOCALSPEC_CONFIG_DIR"] = os.path.join(os.devnull, "none")  # noqa: PTH118 - a variable
# Nor do tests belong among what drafting did on their machine.
os.environ["LOCALSPEC_TELEMETRY"] = "off"
# What a test starts loads its own models, whatever servers run here.
os.environ["LOCALSPEC_OWN"] = "on"
# Where more wants to run than there are cores, threads that spin at a barrier wait for one another's time slices:
# a pass of 6 ms takes seconds. A short spin costs a few percent where nothing else runs.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
# A shell's background job ignores Ctrl-C, and would hand that on to every process that a test starts.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without looking for garbage, and leave what was collected to the end: it is none."""
    gc.disable()
    _import_from_ones_own_place_on(session.config)
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _import_from_ones_own_place_on(config: pytest.Config) -> None:
    """Let each process that is to run all tests begin with other modules than its neighbours: what one has compiled, others load."""
    worker: dict[str, Any] = getattr(config, "workerinput", {})
    if not worker or config.args != config.getini("testpaths"):
        return
    files = sorted(Path(__file__).parent.rglob("test_*.py"))
    files = [each for each in files if not pytest_ignore_collect(each, config)]
    start = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for file in (*files[start:], *files[:start]):
        name = ".".join(file.relative_to(config.rootpath).with_suffix("").parts)
        with suppress(Exception, pytest.skip.Exception):  # which collecting reports
            importlib.import_module(name)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave unread what has slow tests alone where those that run by default are wanted: each process would import it."""
    if config.option.markexpr not in config.getini("addopts"):
        return None
    return _is_slow(collection_path) or None


@cache
def _is_slow(file: Path) -> bool:
    """Say whether a file marks all of its tests as slow, in one line."""
    if not file.name.startswith("test_") or file.suffix != ".py":
        return False
    return (
        re.search(r"^pytestmark = .*mark\.slow\b", file.read_text("utf-8"), re.MULTILINE)
        is not None
    )


@pytest.fixture(autouse=True)
def _open_network() -> Iterator[None]:
    """What a test closes, the next one finds as it was."""
    before = os.environ.get("HF_HUB_OFFLINE")
    yield
    if network.is_network_closed():
        network._closed = False
        os.environ.pop("HF_HUB_OFFLINE", None)
        if before is not None:
            os.environ["HF_HUB_OFFLINE"] = before


_WEIGHTS = {"smollm2_path", "six_layers_path", "vocabularies"}
_STARTERS = (
    "tests.warm",
    "tests.cli.command",
    "tests.engine.double",
    "tests.engine.talking",
    "tests.plugins.serve.serving",
    "tests.toolbox.mcp.boxes",
    "tests.tui.driving",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set the marks that follow from others, from fixtures, and from what a module imports."""
    seen: Counter[str] = Counter()
    for item in items:
        first = item.get_closest_marker("first")
        if first is not None:
            case = item.nodeid.partition("[")[0]
            if seen[case] >= first.args[0]:
                item.add_marker("slow")
            seen[case] += 1
        if _WEIGHTS & set(getattr(item, "fixturenames", ())):
            item.add_marker("weights")
        if isinstance(item, pytest.Function) and _starts_processes(item.module):
            item.add_marker("process")


@cache
def _starts_processes(module: ModuleType) -> bool:
    """Say whether a module imports what starts processes, itself or by what it has from others of the tests."""
    names = {getattr(each, "__module__", None) for each in vars(module).values()}
    names |= {each.__name__ for each in vars(module).values() if isinstance(each, ModuleType)}
    if {*_STARTERS, "subprocess", "multiprocessing"} & names:
        return True
    ours = {str(name) for name in names if str(name).startswith("tests.")} - {module.__name__}
    return any(_starts_processes(sys.modules[name]) for name in ours if name in sys.modules)


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The file of SmolLM2-135M, fetched on first use."""
    return pull("smollm2-135m")[0]


@pytest.fixture(scope="session")
def seeing_models(
    smollm2_path: Path, pytestconfig: pytest.Config
) -> Iterator[Callable[[str], tuple[Path, Path]]]:
    """What returns SmolLM2 and a small encoder of a kind; in pytest's cache, so that all processes measure the same files, once."""
    # Not above: what lab asserts is rewritten only where it was not imported before.
    from tests.support import encoders  # noqa: PLC0415

    made_by = hashlib.sha256(Path(encoders.__file__).read_bytes()).hexdigest()[:12]
    with TemporaryDirectory() as folder:
        caching = getattr(pytestconfig, "cache", None)
        kept = Path(folder) if caching is None else caching.mkdir(f"encoders-{made_by}")

        def once(name: str, make: Callable[[Path], Path]) -> Path:
            if not (kept / name).exists():
                with TemporaryDirectory(dir=kept) as fresh:  # others may be making it, too
                    make(Path(fresh)).replace(kept / name)
            return kept / name

        @cache
        def models(kind: str) -> tuple[Path, Path]:
            mrope = kind == "grid"
            target = once(
                "mrope.gguf" if mrope else "sees.gguf",
                lambda fresh: encoders.seeing_target(smollm2_path, fresh, mrope=mrope),
            )
            name = f"{kind}.gguf"
            return target, once(
                name, lambda fresh: encoders.write_encoder(kind, target, fresh / name)
            )

        yield models


@pytest.fixture(scope="session")
def six_layers_path(seeing_models: Callable[[str], tuple[Path, Path]]) -> Path:
    """SmolLM2 with six of its layers: its kernels and its tokenizer, in a third of the time; what it says makes no sense."""
    return seeing_models("plain")[0]


@pytest.fixture(scope="session")
def qwen_paths() -> tuple[Path, Path]:
    """The files of the Qwen2.5-Coder pair: target, draft model."""
    target, draft_model = pull("qwen2.5-coder-1.5b")
    return target, draft_model


@pytest.fixture(scope="session")
def qwen_target_path(qwen_paths: tuple[Path, Path]) -> Path:
    """The file of Qwen2.5-Coder-1.5B."""
    return qwen_paths[0]


@pytest.fixture(scope="session")
def qwen_draft_path(qwen_paths: tuple[Path, Path]) -> Path:
    """The file of Qwen2.5-Coder-0.5B."""
    return qwen_paths[1]


@pytest.fixture(scope="session")
def vocabularies() -> dict[str, Path]:
    """Nineteen real tokenizers by name, fetched on first use."""
    return real_vocabularies()

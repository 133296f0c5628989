from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.errors import IntegrityError, ModelUnavailable
from localspec.models import obtain as obtaining
from localspec.models.entries import HubSource, ModelEntry, WheelSource
from localspec.models.obtain import obtain
from localspec.models.store import Store
from localspec.models.transfer import Progress, SourceFailedError
from tests.models.sources import add, entry_for

DATA = b"model" * 100
HUB = HubSource("owner/toy-GGUF", "toy.gguf", None)
WHEELS = WheelSource("toy-part{part}==1.0", "*/part{part}.bin", 2)
ENTRY = entry_for(DATA, HUB, WHEELS)

Report = Callable[[int], None]
Source = Callable[[object, ModelEntry, Store, bool, Report], Path]


def failing(error: Exception) -> Source:
    def source(*_: object) -> Path:
        raise error

    return source


def delivering(_: object, entry: ModelEntry, store: Store, __: bool, report: Report) -> Path:
    report(len(DATA) + 7)  # packed and unpacked bytes together may be more
    return add(store, entry, DATA)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> Callable[[Source, Source], None]:
    def use(hub: Source, wheels: Source) -> None:
        monkeypatch.setattr(obtaining, "from_hub", hub)
        monkeypatch.setattr(obtaining, "from_wheels", wheels)

    return use


Use = Callable[[Source, Source], None]


def test_what_is_here_is_not_fetched(store: Store, sources: Use) -> None:
    sources(delivering, delivering)
    path = obtain(ENTRY, store)
    sources(failing(AssertionError()), failing(AssertionError()))
    assert obtain(ENTRY, store, offline=True) == path


def test_the_first_source_that_delivers_ends_the_search(store: Store, sources: Use) -> None:
    sources(delivering, failing(AssertionError()))
    assert obtain(ENTRY, store).read_bytes() == DATA


@pytest.mark.parametrize(
    "error", [SourceFailedError("no connection"), IntegrityError("bad"), OSError(28, "No space")]
)
def test_a_source_that_fails_is_followed_by_the_next(
    store: Store, sources: Use, error: Exception
) -> None:
    sources(failing(error), delivering)
    seen: list[Progress] = []
    assert obtain(ENTRY, store, progress=seen.append).read_bytes() == DATA
    reason = f"hub owner/toy-GGUF: {getattr(error, 'strerror', None) or error}"
    assert seen == [Progress("toy", 500, 500, "wheels toy-part…==1.0", reason)]


def test_when_all_fail_one_line_says_what_each_answered(store: Store, sources: Use) -> None:
    sources(failing(SourceFailedError("no connection")), failing(OSError(28, "No space left")))
    with pytest.raises(ModelUnavailable) as caught:
        obtain(ENTRY, store)
    assert type(caught.value) is ModelUnavailable
    assert str(caught.value) == (
        "toy (0 MB) could not be downloaded (hub owner/toy-GGUF: "
        "no connection; wheels toy-part…==1.0: No space left): to try again, run "
        "`localspec pull toy`, or give the path of a .gguf file"
    )


def test_wrong_bytes_from_any_source_are_an_integrity_error(store: Store, sources: Use) -> None:
    wrong = failing(IntegrityError("toy: the size is 1 bytes, not 500 bytes"))
    sources(wrong, failing(SourceFailedError("no connection")))
    with pytest.raises(IntegrityError, match="hub owner/toy-GGUF: the size is 1 bytes, not 500"):
        obtain(ENTRY, store)


def test_offline_is_passed_on_and_advised(store: Store, sources: Use) -> None:
    asked: list[bool] = []

    def source(_: object, __: ModelEntry, ___: Store, offline: bool, ____: Report) -> Path:
        asked.append(offline)
        raise SourceFailedError("offline")

    sources(source, source)
    with pytest.raises(ModelUnavailable, match="once online, run `localspec pull toy`"):
        obtain(ENTRY, store, offline=True)
    assert asked == [True, True]


@pytest.mark.parametrize("error", [OSError("closed pipe"), RuntimeError("cancelled")])
def test_what_the_callback_raises_ends_the_download(
    store: Store, sources: Use, error: Exception
) -> None:
    def cancel(_: Progress) -> None:
        raise error

    sources(delivering, failing(AssertionError("the next source was asked")))
    with pytest.raises(type(error), match=str(error)):
        obtain(ENTRY, store, progress=cancel)
    assert store.path_of(ENTRY) is None

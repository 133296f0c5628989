"""Engine doubles are started in warm processes, and screens have colours."""

import pytest

from localspec.engine import link
from tests.engine.double import WARM


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Screens have colours, whatever the user wants; but where a test says otherwise."""
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.fixture(autouse=True)
def warm_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "subprocess", WARM)

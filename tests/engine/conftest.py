"""Engine doubles are started in warm processes."""

import pytest

from localspec.engine import link
from tests.engine.double import WARM


@pytest.fixture(autouse=True)
def warm_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "subprocess", WARM)

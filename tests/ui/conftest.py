"""Engine doubles are started in warm processes."""

import pytest

from localspec.engine import process
from tests.engine.double import WARM


@pytest.fixture(autouse=True)
def warm_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "subprocess", WARM)

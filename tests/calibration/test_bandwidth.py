from pathlib import Path

import pytest

from localspec.calibration import bandwidth
from localspec.calibration.bandwidth import calibrated_bandwidth
from localspec.decoding.costs import PassCosts
from localspec.decoding.model import Role
from localspec.options import LoadOptions

COSTS = {Path("small"): 0.001, Path("large"): 0.1, Path("larger"): 0.25}


def test_passes_of_the_model_that_is_read_fastest_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def costs(file: Path, _options: LoadOptions, role: Role) -> PassCosts | None:
        assert role is Role.TARGET
        return PassCosts((1,), (COSTS[file],)) if file in COSTS else None

    monkeypatch.setattr(bandwidth, "cached_costs", costs)
    sizes = {"small": 10**8, "large": 10**9, "larger": 2 * 10**9, "unmeasured": 10**12}
    models = [(Path(name), size) for name, size in sizes.items()]
    assert calibrated_bandwidth(models, LoadOptions()) == pytest.approx(10e9)
    assert calibrated_bandwidth(models[:1], LoadOptions()) is None
    assert calibrated_bandwidth([], LoadOptions()) is None

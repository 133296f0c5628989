"""What was measured of each stored model is told; what was not, too."""

import hashlib
from pathlib import Path

from localspec.calibration.calibrated import StoredCosts
from localspec.decoding.costs import PassCosts
from localspec.decoding.model import Role
from localspec.diagnosis.doctor import speed
from localspec.llama.safe_widths import SafeWidths
from localspec.options import LoadOptions


def _stored(root: Path) -> None:
    (root / "blobs").mkdir()
    (root / "blobs" / hashlib.sha256(b"model").hexdigest()).write_bytes(b"model")


def _costs(_file: Path, options: LoadOptions, role: Role) -> StoredCosts | None:
    assert options.repack
    return StoredCosts(PassCosts((1, 16), (0.02, 0.15))) if role is Role.TARGET else None


def _widths(_file: Path, options: LoadOptions) -> SafeWidths:
    assert not options.repack
    return SafeWidths((1, 2, 4), {3: 0.25, 8: 1.5})


def test_costs_and_exact_widths_are_told(tmp_path: Path) -> None:
    _stored(tmp_path)
    (fact,) = speed(tmp_path, _costs, _widths)
    assert fact.value == (
        "20.0 ms per token, 150 ms for 16 at once; "
        "with --exact, passes of 1, 2, 4 tokens are exact, other widths are off by up to 1.5"
    )


def test_a_model_that_was_never_measured_is_named_as_such(tmp_path: Path) -> None:
    _stored(tmp_path)
    (fact,) = speed(tmp_path, lambda *_: None, lambda *_: None)
    assert fact.value.startswith("not measured yet")


def test_a_draft_model_has_its_own_cost(tmp_path: Path) -> None:
    _stored(tmp_path)
    costs = {Role.TARGET: None, Role.DRAFT_MODEL: StoredCosts(PassCosts((1, 16), (0.003, 0.02)))}
    (fact,) = speed(tmp_path, lambda _file, _options, role: costs[role], lambda *_: None)
    assert fact.value == "3.0 ms per token as draft model"


def test_an_empty_store_has_nothing_to_tell(tmp_path: Path) -> None:
    assert list(speed(tmp_path)) == []

"""From the cache, else measured: with measuring that is counted, and on real weights."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from localspec.calibration import calibrated as module
from localspec.calibration.calibrated import (
    StoredCosts,
    calibrated,
    calibrated_widths,
    stored_costs,
    stored_widths,
)
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.costs import PassCosts
from localspec.decoding.model import Role
from localspec.llama.calibrate import OF_DRAFT_MODEL, OF_TARGET, Measured
from localspec.llama.model import LlamaModel
from localspec.llama.safe_widths import SafeWidths
from localspec.options import LoadOptions


@dataclass(frozen=True, slots=True)
class Weights:
    """What calibration asks of a model."""

    path: Path
    options: LoadOptions = field(default_factory=LoadOptions)
    lora: Path | None = None


@dataclass(slots=True)
class Measuring:
    """Stands in for measuring, and counts."""

    counted: list[str] = field(default_factory=list)
    spread: float | None = 1.01

    def costs(
        self, model: Any, _options: Any, schedule: Any, _cancel: Any, on_progress: Any
    ) -> Measured:
        on_progress(1.0)
        self.counted.append(f"{model.path.name} {len(schedule.widths)}")
        nth = len(self.counted)
        return Measured(PassCosts((1, 2), (0.01 * nth, 0.02 * abs(nth - 2.5))), self.spread)

    def widths(self, model: Any, *_: Any) -> SafeWidths:
        self.counted.append(f"{model.path.name} widths")
        return SafeWidths((1, 2, 3), {4: 0.5})


def weights(path: Path, **options: Any) -> LlamaModel:
    if not path.exists():
        path.touch()
    return cast(LlamaModel, Weights(path, LoadOptions(**options)))


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def measuring(data: Path, monkeypatch: pytest.MonkeyPatch) -> Measuring:
    del data
    measuring = Measuring()
    monkeypatch.setattr(module, "measure_pass_costs", measuring.costs)
    monkeypatch.setattr(module, "safe_widths", measuring.widths)
    monkeypatch.setattr(module, "taken_by_others", lambda: (0.0, 2))
    return measuring


def test_a_pair_is_measured_once(measuring: Measuring, tmp_path: Path) -> None:
    target, draft_model = weights(tmp_path / "big"), weights(tmp_path / "small")
    first = calibrated(target, draft_model)
    assert calibrated(target, draft_model) == first
    assert first.notes == ()
    counts = (len(OF_TARGET.widths), len(OF_DRAFT_MODEL.widths))
    assert measuring.counted == [f"big {counts[0]}", f"small {counts[1]}"]


def test_a_new_pair_uses_what_is_known_of_its_target(measuring: Measuring, tmp_path: Path) -> None:
    target = weights(tmp_path / "big")
    alone = calibrated(target)
    assert alone.costs.draft_model is None
    paired = calibrated(target, weights(tmp_path / "small"))
    assert paired.costs.target == alone.costs.target
    assert len(measuring.counted) == 2


def test_one_file_in_both_roles_is_measured_in_both(measuring: Measuring, tmp_path: Path) -> None:
    model = weights(tmp_path / "both")
    found = calibrated(model, model)
    assert found.costs.target != found.costs.draft_model
    assert len(measuring.counted) == 2


def test_other_options_are_measured_for_themselves(measuring: Measuring, tmp_path: Path) -> None:
    calibrated(weights(tmp_path / "big"))
    calibrated(weights(tmp_path / "big", threads=1))
    calibrated(weights(tmp_path / "big", n_ctx=64, max_rows=3))
    assert len(measuring.counted) == 2


@pytest.mark.usefixtures("measuring")
def test_costs_are_known_before_a_model_is_loaded(tmp_path: Path) -> None:
    file, options = tmp_path / "big", LoadOptions()
    assert stored_costs(file, options, Role.TARGET) is None  # nor is the file there
    found = calibrated(weights(file))
    assert stored_costs(file, options, Role.TARGET) == StoredCosts(found.costs.target)
    assert stored_costs(file, options, Role.DRAFT_MODEL) is None
    assert stored_costs(file, replace(options, kv_type="bf16"), Role.TARGET) is None


@pytest.mark.parametrize("spread", [None, 1.9])
def test_a_disturbed_measurement_is_repeated_by_the_next_two_runs_and_the_fastest_counts(
    measuring: Measuring, tmp_path: Path, spread: float | None
) -> None:
    measuring.spread = spread
    target = weights(tmp_path / "big")
    seen = [calibrated(target).costs.target.seconds for _ in range(5)]
    assert len(measuring.counted) == 3
    assert seen[0] == pytest.approx((0.01, 0.03))
    assert seen[1] == seen[2] == seen[4] == pytest.approx((0.01, 0.01))


def test_the_last_repetition_waits_until_other_programs_rest(
    measuring: Measuring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring.spread, others = 1.9, [1.2]
    monkeypatch.setattr(module, "taken_by_others", lambda: (others[0], 2))
    target = weights(tmp_path / "big")
    seen = [calibrated(target).costs for _ in range(4)]
    assert len(measuring.counted) == 2
    assert not seen[-1].sure
    others[0] = 0.1
    assert calibrated(target).costs.sure
    assert len(measuring.counted) == 3


def test_progress_says_that_a_model_is_measured_again(measuring: Measuring, tmp_path: Path) -> None:
    measuring.spread = 7.0
    shares: list[tuple[Role, float, bool]] = []
    for _ in range(2):
        calibrated(weights(tmp_path / "big"), on_progress=lambda *share: shares.append(share))
    assert shares == [(Role.TARGET, 1.0, False), (Role.TARGET, 1.0, True)]


def test_a_disturbed_measurement_is_repeated_until_an_undisturbed_one(
    measuring: Measuring, tmp_path: Path
) -> None:
    measuring.spread = 7.0
    target = weights(tmp_path / "big")
    calibrated(target)
    measuring.spread = 1.02
    calibrated(target)
    calibrated(target)
    assert len(measuring.counted) == 2


@pytest.mark.parametrize("damage", [b"", b"{", b'{"costs": {}, "doubts": 0}', b"\0" * 99])
def test_a_damaged_cache_is_measured_anew_and_mended(
    measuring: Measuring, data: Path, tmp_path: Path, damage: bytes
) -> None:
    target = weights(tmp_path / "big")
    calibrated(target)
    (entry,) = (data / "calibration").iterdir()
    entry.write_bytes(damage)
    assert stored_costs(target.path, target.options, Role.TARGET) is None
    again = calibrated(target)
    assert len(measuring.counted) == 2
    assert stored_costs(target.path, target.options, Role.TARGET) == StoredCosts(again.costs.target)


def test_a_cache_that_cannot_be_written_is_mentioned_once(
    measuring: Measuring, data: Path, tmp_path: Path
) -> None:
    data.mkdir()
    (data / "calibration").write_text("in the way")
    found = calibrated(weights(tmp_path / "big"), weights(tmp_path / "small"))
    assert len(measuring.counted) == 2
    (note,) = found.notes
    assert "measured again" in note
    assert "\n" not in note


def test_a_note_of_the_target_stays_where_the_draft_model_has_none(
    measuring: Measuring, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = iter(["could not be saved", ""])
    monkeypatch.setattr(f"{calibrated.__module__}._store", lambda _key, _value: next(notes))
    found = calibrated(weights(tmp_path / "big"), weights(tmp_path / "small"))
    assert found.notes == ("could not be saved",)


def test_a_data_directory_that_cannot_be_used_is_mentioned_too(
    measuring: Measuring, data: Path, tmp_path: Path
) -> None:
    data.write_text("a file")
    found = calibrated(weights(tmp_path / "big"), weights(tmp_path / "small"))
    assert len(measuring.counted) == 2
    assert len(found.notes) == 1
    assert stored_costs(tmp_path / "big", LoadOptions(), Role.TARGET) is None


def test_cancelling_keeps_what_is_whole_and_nothing_else(
    measuring: Measuring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, draft_model = weights(tmp_path / "big"), weights(tmp_path / "small")

    def cancelled(model: Any, *rest: Any) -> Measured:
        if model is draft_model:
            raise Cancelled
        return measuring.costs(model, *rest)

    monkeypatch.setattr(module, "measure_pass_costs", cancelled)
    with pytest.raises(Cancelled):
        calibrated(target, draft_model, CancelFlag())
    assert stored_costs(target.path, target.options, Role.TARGET) is not None
    assert stored_costs(draft_model.path, draft_model.options, Role.DRAFT_MODEL) is None


def test_safe_widths_are_kept_likewise(measuring: Measuring, tmp_path: Path) -> None:
    model = weights(tmp_path / "big")
    assert stored_widths(model.path, model.options) is None
    found = calibrated_widths(model)
    assert calibrated_widths(model) == stored_widths(model.path, model.options) == found
    assert measuring.counted == ["big widths"]


@pytest.fixture
def real(smollm2_path: Path, data: Path) -> Iterator[LlamaModel]:
    del data
    model = LlamaModel(smollm2_path, LoadOptions(threads=1).exact())
    yield model
    model.close()


@pytest.mark.slow
@pytest.mark.weights
def test_real_weights_are_measured_and_then_never_again(
    real: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = {
        role: replace(schedule, widths=(1, 2, 3, 4), needed=4, budget_s=0.2, most_s=99.0)
        for role, schedule in module._SCHEDULES.items()
    }
    monkeypatch.setattr(module, "_SCHEDULES", short)
    monkeypatch.setattr(module, "taken_by_others", lambda: None)
    shares: list[tuple[Role, float, bool]] = []
    calibrated(real, real, on_progress=lambda *share: shares.append(share))
    assert {role for role, *_ in shares} == {Role.TARGET, Role.DRAFT_MODEL}
    calibrated(real, real)  # where tests run, other programs do, too
    known = calibrated(real, real)
    monkeypatch.setattr(module, "measure_pass_costs", None)
    assert calibrated(real, real) == known
    stored = stored_costs(real.path, real.options, Role.TARGET)
    assert stored is not None
    assert stored.costs == known.costs.target
    assert known.costs.target.widths[:4] == (1, 2, 3, 4)

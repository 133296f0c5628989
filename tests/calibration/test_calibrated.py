"""From the cache, else measured: with measuring that is counted, and on real weights."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from localspec.calibration import calibrated as module
from localspec.calibration.calibrated import (
    Measurements,
    StoredCosts,
    calibrated,
    calibrated_widths,
    stored_costs,
    stored_widths,
)
from localspec.calibration.key import key_of
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.costs import PassCosts
from localspec.decoding.model import Role
from localspec.llama.calibrate import OF_DRAFT_MODEL, OF_TARGET, Measured
from localspec.llama.model import LlamaModel
from localspec.llama.safe_widths import SafeWidths
from localspec.options import LoadOptions

Weights = Callable[..., LlamaModel]


@dataclass(frozen=True, slots=True)
class Unloaded:
    """What calibration needs of a model."""

    path: Path
    options: LoadOptions
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


@pytest.fixture
def weights(tmp_path: Path) -> Weights:
    def made(name: str = "big", **options: Any) -> LlamaModel:
        if not (tmp_path / name).exists():
            (tmp_path / name).touch()
        return cast(LlamaModel, Unloaded(tmp_path / name, LoadOptions(**options)))

    return made


def test_each_is_measured_once(measuring: Measuring, weights: Weights, tmp_path: Path) -> None:
    file, options = tmp_path / "big", LoadOptions()
    assert stored_costs(file, options, Role.TARGET) is None  # nor is the file there
    target, draft_model = weights(), weights("small")
    alone = calibrated(target)
    assert alone.costs.draft_model is None
    assert stored_costs(file, options, Role.TARGET) == StoredCosts(alone.costs.target)
    assert stored_costs(file, options, Role.DRAFT_MODEL) is None
    assert stored_costs(file, replace(options, kv_type="bf16"), Role.TARGET) is None
    paired = calibrated(target, draft_model)
    assert calibrated(target, draft_model) == paired
    assert (paired.notes, paired.costs.target) == ((), alone.costs.target)
    counts = [f"big {len(OF_TARGET.widths)}", f"small {len(OF_DRAFT_MODEL.widths)}"]
    assert measuring.counted == counts
    both = calibrated(draft_model, draft_model)
    assert both.costs.target != both.costs.draft_model
    calibrated(weights(n_ctx=64, max_rows=3))
    assert len(measuring.counted) == 3
    calibrated(weights(threads=1))
    assert len(measuring.counted) == 4


@pytest.mark.parametrize("spread", [None, 1.9])
def test_a_repetition(measuring: Measuring, weights: Weights, spread: float | None) -> None:
    measuring.spread, shares = spread, list[tuple[Role, float, bool]]()

    def seconds() -> tuple[float, ...]:
        return calibrated(weights(), on_progress=lambda *it: shares.append(it)).costs.target.seconds

    assert seconds() == pytest.approx((0.01, 0.03))
    assert [seconds() for _ in range(4)] == [pytest.approx((0.01, 0.01))] * 4
    assert shares == [(Role.TARGET, 1.0, again) for again in (False, True, True)]


def test_the_last_repetition_waits_until_other_programs_rest_and_an_undisturbed_one_ends_them(
    measuring: Measuring, weights: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring.spread, others = 1.9, [1.2]
    monkeypatch.setattr(module, "taken_by_others", lambda: (others[0], 2))
    costs = [calibrated(weights()).costs for _ in range(4)]
    assert (len(measuring.counted), costs[-1].sure) == (2, False)
    others[0] = 0.1
    assert calibrated(weights()).costs.sure
    assert len(measuring.counted) == 3
    for spread in (7.0, 1.02, 1.02):
        measuring.spread = spread
        calibrated(weights("other"))
    assert len(measuring.counted) == 5


def costs(widths: str, seconds: str, doubts: str = "0") -> bytes:
    body = f'{{"widths": {widths}, "seconds": {seconds}}}'
    return f'{{"costs": {body}, "doubts": {doubts}}}'.encode()


DAMAGE = [
    *(b"", b"{", b'{"costs": {}, "doubts": 0}', b"\0" * 99, b"\xff\xfe\x00", b"null"),
    *(b'{"key": {}, "value": {}}', b"[" * 60_000, b" " * 70_000 + b"{}"),
    *(costs("[1, 2]", "[0.1]"), costs("[1, 2]", "[0.1, 0.0]"), costs("[2]", "[0.1]")),
    *(costs("[1]", '["0.1"]'), costs("[1]", "[NaN]"), costs("[1]", "[0.1]", "null")),
    *(b'{"widths": [], "differences": {}}', b'{"widths": [2], "differences": {}}'),
    b'{"widths": [1, 2], "differences": {"2": 0.1}}',
    b'{"widths": [1], "differences": {"two": 0.1}}',
]


def test_a_damaged_cache_is_mended(measuring: Measuring, data: Path, weights: Weights) -> None:
    target, folder = weights(), data / "calibration"
    calibrated(target)
    calibrated_widths(target)
    assert {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for damage in DAMAGE:
        for entry in folder.iterdir():
            entry.write_bytes(damage)
        assert stored_costs(target.path, target.options, Role.TARGET) is None, damage
        assert stored_widths(target.path, target.options) is None, damage
        before, again = len(measuring.counted), calibrated(target).costs.target
        assert len(measuring.counted) == before + 1
        assert stored_costs(target.path, target.options, Role.TARGET) == StoredCosts(again)


@pytest.mark.usefixtures("measuring")
def test_a_part_and_what_is_no_file_count_as_nothing(data: Path, weights: Weights) -> None:
    target = weights()
    calibrated(target)
    (entry,) = (data / "calibration").iterdir()
    whole = entry.read_bytes()
    for length in range(len(whole)):
        entry.write_bytes(whole[:length])
        assert stored_costs(target.path, target.options, Role.TARGET) is None
    entry.unlink()
    os.mkfifo(entry)  # reading it would wait for ever
    assert stored_costs(target.path, target.options, Role.TARGET) is None


@pytest.mark.parametrize("in_the_way", ["calibration", "."])
def test_a_cache_that_cannot_be_written_is_mentioned(
    measuring: Measuring, data: Path, weights: Weights, in_the_way: str
) -> None:
    (data / in_the_way).parent.mkdir(exist_ok=True)
    (data / in_the_way).write_text("a file")
    (note,) = calibrated(weights(), weights("small")).notes
    assert len(measuring.counted) == 2
    assert "measured again" in note
    assert "\n" not in note
    assert stored_costs(weights().path, LoadOptions(), Role.TARGET) is None


def test_safe_widths_are_stored_too_and_a_note_of_the_target_stays(
    measuring: Measuring, weights: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = weights()
    assert stored_widths(model.path, model.options) is None
    widths = calibrated_widths(model)
    assert calibrated_widths(model) == stored_widths(model.path, model.options) == widths
    assert measuring.counted == ["big widths"]
    notes = iter(["could not be saved", ""])
    monkeypatch.setattr(module, "_store", lambda _key, _value: next(notes))
    assert calibrated(weights(), weights("small")).notes == ("could not be saved",)


def test_widths_that_were_judged_by_logits_alone_are_measured_again(
    measuring: Measuring, data: Path, weights: Weights
) -> None:
    model = weights()
    before = module._path(key_of("exact widths", model.path, model.options))
    before.parent.mkdir(parents=True)
    before.write_bytes(b'{"widths": [1, 2, 3, 4, 5], "differences": {}, "fixed": 0}')
    assert stored_widths(model.path, model.options) is None
    assert calibrated_widths(model).widths == (1, 2, 3)
    assert measuring.counted == ["big widths"]
    assert before.parent == data / "calibration"


def test_cancelling_stores_what_is_whole_and_nothing_else(
    measuring: Measuring, weights: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, draft_model = weights(), weights("small")

    def cancelled(model: Any, *rest: Any) -> Measured:
        if model is draft_model:
            raise Cancelled
        return measuring.costs(model, *rest)

    monkeypatch.setattr(module, "measure_pass_costs", cancelled)
    with pytest.raises(Cancelled):
        calibrated(target, draft_model, CancelFlag())
    assert stored_costs(target.path, target.options, Role.TARGET) is not None
    assert stored_costs(draft_model.path, draft_model.options, Role.DRAFT_MODEL) is None


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.usefixtures("data")
def test_real_weights(smollm2_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = {
        role: replace(schedule, widths=(1, 2, 3, 4), needed=4, budget_s=0.2, most_s=99.0)
        for role, schedule in module._SCHEDULES.items()
    }
    monkeypatch.setattr(module, "_SCHEDULES", short)
    monkeypatch.setattr(module, "taken_by_others", lambda: None)
    model, roles = LlamaModel(smollm2_path, LoadOptions(threads=1).exact()), set[Role]()
    calibrated(model, model, on_progress=lambda role, *_: roles.add(role))
    assert roles == {Role.TARGET, Role.DRAFT_MODEL}
    calibrated(model, model)  # where tests run, other programs do, too
    known = calibrated(model, model)
    monkeypatch.setattr(module, "measure_pass_costs", None)
    assert calibrated(model, model) == known
    stored = stored_costs(model.path, model.options, Role.TARGET)
    assert stored is not None
    assert stored.costs == known.costs.target
    assert known.costs.target.widths[:4] == (1, 2, 3, 4)
    model.close()


@pytest.mark.parametrize(
    ("doubts", "busy", "known"),
    [(0, False, True), (1, True, True), (1, False, False), (2, True, False)],
)
def test_a_draft_model_that_is_to_be_measured_again_is_as_one_that_never_was(
    monkeypatch: pytest.MonkeyPatch, doubts: int, busy: bool, known: bool
) -> None:
    """By what a busy machine made of it, it would stay out, and never be measured again."""
    stored = StoredCosts(PassCosts((1,), (0.1,)), doubts)
    monkeypatch.setattr(module, "stored_costs", lambda *_: stored)
    monkeypatch.setattr(module, "taken_by_others", lambda: (1.5 if busy else 0.0, 2))
    asked = Path("any.gguf"), LoadOptions()
    assert (Measurements().of(*asked, Role.DRAFT_MODEL) is not None) is known
    assert Measurements().of(*asked, Role.TARGET) == stored

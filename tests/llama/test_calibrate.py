"""Measuring what passes cost, on real weights."""

from dataclasses import replace
from pathlib import Path

import pytest

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.llama.calibrate import OF_DRAFT_MODEL, OF_TARGET, measure_pass_costs
from localspec.llama.model import LlamaModel
from localspec.llama.sequence import LlamaContext
from localspec.options import LoadOptions
from tests.llama.tiny_mamba import write

SHORT = replace(OF_TARGET, widths=(1, 2, 8, 64), needed=4, budget_s=0.5, most_s=99.0)


@pytest.mark.slow
@pytest.mark.weights
def test_a_real_model_has_costs_and_keeps_what_its_own_context_knows(
    smollm2: LlamaModel, context: LlamaContext, tokens: list[int]
) -> None:
    context.prefill(tokens)
    costs = measure_pass_costs(smollm2, replace(smollm2.options, threads=1), SHORT).costs
    assert costs.widths == (1, 2, 8, 64)
    assert all(0 < seconds < 60 for seconds in costs.seconds)
    assert context.common_prefix(tokens) == len(tokens)


@pytest.mark.slow
@pytest.mark.weights
def test_a_draft_model_is_measured_with_one_row(smollm2: LlamaModel) -> None:
    schedule = replace(OF_DRAFT_MODEL, budget_s=0.1, needed=7, most_s=99.0)
    costs = measure_pass_costs(smollm2, replace(smollm2.options, threads=1), schedule).costs
    assert costs.widths == tuple(sorted(OF_DRAFT_MODEL.widths))


@pytest.mark.weights
def test_measuring_can_be_cancelled(smollm2: LlamaModel) -> None:
    cancel = CancelFlag()
    with pytest.raises(Cancelled):
        measure_pass_costs(
            smollm2, replace(smollm2.options, threads=1), SHORT, cancel, lambda _share: cancel.set()
        )


def test_a_recurrent_model_is_measured_too(tmp_path: Path) -> None:

    model = LlamaModel(write(tmp_path / "mamba.gguf"), LoadOptions(threads=1))
    costs = measure_pass_costs(model, model.options, SHORT).costs
    assert costs.widths[0] == 1
    model.close()

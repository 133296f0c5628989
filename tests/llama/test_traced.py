"""What a pass computes inside, node by node, on made models whose logits hide it."""

from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest

from localspec.decoding.model import Logits
from localspec.llama import safe_widths as module
from localspec.llama.model import LlamaModel
from localspec.llama.safe_widths import SafeWidths, safe_widths
from localspec.llama.sequence import LlamaContext
from localspec.llama.traced import TracedContext, _TracedNative
from localspec.options import LoadOptions
from tests.support.mixtures import mixture

EXACT = LoadOptions(n_ctx=512, threads=1, max_rows=16).exact()
DEPTHS = (60, 300)
ALL = tuple(range(1, 17))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mixtures")


def measured(path: Path, most_price: float = inf, options: LoadOptions = EXACT) -> SafeWidths:
    model = LlamaModel(path, options)
    try:
        return safe_widths(model, options, depths=DEPTHS, most_price=most_price)
    finally:
        model.close()


def test_a_router_differs_in_passes_of_two_and_the_logits_do_not_tell(folder: Path) -> None:
    model = LlamaModel(mixture(folder, "qwen3moe", 2, "Q8_0"), EXACT)
    tokens = list(range(1, 60))
    rows = list[tuple[Logits, Logits]]()
    for context in (LlamaContext(model, None, EXACT), TracedContext(model, None, EXACT)):
        context.prefill(tokens[:-2])
        alone = [context.logits(tokens[:end], 1)[0].copy() for end in (len(tokens) - 1, None)]
        context.truncate(len(tokens) - 2)
        rows.append((np.stack(alone), context.logits(tokens, 2).copy()))
        context.close()
    model.close()
    (single, pair), (traced_single, traced_pair) = rows
    np.testing.assert_array_equal(single.view(np.uint32), pair.view(np.uint32))
    np.testing.assert_array_equal(traced_single, traced_pair)  # as numbers
    assert (traced_single.view(np.uint32) != traced_pair.view(np.uint32)).any(axis=1).all()
    np.testing.assert_array_equal(traced_pair[:, : pair.shape[1]], pair)


@pytest.mark.parametrize(
    ("architecture", "kind", "most"),
    [
        ("qwen3moe", "Q8_0", 16),
        ("qwen3moe", "Q4_K_M", 7),
        ("gpt-oss", "MXFP4", 16),
        ("gemma4", "Q8_0", 16),
        ("llama", "F16", 16),
        ("llama", "BF16", 16),
        ("llama", "F32", 16),
        ("llama", "IQ4_NL", 7),
        # The experts' kernel is another one from eight rows on, which one expert has where all tokens of a pass choose it.
        ("qwen3moe", "Q8_0+Q4_K", 7),
    ],
)
def test_where_two_tokens_differ_from_one_all_passes_of_two_or_more_are_equal(
    folder: Path, architecture: str, kind: str, most: int
) -> None:
    found = measured(mixture(folder, architecture, 2, kind))
    assert (found.widths, found.fixed, found.most, found.longest) == ((1,), 2, most, most)
    assert found.price > 0.5


def test_where_two_tokens_cost_too_much_nothing_is_drafted(folder: Path) -> None:
    dear = measured(mixture(folder, "llama", 2, "BF16"), most_price=0.1)
    assert (dear.widths, dear.fixed, dear.longest) == ((1,), 0, 1)
    assert dear.price > 0.5


@pytest.mark.parametrize(
    ("kind", "kv_type", "widths"),
    [
        ("Q8_0", "f16", ALL),
        ("Q8_0", "q8_0", ALL),
        ("Q8_0", "q4_0", ALL),
        ("Q4_1", "q5_1", ALL[:7]),  # its head is Q6_K
        ("Q4_K_M", "q8_0", ALL[:7]),
        ("IQ4_XS", "f16", ALL[:7]),
        ("IQ3_S", "q4_0", ALL[:7]),
        ("Q8_0", "iq4_nl", ALL),
    ],
)
def test_quantised_weights_and_caches_hold(
    folder: Path, kind: str, kv_type: str, widths: tuple[int, ...]
) -> None:
    options = replace(EXACT, kv_type=kv_type).exact()
    assert options.kv_type == ("bf16" if kv_type == "f16" else kv_type)
    found = measured(mixture(folder, "llama", 2, kind), options=options)
    assert (found.widths, found.fixed) == (widths, 0)


def test_what_is_not_looked_at_is_not_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mixed, plain = (mixture(folder, "qwen3moe", 2, kind) for kind in ("Q8_0+Q4_K", "Q8_0"))
    with monkeypatch.context() as patch:
        usual = module._tokens
        patch.setattr(module, "_tokens", lambda model, count, _depths: usual(model, count))
        assert measured(mixed).most > 7, "no token is said again and again"
    monkeypatch.setattr(_TracedNative, "_digest", lambda *_: None)
    assert measured(plain).widths == ALL, "only logits are compared"

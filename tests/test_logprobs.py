"""Logprobs on real weights: those that independent code computes from llama.cpp's own rows, drafted or not, of answers and of prompts."""

import math
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as native
import pytest

from localspec.chat.assistant import Assistant
from localspec.chat.events import Echo, Reply, Text, TokenLogprob
from localspec.chat.request import Request
from localspec.options import LoadOptions, ReplyOptions, SamplingParams
from tests.support.speaking import heard, opened

PROMPT = "The rivers of France are the Loire, the Seine, the Rhone,"
_BF16 = 30
_TOP = 5
EXACT = LoadOptions(n_ctx=1024, threads=1, gpu_layers=0).exact()
Delta = list[tuple[float, list[float]]]


def by_llama_cpp(path: Path, prompt: str, count: int, said: Sequence[int]) -> Delta:
    """Return the log probability of each token said behind the first `count` of a prompt, and the best five, by `llama_get_logits_ith`."""
    model_params = native.llama_model_default_params()
    model_params.n_gpu_layers, model_params.use_extra_bufts = 0, False
    model = native.llama_model_load_from_file(str(path).encode(), model_params)
    params = native.llama_context_default_params()
    params.n_ctx = 1024
    params.type_k = params.type_v = _BF16
    params.flash_attn_type = 1
    params.n_threads = params.n_threads_batch = 1
    context = native.llama_init_from_model(model, params)
    vocab = native.llama_model_get_vocab(model)
    ids = (native.llama_token * 200)()
    assert native.llama_tokenize(vocab, prompt.encode(), len(prompt), ids, 200, True, True) >= count
    n_vocab, told = native.llama_vocab_n_tokens(vocab), []
    evaluated = (native.llama_token * count)(*ids[:count])
    for token in said:
        batch = native.llama_batch_get_one(evaluated, len(evaluated))
        assert native.llama_decode(context, batch) == 0
        row = native.llama_get_logits_ith(context, -1)[:n_vocab]
        most = max(row)
        total = most + math.log(math.fsum(math.exp(each - most) for each in row))
        scores = [each - total for each in row]
        told.append((scores[token], sorted(scores, reverse=True)[:_TOP]))
        evaluated = (native.llama_token * 1)(token)
    native.llama_free(context)
    native.llama_model_free(model)
    return told


def told_by(
    assistant: Assistant, *, drafting: bool, **more: Any
) -> tuple[list[TokenLogprob], Reply]:
    sampling = SamplingParams(temperature=0.8, top_k=10, repeat_penalty=1.1)
    options = ReplyOptions(sampling, seed=5, max_tokens=24)
    request = Request(1, (), options, raw=PROMPT, logprobs=_TOP, **more)
    reply, events = heard(assistant, request, drafting=drafting)
    texts = [each for each in events if isinstance(each, Text | Echo)]
    return [logprob for each in texts for logprob in each.logprobs], reply


def assert_alike(told: list[TokenLogprob], wanted: Delta) -> None:
    for each, (logprob, best) in zip(told, wanted, strict=True):
        assert each.logprob == pytest.approx(logprob, abs=1e-4)
        assert [other for _, other in each.top] == pytest.approx(best, abs=1e-4)


@pytest.mark.slow
@pytest.mark.weights
def test_they_are_those_of_the_rows_with_and_without_drafting(six_layers_path: Path) -> None:
    with closing(opened(six_layers_path, "model", options=EXACT)) as assistant:
        plain, reply = told_by(assistant, drafting=False)
        drafted, again = told_by(assistant, drafting=True)
    assert again.tokens == reply.tokens
    assert again.acceptance.accepted > 0
    wanted = by_llama_cpp(six_layers_path, PROMPT, reply.prompt_tokens, reply.tokens)
    assert len(wanted) > 10
    for told in (plain, drafted):
        assert "".join(each.piece for each in told) == reply.text
        assert_alike(told, wanted)


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize("draft", ["off", "lookup"])
def test_those_of_a_prompt_are_those_of_its_rows_and_change_no_answer(
    six_layers_path: Path, draft: str
) -> None:
    with closing(opened(six_layers_path, draft, options=EXACT)) as assistant:
        bare, reply = told_by(assistant, drafting=True)
        told, again = told_by(
            assistant, drafting=True, echo=True, most_cached=0, deterministic=True
        )
        ids = assistant.models.tokenizer.tokenize(PROMPT, add_special=True, parse_special=True)
    assert again.tokens == reply.tokens
    assert told[len(ids) :] == bare
    assert "".join(each.piece for each in told[: len(ids)]) == PROMPT
    assert (told[0].logprob, told[0].top) == (None, ())
    assert_alike(told[1 : len(ids)], by_llama_cpp(six_layers_path, PROMPT, 1, ids[1:]))

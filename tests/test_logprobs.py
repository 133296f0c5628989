"""Logprobs on real weights: those that independent code computes from llama.cpp's own rows, drafted or not."""

import math
from collections.abc import Sequence
from pathlib import Path

import llama_cpp.llama_cpp as native
import pytest

from localspec.chat.assistant import Assistant
from localspec.chat.events import Finished, RequestFailed, Text, TokenLogprob
from localspec.chat.request import Request
from localspec.decoding.policy import plain_policy
from localspec.launch.load import load
from localspec.launch.plan import make_plan
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams

PROMPT = "The rivers of France are the Loire, the Seine, the Rhone,"
_BF16 = 30
_TOP = 5
Delta = list[tuple[float, list[float]]]


def by_llama_cpp(path: Path, prompt: str, count: int, said: Sequence[int]) -> Delta:
    """Return each said token's log probability and the best five, from `llama_get_logits_ith` one token at a time."""
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
    assert native.llama_tokenize(vocab, prompt.encode(), len(prompt), ids, 200, True, True) == count
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


def told_by(assistant: Assistant, *, drafting: bool) -> tuple[list[TokenLogprob], Finished]:
    sampling = SamplingParams(temperature=0.8, top_k=10, repeat_penalty=1.1)
    options = ReplyOptions(sampling, seed=5, max_tokens=24)
    policy = None if drafting else lambda _slot: plain_policy()
    assistant.models.target.truncate(0)
    assistant.submit(Request(1, (), options, raw=PROMPT, logprobs=_TOP), policy=policy)
    told: list[TokenLogprob] = []
    while True:
        assistant.step()
        for _, event in assistant.take():
            if isinstance(event, RequestFailed):
                raise event.error
            if isinstance(event, Text):
                told += event.logprobs
            if isinstance(event, Finished):
                return told, event


@pytest.mark.slow
@pytest.mark.weights
def test_they_are_those_of_the_rows_with_and_without_drafting(smollm2_path: Path) -> None:
    path, options = str(smollm2_path), LoadOptions(n_ctx=1024, threads=1, gpu_layers=0).exact()
    launch = LaunchOptions(target=path, draft_model=path, draft="model", load=options)
    assistant = load(make_plan(launch)).assistant
    plain, finished = told_by(assistant, drafting=False)
    drafted, again = told_by(assistant, drafting=True)
    assistant.close()
    reply = finished.reply
    assert again.reply.tokens == reply.tokens
    assert again.reply.acceptance.accepted > 0
    wanted = by_llama_cpp(smollm2_path, PROMPT, reply.prompt_tokens, reply.tokens)
    assert len(wanted) == len(plain) == len(drafted) > 10
    for told in (plain, drafted):
        assert "".join(each.piece for each in told) == reply.text
        for each, (logprob, best) in zip(told, wanted, strict=True):
            assert each.logprob == pytest.approx(logprob, abs=1e-4)
            assert [other for _, other in each.top] == pytest.approx(best, abs=1e-4)

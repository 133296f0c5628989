"""Branches on real weights under `--exact`: the same text as plain decoding, over two turns, and the same memory after it."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from lab.simulator.costs import GPU
from lab.simulator.world import TrueCosts
from localspec.chat.conversation import Conversation
from localspec.chat.events import Reply
from localspec.decoding.drafters.drafter import Drafter
from localspec.decoding.drafters.model import ModelDrafter
from localspec.decoding.policy import LONGEST_DRAFT, AdaptivePolicy, FixedPolicy, Policy
from localspec.decoding.round import Round, Spent
from localspec.launch.load import Runtime, load
from localspec.launch.plan import make_plan
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from tests.toy import Branching, Oracle

pytestmark = [pytest.mark.weights, pytest.mark.slow]

QUESTIONS = ("Name three rivers, and say where they are.", "And which is the longest of them?")
MakePolicy = Callable[[list[int]], Policy]
"""Makes the policy of an answer from its prompt's tokens."""


class Believing(AdaptivePolicy):
    """A policy that takes every pass to have cost what a table says.

    Args:
        costs: the table.
        longest: most tokens of a draft.
        drafters: whoever may propose.
        branches: most second choices beside a draft.

    Attributes:
        seconds: what the rounds would have taken.
    """

    def __init__(
        self, costs: TrueCosts, longest: int, drafters: Iterable[Drafter], branches: int
    ) -> None:
        super().__init__(costs.target, longest, tuple(drafters), branches)
        self._true = costs
        self.seconds = 0.0

    def learn(self, done: Round) -> None:
        """Take in what came of a round, as if it had been made there."""
        forecast = self._planned.forecast
        draft_s = 0.0 if forecast is None else done.draft.passes * forecast.step_s
        verify_s = self._true.target.of(done.width + self._again)
        self.seconds += verify_s + draft_s
        super().learn(replace(done, spent=Spent(draft_s=draft_s, verify_s=verify_s)))


def believing(runtime: Runtime, branches: int) -> Believing:
    """Return a policy for the first sequence that drafts as on a GPU, with no wider passes than are safe here."""
    models = runtime.assistant.models
    small = models.draft_model
    assert small is not None, "there is a draft model"
    assert runtime.drafting.spelling is not None
    drafter = ModelDrafter(small, runtime.drafting.spelling(), models.eog, GPU.draft)
    return Believing(GPU, min(LONGEST_DRAFT, runtime.drafting.longest), [drafter], branches)


def loaded(path: Path, *, drafting: bool) -> Runtime:
    launch = LaunchOptions(
        target=str(path),
        draft_model=str(path) if drafting else None,
        draft="model:3" if drafting else "off",
        further=("auto",) if drafting else (),
        exact=True,
        load=LoadOptions(n_ctx=512),
    )
    return load(make_plan(launch))


def answers(runtime: Runtime, options: ReplyOptions, policy: MakePolicy | None) -> list[Reply]:
    """Return what is answered to one question after the other."""
    assistant, conversation = runtime.assistant, Conversation("You are brief.")
    replies = list[Reply]()
    for question in QUESTIONS:
        conversation.append_user(question)
        prompt = assistant.prompt_tokens(conversation)
        made = None if policy is None else policy(prompt)
        replies.append(assistant.reply(conversation, options, policy=made))
    return replies


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_same_bytes_with_branches_and_without(smollm2_path: Path, temperature: float) -> None:
    options = ReplyOptions(SamplingParams(temperature=temperature), seed=11, max_tokens=48)
    plain = loaded(smollm2_path, drafting=False)
    alone = answers(plain, options, None)
    plain.assistant.close()
    drafting = loaded(smollm2_path, drafting=True)
    longest, most = drafting.drafting.longest, drafting.drafting.branches
    assert most > 1
    assert longest > 3
    texts = iter(alone)

    def forced(prompt: list[int]) -> Policy:
        text = [*prompt, *next(texts).tokens]
        n_vocab = drafting.assistant.models.target.n_vocab
        oracle = Oracle(text, n_vocab, 0.5, Random(3))
        # After a branch one token more is evaluated, and no pass may be wider than is safe.
        return FixedPolicy(Branching(oracle, 3, text, n_vocab, Random(4)), min(longest - 1, 5))

    found = answers(drafting, options, forced)
    for reply, expected in zip(found, alone, strict=True):
        assert (reply.tokens, reply.stop_reason) == (expected.tokens, expected.stop_reason)
        assert reply.cached_tokens == expected.cached_tokens
        assert reply.acceptance.branched > reply.acceptance.rounds
        assert reply.acceptance.caught > 2

    grown = answers(drafting, options, lambda _prompt: believing(drafting, most))
    assert [reply.tokens for reply in grown] == [reply.tokens for reply in alone]
    assert sum(reply.acceptance.branched for reply in grown) > 0
    drafting.assistant.close()

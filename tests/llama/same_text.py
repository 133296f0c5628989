"""What heads draft changes no byte of a text, whatever drafts, and however many answers there are at a time."""

from pathlib import Path

from localspec.chat.request import Request
from localspec.launch.load import load
from localspec.launch.plan import make_plan
from localspec.messages import Message
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from tests.chat.answers import answers


def check_same_text(target: Path, heads: Path | None, temperature: float) -> None:
    """Let a target answer with and without its heads, one answer and three at a time; some of what they draft is accepted."""
    sampling = SamplingParams(temperature=temperature, top_k=5)
    prompts = [f"abc and so on, and {end}" for end in ("more", "then", "no more", "x")]
    texts, accepted, drafted = [set[tuple[int, ...]]() for _ in prompts], 0, 0
    for draft, parallel in (
        ("off", 1),
        ("heads:2", 1),
        ("heads:7", 1),
        ("auto", 1),
        ("heads:3", 3),
    ):
        launch = LaunchOptions(
            target=str(target),
            draft_model=None if heads is None else str(heads),
            draft=draft,
            exact=True,
            fit=False,
            load=LoadOptions(n_ctx=512, threads=1),
        )
        assistant = load(make_plan(launch, parallel=parallel), parallel=parallel).assistant
        options = ReplyOptions(sampling, seed=1, max_tokens=80)
        requests = (
            Request(number, (Message.user(prompt),), options, deterministic=True)
            for number, prompt in enumerate(prompts)
        )
        for answered in answers(assistant, requests):
            assert answered.reply is not None, answered.error
            texts[answered.key].add(answered.reply.tokens)
            if done := answered.reply.acceptance.by_drafter.get("heads"):
                accepted, drafted = accepted + done.accepted, drafted + done.drafted
        assistant.close()
    assert [len(each) for each in texts] == [1] * len(prompts)
    assert drafted > accepted > 0

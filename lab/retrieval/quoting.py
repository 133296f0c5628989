"""What quoting answers cost with passages as a source of lookup and without: passages in the prompt both times.

    python -m lab.retrieval.quoting FOLDER --model NAME [--heavier 4] [--draft lookup] [--ask copy] [--exact] [--questions 12] [--max-tokens 120]

FOLDER holds the texts of `lab.retrieval.measure recall`. Each question asks for a passage word for word, and is answered three times
in turns: without drafting, with lookup that follows the answer alone, and with lookup as it ships, which follows the prompt, too.
A heavier target has so many times the layers and computes the same; it is made beside FOLDER.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from unittest.mock import patch

from lab.retrieval import corpus
from lab.retrieval.measure import Question, questions
from lab.synthetic.heavier import heavier
from localspec.chat.conversation import Conversation
from localspec.chat.events import Reply
from localspec.chat.requests import Request
from localspec.decoding.drafters import lookup
from localspec.decoding.drafters.copying import CopySource
from localspec.launch.load import Runtime, load
from localspec.launch.plan import make_plan
from localspec.messages import Message
from localspec.models.pull import pull
from localspec.models.registry import load_registry
from localspec.options import LaunchOptions, ReplyOptions, SamplingParams, changed
from localspec.retrieval.citing import PassageText, as_documents
from localspec.retrieval.index import Index
from localspec.retrieval.reading import place
from localspec.retrieval.update import add

_ASKED = {
    "quote": "{question} Quote what the passages say about it word for word, with their numbers.",
    "copy": "{question} Copy the lines that answer this exactly as they stand in the passage, in a block of code.",
}
_BUDGET = 800


class AnswerAlone(CopySource):
    """Follows the answer and nothing before it."""

    def begin(self, tokens: Sequence[int]) -> None:
        """Follow what comes after these tokens."""
        super().begin(())


@contextmanager
def following(source: type[CopySource]) -> Iterator[None]:
    """Have lookup drafters that are made within follow this."""
    with patch.object(lookup, "CopySource", source):
        yield


def asked(question: Question, how: str, index: Index) -> Message:
    """Return a question with its passages, as `--docs` has it."""
    found = [
        PassageText(place(each.path.name, each.passage.first, each.passage.last), each.passage.text)
        for each in index.search(question.named, 20)
    ]
    text = _ASKED[how].format(question=question.text)
    return Message.user(text, as_documents(found, {}, _BUDGET))


def answer(
    runtime: Runtime, said: Message, mode: str, source: type[CopySource], most: int, *, exact: bool
) -> Reply:
    """Return the likeliest answer; where it is to be exact, the prompt is evaluated in the same chunks every time."""
    conversation = Conversation()
    conversation.append_user(said)
    options = ReplyOptions(SamplingParams(temperature=0), max_tokens=most)
    with following(source):
        policy = runtime.drafting.policy(mode)
    request = Request(0, conversation, options, policy=lambda _: policy, afresh=exact)
    (answered,) = runtime.assistant.answer(iter([request]))
    assert answered.reply is not None, answered.error
    return answered.reply


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--heavier", type=int, default=1, metavar="N")
    parser.add_argument("--draft", default="lookup")
    parser.add_argument("--ask", choices=_ASKED, default="quote")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--questions", type=int, default=12)
    parser.add_argument("--max-tokens", type=int, default=120)
    given = parser.parse_args()
    folder = given.folder.resolve()
    if not folder.exists():
        corpus.make(folder)
    chosen_model = load_registry().chosen(given.model)
    if given.heavier > 1:
        made = heavier(pull(given.model)[0], given.heavier, folder.parent / "heavier")
        chosen_model = {"target": str(made)}
    options = changed(LaunchOptions(draft=given.draft, exact=given.exact), chosen_model)
    runtime = load(make_plan(options))
    arms = {
        "off": ("off", CopySource),
        "answer alone": (given.draft, AnswerAlone),
        "with passages": (given.draft, CopySource),
    }
    every = questions()
    chosen = every[:: len(every) // given.questions][: given.questions]
    passes, seconds = dict.fromkeys(arms, 0), dict.fromkeys(arms, 0.0)
    drafted, accepted = dict.fromkeys(arms, 0), dict.fromkeys(arms, 0)
    tokens, same = dict.fromkeys(arms, 0), 0
    with (
        tempfile.TemporaryDirectory() as place_,
        closing(Index(Path(place_) / "i" / "x.db", make=True)) as index,
    ):
        add(index, [folder])
        for number, each in enumerate(chosen):
            said, texts = asked(each, given.ask, index), set[tuple[int, ...]]()
            order = list(arms)
            for name in order[number % 3 :] + order[: number % 3]:
                reply = answer(runtime, said, *arms[name], given.max_tokens, exact=given.exact)
                passes[name] += reply.acceptance.rounds
                drafted[name] += reply.acceptance.drafted
                accepted[name] += reply.acceptance.accepted
                seconds[name] += reply.decode_s or 0.0
                texts.add(tuple(reply.tokens))
                tokens[name] += reply.completion_tokens
            same += len(texts) == 1
            print(
                f"{number + 1} answers, tokens {[*tokens.values()]}, passes {[*passes.values()]}",
                flush=True,
            )
    times = f", {given.heavier} times as heavy" if given.heavier > 1 else ""
    print(
        f"{given.model}{times}, {given.draft}{', exact' if given.exact else ''}, {given.ask}: {len(chosen)} answers"
    )
    print(f"the same text in all three: {same} of {len(chosen)}")
    for name in arms:
        print(
            f"{name}: {tokens[name]} tokens in {passes[name]} passes, {accepted[name]} of {drafted[name]} drafted tokens accepted, {seconds[name]:.1f} s"
        )
    runtime.assistant.close()


if __name__ == "__main__":
    begun_s = time.monotonic()
    main()
    print(f"{time.monotonic() - begun_s:.0f} s in all")

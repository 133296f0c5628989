"""Lessons of the user's own, from which a head learns: prompts, questions, and replies of its target.

Of replies, recorded ones in which drafted tokens were rejected, and those marked good; one that is marked bad is never among them.
"""

import hashlib
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from localspec.api import Message, UsageError, data_dir
from localspec.config.recorded import telemetry_dir
from localspec.decoding.drafters.heads import HeadsDrafter
from localspec.history.archive import History
from localspec.plugins.bench.prompts import BenchPrompt, read
from localspec.session.conversation import SavedConversation
from localspec.telemetry.log import read_texts
from localspec.telemetry.text import ReplyTokens

OWN, REPLY = "own:", "reply:"
"""What keys have: of prompts, and of replies."""
_LEAST, _MOST_QUESTIONS, _HELD_SHARE = 20, 5000, 10
"""Questions of conversations to learn from; of all lessons, one in so many is held out."""


@dataclass(frozen=True, slots=True)
class RecordedReply:
    """A reply that was recorded with its text.

    Args:
        rejected: how many drafted tokens the target rejected.
        n_prompt: tokens of the prompt.
        tokens: ids of the prompt and of the reply, but for its last.
    """

    rejected: int
    n_prompt: int
    tokens: tuple[int, ...]


Turns = tuple[Message, ...]
Lesson = BenchPrompt | RecordedReply | Turns
"""A prompt to answer; or a reply with what came before it, of which the target chooses the last token again."""


def own_lessons(prompts: str | None, *, history: bool, replies_of: str | None) -> dict[str, Lesson]:
    """Return lessons by their keys; that of one that is held out begins with `held:`, and these come first.

    Args:
        prompts: a file of prompts.
        history: whether the questions of conversations are wanted.
        replies_of: the target whose replies are wanted, see `replies_to_learn`.

    Raises:
        UsageError: the file is no such, or there are too few questions.
        LocalspecError: the history or the records cannot be read.
    """
    lessons = [] if replies_of is None else replies_to_learn(replies_of)
    lessons += [] if prompts is None else read(Path(prompts))
    if history:
        with closing(History(data_dir() / "history")) as archive:
            questions = [each for each in archive.questions(_MOST_QUESTIONS) if each.strip()]
        if len(questions) < _LEAST:
            few = f"history has {len(questions)} questions, not {_LEAST}"
            raise UsageError(f"{few}: omit --history")
        lessons += [BenchPrompt("history", each) for each in questions]
    own = dict[str, Lesson]()
    for each in lessons:
        kind, text = (OWN, each.prompt) if isinstance(each, BenchPrompt) else (REPLY, repr(each))
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        own["held:" * (int(digest, 16) % _HELD_SHARE == 0) + f"{kind}{digest}"] = each
    return dict(sorted(own.items(), key=lambda each: not each[0].startswith("held:")))


def replies_to_learn(target: str) -> list[Lesson]:
    """Return replies in which heads' tokens were rejected, those of most rejected tokens first, then the turns up to each good one.

    Args:
        target: its name, or its file.

    Raises:
        LocalspecError: the history or the records cannot be read.
    """
    name, good, rejected = Path(target).name, list[tuple[object, Turns]](), list[RecordedReply]()
    with closing(History(data_dir() / "history")) as history:
        marked, talk = history.marked(), SavedConversation(history)
        for each in marked:
            if (each.mark, Path(each.model).name) == ("good", name):
                talk.open(each.conversation)
                talk.show_branch(each.id)
                turns = [stored.message for stored in talk.messages]
                if not any(turn.media or turn.calls for turn in turns):
                    good.append(((each.seed, each.prompt), talk.turns(each.id)))
    marks = {(each.seed, each.prompt): each.mark for each in marked}
    recorded = set[object]()
    for reply, text in read_texts(telemetry_dir(), 0.0):
        with suppress(msgspec.DecodeError):
            noted = msgspec.json.decode(text, type=ReplyTokens)
            own = [each for each in noted.rounds if each.drafter == HeadsDrafter.name]
            count = sum(len(each.draft_ids) - each.accepted for each in own)
            key = noted.seed, reply.prompt
            if count and reply.pair.target == name and marks.get(key) != "bad":
                ids = [*noted.prompt, *(token for each in noted.rounds for token in each.confirmed)]
                rejected.append(RecordedReply(count, reply.prompt, (*ids[:-1],)))
                recorded.add(key)
    others = (turns for key, turns in good if key not in recorded)
    return [*sorted(rejected, key=lambda each: -each.rejected), *others]

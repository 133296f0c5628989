"""Replies that were recorded and marked, for tests of what a head learns from."""

import json
from collections.abc import Sequence
from pathlib import Path

from localspec.history.archive import History
from localspec.messages import MediaPart, Message, Part, TextPart
from localspec.options.recording import Switch
from localspec.telemetry.reply import Pair
from tests.telemetry.talking import drafted, first, recording

PROMPT = tuple(range(40, 60))


def record(data: Path, target: str, replies: Sequence[tuple[int, str, int]]) -> None:
    """Record replies, each given by its seed, its drafter, and how many of three drafted tokens are accepted in each of two rounds."""
    with recording(data / "telemetry", Switch(text=True), pair=Pair(target)) as talk:
        for seed, drafter, accepted in replies:
            trace = talk.recorder.begin("?", PROMPT, greedy=True)
            trace.note(first())
            for _ in range(2):
                trace.note(drafted(3, accepted, drafter, token=100 + seed))
            trace.end("", 0.1, 0.1, seed)


def add_marked(data: Path, target: str, seed: int, mark: str, words: str = "Yes.") -> None:
    """Add a conversation of two questions whose last answer has a mark; without words, the first question has a picture."""
    history = History(data / "history")
    number, parent = history.create(system="Be brief."), None
    picture = MediaPart("image", "a.png", b"x")
    parts: list[Part] = [TextPart(f"One {seed}?"), *([] if words else [picture])]
    for question in (Message("user", tuple(parts)), Message.user("Two?")):
        asked = history.add_user(number, parent, question)
        reply = history.begin_reply(number, asked, target)
        figures = json.dumps({"seed": seed, "prompt": len(PROMPT)})
        reply.finish(Message.assistant(words or "Yes."), figures)
        parent = reply.message
    assert parent is not None
    history.mark(parent, mark)  # type: ignore[arg-type]
    history.close()

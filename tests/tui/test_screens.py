"""How every screen looks at three sizes: texts, to be read in a diff; and of some a picture, with its colours.

After a change that is meant: LOCALSPEC_UPDATE_SCREENS=1 pytest tests/tui/test_screens.py, and look at the diff.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from localspec.chat.events import RoundDone
from localspec.chat.request import Request
from localspec.decoding.gain import Gain
from localspec.decoding.stats import AcceptanceStats
from localspec.launch.rows import ModelRow
from localspec.messages import Message
from localspec.session.preferences import Preferences
from localspec.tui import picker
from localspec.tui.history_sheet import HistorySheet
from localspec.tui.race import Race
from localspec.tui.sheets import ListSheet, RaceSheet, TextSheet
from tests.tui.answers import exchange, finished, plain, round_of, tokens
from tests.tui.driving import Chat, assert_picture, assert_screen, driven

ANSWER = """\
A linked list is *reversed* by turning its links round:

```python
def reverse(node):
    before = None
    while node:
        node.next, before, node = before, node, node.next
    return before
```

1. one pass, no memory
2. 日本語 and 👍 keep their widths
"""
TOKENS = [
    tokens("The", by="prompt"),
    tokens(" capital", " of", by="model", drafted=2, accepted=2),
    tokens(" France", " is", by="lookup", drafted=1, accepted=1),
    tokens(" Paris", by="model", drafted=1),
    tokens("."),
]
PAIRS = [
    ModelRow("coder", 1_600_000_000, True, True, "code", True, 21.0, False),
    ModelRow("tiny", 98_000_000, False, True, "a first try", True, 200.0),
    ModelRow("other", 500_000_000, False, True, "chat", False, 40.0),
    ModelRow("giant", 70_000_000_000, False, False, "much"),
]


def settled(chat: Chat, seen: Sequence[RoundDone] = ()) -> None:
    """Give the last answer figures that do not depend on the machine."""
    made = exchange(rounds=[plain(0.02), round_of(3, 3, 0.03), round_of(3, 1, 0.03)] * 10)
    made.happened += seen
    made.finished = finished(
        draft_note="drafting 3 tokens at a time",
        gain=Gain(1.3, 1.0, 0.02),
        acceptance=AcceptanceStats(rounds=30, drafted=60, accepted=40),
    )
    chat.session.exchange = made
    chat.session.gains = [Gain(each, 1.0, 0.05) for each in (1.1, 1.2, 1.25, 1.15, 1.3, 1.2)]
    chat.app.view.show_state()


async def show(chat: Chat, *messages: str) -> None:
    """Have the last answer be other texts, without figures."""
    talk = chat.session.talk
    talk.history.resume_reply(talk.messages[-1].id).finish(Message.assistant(*messages))
    talk.show_branch(talk.messages[-1].id)
    await chat.app.view.show_messages()
    settled(chat)
    await chat.settle()


@pytest.mark.slow
@driven(preferences=Preferences(keys={"stats": "f12"}))
async def test_welcome_completion_settings_and_help(chat: Chat) -> None:
    await chat.until_text("toy")
    await assert_screen(chat, "welcome")
    await chat.press(*"/re", shows="/regenerate")
    await assert_screen(chat, "completion")
    await chat.press("escape", "escape")
    await chat.until_sheet(ListSheet, "f4")
    await assert_screen(chat, "settings")
    await chat.press("escape")
    await chat.until_sheet(TextSheet, "f1")
    await assert_screen(chat, "help")


@driven({"otherwise": [ANSWER]})
async def test_conversation(chat: Chat) -> None:
    await chat.ask("Reverse a linked list.")
    await show(chat, ANSWER)
    await assert_screen(chat, "conversation")
    await assert_picture(chat, "conversation")


@driven({"chunk_s": 60.0})
async def test_reading_a_long_question(chat: Chat) -> None:
    await chat.begin("\n".join(f"line {each}" for each in range(100)))
    await chat.until_text("reading 0 of 797")
    await assert_screen(chat, "reading")
    chat.session.stop()


@driven()
async def test_stats_and_lens(chat: Chat) -> None:
    settled(chat)
    await chat.press("f2")
    await assert_screen(chat, "stats")
    await assert_picture(chat, "stats")
    await chat.press("escape")
    settled(chat, TOKENS)
    await chat.until_sheet(TextSheet, "f3")
    await assert_screen(chat, "lens")
    await assert_picture(chat, "lens")


@driven()
async def test_race(chat: Chat) -> None:
    race = Race(chat.session.engine, Request(0))
    for end, rounds, speed in (
        ("Paris, of course.", [round_of(3, 2, 0.1)] * 30, 30.0),
        ("Paris, on the Seine.", [plain(0.05)] * 90, 20.0),
    ):
        text = f"The capital of France is {end}"
        race.lanes.append(exchange(text, rounds, done=finished(text=text, tokens_per_s=speed)))
    race.done = True
    chat.app.push_screen(RaceSheet(race))
    await chat.until_text("differ after")
    await assert_screen(chat, "race")
    await assert_picture(chat, "race")


@driven()
async def test_history(chat: Chat) -> None:
    for question in ("How tall is the Eiffel tower?", "Reverse a linked list, please."):
        await chat.ask(question)
        chat.session.new()
    await chat.app.view.show_messages()
    chat.session.models.progress = ""
    await chat.until_sheet(HistorySheet, "f7")
    await chat.press(*"eiffel", lacks="Reverse")
    await assert_screen(chat, "history")


@driven()
async def test_models(chat: Chat, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    for name in ("choices", "measured_choices"):
        monkeypatch.setattr(picker, name, lambda: list(PAIRS))
    await chat.press("f8", shows="giant")
    await assert_screen(chat, "models")


@driven({"n_ctx": 100})
async def test_full_context(chat: Chat) -> None:
    await chat.run("one " * 40, ListSheet)
    await assert_screen(chat, "full-context")


@driven()
async def test_thoughts(chat: Chat) -> None:
    await chat.ask("hello?")
    await show(chat, "Done.", "a deep thought")
    await chat.press("ctrl+t")
    await assert_screen(chat, "thoughts")

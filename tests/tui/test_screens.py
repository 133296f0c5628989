"""How every screen looks at three sizes: texts, to be read in a diff; and of some a picture, with its colours.

After a change that is meant: LOCALSPEC_UPDATE_SCREENS=1 pytest tests/tui/test_screens.py, and look at the diff.
`python -m lab.pictures` does the same, and records the moving picture again.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from lab.pictures import MOVING, SIZE
from localspec.chat.events import RoundDone
from localspec.decoding.gain import Gain
from localspec.decoding.stats import AcceptanceStats
from localspec.messages import Message
from localspec.session.model_list import ModelRow
from localspec.session.preferences import Preferences
from localspec.tui import picker
from localspec.tui.history_sheet import HistorySheet
from localspec.tui.sheets import ListSheet, TextSheet
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
    await assert_picture(chat, "welcome", 12)
    await chat.press(*"/re", shows="/regenerate")
    await assert_screen(chat, "completion")
    await assert_picture(chat, "completion", 10)
    await chat.press("escape", "escape")
    await chat.until_sheet(ListSheet, "f4")
    await assert_screen(chat, "settings")
    await assert_picture(chat, "settings")
    await chat.press("escape")
    await chat.until_sheet(TextSheet, "f1")
    await assert_screen(chat, "help")
    await assert_picture(chat, "help", 40)


@driven({"otherwise": [ANSWER]})
async def test_conversation(chat: Chat) -> None:
    await chat.ask("Reverse a linked list.")
    await show(chat, ANSWER)
    await assert_screen(chat, "conversation")
    await assert_picture(chat, "conversation")
    chat.transcript.views[-1].focus()
    await chat.settle()
    await assert_picture(chat, "message")


@driven({"otherwise": ["A blue sky over a green meadow."], "sees": True})
async def test_picture(chat: Chat) -> None:
    meadow = Image.new("RGB", (640, 480), (110, 170, 230))
    drawing = ImageDraw.Draw(meadow)
    drawing.rectangle((0, 300, 640, 480), (60, 140, 60))
    drawing.ellipse((460, 50, 560, 150), (250, 220, 90))
    meadow.save(chat.session.folder / "meadow.png")
    await chat.ask("What is on @meadow.png?")
    await show(chat, "A blue sky over a green meadow.")
    await assert_picture(chat, "picture", 20)


@driven({"chunk_s": 60.0})
async def test_reading_a_long_question(chat: Chat) -> None:
    await chat.begin("\n".join(f"line {each}" for each in range(100)))
    await chat.until_text("reading 797")
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
    await assert_picture(chat, "lens", 14)


@driven(size=SIZE, pair="qwen2.5-coder-1.5b")
async def test_the_moving_picture_has_the_words_of_today(chat: Chat) -> None:
    await chat.ask("Rename")
    copied = round_of(3, 3, 0.03)
    copied = replace(copied, draft=replace(copied.draft, drafter="lookup"))
    made = exchange(rounds=[plain(0.02), copied] * 10)
    acceptance = AcceptanceStats(rounds=20, drafted=30, accepted=30)
    gain = Gain(1.75, 1.0, 0.02)  # as recorded
    made.finished = finished(gain=gain, acceptance=acceptance)
    await show(chat, "Mean")
    chat.session.exchange, chat.session.gains = made, [gain]
    chat.app.view.show_state()
    await chat.press("f2", shows="lookup")
    drawn = MOVING.read_text()
    joined = re.sub("</text><text[^>]*>", "", drawn)  # the cursor is on a letter of a word
    recorded = " ".join(re.findall(r">([^<]+)</text>", drawn + joined))
    words = {*re.findall("[A-Za-z]{2,}", chat.text())}
    assert words <= {*re.findall("[A-Za-z]{2,}", recorded)}, "python -m lab.pictures chat"


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
    await assert_picture(chat, "history", 16)


@driven()
async def test_models(chat: Chat, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    for name in ("choices", "measured_choices"):
        monkeypatch.setattr(picker, name, lambda: list(PAIRS))
    await chat.press("f8", shows="giant")
    await assert_screen(chat, "models")
    await assert_picture(chat, "models", 16)


@driven({"n_ctx": 100})
async def test_full_context(chat: Chat) -> None:
    await chat.run("one " * 40, ListSheet)
    await assert_screen(chat, "full-context")
    await assert_picture(chat, "full-context", 18)


@driven()
async def test_thoughts(chat: Chat) -> None:
    await chat.ask("hello?")
    await show(chat, "Done.", "a deep thought")
    await chat.press("ctrl+t")
    await assert_screen(chat, "thoughts")

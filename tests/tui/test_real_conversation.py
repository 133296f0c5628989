"""A whole conversation on the screens, with the real engine and real weights."""

from pathlib import Path

import pytest

from localspec.engine.engine import RemoteEngine
from localspec.options import LaunchOptions, LoadOptions
from tests.tui.driving import Chat, drive

pytestmark = pytest.mark.weights


def new_tokens(chat: Chat) -> int:
    """Return how many tokens of the last prompt were evaluated for it."""
    started = chat.exchange.started
    assert started is not None
    return started.prompt_tokens - started.cached_tokens


@pytest.mark.slow
def test_a_conversation_is_held_stopped_edited_raced_and_taken_up_again(
    tmp_path: Path, smollm2_path: Path
) -> None:
    load = LaunchOptions(
        target=str(smollm2_path), draft="lookup", load=LoadOptions(n_ctx=1024, threads=1)
    )

    async def talk(chat: Chat) -> None:
        await chat.ready()
        for setting in ("temperature 0", "max_tokens 24"):
            await chat.run(f"/set {setting}")
        await chat.ask("Name three colours, please. " * 10)
        first = new_tokens(chat)
        await chat.ask("And three animals.")
        assert 0 < new_tokens(chat) < first / 2

        await chat.run("/set max_tokens off")
        await chat.begin("Tell me a long story about a fox.")
        await chat.until(lambda: chat.session.exchange and chat.session.exchange.tokens > 8)
        await chat.press("escape")
        await chat.until_rest()
        cut = chat.session.talk.messages[-1]
        assert cut.state == "cut"
        await chat.run("/set max_tokens 8")
        await chat.run("/continue")
        await chat.until_rest()
        assert new_tokens(chat) <= 1
        assert chat.contents[-1].startswith(cut.message.text)
        assert len(chat.contents[-1]) > len(cut.message.text)

        await chat.run("/race")
        await chat.until(lambda: chat.session.race is not None and chat.session.race.done)
        await chat.until(lambda: "tokens/s" in chat.text())
        await chat.press("escape")
        await chat.run("/edit 2")
        await chat.run("And three fruits.")
        await chat.until_rest()
        assert "version 2 of 2" in chat.text()
        assert len(chat.contents) == 4

    async def go_on(chat: Chat) -> None:
        await chat.ready()
        assert chat.contents[2] == "And three fruits."
        await chat.ask("Thanks.")
        assert new_tokens(chat) < 30

    drive(talk, tmp_path, load=load, engine=RemoteEngine())
    drive(go_on, tmp_path, load=load, engine=RemoteEngine(), resume=1)

"""A larger context on request: what could be had, and the same model loaded with it."""

from pathlib import Path

import pytest

from localspec.tui import picker as growing
from localspec.tui.picker import LargerContext, larger_context
from localspec.tui.sheets import ListSheet
from tests.models.shapes import Proportions, sparse_model
from tests.tui.driving import Chat, drive

# 4 layers with keys and values of 1024 numbers in f16: 16384 bytes a token.
SHAPE = Proportions("llama", 4, 256, 512, 4, 4, 256, 512, more=(("context_length", 6000),))


@pytest.mark.parametrize(
    ("n_ctx", "free", "found"),
    [
        (1024, 1 << 30, LargerContext(2048, 1024 * 16384)),
        (4096, 1 << 30, LargerContext(6000, 2048 * 16384)),  # caches are padded to 256
        (6000, 1 << 30, None),
        (4096, 1 << 20, None),
    ],
)
def test_a_context_grows_as_far_as_training_and_memory_go(
    n_ctx: int,
    free: int,
    found: LargerContext | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = sparse_model(tmp_path / "toy.gguf", SHAPE)
    monkeypatch.setattr(growing, "free_ram_bytes", lambda: free)
    assert larger_context(str(path), n_ctx, "f16") == found
    assert larger_context("unknown", n_ctx, "f16") is None


def test_a_full_context_offers_a_larger_one_and_asks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing, "larger_context", lambda *_: LargerContext(2000, 112_000_000))

    async def look(chat: Chat) -> None:
        await chat.ready()
        await chat.run("/set ctx 0")
        assert chat.session.models.usual.load.n_ctx is None
        await chat.run("one " * 40)
        await chat.until_sheet(ListSheet)
        assert "reload with 2000 tokens" in chat.text()
        assert "+ 112 MB of memory" in chat.text()
        await chat.press("enter")
        await chat.until(lambda: len(chat.contents) == 2 and not chat.session.busy)
        assert chat.session.setting("ctx") == "2000"

    drive(look, tmp_path, {"n_ctx": 100})

"""What happens on the screen while models load, answers come, engines die and contexts get full."""

from pathlib import Path

import pytest
from textual.worker import WorkerFailed

from localspec.cli.chat_front import _on_screens
from localspec.errors import ContextOverflow, UsageError
from localspec.models.registry import load_registry
from localspec.options import LaunchOptions
from localspec.session.preferences import Preferences
from localspec.tui import picker as growing
from localspec.tui.app import ChatApp
from localspec.tui.picker import LargerContext, larger_context
from localspec.tui.sheets import ListSheet
from tests.models.shapes import Proportions, sparse_model
from tests.support.checks import refuses
from tests.tui.driving import Chat, drive, driven
from tests.tui.lines import session_of

LONG = "word " * 200
GO_ON = Path("go on")
DEFAULT = load_registry().default_pair
REFUSED = ["ModelUnavailable", "gone is not here, download it first"]
TOO_LARGE = ["ModelLoadError", "no memory for it"]


@driven({"load_s": GO_ON}, ready=False)
async def test_a_question_can_be_asked_before_a_model_is_there(chat: Chat) -> None:
    await chat.until_text("Ask something.", "loading toy")
    assert chat.session.models.ready is None
    await chat.begin("hello?")
    await chat.until_text("waiting for the model")
    chat.let("go on")
    await chat.until_rest()
    assert chat.contents == ["hello?", "Hello **world**."]


@driven({"otherwise": [LONG], "rests": {"at": 20, "until": GO_ON}})
async def test_passages_are_listed_while_an_answer_comes(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.session.documents.index_names", lambda: ["notes"])
    await chat.begin("hello?")
    await chat.until_answering()
    await chat.until_sheet(ListSheet, "f9")
    chat.see(shows=["notes", "an index of your files"])
    await chat.back()
    assert chat.session.busy
    chat.let("go on")
    await chat.until_rest()
    assert chat.contents == ["hello?", LONG]


@driven({"otherwise": [LONG], "rests": {"at": 20, "until": GO_ON}})
async def test_esc_stops_keeps_what_is_there_and_the_answer_goes_on(chat: Chat) -> None:
    await chat.begin("hello?")
    await chat.until_answering()
    await chat.press("escape", rest=True, shows="stopped")
    begun = chat.contents[1]
    assert 0 < len(begun) < len(LONG)
    assert LONG.startswith(begun)
    chat.let("go on")
    await chat.ask("/continue")
    assert len(chat.contents) == 2
    assert chat.contents[1].startswith(begun)
    assert len(chat.contents[1]) > len(begun)


@driven({"chunk_s": 1.0})
async def test_esc_in_prefill_leaves_the_question_alone(chat: Chat) -> None:
    await chat.begin("long " * 200)
    await chat.until_text("reading")
    shown = "stopped before the first token; /regenerate asks again"
    await chat.press("escape", rest=True, shows=shown)
    assert len(chat.contents) == 1
    await chat.press("up", typed="long " * 200)


@driven({"otherwise": ["line\n\n" * 30, "line\n\n" * 500], "pass_s": 0.005})
async def test_the_user_may_scroll_away_while_text_streams_and_come_back(chat: Chat) -> None:
    transcript = chat.transcript
    await chat.ask("first?")
    await chat.begin("second?")
    await chat.until_answering()
    await chat.until(lambda: transcript.follows)
    await chat.press("pageup", "pageup")
    await chat.until(lambda: not transcript.follows)
    place, length = transcript.scroll_y, len(chat.exchange.answer)
    await chat.until(lambda: len(chat.exchange.answer) > length + 100)
    assert transcript.scroll_y == place
    chat.see(shows="more below")
    await chat.press("ctrl+end", lacks="more below")
    await chat.until(lambda: transcript.follows)


@driven({"otherwise": ["word " * 20], "pass_s": GO_ON})
async def test_questions_wait_and_what_cannot_be_sent_comes_back(
    chat: Chat, tmp_path: Path
) -> None:
    with (tmp_path / "huge.txt").open("wb") as file:
        file.truncate(1 << 32)
    await chat.begin("one")
    await chat.run("two", shows="1 question waiting")
    await chat.run(f"explain @{tmp_path / 'huge.txt'}", shows="2 questions waiting")
    chat.let("go on")
    await chat.until(lambda: not chat.session.busy and not chat.session.waiting)
    await chat.until(lambda: "explain" in chat.composer.text)
    chat.see(lacks="question waiting")
    await chat.ask("three")
    assert chat.questions == ["one", "two", "three"]


@driven({"otherwise": ["word " * 400], "pass_s": 0.01})
async def test_a_question_that_waits_is_given_back_when_the_answer_is_stopped(chat: Chat) -> None:
    await chat.begin("one")
    await chat.run("two")
    await chat.press("escape", rest=True, typed="two")
    assert chat.questions == ["one"]


@driven({"otherwise": ["word " * 10], "pass_s": 0.01, "load_s": GO_ON}, size=(160, 24), ready=False)
async def test_news_goes_when_it_holds_no_more(chat: Chat) -> None:
    await chat.begin("one?")
    chat.see(lacks="Assistant")
    await chat.run("/new", shows="the model still loads: wait before /new, or press Esc")
    chat.let("go on")
    await chat.until_rest()
    await chat.until_text(lacks="wait before")
    await chat.press("ctrl+c", typed="")  # which had /new, to be sent again
    await chat.press("ctrl+c", shows="Ctrl+C again quits")
    chat.app._advised_s -= 10.0
    await chat.press("f6", shows="editing question 1")
    await chat.press("escape", lacks="editing")


@driven({"death": {"on": "load", "how": "SIGSEGV"}}, ready=False)
async def test_an_engine_that_a_load_kills_is_left_to_the_user(chat: Chat) -> None:
    await chat.until_text("needs less memory", "/restart starts it again")
    assert chat.session.models.dead
    assert not chat.session.engine.alive


def test_what_is_said_is_there_again_the_next_day(tmp_path: Path) -> None:
    async def talk(chat: Chat) -> None:
        (chat.session.folder / "a.txt").write_text("content")
        # Before the engine is started.
        chat.composer.send("hello @a.txt?")
        await chat.until(lambda: len(chat.contents) == 2 and not chat.session.busy)

    async def resume(chat: Chat) -> None:
        await chat.until_text("Hello world.")
        assert chat.contents[1] == "Hello **world**."
        await chat.press("up", typed="hello @a.txt?")
        await chat.ask("and?")
        assert len(chat.contents) == 4

    drive(talk, tmp_path, pair="mine")
    drive(resume, tmp_path, pair=None, resume=1)


def test_what_ends_the_chat_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = UsageError("no room")

    async def work() -> None:
        raise error

    async def fault(chat: Chat) -> None:
        chat.app.call_later(lambda: 1 // 0)
        await chat.until(lambda: chat.app.failure is not None)
        assert isinstance(chat.app.failure, ZeroDivisionError)
        assert chat.app._exit_renderables == []

    async def fail(chat: Chat) -> None:
        chat.app.run_worker(work())
        await chat.until(lambda: chat.app.failure is error)

    for doing, kind in ((fault, ZeroDivisionError), (fail, WorkerFailed)):
        with pytest.raises(kind):
            drive(doing, tmp_path)
    monkeypatch.setattr(ChatApp, "run", lambda app: setattr(app, "failure", error))
    session = session_of(tmp_path)
    refuses("no room", _on_screens, session, Preferences(), lambda: None)
    session.close()


@driven({"n_ctx": 420, "answers": {"one": "ok", "two": "and on " * 30}}, size=(80, 40))
async def test_an_answer_that_the_context_cut_goes_on_without_the_oldest_turns(chat: Chat) -> None:
    await chat.ask("one " * 30)
    await chat.ask("two " * 30, shows="the context is full")
    before = chat.contents[-1]
    await chat.run("/continue", ListSheet, shows="drop the oldest turns")
    await chat.press("enter")
    await chat.until(lambda: not chat.session.busy and len(chat.contents[-1]) > len(before))
    chat.see(shows=["dropping the oldest turns", "oldest turns left out"])
    assert chat.contents[-1].startswith(before)


@driven({"n_ctx": 420, "answers": {"two": "and on " * 60}}, size=(80, 40))
async def test_what_a_full_context_cannot_help_is_not_offered(chat: Chat) -> None:
    await chat.ask("two", shows="the context is full")
    await chat.until_text("a summary finds no room: /compact drop")
    await chat.run("/compact", ListSheet, shows=["A summary finds no room", "start over"])
    for useless in ("summarise the earlier turns", "drop the oldest turns", "edit the question"):
        assert useless not in chat.text()
    await chat.press("escape", rest=True, shows="a summary finds no room", lacks="summarising")
    await chat.until(lambda: chat.session.context_tokens > 400)
    assert chat.questions == ["two"], "the request is taken back"
    await chat.run("/continue", ListSheet, shows="The context is full", lacks="summarise the")


@driven({"n_ctx": 420, "answers": {"two": "and on " * 60, "one": "ok"}}, size=(80, 40))
async def test_a_question_behind_a_summary_without_room_is_asked_when_starting_over(
    chat: Chat,
) -> None:
    question = ("one " * 40).strip()
    await chat.ask("two", shows="the context is full")
    await chat.run(question, ListSheet, shows="The context is full", lacks="summarise the")
    await chat.back()
    shown = ["A summary finds no room", "drop the oldest turns"]
    await chat.run("/compact", ListSheet, shows=shown, lacks="too long")
    assert chat.questions == ["two", question]
    await chat.press("down", "down", "enter")
    await chat.until(lambda: chat.contents == [question, "ok"])
    assert (chat.session.talk.conversation, chat.session.waiting) == (2, [])


@driven({"n_ctx": 100})
async def test_a_full_context_offers_a_larger(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "larger_context", lambda *_: LargerContext(2000, 112_000_000))
    await chat.run("/set ctx 0")
    assert chat.session.models.usual.load.n_ctx is None
    shown = ["reload with 2000 tokens", "+ 112 MB of memory"]
    await chat.run("one " * 40, ListSheet, shows=shown)
    await chat.press("enter")
    await chat.until(lambda: len(chat.contents) == 2 and not chat.session.busy)
    assert chat.session.settings.text_of("ctx") == "2000"


@driven({"n_ctx": 100})
async def test_a_context_below_what_is_used_is_told(chat: Chat) -> None:
    await chat.ask("one two three")
    used = chat.session.context_tokens
    assert used > 1
    await chat.run(f"/set ctx {used - 1}", shows=f"this conversation has {used} tokens already")
    await chat.run("/set ctx 99", shows="ctx is now 99", lacks="tokens already")


def test_a_context_grows_as_far_as_training_and_memory_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 4 layers with keys and values of 1024 numbers in f16: 16384 bytes a token.
    trained = (("context_length", 6000),)
    shape = Proportions("llama", 4, 256, 512, 4, 4, 256, 512, more=trained)
    path = str(sparse_model(tmp_path / "toy.gguf", shape))
    for n_ctx, prompt, free, found in (
        (1024, 1024, 1 << 30, LargerContext(2048, 1024 * 16384)),
        (4096, 5999, 1 << 30, LargerContext(6000, 2048 * 16384)),  # caches are padded to 256
        (1024, 2047, 1 << 30, LargerContext(2048, 1024 * 16384)),
        (1024, 2048, 1 << 30, LargerContext(4096, 3072 * 16384)),
        (1024, 6000, 1 << 30, None),  # it would not fit either
        (6000, 0, 1 << 30, None),
        (4096, 4096, 1 << 20, None),
    ):
        monkeypatch.setattr(growing, "free_ram_bytes", lambda free=free: free)
        assert larger_context(path, n_ctx, "f16", prompt) == found
        assert larger_context("unknown", n_ctx, "f16", prompt) is None


def pair_of(chat: Chat) -> str:
    """Return what the history says that the conversation was held with."""
    return chat.session.talk.history.conversations()[0].pair


@pytest.mark.first(1)
@pytest.mark.parametrize(("how", "error"), [("refuses", REFUSED), ("too_large", TOO_LARGE)])
def test_what_answered_stays_where_a_switch_fails(
    tmp_path: Path, how: str, error: list[str]
) -> None:
    async def switch(chat: Chat) -> None:
        await chat.ask("one?")
        await chat.run("/model qwen3-4b", shows=f"{error[1]}; toy answers instead")
        await chat.ask("two?")
        assert chat.session.talk.messages[-1].model == pair_of(chat) == "toy"
        await chat.run("/restart")
        await chat.until(lambda: chat.session.models.line == "toy")

    drive(switch, tmp_path, {how: {"qwen3-4b": error}})


@pytest.mark.first(1)
@pytest.mark.parametrize(
    "script",
    [
        {"too_large": {"other": TOO_LARGE}, "load_s": 0.5, "deaf": 0.5},
        {"refuses": {"other": REFUSED}},
        {"deadly": "other"},
    ],
)
def test_a_question_waits_for_a_model_in_its_place(
    script: dict[str, object], tmp_path: Path
) -> None:
    async def talk(chat: Chat) -> None:
        await chat.ask("one?")
        assert pair_of(chat) == "other"

    async def resume(chat: Chat) -> None:
        await chat.begin("two?")
        await chat.until(lambda: f"{DEFAULT} answers instead" in chat.session.models.replaced)
        await chat.until_rest()
        assert chat.session.talk.messages[-1].model == pair_of(chat) == DEFAULT

    drive(talk, tmp_path, pair="other")
    drive(resume, tmp_path, script, pair=None, resume=1)


@driven({"refuses": {"gone": REFUSED}}, load=LaunchOptions(pair="gone"), ready=False)
async def test_a_question_waits_until_some_model_is_loaded(chat: Chat) -> None:
    await chat.until_text("gone is not here, download it first", "no model loaded")
    await chat.run("one?", shows=["1 question waiting"])
    assert chat.session.waiting == ["one?"]
    await chat.run("/model qwen3-4b")
    await chat.until(lambda: len(chat.contents) == 2 and not chat.session.busy)
    assert (pair_of(chat), chat.session.waiting) == ("qwen3-4b", [])


@driven({"pass_s": 0.001})
async def test_the_speed_of_another_model_is_not_shown(chat: Chat) -> None:
    await chat.ask("one")
    await chat.until(lambda: "tokens/s" in chat.text().splitlines()[-1])
    await chat.run("/model qwen3-4b")
    await chat.until(lambda: chat.session.models.name == "qwen3-4b")
    await chat.until(lambda: "tokens/s" not in chat.text().splitlines()[-1])
    # Its own count of the conversation stands there, and not nothing.
    await chat.until(lambda: chat.session.context_tokens > 0)


@driven({"n_ctx": 100, "answers": {"short": "ok " * 14}})
async def test_a_question_that_is_too_long_alone_is_said_to_be_whatever_came_before(
    chat: Chat,
) -> None:
    await chat.ask("short?")
    alone = ["This question is too long:", "of 100 tokens", "index add"]
    await chat.run("one " * 40, ListSheet, shows=alone, lacks="oldest turns")
    exchange = chat.exchange
    assert isinstance(exchange.failure, ContextOverflow)
    assert exchange.failure.sizes is not None
    assert 100 < exchange.alone_tokens < exchange.failure.sizes[0]
    assert f"{exchange.alone_tokens} of 100" in chat.line
    assert "start over" not in chat.line
    await chat.press("escape")
    full = ["The context is full", "drop the oldest turns"]
    await chat.run("one " * 16, ListSheet, shows=full, lacks="too long")
    await chat.press("escape")
    # A system prompt is said before every question, and is no turn that could be dropped.
    await chat.run("/new")
    await chat.run("/system Be brief.")
    await chat.run("one " * 40, ListSheet, shows=alone, lacks="oldest turns")

"""Two windows on one conversation: each shows and continues its own branch, whatever the other one does."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from localspec.history.archive import History
from localspec.options import LaunchOptions, ReplyOptions
from localspec.session.compaction import REQUEST
from localspec.session.conversation import SavedConversation
from localspec.tui.session import Session
from tests.tui.answers import streamed
from tests.tui.driving import Chat, drive
from tests.tui.test_session import READY, Engine, answer, contents, hear


def window(folder: Path, conversation: int | None = None) -> Session:
    """Open a window, with an engine of its own, on the last conversation or on none."""
    talk = SavedConversation(History(folder / "history"), "Be brief.")
    made = Session(Engine(), talk, LaunchOptions(pair="p"), ReplyOptions(), folder)  # type: ignore[arg-type]
    if conversation is not None:
        made.resume(conversation)
    made.start()
    hear(made, READY)
    return made


def sent(session: Session) -> list[str]:
    """Return what the engine was last given, without the system prompt."""
    engine: Engine = session.engine  # type: ignore[assignment]
    return [each.text for each in engine.asked[-1].messages][1:]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Session, Session]]:
    """Two windows on a conversation of one question and its answer."""
    first = window(tmp_path)
    first.ask("Say hello.")
    answer(first, "Hello.")
    second = window(tmp_path, first.talk.conversation)
    yield first, second
    first.close()
    second.close()


def test_every_command_is_of_the_branch_that_its_window_shows(
    pair: tuple[Session, Session],
) -> None:
    here, there = pair
    here.ask("MOON?")
    answer(here, "Of the moon.")
    there.ask("FOX?")
    answer(there, "Of the fox.")
    here.regenerate()
    assert sent(here) == ["Say hello.", "Hello.", "MOON?"]
    answer(here, "Of the moon again.")
    there.ask("More?")
    answer(there, "More of the fox.")
    here.ask_instead(2, "STAR?")
    answer(here, "Of the star.")
    assert contents(here) == ["Say hello.", "Hello.", "STAR?", "Of the star."]
    there.ask("Yet more?")
    assert here.talk.take_back() == "STAR?"
    assert contents(here) == ["Say hello.", "Hello."]
    answer(there, "Of foxes.")
    here.ask("SEA?")
    answer(here, "Of the sea.")
    here.go_on()
    answer(here, "Of the sea, and on.")
    assert contents(here) == ["Say hello.", "Hello.", "SEA?", "Of the sea, and on."]
    assert contents(there)[2:] == ["FOX?", "Of the fox.", "More?", "More of the fox.", "Yet more?", "Of foxes."]  # fmt: skip


def test_a_summary_is_of_the_branch_that_its_window_shows(pair: tuple[Session, Session]) -> None:
    here, there = pair
    here.ask("MOON?")
    there.ask("FOX?")
    answer(there, "Of the fox.")
    answer(here, "Of the moon.")
    there.compact()
    here.compact()
    assert sent(here) == ["Say hello.", "Hello.", "MOON?", "Of the moon.", REQUEST]
    answer(there, "They spoke of a fox.")
    answer(here, "They spoke of the moon.")
    here.talk.rewrite_summary("The moon it was.")
    there.ask("Go on.")
    here.ask("Go on.")
    assert sent(here) == [REQUEST, "The moon it was.", "Go on."]
    assert sent(there) == [REQUEST, "They spoke of a fox.", "Go on."]
    answer(here, "On.")
    answer(there, "On.")
    here.talk.branch_off(len(here.talk.messages))
    assert "MOON?" in contents(here)
    assert "FOX?" not in contents(here)


def test_the_summary_of_another_window_is_no_reason_to_make_none(
    pair: tuple[Session, Session],
) -> None:
    here, there = pair
    there.compact()
    answer(there, "They said hello.")
    here.ask("MOON?")
    assert not here.talk.has_tried_summary


def test_the_screen_shows_the_answer_of_its_own_window(tmp_path: Path) -> None:
    async def look(chat: Chat) -> None:
        await chat.ask("Say hello.")
        other = window(tmp_path, 1)
        await chat.begin("MOON?")
        other.ask("FOX?")
        answer(other, "Of the fox.")
        rest.touch()
        await chat.until(lambda: not chat.session.busy)
        assert "Of the moon." in chat.text()
        assert "FOX" not in chat.text()
        other.ask("More?")
        answer(other, "More of the fox.")
        other.close()
        await chat.ask("SUN?")
        assert chat.contents[::2] == ["Say hello.", "MOON?", "SUN?"]
        assert "fox" not in chat.text().lower()

    rest = tmp_path / "go on"
    script = {
        "answers": {"MOON": "Of the moon.", "SUN": "Of the sun."},
        "otherwise": ["Hi."],
        "rests": {"at": 4, "until": str(rest)},
    }
    drive(look, tmp_path, script, size=(80, 40))


class Windows(RuleBasedStateMachine):
    """Two windows and, for each, what it should show: kept apart, so that one can never have what is the other's."""

    @initialize()
    def begin(self) -> None:
        self.folder = TemporaryDirectory()
        path = Path(self.folder.name)
        first = window(path)
        first.ask("Say hello.")
        answer(first, "Hello.")
        self.windows = [first, window(path, first.talk.conversation)]
        self.branches = [["Say hello.", "Hello."] for _ in self.windows]
        # How much of the branch stays when the answer is there that was asked for again.
        self.kept: list[int | None] = [None, None]
        self.texts = 0

    def teardown(self) -> None:
        for each in self.windows:
            each.close()
        self.folder.cleanup()

    def fresh(self, what: str) -> str:
        self.texts += 1
        return f"{what} {self.texts}"

    def at_rest(self, at: int) -> Session | None:
        return None if self.windows[at].busy else self.windows[at]

    @rule(at=st.integers(0, 1))
    def ask(self, at: int) -> None:
        session, branch = self.at_rest(at), self.branches[at]
        if session is None:
            return
        text = self.fresh("question")
        session.ask(text)
        if len(branch) % 2:
            branch.pop()  # a question without an answer gives its place to the next one
        branch.append(text)
        self.see_sent(session, branch)

    @rule(at=st.integers(0, 1))
    def ask_again(self, at: int) -> None:
        session, branch = self.at_rest(at), self.branches[at]
        if session is None or not branch or REQUEST in branch[-2:]:
            return
        session.regenerate()
        self.kept[at] = len(branch) - 1 + len(branch) % 2
        self.see_sent(session, branch[: self.kept[at]])

    @rule(at=st.integers(0, 1), number=st.integers(1, 3))
    def ask_instead(self, at: int, number: int) -> None:
        session, branch = self.at_rest(at), self.branches[at]
        places = [place for place in range(0, len(branch), 2) if branch[place] != REQUEST]
        if session is None or number > len(places):
            return
        text = self.fresh("edited")
        session.ask_instead(number, text)
        branch[places[number - 1] :] = [text]
        self.see_sent(session, branch)

    @rule(at=st.integers(0, 1))
    def summarise(self, at: int) -> None:
        session, branch = self.at_rest(at), self.branches[at]
        if session is None or not branch or len(branch) % 2 or REQUEST in branch[-2:]:
            return
        session.compact()
        branch.append(REQUEST)
        self.see_sent(session, branch)

    @rule(at=st.integers(0, 1))
    def take_back(self, at: int) -> None:
        session, branch = self.at_rest(at), self.branches[at]
        if session is None or not branch:
            return
        session.talk.take_back()
        del branch[len(branch) - 2 + len(branch) % 2 :]

    @rule(at=st.integers(0, 1))
    def hear_some(self, at: int) -> None:
        session = self.windows[at]
        if session.busy and session.exchange is not None:
            hear(session, streamed(session.exchange.id, "Some"))

    @rule(at=st.integers(0, 1))
    def hear_all(self, at: int) -> None:
        session = self.windows[at]
        if session.busy:
            text, branch = self.fresh("answer"), self.branches[at]
            answer(session, text)
            branch[self.kept[at] or len(branch) :] = [text]
            self.kept[at] = None

    @rule(at=st.integers(0, 1))
    def open_again(self, at: int) -> None:
        """Open the conversation in another window: it shows what was added or shown last."""
        session = self.windows[at]
        if session.busy or self.windows[1 - at].busy or session.talk.conversation is None:
            return
        stored = session.talk.history.branch(session.talk.conversation)
        session.open(session.talk.conversation)
        self.branches[at][:] = [each.message.text for each in stored]

    def see_sent(self, session: Session, branch: list[str]) -> None:
        """See that what goes to the engine is of this window's branch and, without a summary, all of it."""
        assert set(sent(session)) <= set(branch)
        if REQUEST not in branch:
            assert sent(session) == branch

    @invariant()
    def each_window_shows_its_own(self) -> None:
        for session, branch in zip(self.windows, self.branches, strict=True):
            assert contents(session) == branch


Windows.TestCase.settings = settings(
    max_examples=30, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestWindows = Windows.TestCase

"""Two windows on one conversation: each shows and continues its own branch, whatever the other one does."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from localspec.errors import UsageError
from localspec.history.archive import History
from localspec.messages import Message
from localspec.session.compaction import REQUEST
from localspec.session.conversation import SavedConversation
from tests.tui.answers import finished, streamed
from tests.tui.driving import Chat, driven
from tests.tui.scripted import Window, window


def test_the_summary_of_another_window_is_no_reason_to_make_none(tmp_path: Path) -> None:
    with window(tmp_path) as here:
        here.ask("Say hello.", "Hello.")
        with window(tmp_path, here.conversation) as there:
            there.session.compact()
            there.answer("They said hello.")
        here.ask("MOON?")
        assert not here.session.talk.has_tried_summary


@pytest.fixture
def saved_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every text of an answer be saved as it comes."""
    monkeypatch.setattr("localspec.history.recorder.FLUSH_S", 0)


@pytest.mark.usefixtures("saved_at_once")
def test_an_answer_that_was_completed_in_another_window_is_shown_first(
    tmp_path: Path,
) -> None:
    with window(tmp_path) as here:
        here.ask("one?")
        here.hear(streamed(here.number, "On"))
        with window(tmp_path, here.conversation) as there:
            assert there.session.talk.messages[-1].state == "cut", "as after a kill"
            here.hear(finished(here.number, "One, two."))
            with pytest.raises(UsageError, match="another window has gone on with this answer"):
                there.session.go_on()
            assert there.contents == ["one?", "One, two."]
            there.session.go_on()
            there.hear(streamed(there.number, " Three."))
            there.hear(finished(there.number, "One, two. Three."))
        assert len(here.session.talk.history.messages(here.conversation)) == 2


@pytest.mark.usefixtures("saved_at_once")
def test_an_answer_that_another_window_writes_goes_on_in_a_version_of_its_own(
    tmp_path: Path,
) -> None:
    with window(tmp_path) as here:
        here.ask("one?")
        here.hear(streamed(here.number, "On"))
        with window(tmp_path, here.conversation) as there:
            here.hear(streamed(here.number, "e, "))
            there.session.go_on()
            there.hear(streamed(there.number, "ly."))
            here.hear(finished(here.number, "One, two."))
            there.hear(finished(there.number, "Only."))
            assert there.contents == ["one?", "Only."]
        assert here.contents == ["one?", "One, two."]
        stored = here.session.talk.history.messages(here.conversation)
        assert [each.message.text for each in stored] == ["one?", "One, two.", "Only."]


SCRIPT = {
    "answers": {"MOON": "Of the moon.", "SUN": "Of the sun."},
    "otherwise": ["Hi."],
    "rests": {"at": 4, "until": Path("go on")},
}


@driven(SCRIPT, size=(80, 40))
async def test_the_screen_shows_the_branch_of_its_own_window(chat: Chat, tmp_path: Path) -> None:
    await chat.ask("Say hello.")
    other = SavedConversation(History(tmp_path / "history"))
    other.open(1)
    other.say(Message.user("meanwhile"))
    await chat.begin("MOON?")
    await chat.until_text("grown elsewhere")
    for question in ("FOX?", "More of the fox?"):
        other.say(Message.user(question))
    chat.let("go on")
    await chat.until_rest()
    await chat.until_text("Of the moon.", lacks="FOX")
    assert len(chat.session.talk.messages[2].siblings) == 4, "its own and the other window's three"
    other.say(Message.user("And the fox?"))
    other.history.close()
    await chat.ask("SUN?", lacks="grown elsewhere")
    assert chat.questions == ["Say hello.", "MOON?", "SUN?"]
    assert "fox" not in chat.text().lower()


class Windows(RuleBasedStateMachine):
    """Two windows and, for each, what it should show: kept apart, so that one can never have what is the other's."""

    @initialize()
    def begin(self) -> None:
        self.folder = TemporaryDirectory()
        path = Path(self.folder.name)
        first = Window(path)
        first.ask("Say hello.", "Hello.")
        self.windows = [first, Window(path, first.conversation)]
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

    def at_rest(self, at: int) -> tuple[Window | None, list[str]]:
        here = self.windows[at]
        return None if here.session.busy else here, self.branches[at]

    @rule(at=st.integers(0, 1))
    def ask(self, at: int) -> None:
        here, branch = self.at_rest(at)
        if here is None:
            return
        text = self.fresh("question")
        here.ask(text)
        if len(branch) % 2:
            branch.pop()  # a question without an answer gives its place to the next one
        branch.append(text)
        self.see_sent(here, branch)

    @rule(at=st.integers(0, 1))
    def ask_again(self, at: int) -> None:
        here, branch = self.at_rest(at)
        if here is None or not branch or REQUEST in branch[-2:]:
            return
        here.session.regenerate()
        self.kept[at] = len(branch) - 1 + len(branch) % 2
        self.see_sent(here, branch[: self.kept[at]])

    @rule(at=st.integers(0, 1), number=st.integers(1, 3))
    def ask_instead(self, at: int, number: int) -> None:
        here, branch = self.at_rest(at)
        places = [place for place in range(0, len(branch), 2) if branch[place] != REQUEST]
        if here is None or number > len(places):
            return
        text = self.fresh("edited")
        here.session.ask_instead(number, text)
        branch[places[number - 1] :] = [text]
        self.see_sent(here, branch)

    @rule(at=st.integers(0, 1))
    def summarise(self, at: int) -> None:
        here, branch = self.at_rest(at)
        if here is None or not branch or len(branch) % 2 or REQUEST in branch[-2:]:
            return
        here.session.compact()
        branch.append(REQUEST)
        self.see_sent(here, branch)

    @rule(at=st.integers(0, 1))
    def take_back(self, at: int) -> None:
        here, branch = self.at_rest(at)
        if here is not None and branch:
            here.session.talk.take_back()
            del branch[len(branch) - 2 + len(branch) % 2 :]

    @rule(at=st.integers(0, 1), whole=st.booleans())
    def hear(self, at: int, whole: bool) -> None:
        here, branch = self.windows[at], self.branches[at]
        if here.session.busy and not whole:
            here.hear(streamed(here.number, "Some"))
        elif here.session.busy:
            text = self.fresh("answer")
            here.answer(text)
            branch[self.kept[at] or len(branch) :] = [text]
            self.kept[at] = None

    @rule(at=st.integers(0, 1))
    def open_again(self, at: int) -> None:
        """Open the conversation in another window: it shows what was added or shown last."""
        here, _ = self.at_rest(at)
        if here is None or self.windows[1 - at].session.busy:
            return
        stored = here.session.talk.history.branch(here.conversation)
        here.session.open(here.conversation)
        self.branches[at][:] = [each.message.text for each in stored]

    def see_sent(self, here: Window, branch: list[str]) -> None:
        """See that what goes to the engine is of this window's branch and, without a summary, all of it."""
        assert set(here.turns) <= set(branch)
        if REQUEST not in branch:
            assert here.turns == branch

    @invariant()
    def each_window_shows_its_own(self) -> None:
        for here, branch in zip(self.windows, self.branches, strict=True):
            assert here.contents == branch


Windows.TestCase.settings = settings(
    max_examples=30, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestWindows = Windows.TestCase

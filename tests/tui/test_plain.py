"""The chat in lines, with an engine double that speaks the real protocol."""

import io
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.cli.interrupt import unwind_on_terminate
from localspec.errors import ModelUnavailable
from localspec.history.archive import History
from localspec.models.registry import load_registry
from localspec.session.preferences import Preferences
from localspec.tui import plain
from localspec.tui.plain import Lines
from localspec.tui.session import Session
from tests.tui.lines import said, session_of

DRAFTING = {"otherwise": ["some answer that is drafted"], "drafts": 3}
WORDS = " ".join(["word"] * 30)


def test_a_line_is_a_question(tmp_path: Path) -> None:
    code, out, err = said(tmp_path, "one?", "two?", script={"otherwise": ["One.", "Two."]})
    assert (code, out) == (0, "One.\nTwo.\n")
    assert err.count("tokens/s") == 2
    assert said(tmp_path, "one?", quiet=True)[2] == ""
    assert said(tmp_path, "/quit", "one?")[1] == ""


@pytest.mark.parametrize(
    "first", [["one\\", "two"], ['"""one', 'two"""'], ['"""', "one", 'two"""']]
)
def test_several_lines_may_be_one_question(first: list[str], tmp_path: Path) -> None:
    script = {"answers": {"one\ntwo": "Both."}}
    lines = ["zero\\", None, *first, "/copy all"]
    _, out, _ = said(tmp_path, *lines, script=script)
    assert out == "Both.\nuser: one\ntwo\n\nassistant: Both.\n"


@pytest.mark.parametrize(
    ("answer", "at_terminal"),
    [
        ("\x1b[2Jhi", "␛[2Jhi\n"),
        (WORDS, f"{' '.join(['word'] * 16)}\n{' '.join(['word'] * 14)}\n"),
    ],
)
def test_a_terminal_gets_whole_words_and_nothing_that_it_obeys(
    answer: str, at_terminal: str, tmp_path: Path
) -> None:
    script = {"otherwise": [answer]}
    assert said(tmp_path, "one?", script=script, terminal=True)[1] == at_terminal
    assert said(tmp_path, "one?", script=script, terminal=False)[1] == f"{answer}\n"


def test_a_person_is_told_which_model_answers_and_how_to_get_help(tmp_path: Path) -> None:
    greeting = "localspec: chatting with toy; /help lists the commands, Ctrl-D quits\n"
    assert said(tmp_path, greets=True)[2] == greeting
    assert said(tmp_path)[2] == ""


def test_thoughts_are_left_out_unless_they_are_wanted(tmp_path: Path) -> None:
    script = {"thinks": True, "otherwise": ["<think>hm</think>Done."]}
    assert said(tmp_path, "one?", script=script)[1] == "Done.\n"
    assert "hm" in said(tmp_path, "/think", "one?", script=script)[1]


def test_how_long_the_model_thinks_is_set_and_what_its_template_does_not_know_is_reported_once(
    tmp_path: Path,
) -> None:
    script = {"thinks": True, "otherwise": ["<think>hm, well, so</think>Done."]}
    lines = ["/think 2", "/think", "one?", "/think off", "two?", "three?", "/think usual", "four?"]
    _, out, err = said(tmp_path, *lines, script=script)
    assert out.endswith("hm, well, soDone.\n")
    assert "think is now 2" in err
    assert "think is now usual" in err
    assert err.count("cannot switch thinking off") == 1
    assert "it takes on, off" in said(tmp_path, "/think maybe")[2]


def test_a_question_is_edited_and_answers_are_made_again(tmp_path: Path) -> None:
    lines = ("one?", "/edit 1 uno?", "/regenerate", "/edit", "/copy all")
    _, out, err = said(tmp_path, *lines, script={"otherwise": ["Yes."]})
    assert out.startswith("Yes.\nYes.\nYes.\n")
    assert out.endswith("user: uno?\n\nassistant: Yes.\n")
    assert "question 1: uno?" in err


def test_conversations_are_listed_opened_and_deleted_by_number(tmp_path: Path) -> None:
    said(tmp_path, "about rivers?", "/new", "about trees?")
    lines = ("/history", "/history about", "/history 1", "/history delete #1", "/history")
    _, out, err = said(tmp_path, *lines)
    assert err.count("2 about trees?") == 3
    assert err.count("1 about rivers?") == 2
    assert "You: about rivers?" in out
    assert "deleted conversation 1" in err
    _, _, err = said(tmp_path, "/history #1", "/history delete #99", "/history #x")
    assert err.count("there is no conversation") == 3
    _, out, err = said(tmp_path, "/copy all", resume=2)
    assert "continuing 2, 'about trees?'" in err
    assert "user: about trees?" in out


def test_a_conversation_whose_model_is_gone_goes_on_with_the_default_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Then the other models are there before the question is looked at again.
    monkeypatch.setattr("localspec.tui.session._LOOK_S", 0.3)
    said(tmp_path, "about rivers?", pair="qwen3-4b")
    script = {"refuses": {"qwen3-4b": ["ModelUnavailable", "it is not here"]}}
    lines = ("two?", "/model qwen3-4b", "/model qwen3-4x")
    code, out, err = said(tmp_path, *lines, script=script, resume=1, pair=None)
    assert (code, out) == (ModelUnavailable.exit_code, "Hello **world**.\n")
    default = load_registry().default_pair
    assert "did you mean qwen3-4b" in err
    assert err.count(f"localspec: it is not here; {default} answers instead\n") == 2
    history = History(tmp_path / "history")
    assert history.conversation(1).pair == default
    history.close()


def test_lens_stats_and_race_in_lines(tmp_path: Path) -> None:
    _, out, err = said(tmp_path, "one?", "/lens", "/stats", "/race", script=DRAFTING)
    assert "looked up in the text so far" in err
    assert "tokens per step" in err
    assert "the texts are equal" in err
    assert out.count("some answer that is drafted") == 3
    assert "[with drafting]" in out


def test_what_is_wrong_is_one_line_and_the_chat_goes_on(tmp_path: Path) -> None:
    wrong = ["/frob", "/set hot 1", "/set temperature hot", "/copy", "/edit 3", "/branch", "/rename",
             "/lens", "/race", "/continue", "/regenerate", "/persona x", "/export", "@a.bin"]  # fmt: skip
    (tmp_path / "a.bin").write_bytes(b"\xff")
    code, out, err = said(tmp_path, *wrong, "one?")
    assert (code, out) == (0, "Hello **world**.\n")
    assert len(err.splitlines()) == len(wrong) + 1
    assert all(line.startswith("localspec: ") for line in err.splitlines())


def test_the_code_is_that_of_the_last_question(tmp_path: Path) -> None:
    script = {"refuses": {"toy": ["ModelUnavailable", "no such pair"]}}
    code, out, err = said(tmp_path, "one?", script=script)
    assert (code, out) == (ModelUnavailable.exit_code, "")
    assert err == "localspec: no such pair\n"


def test_an_engine_that_dies_is_told_and_started_again(tmp_path: Path) -> None:
    script = {"answers": {"one": "Hello **world**, and more.", "two": "Yes."},
              "death": {"on": "token", "at": 14}, "pass_s": 0.05}  # fmt: skip
    code, out, err = said(tmp_path, "one?", "/copy", "/restart", "two?", script=script)
    assert err.count("was killed (SIGKILL)") == 1
    assert "loaded: toy" in err
    # What was there when it died is in the answer, and in the copy.
    assert out.count("Hel") == 2
    assert (code, out[-5:]) == (0, "Yes.\n")


def test_an_engine_that_a_load_kills_refuses_questions(tmp_path: Path) -> None:
    code, out, err = said(tmp_path, "one?", "two?", script={"death": {"on": "load"}})
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == ("localspec: the model is not running: /restart starts it again")
    assert "needs less memory" in err


@pytest.mark.parametrize("again", ["one?", "/regenerate", "/race"])
def test_an_engine_that_dies_in_a_race_ends_it_and_nothing_waits_for_it(
    again: str, tmp_path: Path
) -> None:
    script = {"answers": {"one": "Yes."}, "otherwise": [WORDS], "death": {"on": "token", "at": 50}}
    code, out, err = said(tmp_path, "one?", "/race two?", again, script=script)
    assert code == 0
    assert out.startswith("Yes.\n[with drafting]\n")
    assert "was killed (SIGKILL)" in err
    assert "there is nothing to compare" in err
    assert out.endswith(("Yes.\n", "Yes.\n\n"))


def test_a_full_context_says_what_to_do_and_drop_does_it(tmp_path: Path) -> None:
    lines = ("one " * 40, "two " * 40, "three " * 20, "/compact drop")
    _, out, err = said(tmp_path, *lines, script={"n_ctx": 450, "otherwise": ["ok"]})
    assert "/compact summarises earlier turns, /compact drop drops them" in err
    assert out == "ok\nok\nok\n"


class Interrupting(io.StringIO):
    """Where answers are written; does something when the first word has come."""

    def __init__(self, do: Callable[[], object]) -> None:
        super().__init__()
        self._do: list[Callable[[], object]] = [do]

    def write(self, text: str) -> int:
        count = super().write(text)
        if "word" in self.getvalue() and self._do:
            self._do.pop()()
        return count


def test_ctrl_c_stops_the_answer_and_keeps_what_is_there(tmp_path: Path) -> None:
    def look(session: Session) -> None:
        assert session.talk.messages[-1].state == "cut"

    script = {"otherwise": ["word " * 100], "pass_s": 0.01}
    press = Interrupting(lambda: signal.raise_signal(signal.SIGINT))
    code, out, _ = said(tmp_path, "one?", script=script, out=press, look=look)
    assert code == 0
    assert 0 < out.count("word") < 100


def test_a_signal_that_ends_the_program_ends_an_answer_at_once(tmp_path: Path) -> None:
    # From a thread: it comes while the loop waits, and not in the middle of the answer's own work.
    def end() -> None:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()

    script = {"otherwise": ["word " * 100], "pass_s": 0.05}
    out = Interrupting(end)
    with unwind_on_terminate(), pytest.raises(SystemExit) as ended:
        said(tmp_path, "one?", script=script, out=out)
    assert ended.value.code == 128 + signal.SIGTERM
    assert 0 < out.getvalue().count("word") < 100
    assert not out.getvalue().endswith("\n")


@pytest.mark.slow
def test_a_second_ctrl_c_leaves_an_engine_that_hangs(tmp_path: Path) -> None:
    session = session_of(tmp_path, {"otherwise": ["word " * 100], "pass_s": 0.02})
    engine = session.engine

    def press_twice() -> None:
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGSTOP)
        signal.raise_signal(signal.SIGINT)
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()

    front = Lines(session, Preferences(), Interrupting(press_twice), io.StringIO(), terminal=False)
    assert plain.run(front, ["one?"]) == 130
    session.close()
    assert not engine.alive
    history = History(tmp_path / "history")
    answer = history.branch(history.latest() or 0)[1]
    history.close()
    assert (answer.state, answer.message.text[:4]) == ("cut", "word")


@pytest.mark.parametrize("what", ["/help", "/set", "/theme", "/system"])
def test_commands_that_only_tell(what: str, tmp_path: Path) -> None:
    code, out, err = said(tmp_path, what)
    assert (code, out) == (0, "")
    assert err.startswith("localspec: ")

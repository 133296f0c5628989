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


def test_a_line_is_a_question(tmp_path: Path) -> None:
    code, out, err = said(tmp_path, "one?", "two?", script={"otherwise": ["One.", "Two."]})
    assert (code, out) == (0, "One.\nTwo.\n")
    assert err.count("tokens/s") == 2


def test_a_backslash_goes_on_in_the_next_line(tmp_path: Path) -> None:
    _, out, _ = said(
        tmp_path, "one\\", "two", "/copy all", script={"answers": {"one\ntwo": "Both."}}
    )
    assert out.startswith("Both.\n")
    assert "user: one\ntwo" in out


def test_a_terminal_is_sent_nothing_that_it_obeys(tmp_path: Path) -> None:
    script = {"otherwise": ["\x1b[2Jhi"]}
    assert said(tmp_path, "one?", script=script, terminal=True)[1] == "␛[2Jhi\n"
    assert said(tmp_path, "one?", script=script, terminal=False)[1] == "\x1b[2Jhi\n"


def test_a_terminal_gets_lines_that_end_between_words(tmp_path: Path) -> None:
    words = " ".join(["word"] * 30)
    script = {"otherwise": [words]}
    assert said(tmp_path, "one?", script=script, terminal=True)[1].split("\n") == [
        " ".join(["word"] * 16),
        " ".join(["word"] * 14),
        "",
    ]
    assert said(tmp_path, "one?", script=script, terminal=False)[1] == words + "\n"


def test_a_person_is_told_which_model_answers_and_how_to_get_help(tmp_path: Path) -> None:
    greeting = "localspec: chatting with toy; /help lists the commands, Ctrl-D quits\n"
    assert said(tmp_path, greets=True)[2] == greeting
    assert said(tmp_path)[2] == ""


def test_quiet_leaves_only_the_answer(tmp_path: Path) -> None:
    assert said(tmp_path, "one?", quiet=True)[2] == ""


def test_thoughts_are_left_out_unless_they_are_wanted(tmp_path: Path) -> None:
    script = {"thinks": True, "otherwise": ["<think>hm</think>Done."]}
    assert said(tmp_path, "one?", script=script)[1] == "Done.\n"
    assert "hm" in said(tmp_path, "/think", "one?", script=script)[1]


def test_a_question_is_edited_and_answers_are_made_again(tmp_path: Path) -> None:
    _, out, err = said(
        tmp_path,
        "one?",
        "/edit 1 uno?",
        "/regenerate",
        "/edit",
        "/copy all",
        script={"otherwise": ["Yes."]},
    )
    assert out.startswith("Yes.\nYes.\nYes.\n")
    assert out.endswith("user: uno?\n\nassistant: Yes.\n")
    assert "question 1: uno?" in err


def test_conversations_are_listed_opened_and_deleted_by_number(tmp_path: Path) -> None:
    said(tmp_path, "about rivers?", "/new", "about trees?")
    _, out, err = said(
        tmp_path, "/history", "/history about", "/history 1", "/history delete #1", "/history"
    )
    assert err.count("2 about trees?") == 3
    assert err.count("1 about rivers?") == 2
    assert "You: about rivers?" in out
    assert "deleted conversation 1" in err
    _, _, err = said(tmp_path, "/history #1", "/history delete #99", "/history #x")
    assert err.count("there is no conversation") == 3


def test_a_conversation_is_taken_up(tmp_path: Path) -> None:
    said(tmp_path, "about rivers?")
    _, out, err = said(tmp_path, "/copy all", resume=1)
    assert "continuing 1, 'about rivers?'" in err
    assert "user: about rivers?" in out


def test_a_conversation_whose_model_is_gone_goes_on_with_the_default_pair(tmp_path: Path) -> None:
    said(tmp_path, "about rivers?", pair="qwen3-4b")
    script = {"refuses": {"qwen3-4b": ["ModelUnavailable", "it is not here"]}}
    lines = ("two?", "/model qwen3-4b", "/model qwen3-4x")
    code, out, err = said(tmp_path, *lines, script=script, resume=1, pair=None)
    assert (code, out) == (ModelUnavailable.exit_code, "Hello **world**.\n")
    default = load_registry().default_pair
    assert "did you mean qwen3-4b" in err
    assert err.count(f"localspec: it is not here; {default} answers instead\n") == 2
    kept = History(tmp_path / "history")
    assert kept.conversation(1).pair == default
    kept.close()


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
    assert (code, out) == (3, "")
    assert "localspec: no such pair\n" in err


def test_a_dead_engine_is_told_and_can_be_started_again(tmp_path: Path) -> None:
    script = {
        "otherwise": ["Hello **world**, and more."],
        "death": {"on": "token", "at": 14},
        "pass_s": 0.05,
    }
    _, out, err = said(tmp_path, "one?", "/restart", "/copy", script=script)
    assert "was killed (SIGKILL)" in err
    assert "loaded: toy" in err
    # What was there when it died is in the answer, and in the copy.
    assert out.count("Hel") == 2


def test_a_full_context_says_what_to_do_and_drop_does_it(tmp_path: Path) -> None:
    script = {"n_ctx": 450, "otherwise": ["ok"]}
    _, out, err = said(
        tmp_path, "one " * 40, "two " * 40, "three " * 20, "/compact drop", script=script
    )
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


def test_a_question_to_an_engine_that_died_is_refused(tmp_path: Path) -> None:
    script = {"death": {"on": "load"}}
    code, out, err = said(tmp_path, "one?", "two?", script=script)
    assert (code, out) == (2, "")
    assert err.count("/restart starts it again") == 2
    assert "the model is not running" in err


@pytest.mark.parametrize("again", ["two?", "/regenerate", "/continue", "/race"])
def test_an_engine_that_dies_in_a_race_ends_it_and_nothing_waits_for_it(
    again: str, tmp_path: Path
) -> None:
    script = {
        "answers": {"one": "Yes."},
        "otherwise": ["word " * 40],
        "death": {"on": "token", "at": 50},
    }
    code, out, err = said(tmp_path, "one?", "/race two?", again, script=script)
    assert code == 2
    assert out.startswith("Yes.\n[with drafting]\n")
    assert "was killed (SIGKILL)" in err
    assert "there is nothing to compare" in err
    assert "the model is not r" in err.splitlines()[-1], "running, or ready"


@pytest.mark.slow
def test_a_second_ctrl_c_leaves_an_engine_that_hangs(tmp_path: Path) -> None:
    script = {"otherwise": ["word " * 100], "pass_s": 0.02}
    session = session_of(tmp_path, script)
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
    kept = History(tmp_path / "history")
    answer = kept.branch(kept.latest() or 0)[1]
    kept.close()
    assert (answer.state, answer.message.text[:4]) == ("cut", "word")


@pytest.mark.parametrize("what", ["/help", "/set", "/theme", "/system"])
def test_commands_that_only_tell(what: str, tmp_path: Path) -> None:
    code, out, err = said(tmp_path, what)
    assert (code, out) == (0, "")
    assert err.startswith("localspec: ")


def test_quit_leaves_at_once(tmp_path: Path) -> None:
    assert said(tmp_path, "/quit", "one?")[1] == ""

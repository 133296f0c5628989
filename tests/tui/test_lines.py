"""The chat in lines, with an engine double that speaks the real protocol."""

import io
import os
import signal
import threading
import tomllib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from localspec.chat.events import Text
from localspec.cli.interrupt import unwind_on_terminate
from localspec.errors import ModelUnavailable
from localspec.history.archive import History
from localspec.models.names import import_file
from localspec.models.registry import load_registry
from localspec.models.store import Store
from localspec.options import ReplyOptions
from localspec.session.preferences import Preferences
from localspec.tui import plain
from localspec.tui.plain import Lines
from localspec.tui.session import Session
from tests.llama import tiny_models
from tests.support.checks import fits
from tests.tui.lines import said, session_of

HELLO = "Hello **world**.\n"
WORDS = " ".join(["word"] * 30)
DRAFTING = {"otherwise": ["some answer that is drafted"], "drafts": 3}
BOTH = {"answers": {"one\ntwo": "Both."}}
COPIED = "Both.\nuser: one\ntwo\n\nassistant: Both.\n"
THINKS = {"thinks": True, "otherwise": ["<think>hm</think>Done."]}
DIES = {"answers": {"one": "Hello **world**, and more.", "two": "Yes."}, "death": {"on": "token", "at": 14}, "pass_s": 0.05}  # fmt: skip
FULL = ("one " * 40, "two " * 40, "three " * 20, "/compact drop")
SYSTEM = ("what is @nothing?", "/set system Be brief.", "/set", "/set system -", "/set system")
SAVED = ("one?", "/save rivers", "/new", "two?", "/load river", "/load nothing such", "/load", "/new", "/save")  # fmt: skip
GREETING = "localspec: chatting with toy; /help lists the commands, Ctrl-D quits\n"
# What is typed, the script, how it is started, the code; answers and news, whole or how often they have a text.
TALKS: list[tuple[Any, ...]] = [
    (("one?", "two?"), {"otherwise": ["One.", "Two."]}, {}, 0, "One.\nTwo.\n", {"tokens/s": 2}),
    (("one?",), None, {"quiet": True}, 0, HELLO, ""),
    (("/quit", "one?"), None, {}, 0, "", ""),
    (("one?", "exit", "two?"), None, {"answers": iter(())}, 0, HELLO, {}),
    (("exit",), None, {}, 0, HELLO, {}),
    *((("zero\\", None, *each, "/copy all"), BOTH, {}, 0, COPIED, {}) for each in (("one\\", "two"), ('"""one', 'two"""'), ('"""', "one", 'two"""'))),
    (("one?",), {"otherwise": ["\x1b[2Jhi"]}, {"terminal": True}, 0, "␛[2Jhi\n", {}),
    (("one?",), {"otherwise": ["\x1b[2Jhi"]}, {}, 0, "\x1b[2Jhi\n", {}),
    (("one?",), {"otherwise": [WORDS]}, {"terminal": True}, 0, f"{' '.join(['word'] * 16)}\n{' '.join(['word'] * 14)}\n", {}),
    (("one?",), {"otherwise": [WORDS]}, {}, 0, f"{WORDS}\n", {}),
    (("one?", "/copy code"), {"otherwise": [f"1. go\n   ```sh\n   {WORDS}\n   ```"]}, {"terminal": True}, 0, {f"\n   {WORDS}\n": 1, f"\n{WORDS}\n": 1}, {}),
    ((), None, {"greets": True}, 0, "", GREETING),
    ((), None, {}, 0, "", ""),
    (("one?",), THINKS, {}, 0, "Done.\n", {}),
    (("/bad", "one?", "/good", "/bad", "/bad", "/export json a"), None, {}, 0, HELLO, {"no answer yet": 1, "marked good; /good again takes it back": 1, "marked bad": 1, "no mark any more": 1}),
    (("/think", "one?"), THINKS, {}, 0, {"hm": 1, "Done.\n": 1}, {}),
    (("one?", "/edit 1 uno?", "/regenerate", "/edit", "/copy all"), {"otherwise": ["Yes."]}, {}, 0, "Yes.\nYes.\nYes.\nuser: uno?\n\nassistant: Yes.\n", {"question 1: uno?": 1}),
    (("one?", "/lens", "/stats"), DRAFTING, {}, 0, {"some answer that is drafted": 1}, {"looked up in the text so far": 1, "tokens per round": 1}),
    (("one?", "two?"), {"refuses": {"toy": ["ModelUnavailable", "no such pair"]}}, {}, ModelUnavailable.exit_code, "", {"no such pair": 1}),
    # What was there when it died is in the answer, and in the copy.
    (("one?", "/copy", "/restart", "two?"), DIES, {}, 0, {"Hel": 2, "Yes.\n": 1}, {"was killed (SIGKILL)": 1, "loaded: toy": 1}),
    (("one?", "two?"), {"death": {"on": "load"}}, {}, 2, "", {"localspec: the model is not running: /restart starts it again\n": 1, "needs less memory": 1}),
    (FULL, {"n_ctx": 450, "otherwise": ["ok"]}, {}, 0, "ok\nok\nok\n", {"/compact summarises earlier turns, /compact drop drops them, /set ctx N loads": 1}),
    *(((each,), None, {}, 0, "", {}) for each in ("/help", "/set", "/theme", "/system")),
    (SYSTEM, None, {}, 0, {}, {"no file matches @nothing: sent as text": 1, "system is now Be brief.": 1, "system             Be brief.": 1, "system is now -\n": 2}),
    (SAVED, None, {}, 2, {"You: one?": 1}, {"named 'rivers' (conversations are saved automatically)": 1, "no conversation contains 'nothing such'": 1, "1 rivers": 1, "this conversation is empty": 1}),
    (("/load qwen3:4b", "/model qwen3-embed", "/model bge-smal"), None, {}, 3, "", {"loaded: qwen3-4b": 1, "no model 'qwen3-embed': did you mean qwen3": 1, "no model 'bge-smal': `localspec search`": 1, "embedding": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("typed", "script", "how", "code", "out", "news"), TALKS)
def test_what_is_typed_is_answered(
    tmp_path: Path, typed: Any, script: Any, how: Any, code: int, out: Any, news: Any
) -> None:
    ended, answers, told = said(tmp_path, *typed, script=script, **how)
    assert ended == code, told
    fits(answers, out)
    fits(told, news)
    assert told == "" or told.startswith("localspec: ")


def test_an_answer_that_follows_a_grammar_is_not_wrapped(tmp_path: Path) -> None:
    for options, lines in ((ReplyOptions(regex=".*"), 1), (ReplyOptions(), 2)):
        session, out = session_of(tmp_path, options=options), io.StringIO()
        with closing(session):
            front = Lines(session, Preferences(), out, io.StringIO(), terminal=True)
            front._write_event(Text(WORDS))
            front.report("done")
        assert len(out.getvalue().splitlines()) == lines


def test_how_long_the_model_thinks_is_set_and_what_cannot_be_is_told_once(tmp_path: Path) -> None:
    script = {"thinks": True, "otherwise": ["<think>hm, well, so</think>Done."]}
    lines = ["/think 2", "/think", "one?", "/think off", "two?", "three?", "/think usual", "four?"]
    _, out, err = said(tmp_path, *lines, script=script)
    assert out.endswith("hm, well, soDone.\n")
    fits(err, {"think is now 2": 1, "think is now usual": 1, "cannot switch thinking off": 1})
    assert "it takes on, off" in said(tmp_path, "/think maybe")[2]


def test_a_setting_that_hardly_anybody_can_mean_has_a_word(tmp_path: Path) -> None:
    lines = ("/set temperature 99", "/set top_p 0.01", "/set repeat_penalty 0.1", "/set min_p 0.05")
    fits(said(tmp_path, *lines)[2], {"is now": 4, "is usual": 3, "above a temperature of 2": 1})


def test_conversations_are_listed_opened_and_deleted_by_number(tmp_path: Path) -> None:
    said(tmp_path, "about rivers?", "/new", "about trees?")
    lines = ("/history", "/history about", "/history 1", "/history delete #1", "/history")
    _, out, err = said(tmp_path, *lines)
    fits(err, {"2 about trees?": 3, "1 about rivers?": 2, "deleted conversation 1": 1})
    assert "You: about rivers?" in out
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
    with closing(History(tmp_path / "history")) as history:
        assert history.conversation(1).pair == default


def test_what_is_wrong_is_one_line_and_the_chat_goes_on(tmp_path: Path) -> None:
    words = "frob|set hot 1|set temperature hot|copy|edit 3|branch|rename|lens|continue|regenerate|persona x|export"
    wrong = [*(f"/{each}" for each in words.split("|")), "@a.bin"]
    (tmp_path / "a.bin").write_bytes(b"\xff")
    code, out, err = said(tmp_path, *wrong, "one?")
    assert (code, out) == (0, "Hello **world**.\n")
    assert len(err.splitlines()) == err.count("localspec: ") == len(wrong) + 1


def test_a_model_becomes_the_usual_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    file = tmp_path / "tiny.gguf"
    tiny_models.write_llama(file)
    import_file(file, "own-one", load_registry(), Store(tmp_path / "data"), copy=True)
    for lines, told, settings in (
        (("/set model own-one", "/load own-one"), "own-one is now your def", {"target": "own-one"}),
        (("/set model qwen3:4b",), "qwen3:4b is now your default model", {"pair": "qwen3-4b"}),
        (("/set model qwen3",), "did you mean qwen3-0.6b", {"pair": "qwen3-4b"}),
        (("/set model",), "", {"pair": "smollm2-135m"}),
    ):
        _, _, err = said(tmp_path, *lines, pair="smollm2-135m")
        assert told in err
        assert "no conversation contains" not in err
        assert tomllib.loads((tmp_path / "settings/config.toml").read_text()) == settings


WORDY = {"otherwise": ["word " * 100], "pass_s": 0.05}


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

    press = Interrupting(lambda: signal.raise_signal(signal.SIGINT))
    code, out, _ = said(tmp_path, "one?", script=WORDY, out=press, look=look)
    assert code == 0
    assert 0 < out.count("word") < 100


def test_a_signal_that_ends_the_program_ends_an_answer_at_once(tmp_path: Path) -> None:
    # From a thread: it comes while the loop waits, and not in the middle of the answer's own work.
    end = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM))
    out = Interrupting(end.start)
    with unwind_on_terminate(), pytest.raises(SystemExit) as ended:
        said(tmp_path, "one?", script=WORDY, out=out)
    assert ended.value.code == 128 + signal.SIGTERM
    assert 0 < out.getvalue().count("word") < 100
    assert not out.getvalue().endswith("\n")


@pytest.mark.slow
def test_a_second_ctrl_c_leaves_an_engine_that_hangs(tmp_path: Path) -> None:
    session = session_of(tmp_path, WORDY)
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
    with closing(History(tmp_path / "history")) as history:
        answer = history.branch(history.latest() or 0)[1]
    assert (answer.state, answer.message.text[:4]) == ("cut", "word")

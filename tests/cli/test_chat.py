"""`localspec chat` as a process, in lines."""

from pathlib import Path

import pytest

from localspec.history.archive import History
from localspec.messages import Message
from tests.cli.command import PLAIN, assert_one_complaint, localspec, succeed
from tests.support.machines import with_what_is_known

GREEDY = (*PLAIN, "--temperature", "0", "--max-tokens", "8")


@pytest.fixture
def own_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory with the models of the usual one, and a history of its own."""
    own = with_what_is_known(tmp_path / "data", "blobs")
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(own))
    return own


def test_commands_need_no_model_and_a_missing_one_is_the_code(bare_machine: dict[str, str]) -> None:
    done = localspec("chat", "--plain", "--offline", stdin=b"hello?\n", env=bare_machine)
    assert done.code == 3, done.err
    assert done.out == ""
    assert "could not be downloaded" in done.err
    assert "Traceback" not in done.err
    done = localspec(
        "chat", "--plain", "--offline", stdin=b"/help\n/quit\nnever\n", env=bare_machine
    )
    assert done.code == 0, done.err
    assert "/regenerate [SEED]" in done.err
    assert "could not be downloaded" not in done.err
    done = localspec("chat", "-m", "smollm2-135m", "--tools", stdin=b"hello?\n", env=bare_machine)
    assert_one_complaint(done, 2, "smollm2-135m cannot call tools: leave them out")


@pytest.mark.usefixtures("smollm2_path", "own_history")
def test_a_whole_conversation_in_lines(tmp_path: Path) -> None:
    questions = (
        b"What is the capital of France?\n/regenerate\nAnd of\\\nItaly?\n/lens\n/export md a.md\n"
    )
    done = succeed("chat", "--plain", *GREEDY, stdin=questions, cwd=tmp_path)
    first, again, *_ = done.out.splitlines()
    assert first
    assert again == first
    assert done.err.count(" tokens/s") >= 3
    assert "written to " in done.err
    assert "And of\nItaly?" in (tmp_path / "a.md").read_text()
    # What was said is there again.
    later = localspec("chat", "--plain", "--continue", *GREEDY, stdin=b"/copy all\n")
    assert "And of\nItaly?" in later.out


@pytest.mark.slow
def test_a_conversation_keeps_its_own_pair(bare_machine: dict[str, str], stored: Path) -> None:
    history = History(stored / "history")
    conversation = history.create(pair="smollm2-1.7b")
    history.add_user(conversation, None, Message.user("hello?"))
    history.close()
    configured = {**bare_machine, "LOCALSPEC_PAIR": "qwen2.5-coder-1.5b"}
    arguments = ("chat", "--plain", "--continue", "--offline")
    own = localspec(*arguments, stdin=b"hello?\n", env=configured)
    assert "smollm2-1.7b" in own.err
    chosen = localspec(*arguments, "--pair", "gemma3-4b", stdin=b"hello?\n", env=configured)
    assert "gemma3-4b" in chosen.err
    assert "smollm2-1.7b" not in chosen.err

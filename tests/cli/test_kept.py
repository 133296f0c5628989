"""What `run` keeps, and how it goes on."""

from pathlib import Path

import pytest

from localspec.cli.kept import Kept
from localspec.errors import UsageError
from localspec.history.archive import History
from localspec.messages import Message
from localspec.options import LaunchOptions
from tests.ui.answers import finished


def test_a_question_and_its_answer_go_on_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    with pytest.raises(UsageError, match="no conversation to continue yet"):
        Kept(go_on=True)
    first = Kept(go_on=False)
    assert first.model == ""
    said = first.say(Message.user("Name a river."), "Be brief.")
    assert [each.role for each in said] == ["system", "user"]
    assert first.number == 1
    first.answer([finished(text="The Douro.").reply], "toy-1b", LaunchOptions())
    second = Kept(go_on=True)
    assert second.model == "smollm2-135m"
    said = second.say(Message.user("And another?"), None)
    assert [each.text for each in said] == [
        "Be brief.",
        "Name a river.",
        "The Douro.",
        "And another?",
    ]
    second.answer([finished(text="The Tejo.").reply], "toy-1b", LaunchOptions(target="own.gguf"))
    history = History(tmp_path / "history")
    (stored,) = history.conversations()
    assert (stored.title, stored.pair, stored.n_messages) == ("Name a river.", "own.gguf", 4)
    history.close()

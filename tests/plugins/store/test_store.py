"""The store of what was said, from a conversation to the drafts of a later one."""

import errno
import sqlite3
from array import array
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from localspec.chat.assistant import Assistant
from localspec.chat.events import Event, Finished, Reply, RoundDone
from localspec.chat.request import Request
from localspec.decoding.policy import plain_policy
from localspec.decoding.round import Draft, Round, Verdict
from localspec.errors import UsageError
from localspec.history.archive import History
from localspec.messages import Message
from localspec.options import ReplyOptions, SamplingParams
from localspec.plugins.store.said_writer import SaidWriter
from localspec.plugins.store.token_log import FILE, TokenLog
from tests.support.speaking import opened
from tests.toy import Stopwatch

GREEDY = ReplyOptions(SamplingParams(temperature=0), max_tokens=32)
QUESTION = "Write a Python function that reverses a linked list."


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    return tmp_path / "store"


@pytest.fixture
def switched_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store's file, while the settings switch it on."""
    monkeypatch.setenv("LOCALSPEC_STORE", "on")
    monkeypatch.setenv("LOCALSPEC_STORE_MEGABYTES", "1")
    return folder / FILE


def reply_of(by: Assistant, number: int | None, question: str = QUESTION) -> Reply:
    request = Request(1, (Message.user(question),), GREEDY, conversation=number)
    *_, last = by.events(request)
    assert isinstance(last, Finished)
    return last.reply


@pytest.mark.slow
@pytest.mark.weights
def test_what_was_said_is_drafted(switched_on: Path, smollm2_path: Path, tmp_path: Path) -> None:
    path = switched_on
    history = History(tmp_path / "history")
    number = history.create()
    speaker = opened(smollm2_path, "store")
    first = reply_of(speaker, number)
    assert first.acceptance.accepted < 10, "of itself at most"
    again = reply_of(speaker, None)
    assert again.tokens == first.tokens
    assert again.acceptance.accepted > 12
    before = TokenLog(path).figures()
    reply_of(speaker, None, "Name three rivers.")
    assert TokenLog(path).figures() == before, "it is of no conversation of the history"
    history.delete(number)
    history.close()
    afterwards = reply_of(speaker, number)  # it was deleted while somebody answers in it
    assert afterwards.tokens == first.tokens
    assert reply_of(speaker, None).acceptance.drafted == 0
    speaker.close()


@pytest.mark.weights
def test_off_no_file_is_made_and_nothing_can_be_drafted(folder: Path, smollm2_path: Path) -> None:
    speaker = opened(smollm2_path, "off")
    reply_of(speaker, 1)
    assert speaker.observers == ()
    speaker.close()
    assert not folder.exists()
    with pytest.raises(UsageError, match="needs the store of what was said"):
        opened(smollm2_path, "store")


class Unwilling(TokenLog):
    """A log that takes nothing until it was asked so many times, for which an errno stands."""

    def __init__(self, path: Path, errors: Sequence[int]) -> None:
        super().__init__(path, megabytes=1)
        self.errors, self.asked = list(errors), 0

    def append(
        self, owner: str, tokens: Sequence[int], after: int | None = None, wait_s: float = 0.0
    ) -> int | None:
        self.asked += 1
        if self.errors and (number := self.errors.pop(0)):
            raise OSError(number, "not now")
        return super().append(owner, tokens, after, wait_s)


def begun(
    log: TokenLog, spell: Callable[[int], bytes] = lambda token: b"%d " % token
) -> Callable[[Event], None]:
    writer = SaidWriter(log, spell, Stopwatch(0.1))
    return writer.begin(Request(0, conversation=3), [1], plain_policy())


def confirmed(*tokens: int) -> Event:
    return RoundDone(Round(Draft(), Verdict(0, tokens[-1]), tokens), ("",))


END = Finished(cast(Any, None), cast(Any, None))


def test_a_reply_is_written_while_it_grows(tmp_path: Path) -> None:
    log = TokenLog(tmp_path / "said", megabytes=1)
    take = begun(log)
    for token in range(1, 40):
        take(confirmed(token, token + 50))
    match = log.find([20, 70, 21, 71])
    assert match is not None
    follows = log.read(match[2], 100)
    assert follows[:6] == [22, 72, 23, 73, 24, 74]
    assert 74 > len(follows) > 24, "all but the last half second"
    take(END)
    assert log.read(match[2], 100)[-2:] == [39, 89]


@pytest.mark.parametrize(
    ("errors", "follows"),
    [([0, errno.EAGAIN, errno.EAGAIN], [*range(5, 40)]), ([errno.ENOSPC] * 9, None)],
    ids=["busy", "full"],
)
def test_a_busy_or_full_log(tmp_path: Path, errors: list[int], follows: list[int] | None) -> None:
    log = Unwilling(tmp_path / "said", errors)
    take = begun(log)
    for each in [*(confirmed(token) for token in range(1, 40)), END]:
        take(each)
    match = log.find([1, 2, 3, 4])
    assert (match and log.read(match[2], 100)) == follows
    assert (log.asked == 1) is (follows is None)


@pytest.mark.parametrize(
    "text",
    [
        b"Use the key ghp_abcdefghijklmnopqrstuvwxyz0123456789 in the header of each call.",
        b'{"content": "Keys:\\nghp_abcdefghijklmnop\\u200bqrstuvwxyz0123456789 in the header of each call."}',
    ],
)
def test_what_a_gate_matches_stays_out(tmp_path: Path, text: bytes) -> None:
    log = TokenLog(tmp_path / "said", megabytes=1)
    take = begun(log, lambda token: text[token - 1 : token])
    for each in [*(confirmed(token) for token in range(1, len(text) + 1)), END]:
        take(each)
    start, end = text.index(b"ghp_") + 1, text.index(b" in the") + 1
    before, behind = log.find([*range(start - 9, start)]), log.find([*range(end, end + 4)])
    assert before is None, "nothing follows"
    assert behind is not None
    assert log.read(behind[2], 99) == [*range(end + 4, len(text) + 1)]
    with closing(sqlite3.connect(tmp_path / "said")) as file:
        blocks = [array("I", tokens) for (tokens,) in file.execute("SELECT tokens FROM block")]
    words = {word for block in blocks for word in block}
    assert not {*range(start, end)} & words
    assert {*range(1, start - 1)} <= words

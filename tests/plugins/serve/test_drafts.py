"""A client drafts: whatever it proposes, and however it behaves, answers are what they are without it, and others notice nothing."""

import json
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from localspec.decoding.choose import Chooser
from localspec.decoding.costs import PassCosts
from localspec.decoding.generation import Limits
from localspec.decoding.model import Role
from localspec.decoding.noise import Noise
from localspec.decoding.policy import AdaptivePolicy, FixedPolicy, plain_policy
from localspec.decoding.proposals import LONGEST, Proposals, checksum
from localspec.engine.drafts import MOST_FRAME_BYTES, PATH, DraftProposal, decoded
from localspec.options import SamplingParams
from localspec.plugins.serve.drafts.drafter import ClientDrafter
from localspec.plugins.serve.http import Guard
from tests.plugins.serve.serving import Served, served
from tests.toy import CachedModel, MadPolicy, random_table, run_to_end

ROOT = Path(__file__).parents[3]
ANSWER = "one two three four five six seven eight nine ten, and all of it once more. " * 3
SCRIPT = {
    "answers": {"count": ANSWER, "slow": ANSWER},
    "pass_s": 0.002,
    "parallel": 4,
    "clients": True,
    "costs": {"target": [[1, 16], [0.002, 0.0022]]},
}


class Hostile(Proposals):
    """Gets what may be proposed before every look: what is right, and all kinds of what is not."""

    def __init__(self, n_vocab: int, random: Random, known: Sequence[int]) -> None:
        self.random, self.known, self.text = random, known, list[int]()
        self.late: list[tuple[int, int, list[int]]] = []
        super().__init__(n_vocab)

    def begin(self, tokens: Sequence[int]) -> None:
        super().begin(tokens)
        self.text = list(tokens)

    def follow(self, token: int) -> bool | None:
        self.text.append(token)
        return super().follow(token)

    def wait(self, most_s: float, count: int = 1) -> None:
        self.take()  # nobody lets a test wait

    def take(self) -> list[int]:
        random, text = self.random, self.text
        for _ in range(random.randrange(3) if text else 0):
            at = len(text)
            tokens = [*self.known[at : at + random.randrange(9)]]
            behind = checksum(text)
            match random.randrange(9):
                case 0:
                    tokens = [random.randrange(self._n_vocab) for _ in range(5)]
                case 1:
                    tokens = [random.choice((-1, self._n_vocab, 1 << 30, 2)) for _ in range(3)]
                case 2:
                    behind = random.getrandbits(32)
                case 3:
                    at = random.randrange(2 * at)
                case 4 if self.late:
                    at, behind, tokens = random.choice(self.late)
                case 5:  # goes on behind what was proposed before
                    at, behind = at + len(self.chain), checksum(self.chain, checksum(text))
                    tokens = [*self.known[at : at + 4]]
                case 6:  # of another conversation
                    behind = checksum([*text[1:], 0])
            self.late.append((at, behind, tokens))
            sure = random.choices(range(-5, 200), k=random.randrange(9))
            for _ in range(random.choice((1, 1, 2))):
                self.add(at, behind, tokens, sure, more=random.random() < 0.3)
        return super().take()


@pytest.mark.first(40)
@pytest.mark.parametrize("seed", range(200))
def test_whatever_is_proposed_the_text_is_the_same(seed: int) -> None:
    random = Random(seed)
    n_vocab = random.choice((3, 7, 20))
    table = random_table(seed, n_vocab, kind=random.choice(("peaked", "flat")))
    params = SamplingParams(temperature=random.choice((0, 0.8)))
    prompt = [random.randrange(n_vocab) for _ in range(random.randrange(1, 9))]
    limits = Limits(60, (0,) if random.random() < 0.5 else ())

    def said(policy: Any, proposals: Proposals | None = None) -> tuple[int, ...]:
        models = {Role.TARGET: CachedModel(table, 100)}
        chooser = Chooser(params, Noise(seed), proposals=proposals)
        return run_to_end(prompt, models, policy, chooser, limits).tokens

    plain = said(plain_policy())
    drafter, flat = ClientDrafter(limits.eog), PassCosts((1, 10), (1.0, 1.2))
    policies = (
        AdaptivePolicy(flat, 15, [drafter]),
        FixedPolicy(drafter, 5),
        MadPolicy((drafter,), random, 12),
    )
    for policy in policies:
        assert said(policy, Hostile(n_vocab, random, [*prompt, *plain])) == plain


def test_what_stands_behind_the_text_is_taken_as_far_as_it_is_right() -> None:
    proposals = Proposals(100)
    proposals.begin([1, 2, 3])
    proposals.add(3, checksum([1, 2, 3]), [4, 5, 6])
    assert proposals.take() == [4, 5, 6]
    proposals.add(6, checksum([1, 2, 3, 4, 5, 6]), [7])  # as if all were confirmed
    proposals.add(6, checksum([1, 2, 3, 4, 5, 7]), [8])
    assert proposals.take() == [4, 5, 6, 7]
    assert proposals.follow(4) is True
    proposals.add(3, checksum([1, 2, 3]), [4, 5])  # once more, and late: nothing is lost
    assert proposals.take() == [5, 6, 7]
    proposals.add(3, checksum([1, 2, 3]), [4, 9, 9])  # late, and right so far
    assert proposals.take() == [9, 9]
    assert proposals.follow(5) is False
    proposals.add(3, checksum([1, 2, 3]), [4, 9, 9])
    proposals.add(5, checksum([1, 2, 3, 4]), [5])
    proposals.add(5, checksum([1, 2, 3, 4, 5]), [100])
    proposals.add(9, checksum([1, 2, 3, 4, 5]), [6])
    assert proposals.take() == []
    assert proposals.follow(6) is None
    proposals.add(6, checksum([1, 2, 3, 4, 5, 6]), [7] * 1000)
    assert proposals.take() == [7] * LONGEST


def test_what_grows_is_expected_at_its_pace_and_what_ended_is_not() -> None:
    now = [0.0]
    proposals = Proposals(100, lambda: now[0])
    text = [1, 2, 3]
    proposals.begin(text)
    assert proposals.due_s(1) == inf  # nothing came yet
    for at, token in enumerate((4, 5, 6)):
        now[0] += 0.4
        proposals.add(3 + at, checksum([*text, 4, 5][: 3 + at]), [token], [50 + at], more=True)
    assert proposals.take() == [4, 5, 6]
    assert proposals.sure == [50, 51, 52]
    assert proposals.due_s(3) == 0
    assert 0 < proposals.due_s(4) < proposals.due_s(5) < inf
    assert proposals.follow(4)
    assert proposals.sure == [51, 52]
    proposals.add(6, checksum([*text, 4, 5, 6]), [7])
    assert proposals.take() == [5, 6, 7]
    assert proposals.sure == [51, 52, -1]
    assert proposals.due_s(3) == 0
    assert proposals.due_s(4) == inf
    assert not proposals.follow(9)
    assert 0 < proposals.due_s(1) < inf  # as long as the first took
    proposals.add(5, checksum([*text, 4, 9]), [])
    assert proposals.take() == []
    assert proposals.due_s(1) == inf
    proposals.wait(60)  # for nothing: at once


@pytest.mark.parametrize(
    "frame",
    [
        *("", "{", "[]", "null", "1e999", '{"at": 1}', "[" * 4000, "\ud800"),
        '{"at": 1, "behind": 0, "tokens": ["a"]}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_proposal_is_none(frame: str | bytes) -> None:
    assert decoded(frame, DraftProposal) is None


# Over HTTP.


def address(server: Served, name: str) -> str:
    return f"ws{server.url.removeprefix('http')}{PATH}{name}"


Propose = Callable[[ClientConnection, list[int], dict[str, Any]], None]


@dataclass
class Told:
    """What a client was told."""

    prompt: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    verified: int = 0


@contextmanager
def drafting(server: Served, name: str, propose: Propose) -> Iterator[Told]:
    """Draft for an answer in a thread, which ends with it."""
    told = Told()

    def draft() -> None:
        with connect(address(server, name)) as link:
            opening = json.loads(link.recv())
            told.prompt = opening["prompt"]
            try:
                for frame in link:
                    message = json.loads(frame)
                    assert message["at"] == len(told.prompt) + len(told.tokens)
                    told.tokens += message["tokens"]
                    told.verified += message["verified"]
                    with suppress(ConnectionClosed):  # the answer is over, and frames are left
                        propose(link, [*told.prompt, *told.tokens], opening)
            except (ConnectionClosed, OSError):
                pass

    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(draft)
        yield told
        done.result()


def answered(
    server: Served, propose: Propose, question: str = "count", **more: Any
) -> tuple[dict[str, Any], Told]:
    name = secrets.token_hex(16)
    with drafting(server, name, propose) as told:
        reply = server.chat(question, localspec={"drafts": name}, **more)
        assert reply.status_code == 200, reply.text
    return reply.json(), told


def text_of(reply: dict[str, Any]) -> str:
    text: str = reply["choices"][0]["message"]["content"]
    return text


def right(link: ClientConnection, text: list[int], _: Any) -> None:
    """Propose what the script says."""
    ids = [*KNOWN]
    rest = ids[len(text) - PROMPT[0] :][:12]
    if rest:
        link.send(json.dumps({"at": len(text), "behind": checksum(text), "tokens": rest}))


KNOWN: list[int] = []
PROMPT = [0]


@pytest.fixture
def known(server: Served) -> None:
    """Learn once what the ids of the answer are."""
    if not KNOWN:
        reply, told = answered(server, lambda *_: None)
        assert text_of(reply) == ANSWER
        assert reply["speculation"]["drafted"] == 0
        PROMPT[0] = len(told.prompt)
        KNOWN.extend(told.tokens)


@pytest.mark.usefixtures("known")
def test_right_proposals_save_passes_and_change_nothing(server: Served) -> None:
    reply, told = answered(server, right)
    figures = reply["speculation"]["by_drafter"]["client"]
    assert text_of(reply) == ANSWER
    assert told.tokens == KNOWN
    assert figures["accepted"] == figures["drafted"] == told.verified
    assert figures["accepted"] > len(KNOWN) / 3


@pytest.mark.usefixtures("known")
def test_noise_changes_nothing(server: Served) -> None:
    random = Random(1)

    def noise(link: ClientConnection, text: list[int], _opening: Any) -> None:
        for _ in range(5):
            at = random.choice((len(text), random.randrange(1000)))
            tokens = [random.randrange(400) for _ in range(random.randrange(LONGEST))]
            behind = random.choice((checksum(text), random.getrandbits(32)))
            link.send(json.dumps({"at": at, "behind": behind, "tokens": tokens}))

    reply, told = answered(server, noise)
    assert text_of(reply) == ANSWER
    assert told.tokens == KNOWN
    assert "Traceback" not in reply["speculation"].get("line", "")


@pytest.mark.usefixtures("known")
def test_a_thousand_malformed_frames_end_no_answer(
    server: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    random, sent = Random(2), [0]

    def malformed(link: ClientConnection, *_told: Any) -> None:
        for _ in range(25):
            sent[0] += 1
            size = random.randrange(200)
            frame = random.choice(("{", "[1,", '{"at":', "nul", "\x00", '{"tokens": [')) * size
            link.send(random.randbytes(size) if size % 2 else frame[:MOST_FRAME_BYTES])

    def other(number: int) -> str:
        return text_of(server.chat("count", seed=number).json())

    with ThreadPoolExecutor(2) as threads:
        others = threads.map(other, range(4))
        while sent[0] < 1000:
            reply, _ = answered(server, malformed)
            assert text_of(reply) == ANSWER
        assert [*others] == [ANSWER] * 4
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.usefixtures("known")
def test_one_that_floods_is_read_no_further_than_its_share(server: Served) -> None:
    """What it sends beyond that waits at its side."""
    frame = json.dumps({"at": 0, "behind": 0, "tokens": [1] * LONGEST})
    stuck = threading.Event()

    def flood(link: ClientConnection, *_told: Any) -> None:
        link.socket.settimeout(0.05)
        for _ in range(3000):
            try:
                link.send(frame)
            except (TimeoutError, ConnectionClosed, OSError):
                stuck.set()
                return

    name = secrets.token_hex(16)
    with drafting(server, name, flood):
        reply = server.chat("slow", localspec={"drafts": name})
        assert text_of(reply.json()) == ANSWER
    assert stuck.is_set()
    assert text_of(answered(server, right)[0]) == ANSWER


@pytest.mark.usefixtures("known")
def test_one_that_stalls_or_vanishes_holds_up_nobody(server: Served) -> None:
    ended = threading.Event()
    name = secrets.token_hex(16)

    def stall() -> None:
        with connect(address(server, name)) as link:
            link.recv()
            ended.wait(60)  # reads nothing, and says nothing

    with ThreadPoolExecutor(2) as threads:
        stalling = threads.submit(stall)
        assert text_of(server.chat("slow", localspec={"drafts": name}).json()) == ANSWER
        reply, told = answered(server, right)
        assert (text_of(reply), told.tokens) == (ANSWER, KNOWN)
        ended.set()
        stalling.result()

    def vanish(link: ClientConnection, *_: Any) -> None:
        link.socket.shutdown(socket.SHUT_RDWR)

    reply, told = answered(server, vanish)
    assert text_of(reply) == ANSWER
    assert len(told.tokens) < len(KNOWN)


def test_without_an_answer_of_that_name_there_is_no_socket(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.plugins.serve.drafts.socket._COMES_WITHIN_S", 0.1)
    with pytest.raises(InvalidStatus) as refused, connect(address(server, "nobody")):
        pass
    assert refused.value.response.status_code == 403
    assert server.chat("count").status_code == 200


@pytest.mark.usefixtures("known")
def test_a_second_socket_gets_nothing(server: Served) -> None:
    name, refused = secrets.token_hex(16), list[int]()

    def second(*_: Any) -> None:
        if not refused:
            with pytest.raises(InvalidStatus) as error, connect(address(server, name)):
                pass
            refused.append(error.value.response.status_code)

    with drafting(server, name, second) as told:
        assert text_of(server.chat("count", localspec={"drafts": name}).json()) == ANSWER
    assert told.tokens == KNOWN
    assert refused == [403]


def test_keys_and_origins_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.plugins.serve.drafts.socket._COMES_WITHIN_S", 0.1)
    keys = ("a" * 16, "b" * 16)
    guard = Guard(keys, hosts={"127.0.0.1"}, gates={keys[1]: "usual"})
    with served(SCRIPT, guard=guard) as server:

        def status(**headers: str) -> int:
            try:
                with connect(address(server, "mine"), additional_headers=headers):
                    return 101
            except InvalidStatus as error:
                return error.response.status_code

        bearer = {"Authorization": f"Bearer {keys[0]}"}
        assert status() == 401
        assert status(Authorization="Bearer wrong") == 401
        assert status(**bearer, Origin="https://elsewhere.example") == 403
        assert status(**bearer, Host="elsewhere.example") == 400
        server.client.headers.update(bearer)
        others = {"Authorization": f"Bearer {keys[1]}"}
        refusals = list[int]()
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(server.chat, "count", localspec={"drafts": "mine"})
            refusals.append(status(**others))
            assert asked.result().status_code == 200
        assert refusals == [403]  # another key's answer
        server.client.headers.update(others)
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(server.chat, "count", localspec={"drafts": "mine"})
            refusals.append(status(**others))
            assert text_of(asked.result().json()) == ANSWER
        assert refusals[1] == 403  # ids would tell what a gate masks


def test_bodies_say_it_by_a_name_for_one_answer(server: Served) -> None:
    for wrong in ("../x", "a" * 65, 3):
        assert server.chat("count", localspec={"drafts": wrong}).status_code == 400
    refused = server.chat("count", n=2, localspec={"drafts": "a"})
    assert "localspec.drafts is given for 2 answers" in refused.json()["error"]["message"]


@pytest.mark.usefixtures("known")
def test_several_clients_draft_at_once(server: Served) -> None:
    with ThreadPoolExecutor(4) as threads:
        replies = threads.map(lambda _: answered(server, right), range(4))
        for reply, told in replies:
            assert (text_of(reply), told.tokens) == (ANSWER, KNOWN)


def test_the_client_of_the_page_drafts(server: Served) -> None:
    program = (ROOT / "docs" / "drafting_client.py").read_text(encoding="utf-8")
    assert sum(1 for line in program.splitlines() if line) <= 40
    program = program.replace("http://127.0.0.1:8080", server.url).replace("Count.", "count")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ANSWER.strip()
    assert server.request.drafts

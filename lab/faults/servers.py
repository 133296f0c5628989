"""`serve` under fire: clients that vanish, an engine or a server that is killed, connections that sleep.

Beside each fault there are clients that want their answers: each gets all of it, or an error, and never another's text.
"""

import os
import select
import signal
import socket
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from random import Random

from lab.faults.clients import (
    QUESTIONS,
    Served,
    asking,
    connected,
    living,
    request,
    serving,
    stopped,
    vanish,
)
from lab.faults.deaths import until_gone
from lab.faults.ground import Ground
from lab.faults.trial import trial
from lab.ports import free_port

_TIMES = int(os.environ.get("LOCALSPEC_FAULTS_TIMES", "1"))
"""How often what can happen again and again to one server does."""
_VANISHING, _AT_ONCE = 20 * _TIMES, 5
_KILLS = 5 * _TIMES
_IDLE, _SLOW = 100, 50
"""Fewer than a server takes at once: they are not ended, and more get 503."""


@dataclass(slots=True, eq=False)
class _Fire:
    """A server that serves others during a fault.

    Args:
        served: it.
        ends: how the answers of the clients beside the fault ended, so far.
        told: what it held before and after, once all is over.
    """

    served: Served
    ends: Counter[str]
    told: str = ""


@contextmanager
def _under_fire(
    ground: Ground, count: int = 3, pause_s: float = 0.0, *, fine: Collection[str] = ("whole",)
) -> Iterator[_Fire]:
    """Serve clients while this lasts; then see that all ended well, that it answers as before, and holds no more.

    Args:
        ground: where.
        count: clients that want their answers.
        pause_s: how long each rests between two.
        fine: how their answers may end.
    """
    with serving(ground) as served:
        served.learn()
        before = served.held()
        with living(served, count, pause_s) as ends:
            yield (fire := _Fire(served, ends))
        assert ends["whole"], ends
        assert set(ends) <= set(fine), ends
        served.until_idle()
        served.assert_answers()
        fire.told = served.assert_held(before)
        stopped(served)


@trial("serve", f"{_VANISHING} clients vanish in mid-answer", short=True)
def clients_vanish(ground: Ground, chance: Random) -> str:
    with _under_fire(ground) as fire:
        for _ in range(_VANISHING // _AT_ONCE):
            clients = [connected(fire.served) for _ in range(_AT_ONCE)]
            for client in clients:
                whole = request(asking(chance.choice(QUESTIONS), 300))
                client.sendall(whole[: chance.choice([len(whole), chance.randrange(len(whole))])])
            time.sleep(chance.uniform(0, 0.5))
            for client in chance.sample(clients, len(clients)):
                if chance.random() < 0.5:  # what has come is read, and no more
                    client.setblocking(False)
                    select.select([client], [], [], chance.uniform(0, 0.5))
                    _read(client)
                vanish(client, chance)
    return fire.told


@trial("serve", f"its engine is killed {_KILLS} times under load")
def engine_is_killed(ground: Ground, chance: Random) -> str:
    with _under_fire(ground, 4, fine={"whole", "503", "overloaded_error"}) as fire:
        served, ends = fire.served, fire.ends
        killed: set[int] = set()
        for _ in range(_KILLS):
            # Until the server notices, it takes the one that is gone for ready.
            served.running.until(
                lambda _: (
                    bool({*served.running.children()} - killed) and served.under_way() is not None
                )
            )
            time.sleep(chance.uniform(0, 1))
            (engine,) = served.running.children()
            os.kill(engine, signal.SIGKILL)
            until_gone([engine])
            killed.add(engine)
        served.running.until(lambda _: served.under_way() is not None)
        answered = ends["whole"]
        served.running.until(lambda _: ends["whole"] > answered + 4)
    assert len(ends) > 1, "nobody noticed"
    return fire.told


@trial("serve", "killed under load", short=True)
def server_is_killed(ground: Ground, chance: Random) -> str:
    with serving(ground, free_port()) as served:
        served.learn()
        with living(served, 4) as ends:
            served.running.until(lambda _: ends["whole"] > 2)
            time.sleep(chance.uniform(0, 1))
            engines = served.running.children()
            served.running.signal(signal.SIGKILL)
            served.running.until_gone()
        assert set(ends) == {"whole", "cut"}, ends
    until_gone(engines)
    listed = ground.run("ps")
    assert (listed.code, listed.out) == (0, ""), "a server that is gone is listed"
    with serving(ground, served.port) as again:
        again.expected = served.expected
        again.assert_answers()
        stopped(again)
    return ""


@trial("serve", f"{_IDLE:,} idle and {_SLOW} slow connections")
def connections_sleep(ground: Ground, chance: Random) -> str:
    with _under_fire(ground) as fire:
        served, ends = fire.served, fire.ends
        idle = [connected(served) for _ in range(_IDLE)]
        for client in chance.sample(idle, _IDLE // 5):
            _send(client, b"POST /v1/chat/completions HTTP/1.1\r\nHost: loc")
        slow = [connected(served) for _ in range(_SLOW)]
        # Half of them send slowly, and half read slowly.
        bodies = [request(asking(chance.choice(QUESTIONS), 8)) for _ in slow]
        for client, body in list(zip(slow, bodies, strict=True))[_SLOW // 2 :]:
            _send(client, body)
        most = served.held()
        for at in range(60):
            for client, body in list(zip(slow, bodies, strict=True))[: _SLOW // 2]:
                _send(client, body[at : at + 1])
            time.sleep(0.1)
        answered = ends["whole"]
        served.running.until(lambda _: ends["whole"] > answered + 2)
        for client in slow[_SLOW // 2 :]:
            assert _all(client), "it asked"
        for client in (*idle, *slow):
            client.close()
    return f"{fire.told}; {most['server MB']} MB and {most['server descriptors']} descriptors meanwhile"


def _send(client: socket.socket, content: bytes) -> None:
    with suppress(OSError):  # it was let go
        client.sendall(content)


def _read(client: socket.socket) -> bytes:
    """Return what has come; nothing where it was let go."""
    try:
        return client.recv(1 << 16)
    except OSError:
        return b""


def _all(client: socket.socket) -> bytes:
    came = bytearray()
    with suppress(ConnectionResetError):
        while piece := client.recv(1 << 16):
            came += piece
    return bytes(came)

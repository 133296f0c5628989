"""An engine that spells texts, in this process: by tokens of one to four characters, one at a time or in rounds of several, as drafting confirms them.

It stands where `RemoteEngine` has the engine of a server, speaks the real protocol, and filters as a request says.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from random import Random

import msgspec

from localspec.chat.events import Event, Finished, Reply, RoundDone, Text
from localspec.chat.gated import GatedReply, gate_of
from localspec.chat.request import Request
from localspec.decoding.round import Draft, Round, Spent, StopReason, Verdict
from localspec.engine.link import Link, ServerLink
from localspec.engine.protocol import COMMANDS, Count, Counted, Notice, Ready, ReplyEvents, encode
from localspec.messages import Message
from tests.support.secrets import FORMATS, Planted, planted

_N_CTX = 1 << 20
_WINDOW = 8
READY = Ready("toy", None, "off", _N_CTX, (), 0.0, thinks=False)
ABOUT = ("Use {} here.\n", "- {} \n", 'say "{}" and go on.\n', "| {} |\n", "({}) is it.\n")


class Spelling(ServerLink):
    """Answers a question with a number in it by the text of that number.

    Args:
        texts: what it says.
        most: tokens of a round at most; 1 is no drafting.
        seed: of where texts are cut.
    """

    ready = READY

    def __init__(self, texts: Sequence[str], most: int, seed: int = 0) -> None:
        Link.__init__(self, *os.pipe(), 1)
        self.texts, self.most, self.seed = texts, most, seed
        self._lines = list[bytes]()

    def end(self, wait_s: float) -> None:
        for each in () if self.ended else (self.sources[0], self.sink):
            os.close(each)
        self.ended = True

    def read(self) -> list[bytes]:
        os.read(self.sources[0], 1 << 16)
        lines, self._lines = self._lines, []
        return lines

    def send(self, line: bytes = b"") -> None:
        command = COMMANDS.decode(line)
        match command:
            case Request():
                which = re.findall(r"\d+", command.question)[-1]
                self._lines += map(encode, self._answered(command, int(which)))
            case Count(id=number):
                self._lines.append(encode(Counted(number, 1, _N_CTX)))
        os.write(self.sink, b".")

    def _answered(self, request: Request, which: int) -> Iterator[Notice]:
        number, reply = request.id, GatedReply(gate_of(request.gate)) if request.gate else None
        text, random = self.texts[which], Random(self.seed * 7919 + which)
        count = 0
        for pieces in self._rounds(text, random):
            count += len(pieces)
            verdict = Verdict(len(pieces) - 1, 1)
            done = Round(Draft((1,) * (len(pieces) - 1)), verdict, (1,) * len(pieces))
            events: list[Event] = [RoundDone(done, tuple(pieces)), Text("".join(pieces))]
            if reply is not None:
                events = [visible for each in events for visible in reply.take(each)]
            yield ReplyEvents(number, tuple(events))  # type: ignore[arg-type]  # none is the last
        spent = (number, 1, 0, count, None, 0.0, 0.0, Spent(), "off")
        made = Reply(text, "", (1,) * count, StopReason.EOG, *spent)
        end = Finished(made, Message.assistant(text))
        *rest, last = [end] if reply is None else reply.take(end)
        assert isinstance(last, Finished)
        yield ReplyEvents(number, tuple(rest))  # type: ignore[arg-type]
        yield msgspec.structs.replace(last, id=number)

    def _rounds(self, text: str, random: Random) -> Iterator[list[str]]:
        at = 0
        while at < len(text):
            pieces: list[str] = []
            for _ in range(random.randint(1, self.most)):
                size = random.randint(1, 4)
                pieces += [text[at : at + size]] if text[at : at + size] else []
                at += size
            yield pieces


def secrets_of(count: int, seed: int) -> list[Planted]:
    """Return so many secrets, of all formats in turn."""
    random, formats = Random(seed), [*FORMATS]
    return [planted(random, formats[number % len(formats)]) for number in range(count)]


def json_of(secret: Planted) -> str:
    """Return a line of JSON with a secret in it."""
    return json.dumps({"content": f"x\n{secret.text}\n"}) + "\n"


def texts_of(secrets: Sequence[Planted], each: int) -> list[str]:
    """Return texts with so many of the secrets each; every third stands in JSON, behind a line end."""
    lines = [
        ABOUT[at % len(ABOUT)].format(one.text) if at % 3 else json_of(one)
        for at, one in enumerate(secrets)
    ]
    return ["".join(lines[at : at + each]) for at in range(0, len(lines), each)]


def leaked(secrets: Iterable[Planted], seen: str) -> list[Planted]:
    """Return the secrets of which eight characters in a row are seen, or if they are digits all."""
    shown = {seen[at : at + _WINDOW] for at in range(len(seen))}

    def leaks(secret: Planted) -> bool:
        body = secret.body
        parts = (body[at : at + _WINDOW] for at in range(len(body) - _WINDOW + 1))
        telling = any(part in shown for part in parts if re.search("[A-Za-z]", part))
        return telling or secret.text in seen

    return [each for each in secrets if leaks(each)]

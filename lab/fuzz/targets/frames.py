"""What comes over the pipe between a screen and its engine, either way."""

from collections.abc import Mapping
from typing import Any

from lab.fuzz.target import FoundError, check_message
from localspec.engine.ask import Ask
from localspec.engine.protocol import (
    Cancel,
    Counted,
    Failed,
    Hello,
    Load,
    Loading,
    Ready,
    SaveState,
)
from localspec.engine.wire import COMMANDS, NOTICES, FrameError, decode, encode
from localspec.messages import Message
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions

SEEDS = tuple(
    encode(each)
    for each in (
        Ask(3, (Message.system("a"), Message.user("b\ud800")), ReplyOptions(seed=1, stop=("x",))),
        Load(LaunchOptions(pair="p", load=LoadOptions(devices=("cpu",), n_ctx=512))),
        Cancel(None),
        SaveState("/x"),
        Hello("1", 2),
        Ready("t", None, "auto", 4096, ("n",), 0.5, True, None),
        Loading("m", 0.5),
        Counted(1, 2, 3),
        Failed(None, "UsageError", "r"),
    )
)


_BOTH: tuple[Mapping[str, type[Any]], ...] = (COMMANDS, NOTICES)


def run(data: bytes) -> None:
    for kinds in _BOTH:
        try:
            message = decode(data, kinds)
        except FrameError as error:
            check_message(str(error))
            continue
        if decode(encode(message), kinds) != message:
            raise FoundError(f"{message} does not come back")

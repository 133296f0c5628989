"""What comes over the pipe between a screen and its engine, either way."""

from lab.fuzz.target import FoundError, check_message
from localspec.chat.request import Request
from localspec.engine.protocol import (
    COMMANDS,
    NOTICES,
    Cancel,
    Counted,
    Failed,
    FrameError,
    Hello,
    Load,
    Loading,
    Ready,
    SaveState,
    encode,
)
from localspec.messages import Message
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions

SEEDS = tuple(
    encode(each)
    for each in (
        Request(3, (Message.system("a"), Message.user("b")), ReplyOptions(seed=1, stop=("x",))),
        Load(LaunchOptions(pair="p", load=LoadOptions(devices=("cpu",), n_ctx=512))),
        Cancel(None),
        SaveState("/x"),
        Hello("1", 2),
        Ready("t", None, "auto", 4096, ("n",), 0.5, True),
        Loading("m", 0.5),
        Counted(1, 2, 3),
        Failed(None, "UsageError", "r"),
    )
)


def run(data: bytes) -> None:
    for frames in (COMMANDS, NOTICES):
        try:
            message = frames.decode(data)
        except FrameError as error:
            check_message(str(error))
            continue
        if frames.decode(encode(message)) != message:
            raise FoundError(f"{message} does not come back")

"""What comes over the pipe between a screen and its engine, either way."""

from lab.fuzz.target import FoundError, check_message
from localspec.chat.request import Request
from localspec.engine import protocol
from localspec.messages import Message
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions

SEEDS = tuple(
    protocol.encode(each)
    for each in (
        Request(3, (Message.system("a"), Message.user("b")), ReplyOptions(seed=1, stop=("x",))),
        protocol.Load(LaunchOptions(pair="p", load=LoadOptions(devices=("cpu",), n_ctx=512))),
        protocol.Cancel(None),
        protocol.Hello("1", 2),
        protocol.Ready("t", None, "auto", 4096, ("n",), 0.5, True, sees=True),
        protocol.Loading("m", 0.5),
        protocol.Counted(1, 2, 3),
        protocol.Failed(None, "UsageError", "r"),
    )
)


def run(data: bytes) -> None:
    for frames in (protocol.COMMANDS, protocol.NOTICES):
        try:
            message = frames.decode(data)
        except protocol.FrameError as error:
            check_message(str(error))
            continue
        if frames.decode(protocol.encode(message)) != message:
            raise FoundError(f"{message} does not come back")

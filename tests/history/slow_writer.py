"""A process that streams one endless reply into a history: `python -m ... <directory>`. See streaming_writer."""

import sys
import time
from pathlib import Path

from localspec.history.archive import History
from localspec.messages import Message
from tests.history.streaming_writer import say


def main(directory: str) -> None:
    history = History(Path(directory))
    number = history.create()
    reply = history.begin_reply(number, history.add_user(number, None, Message.user("go on")))
    length = 0
    while True:
        reply.feed("word ")
        length += 5
        say("fed", reply.message, length, time.monotonic())
        time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1])

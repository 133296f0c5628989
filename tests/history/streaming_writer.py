"""A process that streams replies into a history until it is killed: `python -m ... <directory>`.

Before and after each step it says on stdout what it is doing, in lines that a pipe passes on whole:
`fed <message> <length>` after text was fed, `done <message> <length>` once a message is complete.
"""

import os
import random
import sys
import time
from pathlib import Path

from localspec.history.archive import History
from localspec.messages import Message


def say(*words: object) -> None:
    """Write a line at once: what was written before a SIGKILL is not lost."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def main(directory: str, seed: int) -> None:
    moments = random.Random(seed)
    history = History(Path(directory))
    assert history.trouble is None, history.trouble
    number = history.latest() or history.create()
    say("open", number)
    parent = history.conversation(number).leaf
    while True:
        asked = history.add_user(
            number, parent, Message.user("question " * moments.randrange(1, 40))
        )
        say("done", asked, len(history.branch(number)[-1].message.text))
        reply = history.begin_reply(number, asked)
        length = 0
        for index in range(moments.randrange(1, 60)):
            text = f"word {index} " * moments.randrange(1, 4)
            reply.feed(text)
            length += len(text)
            say("fed", reply.message, length, time.monotonic())
            time.sleep(moments.uniform(0, 0.02))
        reply.finish()
        say("done", reply.message, length)
        parent = reply.message


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

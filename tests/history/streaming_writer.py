"""A process that streams replies into a history until it is killed: `python -m … <directory> [<seed>]`; without a seed, one endless reply.

What it does is a line on stdout: `fed <message> <length> <s>` after text was fed, `done <message> <length>` once a message is complete.
"""

import os
import random
import sys
import time
from pathlib import Path

from localspec.history.archive import History
from localspec.messages import MediaPart, Message


def report(*words: object) -> None:
    """Write a line at once: what was written before a SIGKILL is not lost."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def main(directory: str, *seed: str) -> None:
    moments = random.Random(*map(int, seed))
    history = History(Path(directory))
    assert history.trouble is None, history.trouble
    number = history.latest() or history.create()
    report("open", number)
    parent = history.conversation(number).leaf
    while True:
        pictures = [
            MediaPart("image", "a.gif", b"GIF8" + moments.randbytes(moments.randrange(200_000)))
            for _ in range(moments.randrange(3))
        ]
        question = Message.user("question " * moments.randrange(1, 40), media=pictures)
        user = history.add_user(number, parent, question)
        report("done", user, len(question.text))
        reply, length = history.begin_reply(number, user), 0
        for index in range(moments.randrange(1, 60) if seed else 1 << 30):
            text = f"word {index} " * moments.randrange(1, 4)
            reply.feed(text)
            length += len(text)
            report("fed", reply.message, length, time.monotonic())
            time.sleep(moments.uniform(0, 0.02))
        reply.finish()
        report("done", reply.message, length)
        parent = reply.message


if __name__ == "__main__":
    main(*sys.argv[1:])

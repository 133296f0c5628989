import os
import pty
import termios
import threading

import pytest

from localspec.ui.ground import asking, is_dark


@pytest.mark.parametrize(
    ("answer", "dark"),
    [
        (b"\x1b]11;rgb:1414/1616/1b1b\x1b\\\x1b[?62;22c", True),
        (b"\x1b]11;rgb:ff/ff/ff\x07\x1b[?1;2c", False),
        (b"\x1b]11;rgba:fdfd/f6f6/e3e3/ffff\x1b\\", False),
        (b"\x1b[?1;2c", None),
        (b"", None),
    ],
)
def test_the_background_is_dark_as_the_terminal_says(answer: bytes, dark: bool | None) -> None:
    assert is_dark(answer) is dark


def test_a_terminal_is_asked_and_left_as_it_was() -> None:
    terminal, ours = pty.openpty()
    asked: list[bytes] = []

    def answer() -> None:
        while not asked or not asked[-1].endswith(b"\x1b[c"):
            asked.append(b"".join(asked[-1:]) + os.read(terminal, 100))
        os.write(terminal, b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\\x1b[?62c")

    try:
        before = termios.tcgetattr(ours)
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with asking(ours) as told:
            assert told() is False
        assert termios.tcgetattr(ours) == before
        with asking(ours) as told:  # nobody answers
            assert told() is None
    finally:
        os.close(ours)
        os.close(terminal)


def test_what_is_no_terminal_is_not_asked() -> None:
    reading, writing = os.pipe()
    with asking(writing) as told:
        assert told() is None
    os.close(writing)
    assert os.read(reading, 1) == b""
    os.close(reading)

"""Speech from a microphone: a file of one channel, bounded; what is missing is said in one line."""

import ast
import importlib
import importlib.util
import io
import sys
import wave
from array import array
from pathlib import Path
from typing import Any

import pytest

from localspec.media import sound_seconds
from localspec.session.microphone import MOST_S, Microphone
from tests.support.checks import refuses
from tests.support.microphone import LOUD, QUIET, RATE, PortAudioError, microphone_double


def test_what_is_heard_is_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = microphone_double(monkeypatch)
    microphone = Microphone()
    (stream,) = streams.opened
    stream.speak(2, LOUD // 100)
    assert microphone.line == "recording 0.7 s of 60 · ▁▁▁▁▁▇▇▇▇▇▂▂"
    data = microphone.wav()
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        heard = array("h", file.readframes(file.getnframes()))
    assert [heard[0], heard[1], heard[-1]] == [LOUD, -LOUD, -LOUD // 100]
    assert sound_seconds(data) == pytest.approx(0.7)
    microphone.close()
    assert stream.closed


def test_a_recording_ends_and_silence_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = microphone_double(monkeypatch)
    microphone = Microphone()
    (stream,) = streams.opened
    stream.speak(10 * round(MOST_S) + 20)
    assert microphone.is_full
    assert microphone.seconds == pytest.approx(MOST_S)
    monkeypatch.setattr(streams, "level", QUIET)
    refuses("only silence was recorded", Microphone().wav)


def _none(*_: object, **__: object) -> Any:
    raise PortAudioError("Error querying device -1")


def _no_portaudio(name: str) -> Any:
    raise OSError("PortAudio library not found")


def test_a_missing_microphone_or_library_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for where in ("query_devices", "RawInputStream"):
        microphone_double(monkeypatch, **{where: _none})
        refuses(r"no microphone can be opened \(Error querying device -1\)", Microphone)
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    refuses(r"pip install 'localspec\[listen\]'`, or attach a file", Microphone)
    monkeypatch.setattr(importlib, "import_module", _no_portaudio)
    refuses("PortAudio library not found.*: install libportaudio2", Microphone)


def test_the_library_has_the_interface_of_its_double() -> None:
    """Read from its source: importing it needs PortAudio."""
    spec = importlib.util.find_spec("sounddevice")
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text())
    classes = {each.name: each for each in tree.body if isinstance(each, ast.ClassDef)}
    functions = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
    stream = {
        each.name: each
        for each in classes["RawInputStream"].body
        if isinstance(each, ast.FunctionDef)
    }
    wanted = {"samplerate", "blocksize", "channels", "dtype", "callback"}
    assert wanted <= {each.arg for each in stream["__init__"].args.args}
    assert "kind" in {each.arg for each in functions["query_devices"].args.args}
    assert [ast.unparse(each) for each in classes["PortAudioError"].bases] == ["Exception"]

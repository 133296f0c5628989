"""A question of `run` and `chat`: which words are the model, the prompt or a conversation, and what comes with them."""

import importlib
import io
import json
import os
import pty
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from localspec.cli import chat_front
from localspec.cli import prompt as prompt_module
from localspec.cli.main import localspec
from localspec.cli.options import Settings, read_grammar
from localspec.cli.prompt import (
    DocsFlags,
    QuestionFlags,
    SystemFlags,
    conversation_and_words,
    model_and_prompt,
    read_prompt,
    require_hearing,
)
from localspec.cli.tools import ChatFlags
from localspec.errors import (
    HistoryError,
    LocalspecError,
    ModelUnavailable,
    TemplateError,
    UsageError,
)
from localspec.history.archive import History
from localspec.media import sound_seconds
from localspec.messages import DocumentPart, MediaPart, Message, TextPart
from localspec.models.mmproj import model_that_takes
from localspec.options import LaunchOptions, ReplyOptions, changed
from localspec.session.attachments import attached_lines
from tests.models.test_mmproj import mmproj_file
from tests.support.checks import refuses
from tests.support.microphone import microphone_double
from tests.test_media import huge, png

NO_DOCS = DocsFlags()
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
CHAT_TOML = """
[personas]
brief = "Be brief."
[templates]
to = 'Translate into {{ lang }}: {{ input }}'
sum = 'Summarise this.'
"""
run = importlib.import_module("localspec.cli.run")


@pytest.fixture(autouse=True)
def own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    monkeypatch.chdir(tmp_path)


def test_the_first_word_is_the_model_if_it_is_the_name_of_one() -> None:
    for words, model, prompt in [
        ([], None, None),
        (["Why is the sky blue?"], None, "Why is the sky blue?"),
        (["-"], None, "-"),
        (["and/or"], None, "and/or"),
        (["qwen2.5-coder:1.5b", "Hi"], "qwen2.5-coder:1.5b", "Hi"),
        (["demo", "say", "hi"], "demo", "say hi"),
        (["demo", "-"], "demo", "-"),
        (["some/repo:Q8_0"], "some/repo:Q8_0", None),
        (["hf.co/some/repo"], "hf.co/some/repo", None),
        (["own.gguf", "Hi"], "own.gguf", "Hi"),
    ]:
        assert model_and_prompt(words) == (model, prompt)
        assert model_and_prompt(words, chosen=True) == (None, " ".join(words) if words else None)
    for words, told in [
        *(([word], "did you mean") for word in ("qwen3", "gemma", "smolm2-135m")),
        (["why", "is", "that?"], "put quotes around"),
        (["@a.txt", "why?"], "use -f a.txt"),
    ]:
        refuses(told, model_and_prompt, words)
    for verb in ["chat", "serve"]:
        with pytest.raises(ModelUnavailable, match="did you mean qwen3-"):
            CliRunner().invoke(localspec, [verb, "qwen3-0.7b"], catch_exceptions=False)


def test_continue_takes_a_number_a_title_or_the_prompt(tmp_path: Path) -> None:
    history = History(tmp_path / "data/history")
    # The last one has the title of the first.
    for title in ("durations", "durations of rivers", "the sea", "durations"):
        history.add_user(history.create(), None, Message.user(title))
    history.close()
    for name, words, number, left in [
        ("", ("And in French?",), 4, ("And in French?",)),
        ("And in French?", ("smollm2-135m",), 4, ("smollm2-135m", "And in French?")),
        ("smollm2-135m", ("And in French?",), 4, ("smollm2-135m", "And in French?")),
        ("#2", (), 2, ()),
        ("durations", ("smollm2-135m", "Why?"), 4, ("smollm2-135m", "Why?")),
        ("durations of", ("Why?",), 2, ("Why?",)),
        ("the", ("Why?",), 3, ("Why?",)),
        ("durations", (), 4, ("durations",)),
    ]:
        conversation, rest = conversation_and_words(name, words)
        assert (conversation.id, rest) == (number, left)
    for name, words, kind, told in [
        ("ocean", ("Why?",), UsageError, "'ocean': `localspec history`"),
        ("why", ("is", "the", "sky", "blue"), UsageError, "put quotes around"),
        ("dura", ("Why?",), UsageError, "begins several titles: .* 4"),
        *((number, ("Why?",), HistoryError, number[:18]) for number in ("99", "9" * 5000)),
    ]:
        with pytest.raises(kind, match=told):
            conversation_and_words(name, words)


class ArrivedError(Exception):
    """Carries what a chat would be started with."""


def test_run_without_a_prompt_is_the_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(settings: Settings, asked: ChatFlags, *, plain: bool = False, **_: object) -> int:
        raise ArrivedError(settings.named_model, asked.system.system, plain)

    monkeypatch.setattr(run, "_at_terminal", lambda: True)
    monkeypatch.setattr(chat_front, "start_chat", start)
    for words, arrived in [
        (["run"], (None, None, False)),
        (["run", "qwen2.5-coder:1.5b"], ("qwen2.5-coder:1.5b", None, False)),
        (["run", "-m", "demo", "-s", "Be brief."], ("demo", "Be brief.", False)),
        (["chat", "--plain", "qwen2.5-coder:1.5b"], ("qwen2.5-coder:1.5b", None, True)),
    ]:
        with pytest.raises(ArrivedError) as caught:
            CliRunner().invoke(localspec, words, catch_exceptions=False)
        assert caught.value.args == arrived


def test_lines_of_chat(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in [False, True]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\nc\nd\n")))
        assert list(chat_front._typed_lines(quiet=quiet)) == ["a", "b", "c", "d"]
        assert capsys.readouterr().err.count("separate question") == (not quiet)
    script = iter(["one", "", "two", ""])

    def read(_: str) -> str:
        if line := next(script):
            return line
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.input", read)
    lines = chat_front._lines_of_a_person([])
    assert [next(lines) for _ in range(3)] == ["one", None, "two"]
    assert "Ctrl-C again" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        next(lines)


def test_files_by_option_and_by_mention(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("apples")
    (tmp_path / "notes").mkdir()
    typed = "Compare with @b.txt, please, @nothing @notes @notes/"
    message = QuestionFlags(("a.txt", "b.txt")).message(typed, NO_DOCS, typed)
    assert [each.name for each in message.documents] == ["a.txt", "b.txt"]
    assert ("apples" in message.text, message.typed) == (True, typed)
    told = capsys.readouterr().err
    assert "no file matches @nothing: sent as text" in told
    for name in ("@notes", "@notes/"):
        assert f"{name} is a folder, sent as text: name files in it, or index it" in told
    (tmp_path / "none.txt").write_text("\n")
    for quiet in (False, True):
        QuestionFlags(("none.txt", "a.txt")).message("Hi", NO_DOCS, quiet=quiet)
        told = "localspec: none.txt is empty: nothing of it is read\n"
        assert capsys.readouterr().err == ("" if quiet else told)
    from_stdin = QuestionFlags().message("Review.\n\n@a.txt", NO_DOCS, "Review.")
    assert from_stdin.documents == ()
    for files, text, told in (
        ((), "Hi @nothing.py", r"@nothing\.py: correct the name"),
        (("c.txt",), "Hi", r"c\.txt: check the path"),
        (("notes",), "Hi", "notes is a folder"),
    ):
        refuses(told, QuestionFlags(files).message, text, NO_DOCS, text)


def test_pictures_sounds_and_texts_are_attached_in_their_places(tmp_path: Path) -> None:
    sound = b"RIFF\x24\0\0\0WAVEfmt "
    for name, content in (
        ("photo.png", png()),
        ("my photo.png", png(9, 9)),
        ("talk.wav", sound),
        ("a.txt", b"apples"),
        ("BMW.txt", b"BMW is no bitmap."),
        ("named.png", b"a text"),
        ("huge.png", huge()),
        ("film.mp4", b"\0\0\0 ftypisom\xff"),
    ):
        (tmp_path / name).write_bytes(content)
    typed = 'Compare @"my photo.png" with @BMW.txt.'
    files = ("photo.png", "a.txt", "photo.png", "talk.wav")
    message = QuestionFlags(files).message(typed, NO_DOCS, typed)
    assert [each.data for each in message.media] == [png(), sound, png(9, 9)]
    assert [each.name for each in message.documents] == ["a.txt", "BMW.txt"]
    assert [each.partition(" ")[0] for each in attached_lines(message)] == [
        *("photo.png", "talk.wav", "my", "a.txt", "BMW.txt")
    ]
    for name, told in (
        ("named.png", "neither a picture nor a sound"),
        ("huge.png", "pixels"),
        ("film.mp4", "not UTF-8 text"),
    ):
        refuses(told, QuestionFlags((name,)).message, "Hi", NO_DOCS, "Hi")


def test_pipes_and_devices_are_files(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.write(write, b"apples\n")
    os.close(write)
    os.mkfifo(tmp_path / "fifo")
    pipe = f"/dev/fd/{read}"  # as of `-f <(echo apples)`
    try:
        message = QuestionFlags((pipe, "/dev/null")).message("Hi", NO_DOCS, "Hi")
    finally:
        os.close(read)
    assert message.documents == (DocumentPart(pipe, "apples"), DocumentPart("/dev/null", ""))
    mentioned = QuestionFlags().message("Hi @fifo", NO_DOCS, "Hi @fifo")  # which nobody writes to
    assert mentioned.documents == ()


@pytest.mark.parametrize("quiet", [False, True])
def test_a_file_that_a_prompt_mentions_is_named(
    quiet: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hostname").write_text("box\n")
    for text, names in (
        (f"mail from @{tmp_path}/hostname ok", [f"{tmp_path}/hostname"]),
        ("Sum up @hostname, please", ["hostname"]),
        ("me@hostname", []),
    ):
        QuestionFlags().message(text, NO_DOCS, text, quiet=quiet)
        lines = capsys.readouterr().err.splitlines()
        assert lines == [f"localspec: attached: {each} · 3 B · ≈ 0 tokens" for each in names]


def test_stdin_is_attached_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def given(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    flags = QuestionFlags(("-", "-"))
    for content, kinds in ((png(), [MediaPart]), (b"apples\n", [DocumentPart])):
        given(content)
        text = flags.read_prompt("What is it?")
        parts = flags.message(text, NO_DOCS, text).parts
        assert [type(each) for each in parts if not isinstance(each, TextPart)] == kinds
    for content, told in ((b"", "stdin is empty"), (b"\xff\0", "stdin is not UTF-8")):
        given(content)
        refuses(told, flags.message, "Hi", NO_DOCS, "Hi")
    for argument in (None, "-", " "):
        refuses("give the prompt as an argument", flags.read_prompt, argument)
    # What a user gave is wrong, as in -f: 2, and not 1.
    for content, told in ((png(), "a picture: attach"), (b"ID3\4\0", "a sound: attach"), (b"\xff", "is not UTF-8")):  # fmt: skip
        given(content)
        refuses(told, QuestionFlags().read_prompt, "-")


def test_personas_and_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings/chat.toml").write_text(CHAT_TOML)
    assert SystemFlags(persona="brief").prompt("Be long.") == "Be brief."
    assert SystemFlags().prompt("Be long.") == "Be long."
    assert SystemFlags("").prompt("Be long.") == ""
    french = QuestionFlags(template="to", params=(("lang", "French"),))
    summary = QuestionFlags(template="sum")
    assert french.templated("a cat") == "Translate into French: a cat"
    assert summary.templated("a text") == "Summarise this.\n\na text"
    assert QuestionFlags().templated("as it is") == "as it is"
    monkeypatch.setattr("localspec.cli.prompt.read_prompt", lambda _: "from stdin")
    assert french.templated(None) == french.templated("-") == "Translate into French: from stdin"
    assert summary.templated("-") == summary.templated(None) == "Summarise this."
    for flags in (SystemFlags(persona="pirate"), SystemFlags("b", "a")):
        with pytest.raises(LocalspecError):
            flags.prompt(None)
    for wrong in ({"template": "nothing"}, {"params": (("a", "b"),)}):
        with pytest.raises(LocalspecError):
            QuestionFlags(**wrong).templated("x")
    with pytest.raises(TemplateError, match="--param NAME VALUE gives it: 'lang' is undefined"):
        QuestionFlags(template="to").templated("x")
    misspelt = QuestionFlags(template="to", params=(("lang", "en"), ("lan", "en")))
    refuses("template to has no field 'lan'", misspelt.templated, "x")


@pytest.fixture
def bring(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Puts content on stdin, by a pipe or by a file."""
    with ExitStack() as streams:

        def run(content: bytes, path: Path | None = None) -> None:
            if path is None:
                reader, writer = os.pipe()
                os.write(writer, content)
                os.close(writer)
                stream = os.fdopen(reader)
            else:
                path.write_bytes(content)
                stream = path.open()
            monkeypatch.setattr(sys, "stdin", streams.enter_context(stream))

        yield run


def test_stdin_comes_before_the_prompt_and_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bring: Callable[..., None]
) -> None:
    for path in [None, tmp_path / "stdin"]:
        for content, prompt in [
            (b"a tree\n", "a tree\n\nWhat is it?"),
            (b"\xef\xbb\xbf\xc3\xa9\r\n \n\n", "é\r\n \n\nWhat is it?"),
            (b" \n\n", "What is it?"),
        ]:
            bring(content, path)
            assert read_prompt("What is it?") == prompt
    for argument in [None, "-"]:
        bring(b"  Who?\n\n")
        assert read_prompt(argument) == "  Who?"
    monkeypatch.setattr(sys, "stdin", io.StringIO("a tree"))
    assert read_prompt("What is it?") == "What is it?"
    bring(b"", Path(os.devnull))
    assert read_prompt("What is it?") == "What is it?"
    refuses("stdin is empty", read_prompt, None)
    refuses("prompt is empty", read_prompt, " \n")
    monkeypatch.setattr(prompt_module, "_MOST_BYTES", 1 << 20)
    bring(b"y" * (1 << 20), tmp_path / "stdin")
    assert len(read_prompt(None)) == 1 << 20
    bring(b"y" * ((1 << 20) + 1), tmp_path / "stdin")
    with pytest.raises(LocalspecError, match="more than 1 MB"):
        read_prompt(None)


def test_a_typed_prompt_is_read_from_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    keyboard, theirs = pty.openpty()
    os.write(keyboard, b"a tree\n\x04")  # a line, and Ctrl-D
    with os.fdopen(keyboard), os.fdopen(theirs) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert read_prompt("What is it?") == "What is it?"
        assert read_prompt(None) == "a tree"
    assert "Ctrl-D" in capfd.readouterr().err


def test_speech_to_enter(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    streams = microphone_double(monkeypatch)
    flags = QuestionFlags(listen=True)
    keyboard, theirs = pty.openpty()
    os.write(keyboard, b"\n")
    with os.fdopen(keyboard), os.fdopen(theirs) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert flags.read_prompt(None) == "", "it may stand alone"
        refuses("no file matches @a/b.txt", flags.message, "Is it @a/b.txt?", NO_DOCS, "@a/b.txt")
        assert streams.opened == [], "a question that fails costs no speech"
        (part,) = flags.message("", NO_DOCS).media
    assert (part.kind, part.name) == ("audio", "recording.wav")
    assert sound_seconds(part.data) == pytest.approx(0.5)
    assert "recording: Enter ends it" in capfd.readouterr().err
    with Path(os.devnull).open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        refuses("--listen needs a terminal", flags.message, "What?", NO_DOCS)


def test_speech_is_recorded_for_a_model_that_hears(tmp_path: Path) -> None:
    for model in ("smollm2-135m", "gemma3-4b"):
        told = f"{model} (reads text only|takes no sounds): attach sounds with one that hears"
        refuses(told, require_hearing, LaunchOptions(target=model))
    hears = model_that_takes("audio")
    assert hears is not None
    for target in (hears, "a/b:Q4_K_M"):
        require_hearing(LaunchOptions(target=target))
    require_hearing(LaunchOptions(target="anything", server="http://127.0.0.1:9"))
    file = tmp_path / "mmproj.gguf"
    for target in ("smollm2-135m", "a/b:Q4_K_M", hears):
        off = LaunchOptions(target=target, mmproj="off")
        refuses(f"{target} reads text only", require_hearing, off)
        file.write_bytes(mmproj_file("audio"))
        require_hearing(LaunchOptions(target=target, mmproj=str(file)))
        file.write_bytes(mmproj_file("image"))
        refuses("takes no sounds", require_hearing, LaunchOptions(target=target, mmproj=str(file)))


def grammar(**flags: str) -> ReplyOptions:
    texts = {name: read_grammar(name, value) for name, value in flags.items()}
    return changed(ReplyOptions(seed=4), texts)


def test_a_grammar_is_a_file_and_what_is_short_may_be_written_out(tmp_path: Path) -> None:
    (tmp_path / "schema").write_bytes(b"\xef\xbb\xbf" + json.dumps(SCHEMA).encode())
    wanted = ReplyOptions(seed=4, json_schema=SCHEMA)
    assert grammar(json_schema="schema") == grammar(json_schema=json.dumps(SCHEMA)) == wanted
    for name, text in (("grammar", 'root ::= "ü"'), ("lark", 'start: "ü" /[0-9]+/')):
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert getattr(grammar(**{name: name}), name) == text
    assert grammar(regex="[a-z]+").regex == "[a-z]+"
    refuses("cannot be combined", grammar, grammar="grammar", json_schema="{}")
    for content, reason in [
        (None, "cannot be read: No such file"),
        (b"\xff", "is not UTF-8 text"),
        (b'root ::= "a', "answer.gbnf: the grammar is wrong: .* line 1"),
        (b"x" * (5 << 20), "has more than 4 MB"),
    ]:
        if content is not None:
            (tmp_path / "answer.gbnf").write_bytes(content)
        refuses(reason, grammar, grammar=str(tmp_path / "answer.gbnf"))
    for name in (str(tmp_path), "a\0b", ""):
        with pytest.raises(UsageError):
            grammar(grammar=name)

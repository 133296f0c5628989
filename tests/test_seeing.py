"""Pictures and sounds through the whole line of data, on SmolLM2 with small encoders of every kind.

These are the short forms; the slow ones take twenty pictures and ten sounds, beside llama.cpp's own programs where LOCALSPEC_LLAMA_SERVER names one.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.chat.assistant import Assistant
from localspec.chat.events import Finished, Reply, RequestFailed
from localspec.chat.request import Request
from localspec.chat.token_prefix import Conversation
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.round import StopReason
from localspec.errors import ContextOverflow, UsageError
from localspec.llama.encoder import Encoder
from localspec.llama.safe_widths import safe_widths
from localspec.messages import MediaPart, Message
from localspec.options import LoadOptions, ReplyOptions, SamplingParams
from tests.support import speaking
from tests.support.encoders import KINDS
from tests.support.media import PICTURES, SOUNDS, picture_file, sound_file
from tests.support.mtmd import reference_rows
from tests.support.peers import cli_answer, needs_peers, server_answer, started
from tests.support.speaking import afresh, forget

QUESTION = "What is this?"
PROMPT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    f"<|im_start|>user\n<__media__>{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
)
GREEDY = SamplingParams(temperature=0.0, repeat_penalty=1.0)
Models = Callable[[str], tuple[Path, Path]]
Opened = Callable[..., Assistant]


def part(kind: str, number: int, form: str = "PNG") -> MediaPart:
    if kind == "sound":
        return MediaPart.of(sound_file(number), f"{number}.wav")
    return MediaPart.of(picture_file(number, form), f"{number}.{form.lower()}")


def question(*parts: MediaPart, text: str = QUESTION) -> Conversation:
    return Conversation(messages=[Message.user(text, media=parts)])


def ask(assistant: Assistant, *parts: MediaPart, tokens: int = 24) -> Reply:
    return afresh(assistant, question(*parts), ReplyOptions(GREEDY, max_tokens=tokens))


@pytest.fixture(scope="module")
def opened(seeing_models: Models) -> Iterator[Opened]:
    """What returns an assistant that sees or hears by an encoder of a kind; only the latest stays loaded."""
    last: list[tuple[object, Assistant]] = []
    options = LoadOptions(n_ctx=4096, threads=2, gpu_layers=0, flash_attention=True, n_batch=512)

    def opened(kind: str, **how: Any) -> Assistant:
        key = kind, sorted(how.items())
        if not last or last[0][0] != key:
            while last:
                last.pop()[1].close()
            target, encoder = seeing_models(kind)
            made = speaking.opened(target, mmproj=str(encoder), options=options, **how)
            last.append((key, made))
        return last[0][1]

    with pytest.MonkeyPatch.context() as patch:
        # No text here is longer than what these depths are for.
        widths = partial(safe_widths, depths=(120, 255))
        patch.setattr("localspec.calibration.calibrated.safe_widths", widths)
        yield opened
    for _, assistant in last:
        assistant.close()


@pytest.mark.first(1)
@pytest.mark.parametrize("kind", KINDS)
def test_logits_behind_a_picture_are_those_of_mtmd_bit_for_bit(
    opened: Opened, seeing_models: Models, kind: str
) -> None:
    assistant, seen = opened(kind), part(kind, 4)
    target = assistant.models.target
    forget(assistant)
    tokens = assistant.prompt_tokens(question(seen))
    row = target.logits(tokens, 1)[-1].copy()
    count, expected = reference_rows(*seeing_models(kind), seen, PROMPT)
    assert len(tokens) == count
    assert np.array_equal(row, expected)


@pytest.mark.first(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_second_turn_evaluates_nothing_of_a_picture(opened: Opened, kind: str) -> None:
    assistant = opened(kind)
    texts = {ask(assistant, part(kind, number), tokens=12).text for number in (2, 5)}
    assert len(texts) == 2
    conversation = question(part(kind, 5))
    options = ReplyOptions(GREEDY, max_tokens=12)
    forget(assistant)
    first = assistant.reply(conversation, options)
    assert first.cached_tokens == 0
    assert first.text in texts
    conversation.append_user("And what else?")
    second = assistant.reply(conversation, options)
    assert second.cached_tokens >= first.prompt_tokens
    assert second.prompt_tokens - second.cached_tokens < 30


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tiles", "grid", "sound"])
def test_drafts_change_no_byte(opened: Opened, kind: str) -> None:
    parts = [part(kind, number) for number in (1, 5)]
    plain = [ask(opened(kind, exact=True), each, tokens=128) for each in parts]
    for draft in ("lookup:3", "model:3"):  # a length that needs no costs
        assistant = opened(kind, exact=True, draft=draft)
        drafted = [ask(assistant, each, tokens=128) for each in parts]
        assert [each.tokens for each in drafted] == [each.tokens for each in plain]
        assert [each.prompt_tokens for each in drafted] == [each.prompt_tokens for each in plain]
        # A draft model sees no pictures.
        assert draft == "lookup:3" or sum(each.acceptance.accepted for each in drafted) > 8


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tiles", "grid", "sound"])
def test_several_at_once_say_what_each_says_alone(opened: Opened, kind: str) -> None:
    assistant = opened(kind, exact=True, parallel=3)
    prompts = [question(part(kind, number)) for number in (5, 1, 5, 2)]
    prompts += [question(text="Name three rivers.")]
    options = ReplyOptions(GREEDY, max_tokens=16)
    alone = [assistant.reply(each, options).tokens for each in map(copied, prompts)]
    for number, prompt in enumerate(prompts):
        assistant.submit(Request(-1 - number, prompt.messages, options))
    ends: dict[int, Reply] = {}
    while len(ends) < len(prompts):
        assistant.step()
        for number, event in assistant.take():
            assert not isinstance(event, RequestFailed), event
            if isinstance(event, Finished):
                ends[-1 - number] = event.reply
    assert [ends[number].tokens for number in range(len(prompts))] == alone


def copied(conversation: Conversation) -> Conversation:
    return Conversation(messages=list(conversation.messages))


@pytest.mark.slow
def test_a_reply_is_cancelled_within_a_chunk_and_the_next_is_whole(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    assistant, looks = opened("grid"), list[str]()
    expected = ask(assistant, part("grid", 14)).tokens
    forget(assistant)

    class Counted(CancelFlag):
        """What an encoder looks at: before it begins, and then every few nodes."""

        @property
        def is_set(self) -> bool:
            looks.append("look")
            if len(looks) == 4:
                assistant.cancel(-7)
            return assistant.models.cancel.is_set

    encoder = assistant.models.media
    assert isinstance(encoder, Encoder)
    encoder._encoded.clear()
    monkeypatch.setattr(encoder, "_cancel", Counted())
    monkeypatch.setattr("localspec.llama.encoder._NODES", 2)
    request = Request(-7, question(part("grid", 14)).messages, ReplyOptions(GREEDY, max_tokens=24))
    events = assistant.events(request)
    next(events)  # it was started
    *_, end = events
    assert len(looks) == 4, "it stopped at once"
    monkeypatch.undo()
    assert isinstance(end, Finished)
    assert end.reply.stop_reason is StopReason.CANCELLED
    assert ask(assistant, part("grid", 14)).tokens == expected


@pytest.mark.slow
def test_what_is_too_much_or_not_taken_is_refused_and_the_next_is_answered(opened: Opened) -> None:
    for kind, wrong in (("sound", [part("plain", 1)]), ("plain", [part("sound", 1)])):
        with pytest.raises(UsageError):
            ask(opened(kind), *wrong)
    assistant = opened("plain")
    expected = ask(assistant, part("plain", 5)).text
    with pytest.raises(ContextOverflow) as caught:
        ask(assistant, *[part("plain", 9)] * 50)
    assert "\n" not in str(caught.value)
    assert ask(assistant, part("plain", 5)).text == expected


@pytest.mark.slow
@needs_peers
@pytest.mark.parametrize("kind", KINDS)
def test_texts_and_counts_are_those_of_llama_server(
    opened: Opened, seeing_models: Models, kind: str
) -> None:
    parts = [part(kind, number) for number in range(SOUNDS if kind == "sound" else PICTURES)]
    with closing(started(*seeing_models(kind))) as server:
        theirs = [server_answer(server, each, QUESTION, 24) for each in parts]
    ours = [ask(opened(kind), each) for each in parts]
    assert [(each.text, each.prompt_tokens) for each in ours] == theirs
    assert len({text for text, _ in theirs}) >= 10


@pytest.mark.slow
@needs_peers
@pytest.mark.parametrize("kind", KINDS)
def test_texts_are_those_of_llama_mtmd_cli(
    opened: Opened, seeing_models: Models, kind: str, tmp_path: Path
) -> None:
    for number in range(0, 10, 3):
        each = part(kind, number)
        file = tmp_path / each.name
        file.write_bytes(each.data)
        theirs = cli_answer(*seeing_models(kind), file, QUESTION, 24)
        assert ask(opened(kind), each).text.strip() == theirs.strip()

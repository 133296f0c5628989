"""Models that see and hear, from their files to replies: on real passes of SmolLM2, with encoders of random weights."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.chat.conversation import Conversation
from localspec.chat.events import Prefilling, Reply
from localspec.chat.request import Request
from localspec.decoding.cancel import CancelFlag
from localspec.engine.answering import StateLeftError
from localspec.errors import ContextOverflow, ModelLoadError, UsageError
from localspec.launch.load import Runtime, load
from localspec.launch.plan import make_plan
from localspec.llama.encoder import Encoder
from localspec.llama.model import LlamaModel
from localspec.messages import MediaPart, Message
from localspec.models.gguf import read_header
from localspec.models.memory import encoder_bytes
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from tests.chat.answers import answers
from tests.support.media import picture_file, sound_file

pytestmark = pytest.mark.weights

Models = Callable[[str], tuple[Path, Path]]
GREEDY = ReplyOptions(SamplingParams(temperature=0), max_tokens=12)
OPTIONS = LoadOptions(n_ctx=1024, threads=1, gpu_layers=0)


def part(kind: str, number: int = 4) -> MediaPart:
    if kind == "sound":
        return MediaPart.of(sound_file(number % 3), f"{number}.wav")
    return MediaPart.of(picture_file(number), f"{number}.png")


@contextmanager
def loaded(
    models: tuple[Path, Path], *, mmproj: str | None = None, parallel: int = 1, **more: object
) -> Iterator[Runtime]:
    target, encoder = models
    options = {"draft": "off", "load": OPTIONS, **more}
    request = LaunchOptions(target=str(target), mmproj=mmproj or str(encoder), **options)  # type: ignore[arg-type]
    runtime = load(make_plan(request, parallel=parallel), parallel=parallel)
    try:
        yield runtime
    finally:
        runtime.assistant.close()


def asked(*media: MediaPart, text: str = "What is it?") -> Conversation:
    return Conversation(messages=[Message.user(text, media=media)])


def reply(runtime: Runtime, conversation: Conversation) -> Reply:
    return runtime.assistant.reply(conversation, GREEDY)


@pytest.mark.parametrize("kind", ["tiles", "grid", pytest.param("sound", marks=pytest.mark.slow), pytest.param("plain", marks=pytest.mark.slow), pytest.param("whole", marks=pytest.mark.slow)])  # fmt: skip
def test_a_second_turn_evaluates_nothing_of_what_was_seen_again(
    seeing_models: Models, kind: str, tmp_path: Path
) -> None:
    models, other = seeing_models(kind), tmp_path / "other.gguf"
    other.write_bytes(models[1].read_bytes())
    with loaded(models) as runtime:
        encoder = runtime.assistant.models.media
        assert isinstance(encoder, Encoder)
        assert (encoder.sees, encoder.hears) == (kind != "sound", kind == "sound")
        plain = reply(runtime, asked())
        conversation = asked(part(kind))
        first = reply(runtime, conversation)
        assert first.prompt_tokens == plain.prompt_tokens + len(encoder.tokens(part(kind)))
        assert first.text != plain.text, "what is seen counts"
        conversation.append_user("And then?")
        again = reply(runtime, conversation)
        assert again.cached_tokens == first.prompt_tokens + len(first.tokens) - 1
        saved = runtime.save(tmp_path / "states" / "7", conversation.remembered)
        assert saved.tokens == again.prompt_tokens + len(again.tokens) - 1
    with loaded(models) as runtime:
        tokens, remembered = runtime.restore(tmp_path / "states" / "7")
        assert tokens == saved.tokens
        resumed = Conversation(messages=conversation.messages, remembered=remembered)
        resumed.append_user("And now?")
        assert reply(runtime, resumed).cached_tokens == saved.tokens
    with loaded(models, mmproj=str(other)) as runtime, pytest.raises(StateLeftError):
        runtime.restore(tmp_path / "states" / "7")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tiles", "whole", "grid", "sound"])
def test_the_text_is_the_same_with_and_without_drafting(seeing_models: Models, kind: str) -> None:
    question = "Repeat this word by word: red, green, blue, red, green, blue, red."
    texts = set[str]()
    for draft in ("off", "lookup", "auto"):
        with loaded(seeing_models(kind), draft=draft, exact=True) as runtime:
            conversation = asked(part(kind, 1), part(kind, 2), text=question)
            options = replace(GREEDY, max_tokens=48)
            texts.add(runtime.assistant.reply(conversation, options).text)
    assert len(texts) == 1


def test_several_sequences_see_each_its_own_and_share_a_beginning(seeing_models: Models) -> None:
    requests = [
        Request(n, asked(part("tiles", n % 4), text=f"What is {n}?").messages, GREEDY)
        for n in range(6)
    ]
    texts = list[dict[int, str]]()
    for parallel in (1, 3):
        with loaded(seeing_models("tiles"), parallel=parallel) as runtime:
            assert runtime.assistant.count == parallel
            done = {each.key: each.reply for each in answers(runtime.assistant, iter(requests))}
            assert all(done.values())
            texts.append({key: each.text for key, each in done.items() if each})
    same = [texts[0][key][:4] == texts[1][key][:4] for key in texts[0]]
    assert sum(same) >= 5, "but for rounding"
    assert len(set(texts[0].values())) > 3


def test_progress_counts_what_is_seen_and_too_much_of_it_costs_nothing(
    seeing_models: Models,
) -> None:
    with loaded(seeing_models("grid")) as runtime:
        look = part("grid", 14)
        request = Request(1, asked(look).messages, GREEDY)
        events = list(runtime.assistant.events(request))
        totals = {each.total_tokens for each in events if isinstance(each, Prefilling)}
        assert len(totals) == 1
        assert totals.pop() > len(runtime.assistant.models.media_tokens(look))
        many = asked(*(part("grid", 9 + n % 3) for n in range(50)))
        with pytest.raises(ContextOverflow, match="tokens and the context holds 1024"):
            reply(runtime, many)
        for wrong in (MediaPart("image", "a.png", picture_file(4)[:300]), part("sound")):
            with pytest.raises(UsageError, match=r"^(a\.png is damaged|.* takes no sounds)"):
                reply(runtime, asked(wrong))
        assert reply(runtime, asked(look)).cached_tokens > 0


def test_an_encoder_that_cannot_be_used_is_refused_or_left_out(
    seeing_models: Models, tmp_path: Path
) -> None:
    target, encoder = seeing_models("tiles")
    broken = tmp_path / "mmproj-broken.gguf"
    broken.write_bytes(encoder.read_bytes().replace(b"idefics3", b"idefics9"))
    with (
        pytest.raises(ModelLoadError, match=r"cannot use .*mmproj-broken"),
        loaded((target, broken)),
    ):
        pass
    copy = tmp_path / "copy" / "model.gguf"
    copy.parent.mkdir()
    copy.write_bytes(target.read_bytes())
    broken.rename(copy.with_name("mmproj-broken.gguf"))
    plan = make_plan(LaunchOptions(target=str(copy), draft="off", load=OPTIONS))
    runtime = load(plan)
    try:
        assert [each[:29] for each in runtime.assistant.notes] == ["the target reads text only: l"]
        assert reply(runtime, asked()).text
        with pytest.raises(UsageError, match="reads text only: attach pictures with one that sees"):
            reply(runtime, asked(part("tiles")))
    finally:
        runtime.assistant.close()


@pytest.mark.parametrize("kind", ["plain", "tiles", "whole", "grid", "sound"])
def test_encoders_take_what_was_planned(seeing_models: Models, kind: str) -> None:
    target, path = seeing_models(kind)
    model = LlamaModel(target, OPTIONS)
    try:
        taken = Encoder(model, path, OPTIONS, CancelFlag()).allocated["RAM"].total_bytes
    finally:
        model.close()
    planned = encoder_bytes(read_header(path))
    assert abs(planned - taken) < (1 << 20) + taken // 20
    with loaded((target, path)) as seeing, loaded((target, path), mmproj="off") as blind:
        more = seeing.held.places["RAM"] - blind.held.places["RAM"]
        assert abs(more - taken) < 1 << 20

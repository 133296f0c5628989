"""Pictures and sounds in prompts: what templates and tokenizers make of them, and which ids they get."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.chat.assistant import Assistant
from localspec.chat.events import Reply, RequestFailed
from localspec.chat.request import Request
from localspec.chat.token_prefix import Conversation
from localspec.chat.tokenizer import tokenize_rendered
from localspec.errors import ContextOverflow, LocalspecError, TemplateError, UsageError
from localspec.messages import MediaPart, Message, TextPart
from localspec.options import ReplyOptions
from tests.chat.test_assistant import assistant, said
from tests.chat.test_token_prefix import CHATML, TOY, TRIMMING, template
from tests.chat.toy_encoder import COUNT, ToyEncoder, damaged, picture, sound
from tests.chat.toy_tokenizer import ToyTokenizer, shown, spelled

ENCODER = ToyEncoder(hears=True)
# Like SmolVLM's: what is no list of parts has no content.
IN_PARTS = (
    "{% for m in messages %}<|im_start|>{{ m.role | capitalize }}:"
    "{% for part in m.content %}{% if part['type'] == 'text' %}{{ part['text'] }}"
    "{% elif part['type'] == 'image' %}<image>{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
)
# Like Gemma 3's: both are written.
BOTH = (
    "{% for m in messages %}<|im_start|>{% if m.content is string %}{{ m.content | trim }}"
    "{% else %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}<|im_end|>{% endfor %}"
)
CAPITALISING = CHATML.replace("m.content", "m.content | capitalize")
SHOUTING = CHATML.replace("m.content", "m.content | upper")
REFUSES_SYSTEM = (
    "{% for m in messages if m.role == 'system' %}{{ raise_exception('no') }}{% endfor %}" + BOTH
)
AS_JSON = CHATML.replace("m.content", "m.content | tojson")


def asked(*media: MediaPart, text: str = "hello") -> Message:
    return Message.user(text, media=media)


def prompt_of(source: str, *messages: Message, tokenizer: ToyTokenizer = TOY) -> list[int]:
    conversation = Conversation(messages=messages)
    return conversation.prompt_tokens(template(source), tokenizer, ENCODER.tokens)


def in_words(prompt: list[int], *media: MediaPart) -> str:
    """Return the text of a prompt, in which each file is a digit."""
    text, at = "", 0
    while at < len(prompt):
        for number, each in enumerate(media):
            if prompt[at : at + COUNT + 2] == ENCODER.tokens(each):
                text, at = text + str(number), at + COUNT + 2
                break
        else:
            text, at = text + shown(prompt[at : at + 1]), at + 1
    return text


CHATML_TEXT = "<|im_start|>user\n0hello<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        *((each, CHATML_TEXT) for each in (CHATML, TRIMMING, CAPITALISING)),
        (SHOUTING, CHATML_TEXT.replace("hello", "HELLO")),
        (AS_JSON, CHATML_TEXT.replace("0hello", '"0hello"')),
        (IN_PARTS, "<|im_start|>User:0hello<|im_end|>\n"),
        (BOTH, "<|im_start|>0hello<|im_end|>"),
    ],
)
def test_a_picture_stands_where_the_template_writes_its_content(source: str, text: str) -> None:
    look = picture()
    assert in_words(prompt_of(source, asked(look)), look) == text
    # A template that wants parts gets texts as parts, too.
    assert in_words(prompt_of(source, asked())).lower() == text.replace("0", "").lower()


def test_system_words_go_before_a_picture_where_the_role_is_unknown() -> None:
    look, later = picture(), Message.system("later")
    text = in_words(prompt_of(REFUSES_SYSTEM, Message.system("brief"), asked(look)), look)
    assert text == "<|im_start|>brief\n\n0hello<|im_end|>"
    text = in_words(prompt_of(REFUSES_SYSTEM, asked(look), later), look)
    assert text == "<|im_start|>0hello\n\nlater<|im_end|>"
    parts = (TextPart("a "), look, TextPart(" b"), sound())
    text = in_words(prompt_of(CHATML, Message("user", parts)), look, sound())
    assert "user\na 0 b1<|im_end|>" in text


@pytest.mark.parametrize(
    "source", ["{{ messages[-1].role }}", "{{ messages | tojson(ensure_ascii=true) }}"]
)
def test_a_template_that_leaves_a_picture_out_is_refused(source: str) -> None:
    with pytest.raises(TemplateError, match=r"chat template leaves out 0\.png: start a conv"):
        prompt_of(source, asked(picture()))


def test_bos_stands_before_a_picture() -> None:
    wanting, look = ToyTokenizer(add_bos=True), picture()
    ids = ENCODER.tokens(look)

    def rendered(text: str, *, at_start: bool = True) -> list[int]:
        return tokenize_rendered(text, wanting, at_start=at_start, media={look.sha256: ids})

    assert rendered(look.marker) == [0, *ids]
    assert rendered(look.marker, at_start=False) == ids
    assert rendered(f"a{look.marker}b") == [0, *spelled("a"), *ids, *spelled("b")]


PIECES = [*"\ud800\ud801\udfffab0", picture().marker, picture(1).marker]


@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_no_content_is_taken_for_a_picture(content: str) -> None:
    assert min(prompt_of(CHATML, Message.user(content or "a"))) >= 0


TURNS = st.lists(
    st.tuples(st.lists(st.integers(0, 3), max_size=2), st.text(max_size=4)), min_size=1, max_size=4
)


@given(TURNS)
def test_every_turn_begins_with_the_ids_before(
    turns: list[tuple[list[int], str]],
) -> None:
    conversation, evaluated = Conversation("hello"), list[int]()
    for numbers, text in turns:
        conversation.append_user(asked(*map(picture, numbers), text=text or "a"))
        prompt = conversation.prompt_tokens(template(), TOY, ENCODER.tokens)
        assert prompt[: len(evaluated)] == evaluated
        again = Conversation(messages=conversation.messages)
        fresh = again.prompt_tokens(template(), TOY, ENCODER.tokens)
        assert [each for each in fresh if each < 0] == [each for each in prompt if each < 0]
        generated = spelled("hello")
        conversation.append_reply("hello", generated)
        evaluated = [*prompt, *generated]
    # What was evaluated may have to be evaluated again, so that an encoder gets it in every turn, once.
    encoder = ToyEncoder()
    conversation.append_user("again")
    conversation.prompt_tokens(template(), TOY, encoder.tokens)
    assert sorted(encoder.read) == sorted({f"{n}.png" for numbers, _ in turns for n in numbers})


@pytest.mark.parametrize("remembers", [True, False])
def test_a_reply_about_a_picture_goes_on(remembers: bool) -> None:
    look, words = picture(), spelled("it is a")
    conversation = Conversation(messages=[asked(look)])
    prompt = conversation.prompt_tokens(template(), TOY, ENCODER.tokens)
    conversation.append_reply("it is a", words)
    if not remembers:
        conversation = Conversation(messages=conversation.messages)
    assert conversation.goes_on
    longer = conversation.prompt_tokens(template(), TOY, ENCODER.tokens)
    assert longer[: len(prompt)] == prompt
    assert shown(longer[len(prompt) :]) == "it is a"


def with_senses(media: ToyEncoder | None, **names: str) -> Assistant:
    speaker = assistant("yes")
    speaker.models = replace(speaker.models, media=media, model_for=names.get)
    return speaker


def test_a_reply_counts_what_is_seen() -> None:
    def reply(*messages: Message) -> Reply:
        return said(speaker, Conversation(messages=messages), ReplyOptions())

    speaker, look = with_senses(ToyEncoder()), picture()
    plain, seen = reply(asked()), reply(asked(look))
    assert seen.prompt_tokens == plain.prompt_tokens + COUNT + 2
    assert (seen.text, plain.text) == ("yes", "yes")
    again = reply(asked(look), Message.assistant("yes"), asked())
    assert again.cached_tokens >= seen.prompt_tokens - 1
    with pytest.raises(ContextOverflow):
        reply(asked(*[look] * 900))


@pytest.mark.parametrize(
    ("media", "part", "names", "reason"),
    [
        (None, picture(), {}, "teller reads text only: attach pictures with one that sees"),
        (None, sound(), {"image": "a", "audio": "b"}, "teller reads text only: attach sounds with one that hears, such as b"),
        (ToyEncoder(), sound(), {}, "teller takes no sounds: attach sounds with one that hears"),
        (ToyEncoder(sees=False, hears=True), picture(), {"image": "a"}, "teller takes no pictures: attach pictures with one that sees, such as a"),
        (ToyEncoder(), damaged(), {}, "0.png is damaged: it cannot be decoded; give another file"),
    ],
)  # fmt: skip
def test_what_a_model_does_not_take_is_refused_in_one_line(
    media: ToyEncoder | None, part: MediaPart, names: dict[str, str], reason: str
) -> None:
    speaker = with_senses(media, **names)
    with pytest.raises(UsageError) as caught:
        said(speaker, Conversation(messages=[asked(part)]), ReplyOptions())
    assert str(caught.value) == reason
    assert said(speaker, Conversation(messages=[asked()]), ReplyOptions()).text == "yes"
    with pytest.raises(LocalspecError, match=r"0\.png cannot be read: this model reads text only"):
        Conversation(messages=[asked(picture())]).prompt_tokens(template(), TOY)


def test_a_request_has_pictures_of_its_owner() -> None:
    speaker, encoder = assistant("yes"), ToyEncoder()
    speaker.models = replace(speaker.models, media=encoder)
    for number, owner in enumerate(("", "a", "b")):
        speaker.submit(Request(number, (asked(picture()),), owner=owner))
        while speaker.busy:
            speaker.step()
        conversation = Conversation(messages=(asked(picture()),))
        speaker.prompt_tokens(conversation, owner=f"{owner} counts")
    assert encoder.owners == {"", "a", "b", " counts", "a counts", "b counts"}


def test_pictures_of_a_request_that_is_cancelled_are_not_decoded() -> None:
    speaker = assistant("yes")

    class Leaving(ToyEncoder):
        def tokens(self, part: MediaPart, owner: str = "") -> list[int]:
            speaker.cancel(7)
            return super().tokens(part, owner)

    encoder = Leaving()
    speaker.models = replace(speaker.models, media=encoder)
    speaker.submit(Request(7, (asked(picture(), picture(1)),)))
    speaker.step()
    ((number, event),) = speaker.take()
    assert isinstance(event, RequestFailed)
    assert (number, encoder.read) == (7, ["0.png"])
    assert "cancelled" in str(event.error)
    speaker.submit(Request(7, (asked(),)))  # which was not
    speaker.step()
    assert not any(isinstance(each, RequestFailed) for _, each in speaker.take())

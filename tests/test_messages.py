"""Message: one value for all rooms, as a text and as JSON, without a lost byte."""

import json
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.messages import (
    DocumentPart,
    Message,
    Part,
    TextPart,
    ToolCall,
    ToolResult,
    from_json,
    to_json,
)
from tests.support.checks import refuses

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)  # lone surrogates, too
WORDS = st.text(max_size=20).filter(str.strip)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters='"\n'), max_size=8)
# What documents look like in a text, and what looks nearly like it.
TEXTS_WITH_BLOCKS = st.lists(
    st.sampled_from(
        ["\n", "\n\n", '<file name="a">', '<file name="">', "</file>", "<\\/file>", "x", " ", '"']
    )
    | st.just('\n\n<file name="a b.txt">\n1\n</file>'),
    max_size=12,
).map("".join)


def messages(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Message]:
    """Make messages of every role out of such texts."""
    words: st.SearchStrategy[Part] = st.builds(TextPart, texts)
    words = words | st.builds(DocumentPart, texts, texts)
    calls = st.builds(ToolCall, texts, texts, texts)
    results = st.builds(ToolResult, texts, texts, st.booleans())
    return (
        st.builds(Message, st.sampled_from(["system", "user"]), st.lists(words).map(tuple), texts)
        | st.builds(Message, st.just("assistant"), st.lists(words | calls).map(tuple), texts)
        | st.builds(Message, st.just("tool"), st.tuples(results))
    )


@st.composite
def canonical(draw: st.DrawFn) -> Message:
    """Make a message as it is read: words first and in one part, and none that spells a document."""
    words = draw(WORDS)
    match draw(st.sampled_from(["system", "user", "assistant", "tool"])):
        case "system":
            return Message.system(words)
        case "user":
            documents = st.builds(DocumentPart, NAMES, st.text(max_size=20))
            return Message.user(words, draw(st.lists(documents, max_size=2)))
        case "tool":
            result = ToolResult(draw(WORDS), draw(st.text()), draw(st.booleans()))
            return Message("tool", (result,))
        case _:
            calls = draw(st.lists(st.builds(ToolCall, WORDS, WORDS, st.text()), max_size=2))
            turn = Message.assistant(draw(st.just("") | st.just(words)), draw(st.text()))
            return Message("assistant", (*turn.parts, *calls), turn.thinking)


def test_a_document_stands_in_a_block_behind_the_words_that_it_cannot_end() -> None:
    message = Message.user("Sum @up", [DocumentPart("up", "1\n2"), DocumentPart('my "b".txt', "")])
    blocks = '<file name="up">\n1\n2\n</file>\n\n<file name="my &quot;b&quot;.txt">\n\n</file>'
    assert (message.text, message.typed) == (f"Sum @up\n\n{blocks}", "Sum @up")
    assert [each.name for each in message.documents] == ["up", 'my "b".txt']
    message = Message.user("See @a.txt", [DocumentPart("a.txt", "one\n</file>\ntwo")])
    assert message.text.count("</file>") == 1
    assert Message.from_text("user", message.text) == message
    # Words behind a document are typed as well.
    text = 'a\n\n<file name="n">\n1\n</file> b\n\n<file name="m">\n2\n</file>'
    message = Message.from_text("user", text)
    assert (message.typed, message.text) == ("a b", text)
    assert message.documents == (DocumentPart("n", "1"), DocumentPart("m", "2"))


@given(TEXTS_WITH_BLOCKS | ANY_TEXT)
def test_a_text_that_is_read_loses_no_byte(text: str) -> None:
    for role in ("system", "user", "assistant"):
        assert Message.from_text(role, text).text == text


def test_what_looks_nearly_like_a_document_is_words() -> None:
    for text in [
        '<file name="a">\n1\n</file>',
        '\n\n<file name="a">\n1',
        '\n\n<file name="a">\n1 </file>\n</file>',
        '\n\n<file name="a"> 1\n</file>',
    ]:
        assert Message.from_text("user", text) == Message.user(text)
    text = Message.user("See", [DocumentPart("a", "1")]).text
    assert Message.from_text("assistant", text, "hm") == Message.assistant(text, "hm")
    assert Message.from_text("system", text) == Message.system(text)
    long = '\n\n<file name="a">\n' * 50_000  # a paste of unfinished documents is read quickly
    assert Message.from_text("user", long).typed == long
    assert len({Message.user("a"), Message.user("a"), Message.assistant("a")}) == 2
    assert Message.user("") == Message("user")


@given(
    canonical(),
    messages(WORDS).filter(lambda message: message.role == "assistant" or message.parts),
)
def test_json_loses_no_byte_of_any_message(as_read: Message, message: Message) -> None:
    assert from_json(json.loads(json.dumps(to_json(as_read)))) == as_read
    value = to_json(message)
    again = from_json(value)
    parts = (message.text, message.thinking, message.calls)
    assert (again.text, again.thinking, again.calls) == parts
    assert to_json(again) == value


def test_json_is_the_form_of_chat_bodies() -> None:
    said = Message("assistant", (TextPart("Let me see."), ToolCall("c1", "add", '{"a": 1}')), "hm")
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    words = {"content": "Let me see.", "reasoning_content": "hm"}
    assert to_json(said) == {"role": "assistant", **words, "tool_calls": [call]}
    assert to_json(Message.system("Be brief.")) == {"role": "system", "content": "Be brief."}
    result = to_json(Message("tool", (ToolResult("c1", "3"),)))
    assert result == {"role": "tool", "tool_call_id": "c1", "content": "3"}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | ANY_TEXT,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["id", "type", "text", "function", "name"]), inner)
        ),
    ),
    st.sampled_from(
        ["role", "content", "tool_calls", "tool_call_id", "reasoning_content", "reasoning_details"]
    ),
    st.sampled_from(["user", "assistant", "tool"]),
)
def test_nothing_else_is_raised_whatever_comes(value: object, name: str, role: str) -> None:
    with suppress(UsageError):
        from_json({"role": role, "content": "x", name: value})


def test_half_of_a_character_is_refused_by_its_place() -> None:
    halved = {"role": "user", "content": "\ud800"}
    refuses("content of message 3 has half of a character", from_json, halved, "message 3")


def test_a_change_reaches_all_that_a_model_reads() -> None:
    changed = Message.user("x", [DocumentPart("n", "x")]).changed(str.upper)
    assert changed == Message.user('X\n\n<FILE NAME="N">\nX\n</FILE>')
    called = Message("assistant", (ToolCall("i", "f", "{}"), TextPart("x")), "hm")
    assert called.changed(str.upper).parts == (TextPart("X"), ToolCall("I", "F", "{}"))
    assert called.changed(str.upper).thinking == "HM"
    result = Message("tool", (ToolResult("i", "x", True),))
    assert result.changed(str.upper).parts == (ToolResult("I", "X", True),)

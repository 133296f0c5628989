"""Rules by which a conversation is made to fit a template: what a template loses or refuses is written as it takes it.

A rule is applied where the conversation has what it is about, and a short conversation shows that the template does not
take that. Rescues are for what no short conversation shows: they are tried where a template refuses a conversation.

Sources of the forms: llama.cpp's `common/chat.cpp`, mistral-common's normalizer.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import dropwhile, pairwise
from typing import Protocol

import msgspec

from localspec.calls import CallFormat
from localspec.chat.known_calls import known_format, written
from localspec.messages import Message, Part, Role, TextPart, ToolCall, ToolResult

Messages = Sequence[Message]

GAP = "\ud802"
"""Text of an assistant's turn that is not to be in the prompt: a lone surrogate, as `BREAK` is."""
NOTHING_SAID = "…"
_HELLO, _ONE, _TWO = "localspec-hello", "localspec-one", "localspec-two"
_IDS = ("callOne01", "callTwo02")
_ID_CHARS = 9
_WHOLE_ID = re.compile(rf"[A-Za-z0-9]{{{_ID_CHARS}}}")
_IN_WORDS = CallFormat(
    '<tool_call>\n{"name": "',
    '", "arguments": ',
    "}\n</tool_call>",
    '}\n</tool_call>\n<tool_call>\n{"name": "',
    "<tool_call>",
)


class TemplateReader(Protocol):
    """A template that is asked what it reads."""

    source: str

    def reads(self, messages: Messages, words: Sequence[str]) -> bool:
        """Return whether a conversation is rendered, and these words are in its text, in this order."""

    @property
    def writes_calls(self) -> bool:
        """Whether calls are rendered at all."""


@dataclass(frozen=True, slots=True)
class FitRule:
    """A rule.

    Args:
        name: what it does to a conversation.
        concerns: whether a conversation has what it is about.
        takes: whether a template takes that as it is; asked once for each template.
        change: the conversation as such a template takes it.
    """

    name: str
    concerns: "Callable[[Outline], bool]"
    takes: Callable[[TemplateReader], bool]
    change: Callable[[Messages, TemplateReader], Messages]


def _call(name: str, number: int, value: str = "") -> ToolCall:
    arguments = f'{{"{_HELLO}": "{value}"}}' if value else "{}"
    return ToolCall(_IDS[number], name, arguments)


def _result(number: int, text: str) -> Message:
    return Message("tool", (ToolResult(_IDS[number], text),))


_QUESTION = Message.user(_HELLO)
_ONE_CALL = Message("assistant", (_call("probe_one", 0),))
_TWO_CALLS = Message("assistant", (_call("probe_one", 0, _ONE), _call("probe_two", 1, _TWO)))


# What conversations have.


@dataclass(frozen=True, slots=True)
class Outline:
    """What rules look at in a conversation, found once.

    Args:
        roles: of its messages.
        calls: of its messages.
        pairs: the roles that follow one another.
    """

    roles: tuple[Role, ...]
    calls: tuple[tuple[ToolCall, ...], ...]
    pairs: frozenset[tuple[Role, Role]]

    @classmethod
    def of(cls, messages: Messages) -> "Outline":
        """Return the outline of a conversation."""
        roles = tuple(each.role for each in messages)
        calls = tuple(each.calls if each.role == "assistant" else () for each in messages)
        return cls(roles, calls, frozenset(pairwise(roles)))

    @property
    def has_system(self) -> bool:
        """Whether it begins with a system prompt."""
        return self.roles[:1] == ("system",)


def _has_calls(outline: Outline) -> bool:
    return any(outline.calls)


def _has_several_calls(outline: Outline) -> bool:
    return any(len(each) > 1 for each in outline.calls)


def _has_results(outline: Outline) -> bool:
    return "tool" in outline.roles


def _has_lone_results(outline: Outline) -> bool:
    called = False
    for role, calls in zip(outline.roles, outline.calls, strict=True):
        if role == "tool" and not called:
            return True
        called = bool(calls) or (called and role == "tool")
    return False


def _has_other_ids(outline: Outline) -> bool:
    return any(not _WHOLE_ID.fullmatch(call.id) for calls in outline.calls for call in calls)


def _has_later_system(outline: Outline) -> bool:
    return "system" in outline.roles[1:]


def _has_system(outline: Outline) -> bool:
    return outline.has_system


def _has_two_systems(outline: Outline) -> bool:
    return outline.roles[:2] == ("system", "system")


def _is_system(outline: Outline) -> bool:
    return outline.roles == ("system",)


def _in_a_loop(outline: Outline) -> bool:
    return outline.has_system and outline.roles[-1] == "tool"


def _follows(first: Role, second: Role) -> Callable[[Outline], bool]:
    return lambda outline: (first, second) in outline.pairs


def _goes_on_behind_a_call(outline: Outline) -> bool:
    """Return whether a user speaks where the assistant has to."""
    if ("tool", "user") in outline.pairs:
        return True
    behind = zip(outline.calls, outline.roles[1:], strict=False)
    return ("assistant", "user") in outline.pairs and any(
        c and role == "user" for c, role in behind
    )


def _begins_with_an_answer(outline: Outline) -> bool:
    return next((each for each in outline.roles if each != "system"), "") == "assistant"


def _has_no_question(outline: Outline) -> bool:
    return "user" not in outline.roles


def _has_equal_neighbours(outline: Outline) -> bool:
    return any(one == two for one, two in outline.pairs)


# What templates take.


def _takes_two_calls(reader: TemplateReader) -> bool:
    said = [_QUESTION, _TWO_CALLS, _result(0, "result_one"), _result(1, "result_two")]
    calls = ["probe_one", _ONE, "probe_two", _TWO]
    return reader.reads(said, calls) and reader.reads(said, ["result_one", "result_two"])


def _takes_other_ids(reader: TemplateReader) -> bool:
    call, result = ToolCall("call_1", "probe_one", "{}"), ToolResult("call_1", _ONE)
    said = [_QUESTION, Message("assistant", (call,)), Message("tool", (result,))]
    return reader.reads(said, [_ONE]) or not reader.reads(_looped(), [_ONE])


def _looped(*before: Message) -> list[Message]:
    return [*before, _QUESTION, _ONE_CALL, _result(0, _ONE)]


def _takes_results(reader: TemplateReader) -> bool:
    if reader.writes_calls or known_format(reader.source) is not None:
        return True
    said = [_QUESTION, Message.assistant(_ONE), _result(0, _TWO), Message.assistant("Yes.")]
    return reader.reads(said, [_ONE, _TWO])


def _takes_lone_results(reader: TemplateReader) -> bool:
    lone, more = Message("tool", (ToolResult("x", _ONE),)), Message.user(_TWO)
    before: list[Messages] = [[], [_QUESTION], [_QUESTION, Message.assistant("Yes.")]]
    return all(reader.reads([*each, lone, more], [_ONE, _TWO]) for each in before)


def _takes_first_answers(reader: TemplateReader) -> bool:
    """Return whether a conversation may begin with the assistant, who says something or calls."""
    answer, more = Message.assistant(_ONE), Message.user(_TWO)
    if not reader.reads([answer, more], [_ONE, _TWO]):
        return False
    call = Message("assistant", (_call("probe_one", 0, _ONE),))
    return not reader.writes_calls or reader.reads([call, _result(0, _HELLO), more], [_ONE, _TWO])


def _takes_system_in_loops(reader: TemplateReader) -> bool:
    in_a_loop = reader.reads(_looped(Message.system(_TWO)), [_TWO])
    return in_a_loop or not reader.reads(_looped(), [_ONE])  # it takes no loops at all


def _takes(words: Sequence[str], *said: Message) -> Callable[[TemplateReader], bool]:
    """Return whether a conversation is rendered with these words, in their order."""
    return lambda reader: reader.reads(said, words)


_takes_system_alone = _takes([_ONE], Message.system(_ONE))
_takes_system = _takes([_ONE], Message.system(_ONE), _QUESTION)
_takes_two_systems = _takes([_ONE, _TWO], Message.system(_ONE), Message.system(_TWO), _QUESTION)
_takes_later_system = _takes([_HELLO, _ONE], _QUESTION, Message.system(_ONE))
"""Where it stands, and not at the top or not at all."""
_takes_two_questions = _takes([_ONE, _TWO], Message.user(_ONE), Message.user(_TWO))
_takes_two_answers = _takes(
    [_ONE, _TWO], _QUESTION, Message.assistant(_ONE), Message.assistant(_TWO)
)
_takes_question_behind_result = _takes([_ONE, _TWO], *_looped(), Message.user(_TWO))


def _never(_reader: TemplateReader) -> bool:
    return False


# How conversations are changed.


def _with_calls_in_words(messages: Messages, reader: TemplateReader) -> list[Message]:
    form = known_format(reader.source) or _IN_WORDS
    return [_in_words(each, form) for each in messages]


def _in_words(message: Message, form: CallFormat) -> Message:
    if not message.calls:
        return message
    # A name or an id cannot end a call, as texts are JSON.
    text = "\n".join(filter(None, [message.text])) + written(message.calls, form)
    return Message(message.role, (TextPart(text),), message.thinking)


def _with_results_of_users(messages: Messages, _reader: TemplateReader) -> list[Message]:
    return [_from_user(each) if each.role == "tool" else each for each in messages]


def _from_user(result: Message) -> Message:
    texts = [each.text for each in result.parts if isinstance(each, ToolResult)]
    return Message.user(f"<tool_response>\n{''.join(texts)}\n</tool_response>")


def _with_single_calls(messages: Messages, _reader: TemplateReader) -> list[Message]:
    """Return a conversation in which each call has a turn of its own, and its result behind that."""
    done, at = list[Message](), 0
    while at < len(messages):
        message, at = messages[at], at + 1
        calls = message.calls
        if len(calls) < 2:
            done.append(message)
            continue
        words = tuple(each for each in message.parts if not isinstance(each, ToolCall))
        for number, call in enumerate(calls):
            parts = (*words, call) if number == 0 else (call,)
            done.append(Message("assistant", parts, message.thinking if number == 0 else ""))
            if at < len(messages) and messages[at].role == "tool":
                done.append(messages[at])
                at += 1
    return done


def _with_whole_ids(messages: Messages, _reader: TemplateReader) -> list[Message]:
    return [
        replace(each, parts=tuple(map(_with_whole_id, each.parts)))
        if each.calls or each.role == "tool"
        else each
        for each in messages
    ]


def _with_whole_id(part: Part) -> Part:
    match part:
        case ToolCall():
            return msgspec.structs.replace(part, id=_whole_id(part.id))
        case ToolResult():
            return msgspec.structs.replace(part, call_id=_whole_id(part.call_id))
        case _:
            return part


def _whole_id(given: str) -> str:
    """Return an id of nine letters and digits, always the same one for an id."""
    if _WHOLE_ID.fullmatch(given):
        return given
    return blake2b(given.encode(errors="surrogatepass")).hexdigest()[:_ID_CHARS]


def _with_system_in_turns(messages: Messages, _reader: TemplateReader) -> list[Message]:
    """Return messages of which no system message but the first is left: each is part of the turn before it.

    Behind an assistant's it is part of the next one, or a user's turn of its own.
    """
    done = list(messages[:1])
    waiting = ""
    for each in messages[1:]:
        if each.role == "system" and not waiting and done[-1].role != "assistant":
            done[-1] = joined(done[-1], after=each.text)
        elif each.role == "system":
            waiting = _paragraphs(waiting, each.text)
        elif waiting and each.role != "assistant":
            done.append(joined(each, before=waiting))
            waiting = ""
        else:
            done += [Message.user(waiting), each] if waiting else [each]
            waiting = ""
    return [*done, Message.user(waiting)] if waiting else done


def _with_system_in_question(number: int) -> Callable[[Messages, TemplateReader], Messages]:
    def change(messages: Messages, _reader: TemplateReader) -> list[Message]:
        system, *rest = messages
        users = [at for at, message in enumerate(rest) if message.role == "user"]
        if not users:
            return [Message.user(system.text), *rest]
        at = users[number]
        return [*rest[:at], joined(rest[at], before=system.text), *rest[at + 1 :]]

    return change


def _with_neighbours_joined(role: Role) -> Callable[[Messages, TemplateReader], Messages]:
    def change(messages: Messages, _reader: TemplateReader) -> list[Message]:
        done = list[Message]()
        for each in messages:
            if done and each.role == done[-1].role == role and not done[-1].calls:
                done[-1] = _together(done[-1], each)
            else:
                done.append(each)
        return done

    return change


def _together(one: Message, two: Message) -> Message:
    """Return two messages of one side as one, a blank line between their words."""
    between = (TextPart("\n\n"),) if one.text and two.text else ()
    thinking = _paragraphs(one.thinking, two.thinking)
    return Message(one.role, (*one.parts, *between, *two.parts), thinking)


def _with_all_neighbours_joined(messages: Messages, reader: TemplateReader) -> Messages:
    return _with_neighbours_joined("user")(
        _with_neighbours_joined("assistant")(messages, reader), reader
    )


def _with_gaps(messages: Messages, _reader: TemplateReader) -> list[Message]:
    """Return messages with an assistant's turn between a result and a user's words, of which nothing is left in the prompt."""
    done, calls = list[Message](), False
    for each in messages:
        done += [Message.assistant(GAP)] if calls and each.role == "user" else []
        done.append(each)
        calls = each.role == "tool" or bool(each.calls)
    return done


def _with_first_question(messages: Messages, _reader: TemplateReader) -> list[Message]:
    at = 1 if messages[0].role == "system" else 0
    return [*messages[:at], Message.user(NOTHING_SAID), *messages[at:]]


def _with_a_question(messages: Messages, reader: TemplateReader) -> list[Message]:
    if [each.role for each in messages] == ["system"]:
        return [Message.user(messages[0].text)]
    return _with_first_question(messages, reader)


def _with_systems_joined(messages: Messages, _reader: TemplateReader) -> list[Message]:
    rest = [*dropwhile(lambda each: each.role == "system", messages)]
    first = messages[: len(messages) - len(rest)]
    return [Message.system(_paragraphs(*(each.text for each in first))), *rest]


def _with_lone_results_of_users(messages: Messages, _reader: TemplateReader) -> list[Message]:
    """Return messages in which a result behind no call is a user's word."""
    done, called = list[Message](), False
    for each in messages:
        called = bool(each.calls) or (called and each.role == "tool")
        done.append(_from_user(each) if each.role == "tool" and not called else each)
    return done


def joined(message: Message, *, before: str = "", after: str = "") -> Message:
    """Return a message with more text in front of its own and behind it, as paragraphs."""
    parts: list[Part] = [
        msgspec.structs.replace(each, text=_paragraphs(before, each.text, after))
        for each in message.parts
        if isinstance(each, ToolResult)
    ]
    if message.media:
        heads, ends = before and f"{before}\n\n", after and f"\n\n{after}"
        parts = [TextPart(heads), *message.parts, TextPart(ends)]
    return replace(
        message, parts=tuple(parts or [TextPart(_paragraphs(before, message.text, after))])
    )


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))


RULES = (
    FitRule("calls in words", _has_calls, lambda reader: reader.writes_calls, _with_calls_in_words),
    FitRule("results in words", _has_results, _takes_results, _with_results_of_users),
    FitRule("lone results in words", _has_lone_results, _takes_lone_results, _with_lone_results_of_users),
    FitRule("one call a turn", _has_several_calls, _takes_two_calls, _with_single_calls),
    FitRule("ids of nine characters", _has_other_ids, _takes_other_ids, _with_whole_ids),
    FitRule("system prompts joined", _has_two_systems, _takes_two_systems, _with_systems_joined),
    FitRule("system prompt as question", _is_system, _takes_system_alone, _with_a_question),
    FitRule("later system prompts in turns", _has_later_system, _takes_later_system, _with_system_in_turns),
    FitRule("system prompt in the first question", _has_system, _takes_system, _with_system_in_question(0)),
    FitRule("system prompt in the last question", _in_a_loop, _takes_system_in_loops, _with_system_in_question(-1)),
    FitRule("questions joined", _follows("user", "user"), _takes_two_questions, _with_neighbours_joined("user")),
    FitRule("answers joined", _follows("assistant", "assistant"), _takes_two_answers, _with_neighbours_joined("assistant")),
    FitRule("an answer between result and question", _goes_on_behind_a_call, _takes_question_behind_result, _with_gaps),
    FitRule("a question before the first answer", _begins_with_an_answer, _takes_first_answers, _with_first_question),
)  # fmt: skip
"""In the order in which they are applied."""

RESCUES = (
    FitRule("later system prompts in turns", _has_later_system, _never, _with_system_in_turns),
    FitRule("a question", _has_no_question, _never, _with_a_question),
    FitRule("all neighbours joined", _has_equal_neighbours, _never, _with_all_neighbours_joined),
)  # fmt: skip
"""Tried one behind the other, and the rules again behind each, where a template refuses a conversation."""

import re
from datetime import UTC, datetime

import pytest
from jinja2 import Environment
from jinja2 import TemplateError as JinjaTemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from localspec.chat import jinja, jinja_process
from localspec.chat.template import ChatTemplate
from localspec.errors import TemplateError
from localspec.messages import Message, ToolResult
from tests.vocabularies import real_templates

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message.content"
    " + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
REFUSES_SYSTEM = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}[{{ m['role'] }}: {{ m['content'] | trim }}]{% endfor %}"
)
IGNORES_SYSTEM = (
    "{% for m in messages if m.role != 'system' %}[{{ m.role }}: {{ m.content }}]{% endfor %}"
)
SYSTEM, USER = Message.system("Be brief."), Message.user("Hi")
YES = Message.assistant("Yes")


def render(source: str, *messages: Message, begins: bool = True) -> str:
    template = ChatTemplate(source, "<s>", "</s>")
    return template.render(messages or [USER], add_generation_prompt=begins)


def test_chatml_ends_where_the_reply_begins() -> None:
    text = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    assert render(CHATML, SYSTEM, USER, begins=False) == text
    assert render(CHATML, SYSTEM, USER) == text + "<|im_start|>assistant\n"
    thoughts = "{% for m in messages %}{{ m.reasoning_content | default('-') }}|{{ m.content }};{% endfor %}"
    assert render(thoughts, USER, Message.assistant("Yes", "hm")) == "-|Hi;hm|Yes;"
    now = datetime(2024, 7, 26, tzinfo=UTC)
    chat = ChatTemplate("{{ strftime_now('%d %b %Y') }}", "", "", clock=lambda: now)
    assert chat.render([USER]) == "26 Jul 2024"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        # blocks are trimmed
        ("{% for m in messages %}\n    {% if true %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}\n", "Hi\n"),
        ("{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "02"),
        ("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}!{% endfor %}", "Hi!"),
        # Unicode, markup and order are as they are
        ("{{ {'b': '<é&>', 'a': 1} | tojson }}", '{"b": "<é&>", "a": 1}'),
        ("{{ {'a': 1} | tojson(indent=2) }}", '{\n  "a": 1\n}'),
        # special tokens are variables, and unknown ones are empty
        ("{{ bos_token }}|{{ eos_token }}|{{ pad_token }}", "<s>|</s>|"),
        # tools are undefined, so that loops over them are empty; thinking is on
        ("{% for tool in tools %}x{% endfor %}{{ tools is defined }}{{ enable_thinking }}", "FalseTrue"),
        # attributes and items are the same
        ("{{ messages[0].role }}{{ messages[0]['role'] }}{{ messages[0].get('name', '-') }}{{ messages[0].tool_calls is defined }}", "useruser-False"),
        # lists can be added to, and JSON be read
        ("{% set found = [] %}{% for m in messages %}{% set _ = found.append(m.role) %}{% endfor %}{{ found.pop(0) }}{{ found }}", "user[]"),
        ("{{ ('{\"a\": [1]}' | from_json).a }}", "[1]"),
        # nothing is HTML
        ("{{ '<'|safe + '<&\"' + messages[0].content|tojson|safe }}", '<<&"\"Hi"'),
        # days, as llama.cpp writes them
        ("{{ date_string }}|{{ datetime }}|{{ strftime_now('%Y') }}", None),
        # small repetitions and products are fine
        ("{{ '-' * 3 }}{{ 6 * 7 }}", "---42"),
    ],
)  # fmt: skip
def test_dialect_is_what_templates_expect(source: str, text: str | None) -> None:
    if text is None:
        chat = ChatTemplate(source, "", "", clock=lambda: datetime(2026, 7, 3, tzinfo=UTC))
        assert chat.render([USER]) == "03 Jul 2026|Jul 03 2026|2026"
    else:
        assert render(source) == text


@pytest.mark.parametrize("source", [REFUSES_SYSTEM, IGNORES_SYSTEM])
def test_system_text_goes_before_the_first_user_turn_where_the_role_is_unknown(source: str) -> None:
    text = render(source, SYSTEM, USER, Message.assistant("Yes"), USER)
    assert text.removeprefix("<s>") == "[user: Be brief.\n\nHi][assistant: Yes][user: Hi]"
    assert render(source, SYSTEM).removeprefix("<s>") == "[user: Be brief.]"


NOTE, MORE = Message.system("Mind the gap."), Message.system("Now.")
REFUSES_LATER_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning') }}{% endif %}"
    "[{{ m.role }}: {{ m.content }}]{% endfor %}"
)
SYSTEM_ON_TOP = (
    "{% for m in messages if m.role == 'system' %}[system: {{ m.content }}]{% endfor %}"
    "{% for m in messages if m.role != 'system' %}[{{ m.role }}: {{ m.content }}]{% endfor %}"
)
RESULT = Message("tool", (ToolResult("a", "It is 5."),))


@pytest.mark.parametrize("source", [REFUSES_LATER_SYSTEM, SYSTEM_ON_TOP])
@pytest.mark.parametrize(
    ("said", "text"),
    [
        ([SYSTEM, USER, NOTE], "[system: Be brief.][user: Hi\n\nMind the gap.]"),
        ([USER, NOTE, MORE], "[user: Hi\n\nMind the gap.\n\nNow.]"),
        ([SYSTEM, NOTE, USER], "[system: Be brief.\n\nMind the gap.][user: Hi]"),
        ([USER, YES, NOTE, USER], "[user: Hi][assistant: Yes][user: Mind the gap.\n\nHi]"),
        ([USER, YES, NOTE], "[user: Hi][assistant: Yes][user: Mind the gap.]"),
        ([USER, YES, RESULT, NOTE], "[user: Hi][assistant: Yes][tool: It is 5.\n\nMind the gap.]"),
    ],
)
def test_later_system_messages_are_in_a_turn(source: str, said: list[Message], text: str) -> None:
    assert render(source, *said) == text
    # It stays where a template takes it.
    text = render(CHATML, SYSTEM, USER, NOTE)
    assert text.startswith(render(CHATML, SYSTEM, USER, begins=False))
    assert "<|im_start|>system\nMind the gap.<|im_end|>" in text


@pytest.mark.first(24)
@pytest.mark.parametrize("name", [*real_templates()])
def test_real_templates_lose_no_system_message_and_nothing_before_it(name: str) -> None:
    template = ChatTemplate(real_templates()[name].read_text(), "<s>", "</s>")
    before = [SYSTEM, USER, YES, Message.user("Where is it?")]
    without = template.render(before, add_generation_prompt=False)
    text = template.render([*before, NOTE])
    assert (text.count("Where is it?"), text.count(NOTE.text)) == (1, 1)
    # What was evaluated without it is of use: all up to the end of the user's words.
    kept = without[: without.index("Where is it?") + len("Where is it?")]
    assert text.startswith(kept)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('roles must\nalternate') }}", "roles must alternate"),
        ("{{ raise_exception('a\x1b[2Jb') }}", "a?[2Jb"),
        ("{{ messages[7].content }}", "no element 7"),
        ("{{ 1 + 'a' }}", "unsupported operand"),
        ("{{ messages.__len__() }}", "unsafe"),
    ],
)
def test_a_failing_template_says_why_in_one_line_and_what_to_do(source: str, reason: str) -> None:
    with pytest.raises(TemplateError) as caught:
        render(source)
    said = str(caught.value)
    assert reason in said
    assert "refuses message 1 (user): " in said
    assert "--raw" not in said
    assert "\n" not in said
    for damaged, why in (
        (None, "^gemma has no.*/v1/completions"),
        (" \n", "^gemma has no.*--raw"),
        ("fine\n{% if %}", "line 2.*another file"),
    ):
        with pytest.raises(TemplateError, match=why):
            ChatTemplate(damaged, "", "", model="gemma")


LONG = [Message.user("word " * 60)] * 10_000
"""An ordinary conversation, whose rendering takes some tenths of a second and megabytes."""


@pytest.mark.parametrize("source", [CHATML, "{{ messages | tojson }}"])
def test_a_deadline_ends_a_rendering(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With less time than it takes, in a template's own steps and in one call of the library's."""
    monkeypatch.setattr(jinja, "MOST_S", 0.004)
    with pytest.raises(TemplateError, match=r"more than 0\.004 s; use another file"):
        render(source, *LONG)
    monkeypatch.undo()
    assert render("{{ messages[0].content }}") == "Hi"


def test_what_was_ended_is_not_rendered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    chat = ChatTemplate(CHATML, "", "")
    monkeypatch.setattr(jinja, "MOST_S", 0.004)
    for said in (LONG, [USER]):
        with pytest.raises(TemplateError, match="more than"):
            chat.render(said)
        monkeypatch.setattr(jinja, "MOST_S", 10)
    assert render("{{ 1 }}") == "1"
    child = jinja._renderer._child  # as the operating system ends one that is idle
    assert child is not None
    child.kill()
    child.wait()
    jinja.start()  # as loading does
    again = jinja._renderer._child
    assert again not in {None, child}
    assert render("{{ 2 }}") == "2"
    assert jinja._renderer._child is again


@pytest.mark.parametrize(
    ("bound", "most", "words"),
    [("MOST_BYTES", 64 << 20, "more than 64 MiB"), ("MOST_CHARS", 1000, "more text than 1,000")],
)
def test_a_limit_refuses_a_size(
    bound: str, most: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jinja, bound, most)
    with pytest.raises(TemplateError, match=words):
        render(CHATML, Message.user("x" * 20_000_000))
    assert render("{{ messages[0].content }}") == "Hi"


def test_a_template_is_rendered_in_jinjas_own_sandbox() -> None:
    environment = jinja_process._compiled("{{ 1 }}", strict=False).environment
    assert isinstance(environment, ImmutableSandboxedEnvironment)
    assert {"*", "**"} <= environment.intercepted_binops


@pytest.mark.parametrize(
    "text",
    [
        "m.role, m.none, m.none is defined, m['role']",
        "m.items()|list, m.keys()|list, m.get('a'), m.get",
        "m.clear(), 1",
        "m.__class__",
        "m.role.__class__.__mro__",
        "m.role.upper(), m.role.split('s'), m.role.upper is callable, m.role.none",
        "'{0.__class__}'.format(m)",
        "'{x}'.format_map({'x': m.role})",
        "m._own, m.__own__",
        "m|attr('role'), m|attr('__len__'), m|map('upper')|list",
        "m.content.none.none",
    ],
)
def test_attributes_are_what_jinjas_own_sandbox_has(text: str) -> None:
    def read(environment: Environment) -> str:
        values = {"role": "user", "content": "Hi", "_own": 1, "__own__": 2}
        try:
            return environment.from_string(f"{{{{ ({text}) }}}}").render(m=values)
        except (JinjaTemplateError, AttributeError) as error:
            return f"{type(error)} {error}"

    ours = jinja_process._compiled("{{ 1 }}", strict=False).environment
    own = re.compile(r" at 0x\w+")
    assert own.sub("", read(ours)) == own.sub("", read(ImmutableSandboxedEnvironment()))


def test_a_long_conversation_is_within_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    chat = ChatTemplate("{% for i in range(99999) %}{% endfor %}{{ messages[0].content }}", "", "")
    with monkeypatch.context() as patch:  # a bound is each rendering's own
        patch.setattr(jinja, "MOST_S", 0.5)
        assert {chat.render([USER]) for _ in range(150)} == {"Hi"}
    quadratic = (
        "{% for m in messages %}{% for n in messages %}{% endfor %}{{ m.content }}{% endfor %}"
    )
    assert render(quadratic, *[USER] * 1000) == "Hi" * 1000
    assert len(render(CHATML, *LONG)) > 3_000_000
    for character in ("x", "\N{GRINNING FACE}"):
        assert len(render(CHATML, Message.user(character * 10_000_000))) > 10_000_000


def test_what_templates_use_works() -> None:
    source = (
        "{% set ns = namespace(last=0) %}{% for m in messages[::-1] %}{% set ns.last = loop.length - loop.index %}"
        "{% if loop.last %}{{ loop.revindex }}{% endif %}{% endfor %}"
        "{{ messages|selectattr('role', 'in', ['user', 'x'])|map(attribute='content')|join(' ') }}"
        "{{ '<think>a</think>b'.split('</think>')[-1].lstrip('\\n')|trim }}"
        "{{ '%s-%02d' % ('a', 7) }}{{ '{0:>3}{x}'.format('b', x=1) }}{{ 'a\\nb'|indent(2) }}"
        "{{ messages|length }}{{ 2.567|round(2) }}{{ {'a': [1, 'é']}|tojson(indent=2)|length }}"
        "{{ {'b': 1}.items()|list }}{{ 'x' in 'xyz' and 1 < 2 <= 2 }}{{ 'a' ~ 1 ~ none }}{{ (1, 2) + (3,) }}"
        "{% for k, v in {'k': 'v'}|items %}{{ k }}{{ v }}{% endfor %}{% for t in tools %}{% endfor %}"
        "{% macro m(x) %}<{{ x }}>{{ caller() if caller }}{% endmacro %}{% call m(1) %}c{% endcall %}"
        "{% filter upper %}f{{ 1 }}{% endfilter %}{% set b %}s{% endset %}{{ b }}"
    )
    assert render(source) == ("1Hiba-07  b1a\n  b12.5731[('b', 1)]Truea1None(1, 2, 3)kv<1>cF1s")

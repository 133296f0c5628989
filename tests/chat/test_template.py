from datetime import UTC, datetime

import pytest

from localspec.chat import template as template_module
from localspec.chat.template import ChatTemplate
from localspec.errors import TemplateError

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
SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hi"}


def render(source: str, *messages: dict[str, str], **how: bool) -> str:
    return ChatTemplate(source, "<s>", "</s>").render(messages or [USER], **how)


def test_chatml_ends_where_the_reply_begins() -> None:
    text = render(CHATML, SYSTEM, USER)
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert text == render(CHATML, SYSTEM, USER, add_generation_prompt=False) + (
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("source", [None, "", " \n"])
def test_missing_template_names_the_model_and_the_way_out(source: str | None) -> None:
    with pytest.raises(TemplateError, match=r"^gemma has no chat template: use --raw$"):
        ChatTemplate(source, "", "", model="gemma")


def test_blocks_are_trimmed_as_templates_expect() -> None:
    source = "{% for m in messages %}\n    {% if true %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}\n"
    assert render(source) == "Hi\n"


def test_break_and_continue_are_known() -> None:
    source = "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}"
    assert render(source) == "02"


def test_generation_tags_show_their_body() -> None:
    source = (
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}!{% endfor %}"
    )
    assert render(source) == "Hi!"


def test_tojson_keeps_unicode_markup_and_order() -> None:
    assert render("{{ {'b': '<é&>', 'a': 1} | tojson }}") == '{"b": "<é&>", "a": 1}'
    assert render("{{ {'a': 1} | tojson(indent=2) }}") == '{\n  "a": 1\n}'


def test_strftime_now_reads_the_clock() -> None:
    chat = ChatTemplate(
        "{{ strftime_now('%d %b %Y') }}", "", "", clock=lambda: datetime(2024, 7, 26, tzinfo=UTC)
    )
    assert chat.render([USER]) == "26 Jul 2024"


def test_special_tokens_are_variables_and_unknown_ones_are_empty() -> None:
    assert render("{{ bos_token }}|{{ eos_token }}|{{ pad_token }}") == "<s>|</s>|"


def test_tools_are_undefined_so_that_loops_over_them_are_empty() -> None:
    assert render("{% for tool in tools %}x{% endfor %}{{ tools is defined }}") == "False"


def test_thinking_is_on_unless_asked_otherwise() -> None:
    source = (
        "{% if enable_thinking is defined and enable_thinking is false %}off{% else %}on{% endif %}"
    )
    assert render(source) == "on"
    assert render(source, enable_thinking=False) == "off"


def test_attributes_and_items_of_messages_are_the_same() -> None:
    source = "{{ messages[0].role }}{{ messages[0]['role'] }}{{ messages[0].get('name', '-') }}{{ messages[0].tool_calls is defined }}"
    assert render(source) == "useruser-False"


@pytest.mark.parametrize("source", [REFUSES_SYSTEM, IGNORES_SYSTEM])
def test_system_text_goes_before_the_first_user_turn_where_the_role_is_unknown(source: str) -> None:
    text = render(source, SYSTEM, USER, {"role": "assistant", "content": "Yes"}, USER)
    assert text.removeprefix("<s>") == "[user: Be brief.\n\nHi][assistant: Yes][user: Hi]"


def test_system_text_is_not_lost_where_no_user_speaks() -> None:
    assert render(IGNORES_SYSTEM, SYSTEM) == "[user: Be brief.]"


def test_messages_are_not_changed_by_rendering() -> None:
    messages = [dict(SYSTEM), dict(USER)]
    ChatTemplate(REFUSES_SYSTEM, "", "").render(messages)
    assert messages == [SYSTEM, USER]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('roles must\nalternate') }}", "roles must alternate"),
        ("{{ messages[7].content }}", "no element 7"),
        ("{{ 1 + 'a' }}", "unsupported operand"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
    ],
)
def test_a_failing_template_says_why_in_one_line_and_what_to_do(source: str, reason: str) -> None:
    with pytest.raises(TemplateError) as caught:
        render(source)
    said = str(caught.value)
    assert reason in said
    assert "--raw" in said
    assert "\n" not in said


def test_a_template_that_is_no_jinja_is_refused_at_once() -> None:
    with pytest.raises(TemplateError, match=r"line 2.*--raw"):
        ChatTemplate("fine\n{% if %}", "", "")


@pytest.mark.parametrize(
    "source",
    ["{{ 'x' * 10**9 }}", "{{ 'x' * 1000000000 }}", "{{ 1000000000 * [0] }}", "{{ 9 ** 9 }}"],
)
def test_a_template_cannot_build_huge_values(source: str) -> None:
    with pytest.raises(TemplateError, match=r"not allowed|repetition"):
        render(source)


def test_small_repetitions_and_products_are_fine() -> None:
    assert render("{{ '-' * 3 }}{{ 6 * 7 }}") == "---42"


def test_a_template_cannot_write_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = "{% for i in range(1000) %}{{ i }}{% endfor %}"
    monkeypatch.setattr(template_module, "MAX_OUTPUT_CHARS", 100)
    with pytest.raises(TemplateError, match="more than 100 characters"):
        render(endless)
    monkeypatch.undo()
    monkeypatch.setattr(template_module, "MAX_RENDER_S", -1.0)
    with pytest.raises(TemplateError, match="longer than"):
        render(endless)


def test_a_huge_template_is_not_even_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_module, "MAX_SOURCE_CHARS", 10)
    with pytest.raises(TemplateError, match="has 11 characters"):
        ChatTemplate("x" * 11, "", "")

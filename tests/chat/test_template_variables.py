"""Variables of a template that a user sets: found in its text, refused by name where it reads none, and no structure."""

import json
import re
from typing import Any

import jinja2
import jinja2.meta
import pytest

from localspec.chat.template import ChatTemplate
from localspec.chat.template_variables import read_variables
from localspec.chat.token_prefix import Conversation
from localspec.config.keys import KEYS, from_file, from_variable
from localspec.errors import UsageError
from localspec.messages import Message
from localspec.models.registry import parse_registry
from localspec.options import ReplyOptions
from localspec.options.fields import kwargs_of, think_of, with_fields
from tests.chat.toy_tokenizer import ToyTokenizer, shown
from tests.vocabularies import real_templates

SOURCE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{% if keep_thoughts is defined and keep_thoughts and m.reasoning_content %}"
    "({{ m.reasoning_content }}){% endif %}\n{% endfor %}{% set tone = tone | default('calm') %}{{ tone }}{{ style or '' }}"
)
TURNS = [Message.user("hi"), Message.assistant("ho", "hm"), Message.user("and?")]


def asked(source: str = SOURCE, **variables: Any) -> ChatTemplate:
    options = ReplyOptions(template_kwargs=json.dumps(variables))
    return ChatTemplate(source, "<s>", "</s>").asked(options)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (SOURCE, {"keep_thoughts", "tone", "style"}),
        ("{% if not clear_thinking %}{{ 'style' }}{# mood #}{% endif %}", {"clear_thinking"}),
        ("{% set a = b %}{{ a }}{{ c.d }}{{ e | f(g=h) }}{% if i is j %}{% endif %}", set("bcehi")),
        ("{% for x, y in z.items() %}{{ x }}{{ y }}{% endfor %}{{ w[v] }}", {"z", "w", "v"}),
        ("{% macro m(p) %}{{ p }}{% endmacro %}{{ m(q) }}{{- r -}}", {"q", "r"}),
        ("{{ messages }}{{ bos_token }}{{ raise_exception('x') }} loose words", set()),
    ],
)
def test_what_a_template_reads_is_found_in_its_text(source: str, names: set[str]) -> None:
    assert read_variables(source) == names


@pytest.mark.weights
def test_real_templates_read_what_their_makers_say() -> None:
    known = {
        "GLM-4.7-Flash": "clear_thinking", "LFM2.5-Instruct": "keep_past_thinking", "poolside-Laguna-S-2.1": "preserve_thinking",
        "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "truncate_history_thinking", "deepseek-ai-DeepSeek-V4": "drop_thinking",
        "Qwen3.5-4B": "add_vision_id", "openai-gpt-oss-120b": "model_identity", "MiniMax-M2": "model_identity",
    }  # fmt: skip
    templates = {name: path.read_text() for name, path in real_templates().items()}
    for name, variable in known.items():
        assert variable in read_variables(templates[name])
    environment = jinja2.Environment(extensions=["jinja2.ext.loopcontrols"])
    for name, source in templates.items():
        try:
            undeclared = jinja2.meta.find_undeclared_variables(environment.parse(source))
        except jinja2.TemplateSyntaxError:
            continue  # of an extension of Hugging Face's
        defined = {
            each for each in undeclared if re.search(rf"\b{each} is (not )?defined", source)
        } - set(re.findall(r"set (\w+)|macro \w+\([^)]*", source))
        unread = defined - read_variables(source) - {"messages", "tools", "documents"}
        assert unread <= {"date_string", "strftime_now", "response_format"}, name


def test_a_variable_reaches_the_template_and_one_that_it_does_not_read_is_refused() -> None:
    assert "(hm)" in asked(keep_thoughts=True).render(TURNS)
    assert "(hm)" not in asked(keep_thoughts=False).render(TURNS)
    assert asked(tone="gay", style={"a": [1]}).render(TURNS).endswith("gay{'a': [1]}")
    assert asked() is not asked(tone="x")
    for variables, problem in (
        ({"keep_thought": True}, "does not read 'keep_thought': did you mean keep_thoughts?"),
        ({"mood": 1}, "does not read 'mood': it reads keep_thoughts, style, tone"),
        ({"m": 1}, "does not read 'm'"),
    ):
        with pytest.raises(UsageError, match=re.escape(problem)):
            asked(**variables)
    with pytest.raises(UsageError, match="it reads none"):
        asked("{{ messages }}", x=1)
    one = ChatTemplate(SOURCE, "", "")
    options = ReplyOptions(template_kwargs='{"tone": "x"}')
    assert one.asked(options) is one.asked(options), "ids are remembered by it"


@pytest.mark.parametrize("text", ["</s>", "<|im_start|>system", "a<think>"])
def test_a_variable_is_no_structure(text: str) -> None:
    toy = ToyTokenizer()
    conversation = Conversation(messages=[Message.user("hi")])
    ids = conversation.prompt_tokens(asked(SOURCE + "<think></s><|im_start|>", tone=text), toy)
    plain = toy.tokenize(text, add_special=False, parse_special=False)
    assert shown(ids).count(text) >= 1
    for special in ("</s>", "<|im_start|>", "<think>"):
        (token,) = toy.tokenize(special, add_special=False, parse_special=True)
        assert ids.count(token) == 1, "the template's own"
    assert len(plain) > 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[1]", "takes an object"), ("{", "takes an object"), ('{"a": NaN}', "takes an object"), (f'{{"a": "{"x" * 20_000}"}}', "takes an object"),
        ('{"messages": []}', "'messages', which cannot be set"), ('{"a-b": 1}', "'a-b', which cannot be set"),
        ('{"": 1}', "which cannot be set"), ('{"enable_thinking": false}', "set think instead"),
    ],
)  # fmt: skip
def test_what_is_no_variable_is_one_line(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as caught:
        ReplyOptions(template_kwargs=text)
    assert len(str(caught.value)) < 300


def test_it_is_set_in_files_bodies_and_per_model() -> None:
    key = KEYS["template_kwargs"]
    text = '{"keep": true}'
    assert (
        from_file(key, {"keep": True}) == from_file(key, text) == from_variable(key, text) == text
    )
    for wrong in ([1], 1, "x", True):
        with pytest.raises(ValueError, match="an object of the chat"):
            from_file(key, wrong)
    usual = ReplyOptions(template_kwargs='{"a": 1, "b": 2}')
    both = with_fields(usual, {"template_kwargs": {"b": 3, "c": None}})
    assert both.template_variables == {"a": 1, "b": 3, "c": None}
    assert with_fields(usual, {}) == usual
    given = {"enable_thinking": False, "keep": True, "x": None}
    assert (think_of(None, given), kwargs_of(given)) == ("off", {"keep": True})
    assert kwargs_of({"thinking": True}) is None
    own = """default_pair = "p"
    [models."m:Q8_0"]
    repo = "a/b"
    file = "c.gguf"
    sampling = { template_kwargs = { keep = true }, temperature = 0.5 }
    [pairs.p]
    target = "m"
    draft = "lookup"
    """
    assert parse_registry(own, "own").sampling("p") == {"template_kwargs": text, "temperature": 0.5}

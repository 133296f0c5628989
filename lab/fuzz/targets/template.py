"""A chat template out of a model file, with less time than it has in earnest: ten of them a second may use it up."""

from unittest.mock import patch

from localspec.chat import jinja
from localspec.chat.template import ChatTemplate
from localspec.chat.thinking import opened_by, thinking_tags
from localspec.messages import Message
from tests.chat.test_template import CHATML, IGNORES_SYSTEM, REFUSES_SYSTEM

_MESSAGES = (
    Message.system("Be brief."),
    Message.user("Hi <b>there</b>"),
    Message.assistant("Yes.", "hm"),
    Message.user("x" * 100),
)
SEEDS = tuple(
    each.encode()
    for each in (
        CHATML,
        REFUSES_SYSTEM,
        IGNORES_SYSTEM,
        "{% macro m(a) %}{{ a * 3 }}{% endmacro %}{{ m(2) ~ m('b') }}",
        "{% set ns = namespace(x='ab') %}{% for i in range(4) %}{% set ns.x = ns.x + '-' %}{% endfor %}{{ ns.x }}",
        "{{ messages[1:]|map(attribute='content')|join(',')|replace('H', 'ab')|upper|indent(4) }}",
        "{{ '%5d|%s' % (1, 'a') }}{{ '{:>9}{}'.format('a', 1) }}{{ messages|tojson(indent=2) }}",
        "{% set a = ['ab', 1] %}{% set b = [a, a] %}{{ b|string }}{{ {'k': b, 2: a} }}{{ b == b[::-1] }}",
        "{% for m in messages recursive %}{{ loop([m]) if loop.depth < 3 }}{{ loop.last }}{% endfor %}",
        "{% block a %}{{ self.a() if false }}<think>{% endblock %}{% filter upper %}x{% endfilter %}",
        "{{ [1,2]|sum }}{{ 'a b'.split()|first }}{{ strftime_now('%d %Y') }}",
        "{% call(x) m() %}{% endcall %}{% generation %}{{ 2.5|round(1)|int }}{% endgeneration %}",
    )
)


def run(data: bytes) -> None:
    source = data.decode(errors="replace")
    tags = thinking_tags(source)
    with patch.object(jinja, "MOST_S", 0.1):
        template = ChatTemplate(source, "<s>", "</s>")
        opened_by(template.render(_MESSAGES), tags)

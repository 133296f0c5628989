"""A toy model's calls: its vocabulary as grammars need it, functions, and how it writes them."""

import json
from typing import Any

from localspec.calls import Tool
from localspec.grammar import Grammars
from tests.chat.toy_tokenizer import ToyTokenizer

END = 3
N_VOCAB = 356
FIRST_BYTE = 100
HERMES = """{%- if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}{{ '\\n' }}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


class ToyVocabulary:
    """`ToyTokenizer`'s tokens; the ids that it leaves out stand for nothing."""

    eog = frozenset({END})

    def __init__(self) -> None:
        self._tokenizer = ToyTokenizer()

    def pieces(self) -> list[bytes]:
        known = 14
        unused = [b""] * (FIRST_BYTE - known)
        ids = [*range(known), *range(FIRST_BYTE, N_VOCAB)]
        pieces = [self._tokenizer.piece(each) for each in ids]
        return [*pieces[:known], *unused, *pieces[known:]]

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        return self._tokenizer.tokenize(text, add_special=add_special, parse_special=parse_special)


GRAMMARS = Grammars(ToyVocabulary())
AREA = Tool(
    "area",
    {"type": "object", "properties": {"of": {"type": "string"}}, "required": ["of"]},
    "How large a country is.",
)
NOW = Tool("now", {"type": "object", "properties": {}}, "The time.")


def hermes(name: str, **arguments: Any) -> str:
    """Return a call as the template writes it."""
    call = f'{{"name": "{name}", "arguments": {json.dumps(arguments, ensure_ascii=False)}}}'
    return f"<tool_call>\n{call}\n</tool_call>"

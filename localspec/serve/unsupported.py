"""Fields of bodies that are not supported and would change the answer: all interfaces refuse them by name."""

from collections.abc import Collection, Mapping
from typing import Any

from localspec.errors import UsageError

_UNSUPPORTED: Mapping[str, Any] = {
    # llama.cpp's samplers
    **dict.fromkeys(
        ("mirostat", "xtc_probability", "dry_multiplier", "dynatemp_range", "samplers")
    ),
    "typical_p": 1,
    "top_n_sigma": -1,
    # what ends an answer, and what it is made of
    **dict.fromkeys(("ignore_eos", "min_tokens", "stop_token_ids", "include_stop_str_in_output")),
    **dict.fromkeys(("bad_words", "allowed_token_ids", "use_beam_search", "echo", "background")),
    "best_of": 1,
    "length_penalty": 1,
    "repetition_penalty": 1,
    # vLLM's grammars
    **dict.fromkeys(("guided_json", "guided_regex", "guided_choice", "guided_grammar")),
    **dict.fromkeys(("structured_outputs",)),
    # what only some interfaces read
    **dict.fromkeys(("grammar", "json_schema", "regex", "stop", "logit_bias")),
    "response_format": {"type": "text"},
    # the prompt
    **dict.fromkeys(("chat_template", "continue_final_message", "documents", "lora")),
    "chat_template_kwargs": {"enable_thinking": True},
    # what OpenAI and Anthropic run themselves
    **dict.fromkeys(("web_search_options", "mcp_servers", "audio")),
    "modalities": ["text"],
}
"""By name, the value beside an empty one that changes nothing."""


def refuse_unsupported(fields: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse a body with a field that is not supported, unless its value changes nothing.

    Args:
        fields: of the body.
        known: names that its interface reads.

    Raises:
        UsageError: there is one.
    """
    for name in fields.keys() & _UNSUPPORTED.keys():
        if name not in known and fields[name] and fields[name] != _UNSUPPORTED[name]:
            raise UsageError(f"{name} is not supported by this server: remove it")

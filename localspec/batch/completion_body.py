"""The batch form of OpenAI's API: `custom_id`, `url` and a `body`, as far as a local model can serve it.

What a body asks for beyond that is an error of its line: silence would pass for an answer to it.

Source: the files of platform.openai.com/docs/guides/batch, as its clients write them.
"""

from collections.abc import Mapping
from typing import Any

from localspec.batch.line_options import OVERRIDES
from localspec.batch.prompted import Prompted, conversation_of, raw_prompt
from localspec.display import printable_line
from localspec.errors import UsageError

_URLS = ("/v1/chat/completions", "/v1/completions")
# Who asks, and where the answer is kept: nothing that an answer depends on.
_IGNORED = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}
# What may be asked for only as it is anyway.
_FIXED: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "stream": (False,),
    "echo": (False,),
    "logprobs": (False, 0),
    "tool_choice": ("none",),
    "tools": ([],),
}
_READ = {"model", "messages", "prompt", "max_completion_tokens", *OVERRIDES}


def body_prompt(fields: Mapping[str, Any], system: str | None) -> Prompted:
    """Return what a line in this form asks for.

    Args:
        fields: of the line.
        system: the system prompt, where messages bring none.

    Raises:
        UsageError: it asks for nothing, or for what cannot be had.
    """
    body, url = fields["body"], fields.get("url")
    if not isinstance(body, dict):
        raise UsageError("body is not an object: write what you would send to the API")
    if url is not None and url not in _URLS:
        raise UsageError(f"url is {str(url)[:40]!r}: use {' or '.join(_URLS)}")
    given = {name: value for name, value in body.items() if value is not None}
    _require_known(given)
    if "max_completion_tokens" in given:
        given.setdefault("max_tokens", given["max_completion_tokens"])
    model = given.get("model")
    model = model[:200] if isinstance(model, str) else None
    if "messages" in given and "prompt" not in given:
        return Prompted(conversation_of(given["messages"], system), options=given, model=model)
    if "prompt" in given and "messages" not in given:
        # The older endpoint continues a text; a system prompt of the run is for those who converse.
        told = raw_prompt(given["prompt"], None, "body.prompt")
        return Prompted(told.prompt, raw=True, options=given, model=model)
    raise UsageError("body has neither messages nor a prompt, or both: write one of them")


def _require_known(given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if name in _FIXED and value not in _FIXED[name]:
            raise UsageError(
                f"body.{name} is {printable_line(str(value))[:40]}: only {_FIXED[name][0]} is supported"
            )
        if name not in _FIXED and name not in _READ and name not in _IGNORED:
            raise UsageError(f"body.{printable_line(name)[:40]} is not supported: remove it")

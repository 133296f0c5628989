"""Agents: the programs that `localspec launch` starts, one row each; a new one is one more row."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from string import Template


@dataclass(frozen=True, slots=True)
class Agent:
    """A program, and what makes it ask a server of ours for one run; nothing of the user's is changed.

    In the texts stand `$server` (http://HOST:PORT), `$api` (the same with /v1), `$model`, `$name` (the model as
    JSON and TOML have it between quotes), `$ctx` (tokens of context), `$most` (tokens of an answer) and `$folder` (where `files` are).

    Args:
        program: its command.
        install: the command that installs it.
        n_ctx: tokens of context that it needs: its own instructions, and room to work.
        environment: its variables.
        flags: what it is given before the user's own arguments.
        files: configuration, by names, in a folder that is removed with it.
        calls_tools: whether it has use only for a model that calls tools.
    """

    program: str
    install: str
    n_ctx: int
    environment: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    calls_tools: bool = True

    def filled(self, values: Mapping[str, str]) -> "Agent":
        """Return it with values in its texts."""

        def fill(text: str) -> str:
            return Template(text).substitute(values)

        return replace(
            self,
            environment={name: fill(text) for name, text in self.environment.items()},
            flags=tuple(map(fill, self.flags)),
            files={name: fill(text) for name, text in self.files.items()},
        )


_KEY = "none"
"""Some want a key, and none may be empty."""

_CLAUDE = {
    "ANTHROPIC_BASE_URL": "$server",
    "ANTHROPIC_AUTH_TOKEN": _KEY,
    "ANTHROPIC_API_KEY": "",  # a real one goes nowhere
    "ANTHROPIC_MODEL": "$name",
    "ANTHROPIC_SMALL_FAST_MODEL": "$name",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL": "$name",
    "ANTHROPIC_DEFAULT_SONNET_MODEL": "$name",
    "ANTHROPIC_DEFAULT_OPUS_MODEL": "$name",
    "CLAUDE_CODE_SUBAGENT_MODEL": "$name",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "$most",
    "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "$ctx",
    "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",  # it would change what is cached
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
}

AGENTS: Mapping[str, Agent] = {
    "claude": Agent(
        "claude",
        "npm install -g @anthropic-ai/claude-code",
        32768,
        # What the user's own settings say of variables goes before the environment, and this before both.
        flags=("--settings", json.dumps({"model": "$name", "env": _CLAUDE})),
    ),
    "codex": Agent(
        "codex",
        "npm install -g @openai/codex",
        32768,
        flags=(
            *("-c", 'model="$name"', "-c", 'model_provider="localspec"'),
            *("-c", 'model_providers.localspec.name="localspec"'),
            *("-c", 'model_providers.localspec.base_url="$api"'),
            *("-c", 'model_providers.localspec.wire_api="responses"'),
            *("-c", "model_context_window=$ctx"),
        ),
    ),
    "opencode": Agent(
        "opencode",
        "npm install -g opencode-ai",
        32768,
        {
            "OPENCODE_CONFIG_CONTENT": '{"model": "localspec/$name", "small_model": "localspec/$name", '
            '"provider": {"localspec": {"npm": "@ai-sdk/openai-compatible", "name": "localspec", '
            f'"options": {{"baseURL": "$api", "apiKey": "{_KEY}"}}, '
            '"models": {"$name": {"name": "$name", "tool_call": true, "limit": {"context": $ctx, "output": $most}}}}}}'
        },
    ),
    "qwen": Agent(
        "qwen",
        "npm install -g @qwen-code/qwen-code",
        32768,
        flags=(
            *("--auth-type", "openai", "--model", "$model"),
            *("--openai-base-url", "$api", "--openai-api-key", _KEY),
        ),
    ),
    "aider": Agent(
        "aider",
        "python -m pip install aider-chat",
        16384,
        {"AIDER_SHOW_MODEL_WARNINGS": "false"},
        (
            *("--model", "openai/$model", "--openai-api-base", "$api", "--openai-api-key", _KEY),
            *("--set-env", "OPENAI_BASE_URL=$api", "--model-metadata-file", "$folder/models.json"),
        ),
        {
            "models.json": '{"openai/$name": {"litellm_provider": "openai", "mode": "chat", '
            '"max_input_tokens": $ctx, "max_output_tokens": $most}}\n'
        },
        calls_tools=False,
    ),
    "gptme": Agent(
        "gptme",
        "pipx install gptme",
        16384,
        {"OPENAI_BASE_URL": "$api", "OPENAI_API_KEY": _KEY},
        ("--model", "local/$model"),
    ),
}

"""Agents: the programs that `localspec launch` starts, each a table of agents.toml; a new one is one more table."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template

import msgspec


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


AGENTS: Mapping[str, Agent] = msgspec.convert(
    tomllib.loads(Path(__file__).with_name("agents.toml").read_text(encoding="utf-8")),
    dict[str, Agent],
)

"""Sections of a verb's help: the flags that most people use; `--help-all` shows the others, too.

Imports nothing slow: the start of the chat waits for this module.
"""

import click

# section: (flags that `--help` shows, flags that only `--help-all` shows), by the names of their parameters.
SECTIONS = {
    "Model": (("model", "ctx", "offline"), ("pair", "target", "kv_type", "own")),
    "Drafting": (
        ("draft", "draft_model", "exact"),
        ("draft_length", "draft_lora", "draft_device", "draft_gpu_layers"),
    ),
    "Sampling": (
        ("temperature", "max_tokens", "seed"),
        ("top_k", "top_p", "min_p", "repeat_penalty", "stop_loops"),
    ),
    "Answer": (
        (
            *("system", "go_on", "stop", "json_schema", "regex", "gate"),
            *("json_", "code", "quiet", "show_thinking"),
        ),
        ("persona", "grammar", "lark", "keep", "raw", "workload"),
    ),
    "Files and tools": (
        ("files", "template", "docs", "tools", "mcp"),
        ("params", "docs_tokens", "tool_rules"),
    ),
    "Machine": (
        ("threads", "gpu_layers"),
        ("device", "split", "tensor_split", "cpu_moe", "kv_offload", "fit", "workers", "debug"),
    ),
}
_WIDEST = 26
_PLACED = {name for names in SECTIONS.values() for each in names for name in each}


class SectionedCommand(click.Command):
    """A command with so many flags that its help has sections, the flags of that verb alone first."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with `--help-all` last."""
        return [*super().get_params(ctx), _HELP_ALL]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections; of shared flags only the first sentence, unless all flags are wanted."""
        sections = self._sections(ctx, every=_EVERY in ctx.meta)
        short = [
            len(flag) for rows in sections.values() for flag, _ in rows if len(flag) <= _WIDEST
        ]
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl([(flag.ljust(max(short)), text) for flag, text in rows], _WIDEST)

    def _sections(self, ctx: click.Context, *, every: bool) -> dict[str, list[tuple[str, str]]]:
        """Return flags and what they do, by section; sections without flags are left out."""
        records = {
            param.name or "": record
            for param in self.get_params(ctx)
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx))
        }
        found = {"Options": [records[name] for name in records if name not in _PLACED]}
        for section, (usual, rare) in SECTIONS.items():
            rows = [records[name] for name in (*usual, *rare * every) if name in records]
            found[section] = rows if every else [(flag, _first(text)) for flag, text in rows]
        return {section: rows for section, rows in found.items() if rows}


def _first(text: str) -> str:
    """Return the first sentence of a text."""
    sentence, dot, _ = text.partition(". ")
    return sentence + dot.rstrip()


def _show_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG001
    if value and not ctx.resilient_parsing:
        ctx.meta[_EVERY] = True
        click.echo(ctx.get_help())
        ctx.exit()


_EVERY = "localspec.help-all"
_HELP_ALL = click.Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show all options, in full.",
)

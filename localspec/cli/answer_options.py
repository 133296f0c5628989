"""Options that several verbs have in common, in groups; what the flags then ask for is in `asked`.

Imports nothing slow: the first frame of the chat waits for this module.
"""

from collections.abc import Callable
from typing import Any

import click

from localspec.cli.layers import layers
from localspec.llama.options import KV_TYPES

Function = Callable[..., Any]
Group = Callable[[Function], Function]
"""Adds options to a command's function, in the order in which its help shows them."""


def pair_options(
    *,
    draft: str = "What proposes tokens; never changes the text. Default: auto, whatever pays.",
    draft_length: str = "Tokens that model or lookup propose at a time. Default: 3; lookup: 15.",
) -> Group:
    """Return what names the models and says how to draft; the texts are help."""
    return _group(
        click.option(
            "--pair", metavar="NAME", help="Pair of models; smollm2-135m if nothing is chosen."
        ),
        click.option(
            "--target", metavar="REF", help="Target instead of a pair: a model's name or a GGUF."
        ),
        click.option("--draft-model", metavar="REF", help="Draft model: a model's name or a GGUF."),
        click.option(
            "--draft",
            type=click.Choice(["auto", "off", "lookup", "model"]),
            default="auto",
            help=draft,
        ),
        click.option("--draft-length", type=int, metavar="K", help=draft_length),
    )


def sampling_options(
    *,
    max_tokens: str = "End after N tokens.",
    seed: str = "Same seed, same text. Default: a fresh one.",
) -> Group:
    """Return how long an answer is and how its tokens are chosen; the texts are help."""
    return _group(
        click.option("--max-tokens", type=int, metavar="N", help=max_tokens),
        click.option(
            "--temperature", type=float, default=0.8, metavar="T", help="0 is greedy. Default: 0.8."
        ),
        click.option("--top-k", type=int, default=40, metavar="K", help="0 is off. Default: 40."),
        click.option(
            "--top-p", type=float, default=0.95, metavar="P", help="1 is off. Default: 0.95."
        ),
        click.option(
            "--min-p", type=float, default=0.05, metavar="P", help="0 is off. Default: 0.05."
        ),
        click.option(
            "--repeat-penalty", type=float, default=1.0, metavar="R", help="1 is off. Default: 1."
        ),
        click.option("--seed", type=int, metavar="S", help=seed),
    )


def structure_options() -> Group:
    """Return what an answer has to look like."""
    return _group(
        click.option(
            "--json-schema",
            metavar="FILE|JSON",
            help="Answer with JSON that is valid under this schema; '{}' is any JSON.",
        ),
        click.option("--grammar", metavar="FILE", help="Answer as this grammar says, in GBNF."),
        click.option("--regex", metavar="REGEX", help="Answer with what this matches as a whole."),
        click.option("--lark", metavar="FILE", help="Answer as this grammar says, in Lark."),
    )


def context_options(
    *, kv_type: str = "Type of the KV caches; another one rounds differently. Default: f16."
) -> Group:
    """Return the size and the type of the context; the text is help."""
    return _group(
        click.option(
            "--ctx", type=int, metavar="N", help="Tokens of context. Default: up to 4096."
        ),
        click.option("--kv-type", type=click.Choice(list(KV_TYPES)), default="f16", help=kv_type),
    )


def device_options(
    *,
    gpu_layers: str = "Layers on the GPU. Default: auto, all.",
    fit: str = "Give up what the free memory does not hold, or refuse. Default: --fit.",
) -> Group:
    """Return where to compute and what may be taken for it; the texts are help."""
    return _group(
        click.option(
            "--threads", type=int, metavar="N", help="CPU threads. Default: the physical cores."
        ),
        click.option(
            "--gpu-layers", default="auto", callback=layers, metavar="N|auto", help=gpu_layers
        ),
        click.option("--device", multiple=True, metavar="NAME", help="Device to use; repeatable."),
        click.option("--fit/--no-fit", default=True, help=fit),
        click.option("--offline", is_flag=True, help="Use no network."),
    )


def _group(*options: Group) -> Group:
    def add(command: Function) -> Function:
        for option in reversed(options):  # click shows first what was added last
            command = option(command)
        return command

    return add

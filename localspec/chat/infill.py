"""Infill: a text with a gap in it, as models that were trained for it want to read it. Knows no model."""

from collections.abc import Mapping
from dataclasses import dataclass

from localspec.chat.tokenizer import Tokenizer
from localspec.errors import UsageError

_WINDOW = 2048
"""Tokens around the gap that are read at most: more make an editor wait, and tell little."""
_SNIPPET = "\n\n--- snippet ---\n\n"


@dataclass(frozen=True, slots=True)
class Infill:
    """A gap, and what is around it.

    Args:
        prefix: before the gap.
        suffix: behind it.
        files: names and texts of what else is of use, the most useful last.
    """

    prefix: str
    suffix: str
    files: tuple[tuple[str, str], ...] = ()


def infill_tokens(
    infill: Infill,
    fim: Mapping[str, int],
    tokenizer: Tokenizer,
    n_ctx: int,
    max_tokens: int | None,
) -> list[int]:
    """Return the ids of a prompt; what is far from the gap is left out where there is no room.

    Args:
        infill: the gap.
        fim: the vocabulary's tokens for it: `pre`, `suf`, `mid`, and where there are such `rep` and `sep`.
        tokenizer: for the texts; what spells a control token in them stays text.
        n_ctx: tokens of context.
        max_tokens: most tokens of the answer.

    Raises:
        UsageError: the vocabulary has no such tokens.

    Source: `format_infill` of llama.cpp's server; the order is that of Qwen2.5-Coder, arXiv:2409.12186.
    """
    if not {"pre", "suf", "mid"} <= fim.keys():
        raise UsageError(
            "this model cannot fill in the middle: its vocabulary has no tokens for it; "
            "serve one that can, such as qwen2.5-coder-1.5b"
        )

    def ids(text: str) -> list[int]:
        return tokenizer.tokenize(text, add_special=False, parse_special=False)

    window = min(_WINDOW, n_ctx // 2)
    prefix = ids(infill.prefix)[-(3 * window // 4) :]
    suffix = ids(infill.suffix)[: window // 4]
    around: list[int] = []
    if "rep" in fim:
        around += [fim["rep"], *ids("myproject\n")]
    for name, text in infill.files:
        around += [fim["sep"], *ids(f"{name}\n")] if "sep" in fim else ids(_SNIPPET)
        around += ids(text)
    if "sep" in fim:
        around += [fim["sep"], *ids("filename\n")]
    gap = [fim["pre"], *prefix, fim["suf"], *suffix, fim["mid"]]
    bos = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
    room = n_ctx - len(bos) - len(gap) - (n_ctx // 4 if max_tokens is None else max_tokens)
    return [*bos, *around[max(0, len(around) - max(0, room)) :], *gap]

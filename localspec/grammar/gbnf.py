r"""GBNF, llama.cpp's grammars, as Lark, by llguidance's own `gbnf_to_lark`, with what that lacks.

It takes over names and characters as they are written, but GBNF and Lark write some of them differently. One without
recursion becomes a single regular expression. One with recursion is read character by character: terminals of several
characters would be read greedily, so that in llama.cpp's own example `term "\n"`, where a term ends in white space, no
line would ever end. That takes some milliseconds for each mask within a string.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from localspec.display import printable_line
from localspec.errors import UsageError

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([^uU]))", re.DOTALL)
_CHARACTER = re.compile(r"\\x[0-9a-fA-F]{2}|\\.|.", re.DOTALL)
_NAMED = {r"\n": "\n", r"\r": "\r", r"\t": "\t"}
_TWICE = re.compile(r"&(?=&)|~(?=~)|-(?=-)")
"""Operations on classes, for Rust."""
_RULE = re.compile(r"^[ \t]*([A-Za-z0-9_-]+)[ \t]*::=", re.MULTILINE)


def lark_of_gbnf(gbnf: str) -> str:
    """Return a grammar in Lark.

    Raises:
        UsageError: it is no GBNF, with the place, or refers to tokens instead of text.
    """
    names = Counter(_RULE.findall(gbnf))
    wrong = [f"the rule {name} is defined twice" for name, count in names.items() if count > 1]
    wrong += [] if "root" in names else ["it has no rule root"]
    try:
        if not wrong:
            return _lark(_ESCAPE.sub(_character, gbnf))
    except RecursionError:
        wrong = ["it is nested too deeply"]
    except Exception as error:  # which is what llguidance raises for a rule that there is not
        wrong = [printable_line(str(error))[:200]]
    raise UsageError(f"the grammar is wrong: {wrong[0]}")


def _lark(gbnf: str) -> str:
    # ruff: noqa: PLC0415 - it comes with llguidance, which most runs do not need
    from llguidance import gbnf_to_lark as reader

    rules = reader.GrammarParser().parse(gbnf)
    renamed = {name: f"r{number}" for number, name in enumerate(rules)}
    whole = reader.SequenceNode([reader.RuleRefNode(renamed["root"])])
    lark = {"root": reader.RuleNode("root", whole, "")}
    for name, rule in rules.items():
        plain = _plain(rule.alternatives, renamed, reader)
        lark[renamed[name]] = reader.RuleNode(renamed[name], plain, "")
    root = lark[renamed["root"]]
    reader.resolve(lark)
    if not root.rule_is_terminal:
        for rule in lark.values():
            rule.name = rule.name.lower()
    return "".join(f"{rule}\n" for rule in sorted(lark.values(), key=lambda rule: rule.order))


def _plain(node: Any, renamed: Mapping[str, str], reader: Any) -> Any:
    """Return a node of a grammar in the way that Lark reads as GBNF does."""
    # The empty text keeps what is repeated from being taken for a lone item, whose operators would clash.
    if isinstance(node, reader.LiteralNode):
        texts = ["", *map(_written, _CHARACTER.findall(node.value))]
        return reader.SequenceNode([reader.LiteralNode(each) for each in texts])
    if isinstance(node, reader.RegexNode):
        return reader.RegexNode("(?s:.)" if node.rx == "." else _TWICE.sub(r"\\\g<0>", node.rx))
    if isinstance(node, reader.RuleRefNode):
        return reader.RuleRefNode(renamed.get(node.name, node.name))
    inner = [_plain(each, renamed, reader) for each in node.children()]
    if isinstance(node, reader.RepetitionNode):
        node.node = reader.SequenceNode([reader.LiteralNode(""), *inner])
    elif isinstance(node, reader.SequenceNode):
        node.nodes = inner
    else:
        node.alternatives = inner
    return node


def _character(match: re.Match[str]) -> str:
    """Return an escape, or the character that it stands for, as llguidance reads it."""
    if match[3]:
        return r"\x2d" if match[3] == "-" else match[0]
    code = int(match[1] or match[2], 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise ValueError(f"{match[0]} is no character")
    return chr(code) if code > 0x9F else f"\\x{code:02x}"


def _written(character: str) -> str:
    """Return a character of a text as Lark writes it."""
    named = _NAMED.get(character) or character[-1]
    code = int(f"0{character[1:]}", 16) if character.startswith(r"\x") else ord(named)
    return chr(code) if code > 0x9F or chr(code).isalnum() else f"\\x{code:02x}"

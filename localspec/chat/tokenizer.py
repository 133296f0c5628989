"""What a conversation needs of a tokenizer: how text becomes ids without content passing for structure, and how many they are.

How many is guessed of the text, rather too many, before any vocabulary is loaded.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from localspec.errors import UsageError
from localspec.messages import MEDIA, Infill, MediaPart

if TYPE_CHECKING:
    from localspec.chat.request import Request

# A lone surrogate: no text that can be written as UTF-8 contains one, so no content can forge or lose it.
BREAK = "\ud800"
_SURROGATES = re.compile("[\ud800-\udfff]")
# A template may write a content in other letters.
_CUTS = re.compile(f"{BREAK}|{MEDIA}([0-9A-Fa-f]{{64}}){MEDIA}")
_WINDOW = 2048
"""Tokens around the gap that are read at most: more make an editor wait, and say little."""
_SNIPPET = "\n\n--- snippet ---\n\n"

ANSWER_TOKENS = 2048
"""Tokens of an answer without a limit."""
_AROUND = 256
"""What a template adds, at most, as far as was seen."""
_MEDIUM_TOKENS = 1024
"""What a picture takes, or a sound, mostly."""
_PATCH = 28
"""Sides in pixels of what becomes a token of a picture, where that depends on its size."""
_CLIP_S, _CLIP_TOKENS = 30, 750
"""Sounds are encoded in clips of this length."""
_TOOLS_TOKENS = 4096
"""Descriptions of tools and what they return."""
_CHARS_PER_TOKEN = 3
# Many vocabularies have a token for each digit, sign and character of another script.
_DENSE = re.compile(r"[^A-Za-z\s]")


class Tokenizer(Protocol):
    """A vocabulary. Two that are equal (`==`) give the same ids for the same text."""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Return the ids of `text`, as `llama_tokenize` does with these two flags."""

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """Return the bytes of a token; b"" for a control token, unless `special` asks for its text."""

    def special_texts(self) -> Collection[str]:
        """Return the texts of control tokens, such as `<|im_end|>`; user-defined ones may be among them."""

    @property
    def bos_id(self) -> int | None:
        """Id of the BOS token."""

    @property
    def add_bos(self) -> bool:
        """Whether the vocabulary wants every sequence to begin with BOS."""

    @property
    def bos_text(self) -> str:
        """Text of the BOS token, "" where there is none."""

    @property
    def eos_text(self) -> str:
        """Text of the EOS token, "" where there is none."""


class ContentGuard:
    """Keeps contents from passing for structure: text that spells a special token will not become that token.

    Every occurrence, overlapping ones too, gets a break behind its first character; `tokenize_rendered` cuts there.
    So only such texts tokenize unusually, and a template may trim or move the content as it likes.

    Left alone are white space, which structures nothing, and user-defined tokens that the template does not mention:
    Gemma has `<table>` as one, and llama.cpp parses those in any text, whatever `parse_special` says.

    A special text of one character could not be broken; none of the vocabularies at hand has one but white space.

    Args:
        tokenizer: gives its special texts once, as that takes long.
        template_source: the chat template around the contents.
    """

    def __init__(self, tokenizer: Tokenizer, template_source: str) -> None:
        self._tokenizer = tokenizer
        self._template_source = template_source
        self._texts = [text for text in tokenizer.special_texts() if text.strip()]

    def break_up(self, content: str, exempt: Collection[str] = ()) -> str:
        """Return `content` with breaks; lone surrogates, which no tokenizer takes, become U+FFFD."""
        content = _SURROGATES.sub("\ufffd", content)
        texts = [each for each in self._texts if each in content and each not in exempt]
        texts = [each for each in texts if self._structures(each)]
        if not texts:
            return content
        beginnings = re.compile("(?=" + "|".join(map(re.escape, texts)) + ").", re.DOTALL)
        return beginnings.sub(lambda first: first[0] + BREAK, content)

    def _structures(self, text: str) -> bool:
        tokenize = self._tokenizer.tokenize
        plain = tokenize(text, add_special=False, parse_special=False)
        user_defined = plain == tokenize(text, add_special=False, parse_special=True)
        return not user_defined or text in self._template_source


def spelling(tokenizer: Tokenizer, control: Mapping[int, bytes]) -> Callable[[int], bytes]:
    """Return what turns ids into bytes, some control tokens as well; see `control_pieces`."""

    def spell(token: int) -> bytes:
        piece = control.get(token)
        return tokenizer.piece(token) if piece is None else piece

    return spell


def control_pieces(texts: Collection[str], tokenizer: Tokenizer) -> dict[int, bytes]:
    """Return the bytes of those control tokens that some texts are made of, by id.

    `Tokenizer.piece` has b"" for a control token.
    """
    pieces = {}
    for special in tokenizer.special_texts() if texts else ():
        if any(special in text for text in texts):
            ids = tokenizer.tokenize(special, add_special=False, parse_special=True)
            if len(ids) == 1 and not tokenizer.piece(ids[0]):
                pieces[ids[0]] = special.encode()
    return pieces


def tokenize_rendered(
    text: str,
    tokenizer: Tokenizer,
    *,
    at_start: bool,
    media: Mapping[str, Sequence[int]] | None = None,
) -> list[int]:
    """Return the ids of a template's text; special tokens are parsed, except where a guard broke them.

    Args:
        text: what a template made of contents that went through `ContentGuard.break_up`.
        tokenizer: the vocabulary of the model that will read it.
        at_start: nothing precedes it: BOS is added if the vocabulary wants it and the template did not write it.
        media: the ids of pictures and sounds by their hashes: of all whose markers are in the text.
    """
    ids: list[int] = []
    for at, part in enumerate(_CUTS.split(text)):
        if at % 2:  # what is between two texts: the hash of a marker, None for a break
            ids += (media or {})[part.lower()] if part else ()
        elif at_start and not at:
            ids = tokenizer.tokenize(part, add_special=False, parse_special=True)
        else:
            ids += _continuation(part, tokenizer)
    bos = tokenizer.bos_id
    if at_start and tokenizer.add_bos and bos is not None and ids[:1] != [bos]:
        return [bos, *ids]
    return ids


def raw_tokens(text: str, tokenizer: Tokenizer) -> list[int]:
    """Return the ids of a text that no template touches (`--raw`): special tokens are parsed, BOS is never doubled.

    What a file wants behind a text (EOS) is left out: the text is to be continued.
    """
    text = _SURROGATES.sub("\ufffd", text)
    bos = tokenizer.bos_id if tokenizer.add_bos else None
    if bos is not None and tokenizer.bos_text:
        text = text.removeprefix(tokenizer.bos_text)
    ids = tokenizer.tokenize(text, add_special=False, parse_special=True)
    return ids if bos is None else [bos, *ids]


def infill_tokens(
    infill: Infill, fim: Mapping[str, int], tokenizer: Tokenizer, n_ctx: int, max_tokens: int | None
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


def _continuation(text: str, tokenizer: Tokenizer) -> list[int]:
    # SentencePiece vocabularies put a space before whatever they are given; behind a line break, which is then taken
    # off again, text is spelled as it is. Where the line break does not come off cleanly, a space is the lesser evil.
    before = tokenizer.tokenize("\n", add_special=False, parse_special=True)
    ids = tokenizer.tokenize("\n" + text, add_special=False, parse_special=True)
    if ids[: len(before)] == before:
        return ids[len(before) :]
    return tokenizer.tokenize(text, add_special=False, parse_special=True)


def media_tokens(part: MediaPart, most: int) -> int:
    """Return how many tokens a picture or a sound has, rather too many; how many exactly only its encoder knows."""
    from localspec.media import picture_size, sound_seconds  # noqa: PLC0415 - few prompts have media

    if part.kind == "audio":
        return _CLIP_TOKENS * math.ceil((sound_seconds(part.data) or _CLIP_S) / _CLIP_S)
    width, height = picture_size(part.data, part.name)
    return min(most, math.ceil(width / _PATCH) * math.ceil(height / _PATCH))


def _text(request: "Request") -> str:
    return str(request.raw or "".join(each.text for each in request.messages))


def _beside_text(request: "Request") -> int:
    """Return the tokens of context that pictures, sounds and the answer need, about."""
    media = _MEDIUM_TOKENS * sum(len(each.media) for each in request.messages)
    return media + _AROUND + (request.options.max_tokens or ANSWER_TOKENS)


def guessed_context(request: "Request", *, tools: bool = False) -> int:
    """Return about how many tokens of context a prompt and its answer need; rather too many."""
    text = _text(request)
    others = len(_DENSE.sub("", text))
    guess = len(text) - others + others // _CHARS_PER_TOKEN
    return guess + _beside_text(request) + tools * _TOOLS_TOKENS


def may_need_more(request: "Request", n_ctx: int) -> bool:
    """Return whether a prompt may need more than a context holds: no token of a text is shorter than a byte."""
    has_media = any(each.media for each in request.messages)
    return has_media or len(_text(request).encode()) + _beside_text(request) > n_ctx

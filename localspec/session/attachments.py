"""`@path` in a message: the file goes into the context before the words, a text in a block of its own.

Of a PDF and a DOCX, the text goes.
"""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from localspec.display import counted, duration_text
from localspec.errors import UsageError
from localspec.media import MOST_BYTES, media_type, picture_size, sound_seconds
from localspec.messages import GAP, DocumentPart, MediaPart, Message, TextPart
from localspec.session.citing import files_of, passages_in
from localspec.storage.files import size_text
from localspec.storage.tree import files_below, fuzzy

_MENTION = re.compile(r"""(?<!\S)@(?:"([^"\n]+)"|'([^'\n]+)'|(\S+))""")
# A word of a shell that is an absolute path, or a URL of one.
_DRAGGED = re.compile(
    r"""(?<!\S)(?=['"]?(?:/|~/|file://))(?:'[^'\n]*'|"(?:\\.|[^"\\\n])*"|\\.|[^\s'"\\])+"""
)
_TRAILING = ".,;:!?)"
_MOST_BYTES, _LOOKED_AT = 1 << 20, 8192
_MEDIA_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".wav", ".mp3", ".flac")
_MOST_OFFERED = 8
_DOCUMENT_SUFFIXES = (".pdf", ".docx")
# One letter is in nearly every name.
_LEAST_FUZZY = 2
_CHARS_PER_TOKEN = 4  # of English and code; only for the size that is printed


Attachment = DocumentPart | MediaPart


def label(attachment: Attachment) -> str:
    """Return the name and the size of a file that goes into the context, for people."""
    if isinstance(attachment, DocumentPart):
        size = file_size(len(attachment.text.encode()))
        return f"{attachment.name} · {size} · ≈ {counted(_about_tokens(attachment.text), 'token')}"
    name, data = attachment.name, attachment.data
    if not data:
        return f"{name} · its file is missing"
    if attachment.kind == "audio":
        seconds = sound_seconds(data)
        length = "" if seconds is None else f" · {duration_text(seconds, 1)}"
        return f"{name} · {file_size(len(data))}{length}"
    size = ""
    with suppress(UsageError):  # what is in the history is listed, whatever it is
        size = " · {} x {}".format(*picture_size(data, name))
    return f"{name} · {file_size(len(data))}{size}"


def _about_tokens(text: str) -> int:
    """Return about how many tokens a text has: letters of other scripts mostly take one each, or more."""
    ascii_letters = len(text.encode("ascii", "ignore"))
    return ascii_letters // _CHARS_PER_TOKEN + len(text) - ascii_letters


def attached_lines(message: Message) -> Iterator[str]:
    """Yield a line for each file and passage that goes with a question, and one for the size of the passages."""
    yield from map(label, message.media)
    yield from map(label, files_of(message))
    passages = passages_in([message])
    yield from map(str, passages.values())
    if passages:
        yield f"passages · ≈ {sum(each.tokens for each in passages.values())} tokens"


def question_with(text: str, attachments: Iterable[Attachment]) -> Message:
    """Return a question with its files, each once, and before the words, so that another question about them begins alike.

    Passages are behind them: another question has others.
    """
    unique = dict.fromkeys(attachments)
    documents = [each for each in unique if isinstance(each, DocumentPart)]
    files = files_of(Message.user("", documents))
    media = [each for each in unique if isinstance(each, MediaPart)]
    words = [TextPart(f"{GAP}{text}" if files else text)] if text else []
    passages = [each for each in documents if each not in files]
    return Message("user", (*media, *files, *words, *passages))


def attached(
    text: str,
    folder: Path,
    others: Mapping[str, MediaPart] = MappingProxyType({}),
    pasted: Collection[str] = (),
    *,
    media_only: bool = False,
) -> list[Attachment]:
    """Return the files that a text mentions, each once. A mention of nothing that is there is just text.

    Args:
        text: the question.
        folder: what names of files are relative to.
        others: pictures and sounds by names that stand for them, and for no file.
        pasted: mentions that nobody chose; they are text.
        media_only: return pictures and sounds, and read nothing else.

    Raises:
        UsageError: a file is there but cannot be put into a context.
    """
    paths: dict[Path, str] = {}
    chosen = [name for name in mentions(text) if name not in pasted]
    for name in chosen:
        if _among(name, others) is None and (path := _existing(name, folder)) is not None:
            paths.setdefault(path, name if (folder / name).exists() else name.rstrip(_TRAILING))
    held = [part for name in chosen if (part := _among(name, others)) is not None]
    files = (_read(path, name, media_only=media_only) for path, name in paths.items())
    return [*held, *(each for each in files if each is not None)]


def mentioned(text: str, others: Mapping[str, MediaPart]) -> list[MediaPart]:
    """Return those of some pictures and sounds, by name, that a text mentions."""
    return [part for name in mentions(text) if (part := _among(name, others)) is not None]


def pasted_alone(text: str, pasted: Iterable[str]) -> frozenset[str]:
    """Return the names of files that a text mentions no more often than what was pasted into it did."""
    counts, given = Counter(mentions(text)), Counter(pasted)
    return frozenset(name for name in given if 0 < counts[name] <= given[name])


def not_attached(message: Message, folder: Path) -> frozenset[str]:
    """Return the mentions of files in a question that attached nothing; the name of an index is none."""
    names = {each.name for each in message.documents} | {each.name for each in message.media}
    return frozenset(
        each
        for each in mentions(message.typed)
        if not {each, each.rstrip(_TRAILING)} & names and _existing(each, folder) is not None
    )


def pasted_notes(pasted: Iterable[str], folder: Path) -> list[str]:
    """Return a line for each file that was mentioned by a paste alone."""
    return [
        f"@{name.rstrip(_TRAILING)} was pasted: sent as text; type it to attach the file"
        for name in sorted(pasted)
        if _existing(name, folder) is not None
    ]


def _among(name: str, others: Mapping[str, MediaPart]) -> MediaPart | None:
    return others.get(name) or others.get(name.rstrip(_TRAILING))


def unmatched(
    text: str, folder: Path, others: Mapping[str, MediaPart] = MappingProxyType({})
) -> list[str]:
    """Return what a text mentions where there is no file, and none of `others`; see `attached`."""
    return [
        f"@{name.rstrip(_TRAILING)}"
        for name in mentions(text)
        if name.rstrip(_TRAILING)
        and _among(name, others) is None
        and _existing(name, folder) is None
    ]


def unmatched_line(name: str, folder: Path) -> str:
    """Return why a mention is sent as text, on one line."""
    if _existing(name.removeprefix("@").strip('"'), folder, is_kind=Path.is_dir) is not None:
        return f"{name} is a folder, sent as text: name files in it, or index it with `localspec index add`"
    return f"no file matches {name}: sent as text"


def with_mentions(text: str, folder: Path) -> str:
    """Return a text in which the paths of pictures and sounds are mentions.

    They are quoted or escaped as for a shell, or `file:` URLs, as terminals paste files that are dragged to them; or a path is all of the text.
    """

    def mention(match: re.Match[str]) -> str:
        word = match[0]
        is_media = word.rstrip("'\"").lower().endswith(_MEDIA_SUFFIXES)
        return (is_media and _mention(_path_of(word), folder)) or word

    return _mention(text.strip(), folder) or _DRAGGED.sub(mention, text)


def dragged_mentions(text: str, folder: Path) -> str:
    """Return the mentions of pictures and sounds where all of a text is their paths; empty for any other text."""
    if "\n" in text.strip():
        return ""
    mentions_alone = with_mentions(text, folder)
    return (
        "" if mentions_alone == text or _MENTION.sub("", mentions_alone).strip() else mentions_alone
    )


def _path_of(word: str) -> str:
    with suppress(ValueError):  # a quote without its other
        word = "".join(shlex.split(word))
    url = urlsplit(word) if word.startswith("file:") else None
    return word if url is None else unquote(url.path)


def _mention(path: str, folder: Path) -> str:
    """Return the mention of a picture or a sound; empty where the path is of none, or cannot be mentioned."""
    if not path.lower().endswith(_MEDIA_SUFFIXES) or '"' in path or "\n" in path:
        return ""
    file = _existing(path, folder)
    if file is None:
        return ""
    here = folder.resolve()
    name = str(file.relative_to(here)) if file.is_relative_to(here) else path
    return f'@"{name}"' if re.search(r"\s", name) else f"@{name}"


def read_attachment(name: str, folder: Path) -> Attachment:
    """Return the file that a name means.

    Raises:
        UsageError: there is none, or it cannot be put into a context.
    """
    path = _existing(name, folder) or _stream(name, folder)
    if path is not None and (attachment := _read(path, name)) is not None:
        return attachment
    if _existing(name, folder, is_kind=Path.is_dir) is not None:
        raise UsageError(
            f"{name} is a folder: name files in it, or index it with `localspec index add {name}`"
        )
    raise UsageError(f"there is no file {name}: check the path")


def read_prediction(name: str | None, folder: Path) -> str:
    """Return the text of the file that a prediction's name means; nothing without one.

    Raises:
        UsageError: there is none, or it is no text.
    """
    part = None if name is None else read_attachment(name, folder)
    if part is None or isinstance(part, DocumentPart):
        return "" if part is None else part.text
    raise UsageError(f"--prediction {name} is no text: give the file that the answer will be like")


def file_size(size_bytes: int) -> str:
    """Return the size of a small file as people read it."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    return f"{size_bytes / 1e3:.1f} KB" if size_bytes < 1e6 else size_text(size_bytes)


def completions(typed: str, folder: Path) -> list[tuple[str, str]]:
    """Return what a path that is being typed may become, and the size of each; folders end in a slash.

    First come the paths that begin so, then the files anywhere below the folder that have these letters.

    Args:
        typed: what stands behind the `@`.
        folder: what it is relative to.
    """
    parent, slash, start = typed.rpartition("/")
    place = Path(f"{parent}/" if typed.startswith("/") else parent or ".").expanduser()
    offers: dict[str, str] = {}
    with suppress(OSError):  # no such folder, or not ours to read: nothing to offer
        for each in sorted((folder / place).iterdir()):
            if each.name.startswith(start) and (start or not each.name.startswith(".")):
                name = f"{parent}{slash}{each.name}"
                with suppress(OSError):  # gone meanwhile, or nothing that we may look at
                    offers[f"{name}/" if each.is_dir() else name] = _size(each)
            if len(offers) == _MOST_OFFERED:
                break
    if len(typed) >= _LEAST_FUZZY and not typed.startswith(("/", "~", ".")):
        for name in fuzzy(typed, files_below(folder), _MOST_OFFERED):
            with suppress(OSError):
                if len(offers) < _MOST_OFFERED and (folder / name).exists():
                    offers.setdefault(name, _size(folder / name))
    return [*offers.items()]


def _size(path: Path) -> str:
    return "" if path.is_dir() else file_size(path.stat().st_size)


def mentions(text: str) -> Iterator[str]:
    """Yield the names behind the `@` of a text, with the punctuation that may follow them."""
    for found in _MENTION.findall(text):
        yield "".join(found)


def _existing(
    name: str, folder: Path, is_kind: Callable[[Path], bool] = Path.is_file
) -> Path | None:
    for each in dict.fromkeys((name, name.rstrip(_TRAILING))):
        try:
            path = (folder / Path(each).expanduser()).resolve()
            if each and is_kind(path):
                return path
        except (OSError, RuntimeError, ValueError):  # too long, without a home, with a NUL
            continue
    return None


def _stream(name: str, folder: Path) -> Path | None:
    """Return the path of a pipe or a device; what it links to has no path that could be opened."""
    with suppress(OSError, RuntimeError, ValueError):
        path = folder / Path(name).expanduser()
        return path if path.is_fifo() or path.is_char_device() else None
    return None


def _read(path: Path, name: str, *, media_only: bool = False) -> Attachment | None:
    try:
        with path.open("rb") as stream:
            return _attachment(stream, name, media_only=media_only)
    except OSError as error:
        raise UsageError(
            f"{name} cannot be read ({error.strerror}): check its permissions"
        ) from error


def attachment_of(stream: BinaryIO, name: str) -> Attachment:
    """Return what a stream holds: a text, a picture or a sound.

    Args:
        stream: read to its end, or until it is too long.
        name: how the user calls it.

    Raises:
        UsageError: it cannot be put into a context.
        OSError: it cannot be read.
    """
    attachment = _attachment(stream, name)
    assert attachment is not None  # noqa: S101 - of texts there is one, too
    return attachment


def _attachment(stream: BinaryIO, name: str, *, media_only: bool = False) -> Attachment | None:
    raw = stream.read(_LOOKED_AT)
    # A text may begin with the letters of a format, but has no NUL.
    is_media = name.lower().endswith(_MEDIA_SUFFIXES) or (media_type(raw) and b"\0" in raw)
    document = "" if is_media else _document_suffix(name, raw)
    if media_only and not is_media:
        return None
    most = MOST_BYTES if is_media else _most_bytes(document)
    raw += stream.read(most + 1 - len(raw))
    if is_media:
        return MediaPart.of(raw, name)
    if len(raw) > most:
        raise _too_long(name, most)
    if document:
        return DocumentPart(name, _document_text(raw, name, document))
    try:
        text = raw.decode("utf-8-sig").rstrip("\n")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UsageError(f"{name} is not UTF-8 text: convert it first")
    return DocumentPart(name, text)


def _too_long(name: str, most: int) -> UsageError:
    return UsageError(
        f"{name} is longer than {file_size(most)}: too long for any context, shorten it"
    )


def _document_suffix(name: str, begins: bytes) -> str:
    """Return the suffix that a PDF or a DOCX has or, by what it begins with, ought to have; empty for all else."""
    if begins.startswith(b"%PDF-"):
        return ".pdf"
    if begins.startswith(b"PK\3\4") and b"word/" in begins:
        return ".docx"
    return next((each for each in _DOCUMENT_SUFFIXES if name.lower().endswith(each)), "")


def _most_bytes(document: str) -> int:
    if not document:
        return _MOST_BYTES
    from localspec.retrieval.reading import most_bytes  # noqa: PLC0415 - a feature that can be taken away

    return most_bytes(document)


def _document_text(raw: bytes, name: str, suffix: str) -> str:
    """Return the text of a PDF, its pages numbered where there are several, or of a DOCX.

    Raises:
        UsageError: it is damaged, holds no text, or the package that reads it is not there.
    """
    from localspec.retrieval.reading import Unreadable, read  # noqa: PLC0415 - as above

    try:
        lines, _ = read(f"x{suffix}", raw)
    except Unreadable as error:
        raise UsageError(f"{name} cannot be attached: {error}") from None
    texts = dict[int, list[str]]()
    for line in lines:
        texts.setdefault(line.number, []).append(line.text)
    numbered = suffix == ".pdf" and len(texts) > 1
    pages = (
        "\n".join([*([f"[page {number}]"] if numbered else []), *page])
        for number, page in texts.items()
    )
    if not any(line.text.strip() for line in lines):
        raise UsageError(f"{name} has no text: attach pictures of its pages")
    text = ("\n\n" if numbered else "\n").join(pages).strip("\n")
    if len(text.encode()) > _MOST_BYTES:
        raise _too_long(f"the text of {name}", _MOST_BYTES)
    return text

"""The words for a model in every list: `search`, `list`, `show`, `recommend`, the model picker and the first run."""

from localspec.models.entries import Medium
from localspec.models.mmproj import WORDS
from localspec.plan.recommend import Recommendation
from localspec.session.model_list import ModelRow
from localspec.storage.files import size_text

_SIZE, _SPEED = 7, 5
_OTHER_WORDS: dict[Medium, str] = {"image": " vision pictures", "audio": " sound speech"}
_TEXTS = {
    "code": "on code",
    "chat": "in chat",
    "creative": "in creative writing",
    "thoughts": "in its thoughts",
}


def size_of(row: ModelRow) -> str:
    """Return the size of a model with its mmproj file."""
    mmproj = row.mmproj_bytes or 0
    return "?" if row.size_bytes is None else size_text(row.size_bytes + mmproj)


def sizes_of(row: ModelRow) -> str:
    """Return the size of a model, and of its draft model or heads: `1.1 GB + 491 MB draft`."""
    if not row.draft_bytes:
        return size_of(row)
    what = "heads" if row.heads else "draft"
    return f"{size_of(row)} + {size_text(row.draft_bytes)} {what}"


def marks_of(row: ModelRow) -> str:
    """Return what a model can do, takes beside text, and comes with: `tools`, `thinking`, `images`, `audio`, `heads`."""
    marks: dict[str, object] = {"tools": row.tools, "thinking": row.thinking}
    marks |= {WORDS[each]: True for each in row.takes} | {"heads": row.heads}
    return ", ".join(mark for mark, has in marks.items() if has)


def words_of(row: ModelRow) -> str:
    """Return all that a search looks through."""
    others = " reasoning" if row.thinking else ""
    others += "".join(_OTHER_WORDS[each] for each in row.takes)
    return f"{row.name} {row.about} {marks_of(row)}{others}".lower()


def cells(row: ModelRow, about: str) -> tuple[str, str, str]:
    """Return the row of a printed table: name, marked if it is here, sizes, and what there is to know of it."""
    return f"{'*' if row.here else ' '} {row.name}", sizes_of(row), about


def line(row: ModelRow, name_width: int, *, loaded: bool = False) -> str:
    """Return all that fits one line, the most important first: 33 columns, and what the model is good for."""
    mark = "●" if loaded else "★" if row.recommended else " "
    speed = "" if row.tokens_per_s is None else f"{rounded(row.tokens_per_s)}/s"
    about = "needs more memory than is free" if row.fits is False else row.about
    about = " · ".join(filter(None, (about, marks_of(row))))
    here = "*" if row.here else " "
    columns = f"{row.name:<{name_width}}{mark}{size_of(row):>{_SIZE}}{here}{speed:>{_SPEED}}"
    return f"{columns}  {about}".rstrip()


def hint(row: ModelRow, to_download: int | None = None) -> str:
    """Return all that is known, in a sentence's parts; `to_download` are the bytes that would be, None where that is not known."""
    download = size_of(row) if to_download is None else size_text(to_download)
    is_here = row.here or to_download == 0
    parts = [f"{size_of(row)}, here" if is_here else f"{download} to download"]
    if row.tokens_per_s is not None:
        heads = "" if row.suited is None else outlook(row.suited)
        parts.append(f"about {rounded(row.tokens_per_s)} tokens/s{heads}")
    parts += [row.about, marks_of(row)]
    if row.drafts is not None:
        faster = "its draft model could make it faster"
        parts.append(faster if row.drafts else "faster without its draft model")
    return " · ".join(filter(None, parts))


def outlook(suited: Recommendation) -> str:
    """Return what heads add to a speed, as a part of a sentence that begins with a comma; empty without any."""
    speeds = suited.with_heads
    if suited.drafter is None or suited.tokens_per_s is None:
        return ""
    if speeds is None:
        return ", its heads may make it faster"
    if not speeds:
        return ", its heads would not make it faster"
    texts = [f"{rounded(speed)} {_TEXTS[kind]}" for kind, speed in speeds.items()]
    return ", about " + ", ".join([texts[0].replace(" ", " with its heads ", 1), *texts[1:]])


def rounded(speed: float) -> str:
    """Return tokens per second with two digits, as people read them."""
    return f"{speed:.0f}" if speed >= 10 else f"{speed:.1f}"

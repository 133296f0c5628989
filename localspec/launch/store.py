"""The store of what was said: where it is, whether it is on, and how what is said comes into it."""

import codecs
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from localspec.chat.conversation import Conversation
from localspec.chat.events import Event, Finished, RoundDone
from localspec.chat.requests import Observer, Request
from localspec.decoding.policy import Policy
from localspec.errors import LocalspecError
from localspec.gates.gate import usual_gate
from localspec.gates.ledger import Decided, Ledger
from localspec.llama.model import LlamaModel
from localspec.llama.vocabulary import Vocabulary
from localspec.options import LoadOptions
from localspec.storage.files import read_bounded
from localspec.storage.paths import data_dir
from localspec.storage.token_log import FILE, USUAL_MEGABYTES, TokenLog, of_conversation
from localspec.storage.tree import found_below

ON = "on"
"""The name of the switch: a file beside the store, with the size of the next one that is made."""
_FLUSH_S = 0.5
_SAMPLED = 61
_MOST_FILE_BYTES = 1 << 20


def store_dir() -> Path:
    """Return where the store and its switch are, made or not."""
    return data_dir() / "store"


def store_for(vocabulary: Vocabulary) -> TokenLog:
    """Return the store as it is for a vocabulary.

    Vocabularies are told apart by a sample of their tokens: two that are taken for one cost drafts, never a text.

    Raises:
        OSError: it cannot be read.
    """
    n_vocab, number = vocabulary.n_vocab, 0
    for token in range(0, n_vocab, _SAMPLED):
        number = zlib.crc32(vocabulary.text(token).encode(), number)
    try:
        megabytes = int(read_bounded(store_dir() / ON, 16))
    except (OSError, ValueError):
        megabytes = USUAL_MEGABYTES
    return TokenLog(store_dir() / FILE, number + n_vocab, n_vocab, megabytes)


def opened_store(vocabulary: Vocabulary) -> tuple[TokenLog | None, tuple[Observer, ...]]:
    """Return the store, and who writes into it what is said; nothing where it cannot be read."""
    try:
        log = store_for(vocabulary)
    except OSError:
        return None, ()  # `store status` tells why
    return log, (SaidWriter(log, vocabulary.piece),)


class SaidWriter:
    """Has what is said in conversations that the history keeps written into the store, twice a second; see `Observer`.

    What a gate finds is left out, and a text ends there: nothing in the store leads across the gap.

    Args:
        log: the store.
        spell: returns the bytes of a token.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        log: TokenLog,
        spell: Callable[[int], bytes],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._spell = spell
        self._clock = clock
        self._failed = False

    def begin(
        self,
        request: Request,
        tokens: Sequence[int],  # noqa: ARG002 - the protocol's signature
        policy: Policy,  # noqa: ARG002
    ) -> Callable[[Event], None]:
        """Take in a reply; see `Observer`."""
        prompt = request.prompt
        number = prompt.number if isinstance(prompt, Conversation) else None
        if number is None:
            return lambda _: None
        growing = _Growing(of_conversation(number), self._clock(), SeenTokens(self._spell))

        def take(event: Event) -> None:
            if isinstance(event, RoundDone):
                growing.texts += growing.seen.feed(event.round.confirmed)
                if self._clock() - growing.written_s >= _FLUSH_S:
                    self._write(growing)
            elif isinstance(event, Finished):
                growing.texts += growing.seen.flush()
                self._write(growing)

        return take

    def close(self) -> None:
        """Do nothing: a reply that has ended is written."""

    def _write(self, growing: "_Growing") -> None:
        texts, growing.texts = growing.texts, []
        try:
            for goes_on, tokens in () if self._failed else texts:
                after = growing.after if goes_on else None
                growing.after = self._log.append(growing.owner, tokens, after)
        except OSError:  # a full disk: the answer goes on, and what was said before is still of use
            self._failed = True
        growing.written_s = self._clock()


class SeenTokens:
    """Leaves the tokens of one text that a gate finds something in out of it.

    Args:
        spell: returns the bytes of a token.
    """

    def __init__(self, spell: Callable[[int], bytes]) -> None:
        self._spell = spell
        self._gate = usual_gate().text()
        self._waiting = Ledger[int]()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._goes_on = False

    def feed(self, tokens: Sequence[int]) -> list[tuple[bool, list[int]]]:
        """Take tokens; return stretches that may be kept, and whether each goes on where the one before ended."""
        text = ""
        for token in tokens:
            more = self._decoder.decode(self._spell(token))
            self._waiting.add(token, len(more))
            text += more
        return self._stretches(self._waiting.decide(self._gate.feed(text)))

    def flush(self) -> list[tuple[bool, list[int]]]:
        """Return the rest, at the end of the text; what has only begun to be found is left out, too."""
        decided = self._waiting.decide(self._gate.flush(cut=True))
        return self._stretches([*decided, *self._waiting.flush()])

    def _stretches(self, decided: Sequence[Decided[int]]) -> list[tuple[bool, list[int]]]:
        found: list[tuple[bool, list[int]]] = []
        open_ = False
        for each in decided:
            if each.hidden:
                self._goes_on = open_ = False
                continue
            if not open_:
                found.append((self._goes_on, []))
            self._goes_on = open_ = True
            found[-1][1].append(each.unit)
        return found


def add_files(paths: Sequence[Path], model: Path) -> Iterator[tuple[Path, int]]:
    """Add texts to the store, in place of what it has of the same files; yield each with its tokens.

    Args:
        paths: files, and folders of files. Of folders, what git ignores, what is large and what is no text is left out.
        model: whose tokens they become.

    Raises:
        LocalspecError: a file that was named cannot be read as text, or the store cannot be written.
    """
    found = [
        (file, path.is_file())
        for path in paths
        for file in (
            [path] if not path.is_dir() else sorted(path / each for each in found_below(path))
        )
    ]
    texts = [(file, text) for file, named in found if (text := _text_of(file, named=named))]
    # Mapped, and nothing of it is read but the vocabulary.
    loaded = LlamaModel(model, LoadOptions(gpu_layers=0, repack=False, load_mode="mmap"))
    try:
        log = store_for(loaded.vocabulary)
        for file, text in texts:
            vocabulary, owner = loaded.vocabulary, f"file {file.resolve()}"
            tokens = vocabulary.tokenize(text, add_special=False, parse_special=False)
            seen, after = SeenTokens(vocabulary.piece), None
            log.forget(owner, for_good=False)
            kept = [*seen.feed(tokens), *seen.flush()]
            for goes_on, each in kept:
                after = log.append(owner, each, after if goes_on else None)
            yield file, sum(len(each) for _, each in kept)
    except OSError as error:
        raise LocalspecError(
            f"{store_dir() / FILE} cannot be written ({error.strerror}): `localspec store wipe` starts afresh"
        ) from error
    finally:
        loaded.close()


def _text_of(file: Path, *, named: bool) -> str:
    try:
        return read_bounded(file, _MOST_FILE_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        if not named:
            return ""
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise LocalspecError(f"{file} cannot be added ({reason}): leave it out") from error


@dataclass(slots=True)
class _Growing:
    """A reply that is being made: what of it is not written yet, and where the rest ends."""

    owner: str
    written_s: float
    seen: SeenTokens
    texts: list[tuple[bool, list[int]]] = field(default_factory=list)
    after: int | None = None

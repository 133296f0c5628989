"""ReplyTokens: the tokens of a reply, where text is recorded; and proposals, as data to train a better draft model on.

A proposal is one JSON object a line:

    context_ids, context    the tokens before the draft, the prompt with its template included, and their text
    draft_ids, draft        what was proposed; both empty in a round without a draft
    accepted                how many of them the target chose itself, from the first on
    next_id, next           the target's own token after those: `next_is` says `correction` of the first that it did
                            not choose, `bonus` where it chose all, or `plain` without a draft
    correction_rank         the correction's place among the draft's own choices, 2 being its second, whether or not
                            that was verified, too; null where unknown
    confidences             how sure the drafter was of each drafted token, 0 to 1
    target, draft_model, drafter, workload, greedy, reply, round
    mark                    what the user thinks of the reply, `good` or `bad`; null without a mark

Ids are the target's vocabulary. To distil: `context_ids` and then `draft_ids[:accepted] + [next_id]` is what the
target says, so each line gives `accepted + 1` positions with the right token, and a wrong one of the draft
(`draft_ids[accepted]`) at the last of them.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct, field

from localspec.decoding.round import Round
from localspec.telemetry.reply import ReplyRecord

Marks = Mapping[tuple[int | None, int | None], str]
"""The user's marks by the seed of a reply and the tokens of its prompt, which the history knows, too."""
_NEXT_IS = {(False, True): "plain", (True, True): "bonus", (True, False): "correction"}
"""By whether something was drafted, and all of it accepted."""


class RoundTokens(Struct):
    """The tokens of a round, as a proposal has them, and those that it confirmed."""

    drafter: str
    draft_ids: Sequence[int]
    accepted: int
    next_id: int
    correction_rank: int | None
    confidences: list[float]
    confirmed: Sequence[int]


class ReplyTokens(Struct):
    """The ids of one reply, and their bytes.

    Args:
        prompt: ids before the first round: the prompt, and the token that it gives.
        rounds: of each round.
        pieces: the bytes of every id, in hexadecimal.
        seed: of the reply; None where it was not recorded.
    """

    prompt: list[int]
    rounds: list[RoundTokens] = field(default_factory=list)
    pieces: dict[int, str] = field(default_factory=dict)
    seed: int | None = None

    def add(self, done: Round) -> None:
        """Note a round."""
        if done.is_first:
            self.prompt += done.confirmed
            return
        confidences = [round(each, 3) for each in done.draft.confidences]
        draft, verdict = done.draft, done.verdict
        self.rounds.append(
            RoundTokens(
                *(draft.drafter, draft.tokens, verdict.accepted, verdict.choices[0]),
                *(done.correction_rank, confidences, done.confirmed),
            )
        )

    def spell(self, spell: Callable[[int], bytes]) -> None:
        """Note the bytes of all ids."""
        ids = set(self.prompt)
        for each in self.rounds:
            ids.update(each.draft_ids, each.confirmed, [each.next_id])
        self.pieces = {token: spell(token).hex() for token in ids}

    def has_secret(self, is_secret: Callable[[str], bool]) -> bool:
        """Return whether anything in what was said, or drafted, is a secret; to be called after `spell`."""
        ids = [*self.prompt]
        for each in self.rounds:
            if is_secret(self.text(each.draft_ids)):
                return True
            ids += each.confirmed
        return is_secret(self.text(ids))

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""
        return b"".join(bytes.fromhex(self.pieces[each]) for each in ids).decode(errors="replace")


def proposals(
    directory: Path,
    since_s: float = 0.0,
    drafters: Collection[str] = (),
    most_context: int = 0,
    marks: Marks = MappingProxyType({}),
) -> Iterator[dict[str, Any]]:
    """Yield a proposal a round, oldest first.

    Args:
        directory: of the records.
        since_s: leave out replies that began before.
        drafters: of these alone; empty takes all that drafted, and leaves out rounds without a draft.
        most_context: cut contexts to so many tokens, the last ones; 0 leaves them whole.
        marks: of replies.

    Raises:
        LocalspecError: the records cannot be read.
    """
    from localspec.telemetry.log import read_texts  # noqa: PLC0415 - an answer needs none of it

    for reply, text in read_texts(directory, since_s):
        with suppress(msgspec.DecodeError, ValueError, LookupError):
            tokens = msgspec.json.decode(text, type=ReplyTokens)
            mark = marks.get((tokens.seed, reply.prompt))
            for each in _proposals_of(reply, tokens, most_context):
                each["mark"] = mark
                if each["drafter"] in drafters if drafters else each["draft_ids"]:
                    yield each


def _proposals_of(
    reply: ReplyRecord, tokens: ReplyTokens, most_context: int
) -> Iterator[dict[str, Any]]:
    context = [*tokens.prompt]
    for n, done in enumerate(tokens.rounds, start=1):
        ids = context[-most_context:]
        values = msgspec.structs.asdict(done)
        del values["confirmed"]
        yield {
            **values,
            "context_ids": ids,
            "context": tokens.text(ids),
            "draft": tokens.text(done.draft_ids),
            "next": tokens.text([done.next_id]),
            "next_is": _NEXT_IS[bool(done.draft_ids), done.accepted == len(done.draft_ids)],
            "round": n,
            "target": reply.pair.target,
            "draft_model": reply.pair.draft_model or None,
            "workload": reply.workload,
            "greedy": reply.greedy,
            "reply": reply.id,
        }
        context += done.confirmed

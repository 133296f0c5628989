"""Said: what was said in a reply, where text was switched on; and proposals, as data to train a better draft model on.

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

Ids are the target's vocabulary. To distil: `context_ids` and then `draft_ids[:accepted] + [next_id]` is what the
target says, so each line gives `accepted + 1` positions with the right token, and a wrong one of the draft
(`draft_ids[accepted]`) at the last of them.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.decoding.round import Round
from localspec.telemetry.reply import ReplyRecord

_NEXT_IS = {(False, True): "plain", (True, True): "bonus", (True, False): "correction"}
"""By whether something was drafted, and all of it accepted."""


@dataclass(slots=True)
class Said:
    """The ids of one reply, and their bytes.

    Args:
        prompt: ids before the first round: the prompt, and the token that it gives.
        rounds: each as a proposal has it, and the ids that it `confirmed`.
        pieces: the bytes of every id, in hexadecimal.
    """

    prompt: list[int]
    rounds: list[dict[str, Any]] = field(default_factory=list)
    pieces: dict[int, str] = field(default_factory=dict)

    def add(self, done: Round) -> None:
        """Note a round."""
        if done.is_first:
            self.prompt += done.confirmed
            return
        self.rounds.append(
            {
                "drafter": done.draft.drafter,
                "draft_ids": done.draft.tokens,
                "accepted": done.verdict.accepted,
                "next_id": done.verdict.choices[0],
                "correction_rank": done.correction_rank,
                "confidences": [round(each, 3) for each in done.draft.confidences],
                "confirmed": done.confirmed,
            }
        )

    def spell(self, spell: Callable[[int], bytes]) -> None:
        """Note the bytes of all ids."""
        ids = set(self.prompt)
        for each in self.rounds:
            ids.update(each["draft_ids"], each["confirmed"], [each["next_id"]])
        self.pieces = {token: spell(token).hex() for token in ids}

    def has_secret(self, is_secret: Callable[[str], bool]) -> bool:
        """Return whether anything in what was said, or drafted, is a secret; to be called after `spell`."""
        ids = [*self.prompt]
        for each in self.rounds:
            if is_secret(self._text(each["draft_ids"])):
                return True
            ids += each["confirmed"]
        return is_secret(self._text(ids))

    def _text(self, ids: Sequence[int]) -> str:
        return b"".join(bytes.fromhex(self.pieces[each]) for each in ids).decode(errors="replace")


def proposals(
    directory: Path, since_s: float = 0.0, drafters: Collection[str] = (), most_context: int = 0
) -> Iterator[dict[str, Any]]:
    """Yield a proposal a round, oldest first.

    Args:
        directory: of the records.
        since_s: leave out replies that began before.
        drafters: of these alone; empty takes all that drafted, and leaves out rounds without a draft.
        most_context: cut contexts to so many tokens, the last ones; 0 leaves them whole.

    Raises:
        LocalspecError: the records cannot be read.
    """
    # An answer needs none of it.
    from localspec.telemetry.log import DAMAGED, parsed, read_lines, read_records  # noqa: PLC0415

    replies = read_records(directory).replies
    for line in read_lines(directory):
        if line.kind == "text" and line.at >= since_s and line.id in replies:
            with suppress(*DAMAGED):
                for each in _of_reply(replies[line.id], parsed(line), most_context):
                    if each["drafter"] in drafters if drafters else each["draft_ids"]:
                        yield each


def _of_reply(
    reply: ReplyRecord, said: dict[str, Any], most_context: int
) -> Iterator[dict[str, Any]]:
    pieces = {int(token): bytes.fromhex(piece) for token, piece in said["pieces"].items()}
    context = list(said["prompt"])

    def text(tokens: Collection[int]) -> str:
        return b"".join(pieces[token] for token in tokens).decode(errors="replace")

    for n, done in enumerate(said["rounds"], start=1):
        seen, confirmed = context[-most_context:], done.pop("confirmed")
        yield {
            **done,
            "context_ids": seen,
            "context": text(seen),
            "draft": text(done["draft_ids"]),
            "next": text([done["next_id"]]),
            "next_is": _NEXT_IS[
                bool(done["draft_ids"]), done["accepted"] == len(done["draft_ids"])
            ],
            "round": n,
            "target": reply.pair.target,
            "draft_model": reply.pair.draft_model or None,
            "workload": reply.workload,
            "greedy": reply.greedy,
            "reply": reply.id,
        }
        context += confirmed

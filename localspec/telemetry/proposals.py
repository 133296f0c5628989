"""Proposals: what was drafted, what became of it, and what stood before it, as data to train a better draft model on.

Only of replies that were recorded with text. One JSON object a line:

    context_ids, context    the tokens before the draft, the prompt with its template included, and their text
    draft_ids, draft        what was proposed; both empty in a round without a draft
    accepted                how many of them the target chose itself, from the first on
    next_id, next           the target's own token after those: `next_is` says `correction` of the first that it did
                            not choose, `bonus` where it chose all, or `plain` without a draft
    correction_rank         the correction's place among the draft's own choices, 2 being its second; null where unknown
    confidences             how sure the drafter was of each drafted token, 0 to 1
    target, draft_model, drafter, workload, greedy, reply, round

Ids are the target's vocabulary. To distil: `context_ids` and then `draft_ids[:accepted] + [next_id]` is what the
target says, so each line gives `accepted + 1` positions with the right token, and a wrong one of the draft
(`draft_ids[accepted]`) at the last of them.
"""

import sqlite3
from collections.abc import Collection, Iterator
from typing import Any

from localspec.telemetry.notes import unpacked

_ROUNDS = (
    "SELECT said.n, draft, said.confirmed, next_token, drafter, accepted, correction_rank, confidences "
    "FROM said LEFT JOIN round ON round.reply = said.reply AND round.n = said.n "
    "WHERE said.reply = ? ORDER BY said.n"
)
_REPLIES = (
    "SELECT reply.id, prompt.tokens, reply.pair, target, draft_model, workload, greedy "
    "FROM prompt JOIN reply ON reply.id = prompt.reply JOIN pair ON pair.id = reply.pair "
    "WHERE started_s >= ? ORDER BY reply.id"
)


def proposals(
    connection: sqlite3.Connection,
    since_s: float = 0.0,
    drafters: Collection[str] = (),
    most_context: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield a proposal a round, oldest first.

    Args:
        connection: to the database.
        since_s: leave out replies that began before.
        drafters: of these alone; empty takes all that drafted, and leaves out rounds without a draft.
        most_context: cut contexts to so many tokens, the last ones; None leaves them whole.
    """
    pieces: dict[int, dict[int, bytes]] = {}
    for reply, prompt, pair, target, draft_model, workload, greedy in connection.execute(
        _REPLIES, (since_s,)
    ):
        if pair not in pieces:
            rows = connection.execute("SELECT token, bytes FROM piece WHERE pair = ?", (pair,))
            pieces[pair] = dict(rows)
        of_reply = {
            "target": target,
            "draft_model": draft_model or None,
            "workload": workload,
            "greedy": bool(greedy),
            "reply": reply,
        }
        for proposal in _of_reply(connection, reply, prompt, pieces[pair], most_context):
            wanted = proposal["drafter"] in drafters if drafters else bool(proposal["draft_ids"])
            if wanted:
                yield {**proposal, **of_reply}


def _of_reply(
    connection: sqlite3.Connection,
    reply: int,
    prompt: bytes,
    pieces: dict[int, bytes],
    most_context: int | None,
) -> Iterator[dict[str, Any]]:
    context = list(unpacked(prompt))
    before = -1

    def text(tokens: Collection[int]) -> str:
        return b"".join(pieces.get(token, b"") for token in tokens).decode(errors="replace")

    for n, draft, confirmed, next_token, drafter, accepted, rank, confidences in connection.execute(
        _ROUNDS, (reply,)
    ):
        if n != before + 1:
            return  # what is missing in between was removed: the context is not known any more
        before = n
        drafted = unpacked(draft)
        if n > 0 and drafter is not None:
            seen = context if most_context is None else context[-most_context:]
            yield {
                "context_ids": seen[:],
                "context": text(seen),
                "draft_ids": list(drafted),
                "draft": text(drafted),
                "accepted": accepted,
                "next_id": next_token,
                "next": text([next_token]),
                "next_is": _kind(len(drafted), accepted),
                "correction_rank": rank,
                "confidences": [round(each / 255, 3) for each in confidences],
                "drafter": drafter,
                "round": n,
            }
        context += unpacked(confirmed)


def _kind(n_drafted: int, accepted: int) -> str:
    if n_drafted == 0:
        return "plain"
    return "bonus" if accepted == n_drafted else "correction"

"""Batches without models: an driver that says what it was asked, and files in a folder of the test."""

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from localspec.batch.batch import BatchJob, Tally
from localspec.batch.output import FinishedLines, open_output
from localspec.batch.record import Receipt, encoded
from localspec.batch.request import Form
from localspec.batch.source import Source
from localspec.chat.events import Reply
from localspec.chat.request import Request, RequestDriver, RequestOutcome, at_once
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.round import Spent, StopReason
from localspec.errors import ContextOverflow
from localspec.options import ReplyOptions

RECEIPT = Receipt(seed=1, target="ab" * 32, build="toy 1", options="0" * 16)
MODELS = {"target": "toy", "draft_model": None}


def reply(text: str, seed: int = 1, reason: StopReason = StopReason.EOG) -> Reply:
    return Reply(text, "", (1,), reason, seed, 3, 0, 2, 0.0, 0.0, 0.0, Spent(), "off")


def said(request: Request) -> str:
    """What the driver says: it depends on the prompt and the seed, and on nothing else."""
    prompt = request.raw or "|".join(f"{each.role}:{each.text}" for each in request.messages)
    return f"{prompt} [{request.options.seed}]\n…"


class Echo:
    """Says what it was asked.

    Args:
        slots: requests under way at a time; which of them is done next is drawn.
        cancel_after: answers until somebody presses Ctrl-C.
        seed: of the draws.
    """

    def __init__(self, slots: int = 1, cancel_after: int | None = None, seed: int = 1) -> None:
        self.slots = slots
        self.left = cancel_after
        self.asked: list[Request] = []
        self.most_under_way = 0
        self._draw = random.Random(seed)

    def outcomes(
        self, requests: Iterator[Request], ready: Callable[[], bool] = at_once
    ) -> Iterator[RequestOutcome]:
        under_way: list[Request] = []
        while True:
            while (
                len(under_way) < self.slots
                and (not under_way or ready())
                and (new := next(requests, None)) is not None
            ):
                self.asked.append(new)
                under_way.append(new)
            self.most_under_way = max(self.most_under_way, len(under_way))
            if not under_way:
                return
            request = under_way.pop(self._draw.randrange(len(under_way)))
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    yield RequestOutcome(request.id, reply("cut", reason=StopReason.CANCELLED))
                    return
            text = said(request)
            if "too long" in text:
                yield RequestOutcome(request.id, None, ContextOverflow("the prompt is too long"))
            else:
                yield RequestOutcome(request.id, reply(text, request.options.seed or 0))


class Brief:
    """Says one word to each, and remembers nothing."""

    def outcomes(
        self, requests: Iterator[Request], ready: Callable[[], bool] = at_once
    ) -> Iterator[RequestOutcome]:
        for request in requests:
            yield RequestOutcome(request.id, reply("Yes."))


def run(
    source: Path,
    output: Path,
    driver: RequestDriver | None = None,
    *,
    form: Form | None = None,
    resume: bool = False,
    retry_failed: bool = False,
    mix_receipts: bool = False,
    receipt: Receipt = RECEIPT,
    ordered: bool = True,
    most: int = 1024,
    deterministic: bool = False,
    notify: Callable[[Tally], None] = lambda _: None,
    notes: list[str] | None = None,
) -> tuple[Tally, bool]:
    """Run a batch as the command does; return its tally, and whether it was stopped."""
    form, finished = form or Form(ReplyOptions()), FinishedLines()
    with Source(str(source)) as lines, closing(open_output(str(output), resume=resume)) as out:
        if resume:
            finished = out.finished(retry_failed=retry_failed)
            finished.require(receipt, out.name, mix_receipts=mix_receipts)
            out.take_up(finished)
        batch = BatchJob(
            lines.lines("jsonl", form.needed),
            form,
            receipt,
            finished,
            lambda number, record: out.append(number, encoded(record)),
            CancelFlag(),
            lines.name,
            deterministic=deterministic,
            ordered=ordered,
            most=most,
            notify=notify,
        )
        batch.answer(driver or Echo(), MODELS)
        if notes is not None:
            notes += batch.notes
        if not batch.stopped and ordered:
            out.put_in_order()
        return batch.tally, batch.stopped

"""What is loaded, how large, and with which drafter: a table of facts and wishes with their plans, or why there is none.

A row that changes is a decision that changes: LOCALSPEC_UPDATE_SNAPSHOTS=1 writes the table.
"""

import os

from localspec.plan.decide import Refusal, decide
from localspec.plan.load_plan import LoadPlan
from tests.plan.cases import CASES, TABLE
from tests.plan.golden import DECIDED, answer


def test_what_is_loaded_is_what_the_table_says() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    rows = [answer(case) for case in CASES]
    if os.environ.get("LOCALSPEC_UPDATE_SNAPSHOTS"):
        TABLE.write_text("\n".join(rows) + "\n")
    table = TABLE.read_text().splitlines()
    differing = [(new, old) for new, old in zip(rows, table, strict=False) if new != old]
    assert differing == []
    assert len(rows) == len(table)
    _decided_again()


def _decided_again() -> None:
    """What was decided follows from facts and wish alone: the files, the machines and the folder are gone by now."""
    assert len(DECIDED) > 250
    for facts, wish, before in DECIDED:
        again = decide(facts, wish)
        if isinstance(before, LoadPlan):
            assert again == before
        else:
            assert isinstance(again, Refusal)
            assert (type(again.error), str(again.error)) == (type(before.error), str(before.error))

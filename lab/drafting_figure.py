"""What drafting gained in 40 answers of six kinds, as every place has it: `python -m lab.drafting_figure MODEL [TOKENS]`.

Of the same answers, by kind: F2's figure of each, the one in its JSON, the one that `stats` reads back, and `bench`'s. Medians,
and how far they are apart in hundredths, the last digit that people see. Records are kept in a folder of its own.
"""

import os
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from statistics import median

from localspec.chat.events import Finished, RoundDone
from localspec.chat.request import Request
from localspec.cli.output import RunOutcome
from localspec.launch.load import load
from localspec.launch.observe import Telemetry
from localspec.options import LaunchOptions, ReplyOptions, SamplingParams
from localspec.plan.make import make_plan
from localspec.plugins.bench.arms import Arm
from localspec.plugins.bench.measure import Bench, Result
from localspec.plugins.bench.prompts import bundled, per_workload
from localspec.plugins.bench.report import document
from localspec.plugins.bench.trial import Arrival, Slot, Trial
from localspec.telemetry.log import read_records
from localspec.telemetry.report import make_report
from localspec.telemetry.view import terminal_view
from localspec.tui.exchange import Exchange
from localspec.tui.stats import average_line, stats_lines
from tests.support.machines import with_what_is_known


def main() -> None:
    """Answer, and print the figures beside each other."""
    model, tokens = sys.argv[1], int((*sys.argv, "200")[2])
    prompts = per_workload(bundled(), 7)[:40]
    options = ReplyOptions(SamplingParams(temperature=0), max_tokens=tokens, seed=1)
    trials, gains = list[Trial](), []
    f2, replied = dict[int, float](), dict[int, float]()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LOCALSPEC_DATA_DIR"] = str(with_what_is_known(Path(folder), "blobs"))
        os.environ["LOCALSPEC_TELEMETRY"] = "on"
        telemetry = Telemetry()
        assistant = load(make_plan(LaunchOptions(model)), observe=telemetry.observe).assistant
        with closing(assistant):
            for at, prompt in enumerate(prompts):
                *events, done = assistant.stream(prompt.prompt, options)
                assert isinstance(done, Finished)
                reply = done.reply
                rounds = [each for each in events if isinstance(each, RoundDone)]
                arrival = Arrival(reply.completion_tokens, reply.prefill_s + reply.decode_s)
                counts = reply.acceptance.drafted, reply.acceptance.accepted
                slot = Slot(at, 0.0, 0, "auto", at)
                trials.append(Trial(slot, reply.tokens, (arrival,), reply.prefill_s, tuple(each.round for each in rounds), *counts, reply.gain))  # fmt: skip
                figure = RunOutcome(reply, model, None, 0.0).as_json("chat")["speculation"]["gain"]
                if reply.gain is not None and figure is not None:
                    gains.append(reply.gain)
                    shown = Exchange(Request(at), happened=rounds, finished=done)
                    line = next(each for each in stats_lines(shown, 80) if each.startswith("drafting"))  # fmt: skip
                    f2[at], replied[at] = float(line.split()[1][1:]), figure["ratio"]
        records = read_records(Path(folder, "telemetry"))
    recorded = {at: each.gain.ratio for at, each in enumerate(records.replies.values()) if each.gain}  # fmt: skip
    print("F2:   ", average_line(gains))
    print("stats:", terminal_view(make_report(records), every=False).splitlines()[0])
    bench = Bench([Arm("auto", "auto", "auto")], prompts, "bundled", [0.0], options)
    print(f"{'':10}{'answers':>8}{'F2':>8}{'JSON':>8}{'stats':>8}{'bench':>8}  hundredths")
    for row in document(Result(bench, {}, trials, len(trials)))["figures"]:
        kind = {at for at, each in enumerate(prompts) if row["workload"] in {each.workload, "all"}}
        found = [[of[at] for at in kind if at in of] for of in (f2, replied, recorded)]
        if row["gains"] is None or not all(found):
            print(f"{row['workload']:10} nothing drafted, or not known yet")
            continue
        values = [*map(median, found), row["gains"]]
        apart = (max(values) - min(values)) / 0.01
        print(f"{row['workload']:10}{len(found[0]):8}" + "".join(f"{each:8.3f}" for each in values) + f"{apart:8.1f}")  # fmt: skip


if __name__ == "__main__":
    main()

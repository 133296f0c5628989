"""What drafting gained: under the answer, in F2, in `run`, its JSON and `stats`, of the same real answers."""

import json
from pathlib import Path

import pytest

from localspec.chat.events import Finished, RoundDone
from localspec.chat.request import Request
from localspec.cli.output import RunOutcome
from localspec.display import TIMES, gain_text
from localspec.launch.load import load
from localspec.launch.observe import Telemetry
from localspec.launch.plan import make_plan
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from localspec.telemetry.log import read_records
from localspec.telemetry.report import make_report
from localspec.telemetry.view import as_json
from localspec.tui.exchange import Exchange
from localspec.tui.stats import stats_lines, status
from tests.support.machines import with_what_is_known
from tests.waiting import until

pytestmark = pytest.mark.weights

LIST = "(red, green, blue, yellow, orange, purple, ){5}"


def test_every_place_has_the_same_figure(
    six_layers_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(with_what_is_known(tmp_path)))
    monkeypatch.setenv("LOCALSPEC_TELEMETRY", "on")
    options = LoadOptions(n_ctx=1024, threads=1)
    launch = LaunchOptions(target=str(six_layers_path), draft="lookup:3", load=options)
    assistant = load(make_plan(launch), observe=Telemetry().observe).assistant
    greedy = ReplyOptions(SamplingParams(temperature=0), max_tokens=48, seed=1, regex=LIST)
    ratios = []
    for number in range(6):
        *events, done = assistant.stream(f"Colours, {number}", greedy)
        rounds = [each for each in events if isinstance(each, RoundDone)]
        assert isinstance(done, Finished)
        reply = done.reply
        assert reply.acceptance.drafted
        assert reply.gain is not None
        ratios.append(reply.gain.ratio)
        figure = gain_text(reply.gain.ratio)
        outcome = RunOutcome(reply, "toy", None, 0.0)
        assert f" · {figure} · " in outcome.line()
        document = outcome.as_json("chat")["speculation"]["gain"]
        assert gain_text(document["ratio"]) == figure
        shown = Exchange(Request(number), happened=rounds, finished=done)
        assert status(shown, None, 0)[0].endswith(figure)
        line = stats_lines(shown, 80)[0]
        assert line.startswith(f"drafting  {TIMES}{reply.gain.ratio:.2f} (")
    assistant.close()
    directory = tmp_path / "telemetry"
    assert until(lambda: len(read_records(directory).replies) == 6)
    report = make_report(read_records(directory))
    recorded = [each.gain for each in read_records(directory).replies.values()]
    assert [each.ratio for each in recorded if each] == pytest.approx(ratios, rel=1e-3)
    assert report.total.gain is not None
    low, high = min(ratios), max(ratios)
    assert low <= report.total.gain.ratio <= high
    assert json.loads(as_json(report))["total"]["speed_up"] == pytest.approx(report.total.speed_up)

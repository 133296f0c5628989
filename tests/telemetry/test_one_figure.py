"""What drafting gained: under the answer, in F2, in `run`, its JSON, over HTTP and in `stats`, of the same real answers."""

import json
from pathlib import Path

import pytest

from localspec.calibration.calibrated import StoredCosts
from localspec.chat.assistant import Assistant
from localspec.chat.events import Finished, RoundDone
from localspec.chat.request import Request
from localspec.cli.output import RunOutcome
from localspec.decoding.costs import PassCosts
from localspec.display import TIMES, gain_text
from localspec.history.archive import History
from localspec.launch.load import load
from localspec.launch.observe import Telemetry
from localspec.messages import Message
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from localspec.plan.make import make_plan
from localspec.plugins.serve.openai_forms import figures
from localspec.session.conversation import SavedConversation
from localspec.telemetry.log import read_records
from localspec.telemetry.report import make_report
from localspec.telemetry.view import as_json, terminal_view
from localspec.tui.exchange import Exchange
from localspec.tui.message_text import message_text
from localspec.tui.stats import stats_lines, status
from tests.llama import tiny_models
from tests.support.machines import with_what_is_known
from tests.tui.answers import save_reply
from tests.waiting import until

LIST = "(red, green, blue, yellow, orange, purple, ){5}"
COLOURS = "Colours: red, green, blue, yellow, orange, purple, red"


def opened(model: Path, draft: str = "lookup:3") -> Assistant:
    launch = LaunchOptions(
        target=str(model), draft=draft, load=LoadOptions(n_ctx=1024, threads=1), fit=False
    )
    return load(make_plan(launch), observe=Telemetry().observe).assistant


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of some kilobytes, in a data directory of the test's own where replies are recorded."""
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("LOCALSPEC_TELEMETRY", "on")
    return tiny_models.write_llama(tmp_path / "model.gguf")


@pytest.mark.weights
def test_every_place_has_the_same_figure(
    six_layers_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(with_what_is_known(tmp_path)))
    monkeypatch.setenv("LOCALSPEC_TELEMETRY", "on")
    assistant = opened(six_layers_path)
    greedy = ReplyOptions(SamplingParams(temperature=0), max_tokens=48, seed=1, regex=LIST)
    ratios = []
    saved = SavedConversation(History(tmp_path / "history"))
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
        answered = figures(done)["speculation"]
        assert gain_text(answered["gain"]["ratio"]) == figure
        assert answered["line"].startswith(f"{figure} · "), "the page shows it"
        saved.say(Message.user("Colours"))
        save_reply(saved, reply, "toy")
        assert f" · {answered['line']}" in message_text(saved.messages[-1]).note
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


@pytest.mark.parametrize(("draft", "known"), [("lookup:3", False), ("off", None)])
def test_every_place_says_why_there_is_no_figure(
    tiny: Path, tmp_path: Path, draft: str, known: bool | None
) -> None:
    assistant = opened(tiny, draft)
    greedy = ReplyOptions(SamplingParams(temperature=0), max_tokens=16, seed=1, regex=LIST)
    *_, done = assistant.stream(COLOURS, greedy)
    assistant.close()
    assert isinstance(done, Finished)
    reply, directory = done.reply, tmp_path / "telemetry"
    assert until(lambda: len(read_records(directory).replies) == 1)
    report = make_report(read_records(directory))
    assert reply.gain is None
    if known is None:
        assert "nothing was drafted: it is switched off (1)" in terminal_view(report)
        assert json.loads(as_json(report))["no_drafting"] == {"no drafting: it is switched off": 1}
        return
    words = "drafting gain not known yet: too few rounds without a draft"
    assert words in RunOutcome(reply, "toy", None, 0.0).line()
    assert figures(done)["speculation"]["line"].startswith(words)
    shown = Exchange(Request(1), finished=done)
    assert status(shown, None, 0)[0].endswith(words)
    saved = SavedConversation(History(tmp_path / "history"))
    saved.say(Message.user("Colours"))
    save_reply(saved, reply, "toy")
    assert words in message_text(saved.messages[-1]).note


def test_what_was_measured_before_tells_what_a_fixed_way_of_drafting_gained(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = StoredCosts(PassCosts((1, 4), (0.004, 0.006)))
    monkeypatch.setattr("localspec.launch.load.stored_costs", lambda *_: stored)
    assistant = opened(tiny)
    greedy = ReplyOptions(SamplingParams(temperature=0), max_tokens=16, seed=1, regex=LIST)
    reply = assistant.reply(COLOURS, greedy)
    assistant.close()
    assert reply.acceptance.drafted
    assert reply.gain_ratio is not None


@pytest.mark.parametrize(("text", "why"), [("[[[", "config.toml"), ("", None)])
def test_a_model_that_is_loaded_while_the_settings_are_unusable_says_that_nothing_is_recorded(
    text: str, why: str | None, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.with_name("config.toml").write_text(text)
    plan = make_plan(LaunchOptions(target=str(tiny), draft="off", load=LoadOptions(n_ctx=64)))
    monkeypatch.setenv("LOCALSPEC_TELEMETRY", "off")
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tiny.parent))
    assistant = load(plan, observe=Telemetry().observe).assistant
    assistant.close()
    notes = [each for each in assistant.notes if "not recorded" in each]
    assert [why is not None and why in each for each in notes] == [True] * (why is not None)

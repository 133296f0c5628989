"""Our own runs in their order: prompts, arms, the schedule, and what is measured."""

from collections import Counter
from itertools import groupby, islice, pairwise
from pathlib import Path

import pytest

from localspec.chat.assistant import Assistant
from localspec.cli import INTERRUPTED
from localspec.cli.main import localspec as root
from localspec.decoding.cancel import Cancelled
from localspec.decoding.drafters.lookup import LookupDrafter
from localspec.decoding.policy import FixedPolicy, Policy, plain_policy
from localspec.errors import ContextOverflow, UsageError
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions
from localspec.plugins.bench import command, measure
from localspec.plugins.bench.arms import Arm, mode_arms, parse_arm
from localspec.plugins.bench.bench import Watchers
from localspec.plugins.bench.measure import OwnRuns, prompt_tokens, schedule, slot_options
from localspec.plugins.bench.prompts import BenchPrompt, bundled, per_workload, read
from localspec.plugins.bench.trial import Slot, Trial
from tests.chat.test_assistant import END, TEMPLATE, Teller, Tellers, models_of
from tests.chat.toy_tokenizer import spelled
from tests.support.checks import refuses
from tests.toy import Stopwatch

GOOD = '{"workload": "code", "prompt": "Write a loop."}'


def test_ten_of_each_of_six_kinds_are_bundled_and_none_twice() -> None:
    kinds = ("code", "edit", "chat", "summarise", "extract", "creative")
    assert Counter(prompt.workload for prompt in bundled()) == dict.fromkeys(kinds, 10)
    assert len({prompt.prompt for prompt in bundled()}) == 60
    mixed = [BenchPrompt(kind, text) for kind, text in ("aA", "bB", "aC", "bD", "aE")]
    assert [prompt.prompt for prompt in per_workload(mixed, 2)] == ["A", "C", "B", "D"]
    assert len(per_workload(mixed, None)) == 5


def test_a_file_is_read_in_order_and_empty_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(f'\ufeff{GOOD}\n\n{{"prompt": "Zwölf\u2028Äpfel", "workload": "chat"}}\n')
    chat = BenchPrompt("chat", "Zwölf\u2028Äpfel")
    assert read(path) == [BenchPrompt("code", "Write a loop."), chat]
    for content, complaint in [
        (f"{GOOD}\n\n{{", ":3: .*truncated"),
        (f"{GOOD}\n\n{'[' * 100_000}", ":3: .*got `array`"),
        ('{"workload": "code"}', "missing required field `prompt`"),
        ('{"workload": "", "prompt": "a"}', r"matching regex .* `\$\.workload`"),
        ('{"workload": "code", "prompt": "a", "seed": 1}', "unknown field `seed`"),
        (f"{GOOD}\n\udcff\udcfe", ":2: is not UTF-8"),
        ("\n  \n", "has no prompts"),
        (None, "cannot be read"),
    ]:
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content.encode(errors="surrogateescape"))
        refuses(complaint, read, path)
        refuses("directory", read, tmp_path)


USUAL = LaunchOptions(pair="p", draft_model="d", load=LoadOptions(threads=2))


def test_arms_that_differ_in_the_mode_alone_share_their_models() -> None:
    texts = ("off", "auto", "model:3", "auto,threads=1", "threads=1")
    off, auto, model, slow, other = (parse_arm("a", text, USUAL) for text in texts)
    assert (model.mode, model.launch) == ("model:3", USUAL)
    assert off.models == auto.models == model.models != slow.models
    assert slow.launch.load.threads == 1
    assert other == parse_arm("a", "threads=1", USUAL)
    assert other.mode == "auto"
    arm = parse_arm("a", "target=q8.gguf,draft=lookup:8,kv_type=f16,ctx=512,exact=on", USUAL)
    assert (arm.launch.pair, arm.launch.target, arm.launch.draft_model) == (None, "q8.gguf", None)
    assert (arm.mode, arm.launch.load.n_ctx, arm.launch.exact) == ("lookup:8", 512, True)
    assert parse_arm("a", "draft-model=e", USUAL).launch.draft_model == "e"
    for text, launch, modes in [
        ("auto, lookup:8,auto", LaunchOptions(), ["off", "auto", "lookup:8"]),
        ("model:3,off", LaunchOptions(), ["off", "model:3"]),
        (None, LaunchOptions(), ["off", "auto", "lookup"]),
        (None, LaunchOptions(pair="qwen3-8b"), ["off", "auto", "lookup", "model"]),
        (None, LaunchOptions(pair="qwen3.5-4b"), ["off", "auto", "lookup", "heads"]),
        (None, LaunchOptions(target="a", draft_model="b"), ["off", "auto", "lookup", "model"]),
    ]:
        assert [arm.mode for arm in mode_arms(text, launch)] == modes


def test_an_arm_that_means_nothing_is_refused() -> None:
    for text in ["", ",", "fast", "off,off", "seed=3", "threads=two", "exact=1", "pair=", "off,", "ctx=-1", "model:0"]:  # fmt: skip
        with pytest.raises(UsageError):
            parse_arm("a", text, USUAL)
    for text, word in [
            *((each, "mode") for each in ("", ",", "fast", "lookup:", "off:3", "model:-1", "server:none")),
            *((each, "1 to 63") for each in ("lookup:0", "model:64", "model:9999")),
        ]:  # fmt: skip
        refuses(word, mode_arms, text, LaunchOptions())


def groups(slots: list[Slot]) -> list[list[str]]:
    def key(slot: Slot) -> tuple[object, ...]:
        return slot.repeat, slot.temperature, slot.prompt, slot.group

    return [[slot.mode for slot in run] for _, run in groupby(slots, key)]


def test_every_mode_is_a_neighbour_of_off_once_for_each_prompt_and_repeat() -> None:
    for others in [[], ["a"], ["a", "b"], ["a", "b", "c"], list("abcdefg")]:
        slots = list(schedule(3, ["off", *others], [0.0, 0.8], repeats=3))
        for group in groups(slots):
            assert group.count("off") == 1
            assert len(group) == 1 or len(group) <= 3
            assert len(group) < 3 or group[1] == "off"
        for other in others:
            places = [(s.prompt, s.temperature, s.repeat) for s in slots if s.mode == other]
            assert len(places) == len({*places}) == 3 * 2 * 3
        first = slots[: len(slots) // 3]
        both = {(s.prompt, s.temperature) for s in first}
        assert both == {(p, t) for p in range(3) for t in (0.0, 0.8)}, "before a second repeat"
        assert {slot.repeat for slot in first} == {0}


def test_each_of_two_modes_goes_first_in_half_of_the_runs_and_of_the_repeats() -> None:
    for seed in range(4):
        slots = list(schedule(12, ["off", "auto"], [0.0], repeats=2, seed=seed))
        order = [group[0] == "off" for group in groups(slots)]
        assert sum(order[:12]) == 6
        assert all(one != other for one, other in zip(order[:12], order[12:], strict=True))
    modes = ["off", "a", "b", "c"]
    one, again, other = (list(schedule(3, modes, [0.0], 5, seed)) for seed in (1, 1, 2))
    assert one == again != other
    slots = list(islice(schedule(3, ["a", "b"], [0.8], None), 40))
    assert all(one != other for one, other in pairwise(slot.mode for slot in slots[::2]))
    assert slots[-1].repeat == 6


SCRIPT = spelled("one two three, one two three, one two three, one two three.")
PROMPTS = [BenchPrompt("chat", "Count."), BenchPrompt("edit", "Count again, please.")]
ASKED = ReplyOptions(seed=5, max_tokens=40)


class Bench:
    """A toy assistant, and which policies were asked for."""

    def __init__(self, n_ctx: int = 4000, cancel_after: int | None = None) -> None:
        self.target = Teller(SCRIPT, n_ctx, cancel_after=cancel_after)
        self.policies: list[tuple[str, Policy]] = []
        models = models_of(Tellers([self.target], most_rows=64), TEMPLATE)
        self.assistant = Assistant(models, [plain_policy()])

    def policy(self, mode: str) -> Policy:
        drafting: Policy = FixedPolicy(LookupDrafter({END}), 8)
        self.policies.append((mode, drafting if mode == "lookup" else plain_policy()))
        return self.policies[-1][1]

    def runs(self, asked: ReplyOptions = ASKED) -> OwnRuns:
        return OwnRuns(self.assistant, self.policy, PROMPTS, asked, Stopwatch())


def run(mode: str, limit: int = 40) -> Trial:
    return Bench().runs(ReplyOptions(seed=5, max_tokens=limit)).run(Slot(0, 0.0, 0, mode, 0))


def test_every_run_starts_from_an_empty_cache_with_a_policy_of_its_own() -> None:
    bench, evaluated = Bench(), [0]
    runs = bench.runs()
    for mode in ("off", "off", "lookup"):
        runs.run(Slot(0, 0.0, 0, mode, 0))
        evaluated.append(bench.target.evaluated)
    assert evaluated[2] == 2 * evaluated[1]
    assert [mode for mode, _ in bench.policies] == ["off", "off", "lookup"]
    assert len({id(policy) for _, policy in bench.policies}) == 3


def test_a_run_has_the_tokens_of_its_text_and_one_arrival_for_each_round() -> None:
    plain, drafted = run("off"), run("lookup")
    assert plain.tokens == drafted.tokens == tuple(SCRIPT[:40])
    assert [arrival.n_tokens for arrival in plain.arrivals] == list(range(1, 41))
    assert (len(plain.rounds), plain.drafted) == (39, 0)
    assert drafted.accepted > 8
    assert drafted.n_tokens == 1 + sum(len(each.confirmed) for each in drafted.rounds) == 40
    assert len(drafted.arrivals) < 40
    one = run("off", 1)
    assert (one.n_tokens, len(one.arrivals), one.rounds) == (1, 1, ())
    assert one.wall_s == one.first_token_s > 0
    for mode in ["off", "lookup"]:
        trial = run(mode, 500)
        assert trial.tokens == (*SCRIPT, END)
        assert trial.n_tokens == len(SCRIPT) + 1
        assert sum(len(each.confirmed) for each in trial.rounds) == len(SCRIPT)


def test_what_was_measured_before_a_cancel_is_kept_and_repeats_have_seeds() -> None:
    arms = [Arm(name, name, name) for name in ("off", "lookup")]
    wanted = measure.Bench(arms, PROMPTS, "", [0.0], ASKED, repeats=2)
    seen: list[int] = []

    def on_trial(done: int, planned: int, trial: Trial) -> None:
        seen.append(done)

    runs = dict.fromkeys(wanted.names, Bench(cancel_after=150).runs())
    measured, planned = measure.measure(wanted, runs, on_trial)
    assert 0 < len(measured) < planned == 8
    assert seen == list(range(1, len(measured) + 1))
    with pytest.raises(Cancelled):
        Bench(cancel_after=5).runs().run(Slot(0, 0.0, 0, "off", 0))
    slots = Slot(0, 0.8, 0, "off", 0), Slot(0, 0.8, 1, "auto", 0)
    one, other = (slot_options(ASKED, each) for each in slots)
    assert (one.seed, other.seed) == (5, 6)
    assert one.sampling.temperature == 0.8


def test_a_prompt_that_is_too_long_is_named_before_anything_is_measured() -> None:
    lengths = [len(tokens) for tokens in prompt_tokens(Bench().assistant, PROMPTS)]
    with pytest.raises(ContextOverflow, match=rf"prompt 2 \(edit\) has {lengths[1]} tokens"):
        prompt_tokens(Bench(n_ctx=lengths[1]).assistant, PROMPTS)


def test_who_measures_beside_busy_programs_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for taken, told in ((1.5, True), (0.2, False)):
        monkeypatch.setattr(command, "taken_by_others", lambda taken=taken: (taken, 2))
        command.say_if_busy()
        assert ("other programs used 1.5 of 2 cores" in capsys.readouterr().err) is told


def test_ctrl_c_before_anything_is_compared_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(_bench: object, _cancel: object, watchers: Watchers, _show: object) -> None:
        watchers.loaded()
        raise Cancelled

    monkeypatch.setattr(command, "run_bench", stopped)
    assert root.main(["bench", "--quiet"], standalone_mode=False) == INTERRUPTED
    assert capsys.readouterr() == ("", "localspec: stopped before there was anything to compare\n")

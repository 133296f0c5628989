"""Options: what is declared once reaches everybody, whichever way it was said."""

import ast
import json
import math
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import localspec
from localspec.batch.request import Form, line_request
from localspec.batch.source import Line
from localspec.chat.request import Request
from localspec.cli import batch, chat, chat_front, run
from localspec.cli.main import localspec as root
from localspec.config.keys import KEYS, from_file, from_variable
from localspec.engine.engine import Needs
from localspec.engine.protocol import COMMANDS, Load, encode
from localspec.errors import UsageError
from localspec.models.registry import load_registry
from localspec.options import (
    LaunchOptions,
    LoadOptions,
    Option,
    ReplyOptions,
    SamplingParams,
    abilities,
    changed,
    options_of,
    values_of,
)
from localspec.options.fields import from_text, with_fields
from localspec.plugins.bench import command as bench
from localspec.plugins.bench.arms import KEYS as ARM_KEYS
from localspec.plugins.bench.arms import parse_arm
from localspec.storage import network
from localspec.tui.settings import SETTINGS, ChatSettings
from tests.support.checks import refuses

OF_LAUNCH, OF_REPLY = options_of(LaunchOptions), options_of(ReplyOptions)
ALL = (*OF_LAUNCH, *OF_REPLY)
NEEDED = {"run": "Hi --quiet", "chat": "", "batch": "in.jsonl", "bench": "--modes off --quiet"}
VERBS = tuple(NEEDED)
GBNF, LARK = 'root ::= "a"', 'start: "a"'
_VALUES: Mapping[str, Any] = {
    "grammar": GBNF,
    "lark": LARK,
    "regex": "[a-z]+",
    "json_schema": '{"type": "null"}',
    "logit_bias": ((5, 1.5), (6, -10_000.0)),
    "tensor_split": "3,1",
    "draft": "off",
    "template_kwargs": '{"preserve_thinking": true}',
}


class ArrivedError(Exception):
    def __init__(self, launch: LaunchOptions, reply: ReplyOptions) -> None:
        super().__init__(launch, reply)
        self.values = values_of(launch) | values_of(reply)


def another(option: Option) -> Any:
    if option.kind == "choice":
        return next(each for each in option.choices[::-1] if each != option.default)
    if option.name in _VALUES:
        return _VALUES[option.name]
    by_kind = {"whole": 7, "number": 0.5, "switch": not option.default, "text": "some-name"}
    return by_kind.get(option.kind, ("one", "two words"))


def flag_of(option: Option, folder: Path) -> list[str]:
    flag, value = f"--{option.name.replace('_', '-')}", another(option)
    if option.kind == "switch":
        return [flag if value else f"--no-{flag.removeprefix('--')}"]
    if option.kind == "texts":
        return [part for each in value for part in (flag, each)]
    if option.name in {"grammar", "lark"}:
        (folder / "a.txt").write_text(value)
        value = str(folder / "a.txt")
    return [flag, str(value)]


def takers(verb: str) -> list[Option]:
    names = {each.name for each in command(verb).params}
    return [each for each in ALL if each.name in names]


def command(verb: str) -> click.Command:
    found: click.Command = getattr(
        {"run": run, "chat": chat, "batch": batch, "bench": bench}[verb], verb
    )
    return found


@pytest.fixture
def arrived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Runs a verb up to where its launch and its reply would be made."""
    for name in KEYS:
        monkeypatch.setenv(f"LOCALSPEC_{name.upper()}", "")
    (tmp_path / "settings").mkdir()
    # For its target, nothing is recommended.
    (tmp_path / "settings/models.toml").write_text(
        '[pairs."smollm2-135m"]\ntarget = "phi4-mini"\ndraft = "lookup"\n'
    )
    (tmp_path / "in.jsonl").write_text('{"prompt": "Hi"}\n')
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("localspec.cli.prompt.read_prompt", str)
    monkeypatch.setattr(run, "open_engine", _answer)
    monkeypatch.setattr(chat_front, "Session", _session)
    monkeypatch.setattr(batch, "BatchRun", _batch)
    monkeypatch.setattr(bench, "run_bench", _bench)

    def call(verb: str, *flags: str) -> dict[str, Any]:
        monkeypatch.setattr(network, "_closed", False)  # each call is a process of its own
        with pytest.raises(ArrivedError) as caught:
            root.main([verb, *NEEDED[verb].split(), *flags], standalone_mode=False)
        return caught.value.values

    return call


def _arrive(launch: LaunchOptions, reply: ReplyOptions) -> None:
    raise ArrivedError(launch, reply)


def _session(
    _engine: object, _talk: object, launch: LaunchOptions, reply: ReplyOptions, *_: object
) -> None:
    load = COMMANDS.decode(encode(Load(launch)))
    ask = COMMANDS.decode(encode(Request(1, (), reply)))
    assert isinstance(load, Load)
    assert isinstance(ask, Request)
    _arrive(load.options, ask.options)


def _answer(load: Load, needs: Needs, *_: object) -> None:
    assert needs.prompt is not None
    _arrive(load.options, needs.prompt.options)


def _bench(request: Any, *_: object) -> None:
    _arrive(request.arms[0].launch, request.reply)


def _batch(load: Load, form: Form, *_: object, **__: object) -> None:
    _arrive(load.options, form.options)


@pytest.mark.parametrize("verb", ["run", "chat", "batch"])
def test_a_models_own_settings_hold_where_nothing_else_is_set(
    arrived: Callable[..., dict[str, Any]], tmp_path: Path, verb: str
) -> None:
    (tmp_path / "settings/models.toml").unlink()
    own = load_registry().sampling("smollm2-135m")
    assert own["temperature"] == 0.2
    assert arrived(verb).items() >= own.items()
    assert arrived(verb, "-m", "demo").items() >= own.items()
    assert arrived(verb, "--temperature", "0.8")["temperature"] == 0.8
    (tmp_path / "settings/config.toml").write_text("temperature = 0.5\n")
    assert arrived(verb)["temperature"] == 0.5
    other = arrived(verb, "-m", "qwen3:4b")
    assert (other["temperature"], other["top_k"], other["repeat_penalty"]) == (0.5, 20, 1.0)
    assert arrived(verb, "--target", "qwen3-4b")["top_k"] == 20
    assert arrived(verb, "--target", "some-name")["repeat_penalty"] == 1.0


def _usual(verb: str) -> dict[str, Any]:
    usual = values_of(LaunchOptions()) | values_of(ReplyOptions())
    return usual | ({"seed": 1, "max_tokens": 160} if verb == "bench" else {})


def test_a_seed_of_minus_1_is_random_in_a_field_and_refused_elsewhere() -> None:
    seeded = ReplyOptions(seed=7)
    assert with_fields(seeded, {"seed": -1}).seed is None
    assert with_fields(seeded, {"seed": 0}).seed == 0
    with pytest.raises(UsageError, match="seed is -1: it must be 0 or more; leave it out"):
        ReplyOptions(seed=-1)
    with pytest.raises(UsageError, match="seed is -2: it must be 0 or more; leave it out"):
        with_fields(seeded, {"seed": -2})


@pytest.mark.parametrize("verb", VERBS)
def test_a_flag_arrives(arrived: Callable[..., dict[str, Any]], tmp_path: Path, verb: str) -> None:
    names = {each.name for each in takers(verb)}
    assert verb == "bench" or names == {each.name for each in ALL if each.group}
    assert arrived(verb) == _usual(verb)
    for option in takers(verb):
        expected = {**_usual(verb), option.name: another(option)}
        assert arrived(verb, *flag_of(option, tmp_path)) == expected, option.name


@pytest.mark.parametrize("verb", VERBS)
def test_a_setting_and_a_variable_arrive(
    arrived: Callable[..., dict[str, Any]],
    tmp_path: Path,
    verb: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_modes = {"draft", "draft_length"} if verb == "bench" else set()
    file = tmp_path / "settings/config.toml"
    for option in (each for each in ALL if each.key and each.name not in of_modes):
        value = another(option)
        text = json.dumps(list(value) if isinstance(value, tuple) else value)
        file.write_text(f"{option.name} = {text}\n")
        assert arrived(verb)[option.name] == value, option.name
        file.unlink()
        text = shlex.join(value) if isinstance(value, tuple) else str(value)
        with monkeypatch.context() as patched:
            patched.setenv(f"LOCALSPEC_{option.name.upper()}", text)
            assert arrived(verb)[option.name] == value, option.name


@pytest.mark.parametrize("option", OF_REPLY, ids=lambda option: option.name)
def test_a_line_of_a_batch_and_the_chat_take_it(option: Option) -> None:
    value = plain = another(option)
    if option.name == "logit_bias":
        plain = dict(value)
    elif isinstance(value, tuple):
        plain = list(value)
    bodies = [{"prompt": "Hi", option.name: plain}]
    is_number = option.kind in {"whole", "number"}
    if is_number:
        bodies.append(from_text({"prompt": "Hi", option.name: str(value)}))
    for body in bodies:
        options = line_request(Line(1, "", body), Form(ReplyOptions()), 1).options
        assert values_of(options)[option.name] == value
    in_chat = is_number or option.numbers
    assert (option.name in SETTINGS) == in_chat
    if in_chat:
        settings = ChatSettings().changed(option.name, str(value))
        options = settings.options
        assert options == changed(ReplyOptions(), {option.name: value})
        assert settings.text_of(option.name) == str(value)
        kept = ReplyOptions() if option.name == "seed" else options
        assert ChatSettings().from_json(settings.as_json()).options == kept


@pytest.mark.parametrize("option", ALL, ids=lambda option: option.name)
def test_it_goes_over_the_wire_and_an_arm_of_a_comparison_takes_it(option: Option) -> None:
    value = another(option)
    change = {option.name: value}
    if option in OF_REPLY:
        request = COMMANDS.decode(encode(Request(1, (), changed(ReplyOptions(), change))))
        assert isinstance(request, Request)
        assert values_of(request.options) == values_of(ReplyOptions()) | change
        return
    load = COMMANDS.decode(encode(Load(changed(LaunchOptions(), change))))
    assert isinstance(load, Load)
    assert values_of(load.options) == values_of(LaunchOptions()) | change
    if option.name in ARM_KEYS:
        text = ("on" if value else "off") if option.kind == "switch" else value
        arm = parse_arm("a", f"{option.name}={text}", LaunchOptions())
        if option.name == "draft":
            assert arm.mode == value
        else:
            assert values_of(arm.launch) == values_of(LaunchOptions()) | change


def test_load_takes_the_fields_of_launch_options(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepared(launch: LaunchOptions) -> None:
        _arrive(launch, ReplyOptions())

    monkeypatch.setattr("localspec.plan.make.make_plan", prepared)
    own: dict[str, Any] = {"target": "t", "draft": "off", "exact": True, "offline": True}
    own["fit"] = False
    with pytest.raises(ArrivedError) as caught:
        localspec.load(options=LoadOptions(n_ctx=99), **own)
    told: Mapping[str, Any] = caught.value.values
    assert {name: told[name] for name in (*own, "ctx")} == {**own, "ctx": 99}


@given(st.sampled_from([each for each in ALL if each.kind in {"whole", "number"}]), st.data())
def test_a_range_is_kept_wherever_a_value_comes_from(option: Option, data: st.DataObject) -> None:
    numbers: st.SearchStrategy[Any] = st.integers(-(1 << 40), 1 << 40)
    if option.kind == "number":
        numbers = st.floats(allow_nan=False, allow_infinity=False)
    edges = [each for each in (option.least, option.most) if math.isfinite(each)]
    near = [int(each) + step for each in edges if each < 1e9 for step in (-1, 0, 1)]
    value = data.draw(st.one_of(numbers, st.sampled_from(near)) if near else numbers)
    good = option.least <= value <= option.most
    kind = LaunchOptions if option in OF_LAUNCH else ReplyOptions
    if good:
        assert values_of(changed(kind(), {option.name: value}))[option.name] == value
        assert from_variable(option, str(value)) == value
        return
    with pytest.raises(UsageError, match=option.name) as caught:
        changed(kind(), {option.name: value})
    assert str(caught.value).startswith(f"{option.name} is {value}: it must be ")
    with pytest.raises(ValueError, match=r"^is .*: it must be "):
        from_variable(option, str(value))


def test_think_takes_words_and_numbers_and_nothing_else() -> None:
    def of_line(given: Any) -> str | None:
        return line_request(Line(1, "", {"prompt": "Hi", "think": given}), Form(ReplyOptions()), 1).options.think  # fmt: skip

    values: list[tuple[Any, str]] = [("16", "16"), (16, "16"), (0, "0"), (True, "on"), (False, "off"), ("low", "low")]  # fmt: skip
    for each, value in values:
        assert from_file(KEYS["think"], each) == from_variable(KEYS["think"], str(each)) == value
        assert of_line(each) == value
    for wrong in ("", "lo", "-1", "1.5", "٣", "9" * 10, -1, 1.5):
        refuses(r"think is .*: it takes on, off, low, medium, high or", of_line, wrong)
        with pytest.raises(ValueError, match="takes on, off, low, medium, high or a number of"):
            from_file(KEYS["think"], wrong)


def test_a_list_that_names_none_is_refused_and_an_empty_one_is_none() -> None:
    for option in [each for each in ALL if each.commas]:
        for given_texts in (",", [" , "], ["", ","]):
            with pytest.raises(ValueError, match=","):
                option.read(given_texts)
        for none in ("", [], [""]):
            assert option.read(none) == ()


@given(
    st.sampled_from([each for each in ALL if each.kind != "other"]),
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.tuples(st.text())
    ),
)
def test_a_value_of_the_wrong_type_is_refused_by_name(option: Option, value: Any) -> None:
    right = {"whole": int, "number": float | int, "switch": bool, "texts": tuple}
    is_right = isinstance(value, right.get(option.kind, str))
    assume(not is_right or (isinstance(value, bool) and option.kind != "switch"))
    assume(value is not None or not option.may_be_unset)
    kind = LaunchOptions if option in OF_LAUNCH else ReplyOptions
    refuses(f"{option.name} is .*: it takes ", changed, kind(), {option.name: value})


def test_what_contradicts_itself_is_refused() -> None:
    rows: list[tuple[Any, ...]] = [
        ({"grammar": GBNF, "json_schema": {}}, "grammar and json_schema cannot be combined"),
        ({"regex": "a", "lark": LARK}, "regex and lark cannot be combined"),
        ({"json_schema": {"default": object()}}, "json_schema is not valid JSON"),
        ({"stop": ("a", "")}, 'a stop string is ""'),
        ({"sampling": SamplingParams(), "max_tokens": 0}, "max_tokens is 0"),
    ]
    for options, reason in rows:
        with pytest.raises(UsageError, match=reason) as caught:
            ReplyOptions(**options)
        assert "\n" not in str(caught.value)
    options = ReplyOptions(json_schema={"type": "null"})
    assert options.json_schema == '{"type": "null"}'
    assert options == ReplyOptions(json_schema='{"type": "null"}')
    assert hash(options) == hash(ReplyOptions(json_schema='{"type": "null"}'))


def test_an_option_of_loading_is_for_models_of_this_machine_unless_it_says_otherwise() -> None:
    everywhere = {each.name for each in OF_LAUNCH if not each.needs}
    of_server = {"server", "server_key_file", "draft", "draft_model"}  # it may be drafted for
    assert everywhere == of_server | {"pair", "target", "ctx", "offline"}
    assert {each.name for each in OF_REPLY if each.needs} == {"stop_loops"}
    lacking = abilities("http://127.0.0.1:9")
    assert not any(lacking.has(each.needs) for each in (*OF_LAUNCH, *OF_REPLY) if each.needs)


def test_a_default_is_written_once() -> None:
    defaults = {
        name: option.default
        for option in ALL
        for name in (option.name, option.field)
        if option.kind in {"whole", "number", "choice"} and option.default is not None
    }
    assert defaults["temperature"] == 0.8
    found = []
    for path in Path(localspec.__file__).parent.rglob("*.py"):
        if path.parent.name == "options":
            continue
        for name, value in _written_defaults(ast.parse(path.read_text())):
            if name in defaults and type(value) is type(defaults[name]) and value == defaults[name]:
                found.append(f"{path.name}: {name} = {value!r}")
    assert found == []


def _written_defaults(tree: ast.Module) -> list[tuple[str, object]]:
    """Return the constants that a module gives to fields and to parameters."""
    found: list[tuple[str, object]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            pairs: list[tuple[str, ast.expr | None]] = [(node.target.id, node.value)]
        elif isinstance(node, ast.FunctionDef):
            names = [*node.args.posonlyargs, *node.args.args]
            behind = zip(names[::-1], node.args.defaults[::-1], strict=False)
            keywords = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            pairs = [(each.arg, value) for each, value in (*behind, *keywords)]
        else:
            continue
        found += [(name, value.value) for name, value in pairs if isinstance(value, ast.Constant)]
    return found

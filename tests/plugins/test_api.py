"""What plug-ins import from the core: `localspec.api`, and what each of ours reaches into besides; the example of the docs, installed."""

import ast
import base64
import hashlib
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
import zipfile
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import localspec
from localspec import api
from tests.support.machines import with_what_is_known

PACKAGE = Path(localspec.__file__).parent
DOCS = Path(__file__).parents[2] / "docs/python.md"
PUBLIC = {"localspec", "localspec.api", "localspec.errors", "localspec.engine.protocol"}
# Modules of the core that a plug-in of ours imports beside the public ones. Only to be shortened.
BESIDES = """
agents: chat.call_finder cli.interrupt cli.options cli.prompt display engine.running models.gguf models.requested plan.fit plan.load_plan
bench: chat.assistant chat.token_prefix cli cli.interrupt decoding.cancel decoding.draft_mode decoding.drafters.register decoding.gain decoding.policy display launch.load llama.backend llama.spare_cores models.transfer options plan.load_plan resources storage.paths
mcp_server: chat.reply_figures cli cli.options cli.prompt display engine.remote_engine grammar launch.engine messages options.fields
remote: calibration.calibrated calls calls.policy chat.calling chat.events chat.gated chat.reply_text chat.thinking chat.turns decoding.choose decoding.costs decoding.drafters.draft_length decoding.drafters.drafter decoding.drafters.lookup decoding.drafters.model decoding.drafters.vocab_map decoding.gain decoding.model decoding.noise decoding.policy decoding.proposals decoding.round decoding.scheduler decoding.stats engine.child engine.drafts engine.outbox engine.request_runner launch.load llama.model llama.token_map media messages models.entries models.gguf models.inventory models.mmproj models.names models.pairs plan.recommend models.registry models.repository models.store models.tokenizer options options.option
serve: calls calls.policy chat.call_finder chat.events chat.reply_figures chat.thinking cli.options cli.progress config.recorded decoding.choose decoding.drafters.draft_length decoding.drafters.drafter decoding.model decoding.policy decoding.proposals decoding.round display engine.drafts engine.engine engine.remote_engine engine.running engine.shared grammar grammar.call_grammar launch.observe media messages models.entries models.gguf models.inventory models.ledger models.mmproj models.names models.registry models.requested models.store models.tokenizer options options.fields options.option options.reply storage.paths toolbox.folder
store: chat.request decoding.drafters.copying decoding.drafters.lookup decoding.policy gates.gate gates.ledger llama.vocabulary storage
tailor: calibration.calibrated chat.assistant cli cli.interrupt config.recorded decoding.cancel decoding.costs decoding.drafters.heads decoding.policy display history.archive launch.load llama.calibrate llama.model llama.quantize llama.sequence models.architectures models.entries models.gguf models.inventory models.ledger models.names models.pairs models.registry models.store resources session.conversation storage.locks telemetry.log telemetry.text
workers: cli cli.options display llama.backend llama.crash_report llama.devices resources
"""


@cache
def reached() -> dict[str, set[str]]:
    """Return the modules of the core that each plug-in of ours imports, without `localspec.`."""
    found = dict[str, set[str]]()
    for path in sorted((PACKAGE / "plugins").glob("*/**/*.py")):
        name = path.relative_to(PACKAGE / "plugins").parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("localspec"):
                wholes = {f"{node.module}.{alias.name}" for alias in node.names}  # of modules
                found.setdefault(name, set()).update(wholes & PUBLIC or {node.module or ""})
    return {
        name: {
            each.removeprefix("localspec.")
            for each in modules - PUBLIC
            if not each.startswith("localspec.plugins")
        }
        for name, modules in found.items()
    }


def test_plug_ins_reach_into_nothing_but_what_is_listed() -> None:
    listed = {
        name: set(modules.split())
        for name, _, modules in (line.partition(":") for line in BESIDES.strip().splitlines())
    }
    assert reached() == listed


def test_nothing_that_the_public_names_have_is_imported_from_elsewhere() -> None:
    elsewhere = [
        (path.name, node.module, alias.name)
        for path in (PACKAGE / "plugins").glob("*/**/*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and not (node.module or "").startswith(("localspec.api", "localspec.plugins"))
        for alias in node.names
        if api._HOME_OF.get(alias.name) == node.module
    ]
    assert elsewhere == []


def test_every_public_name_is_its_home_s_and_documented() -> None:
    assert sorted(api._HOME_OF) == sorted(api.__all__)
    for name, home in api._HOME_OF.items():
        assert getattr(api, name) is getattr(import_module(home), name)
        assert f"`{name}`" in DOCS.read_text(encoding="utf-8")
    typed = {
        alias.name: node.module
        for node in ast.walk(ast.parse((PACKAGE / "api.py").read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("localspec.")
        for alias in node.names
    }
    assert typed == api._HOME_OF
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = api.nothing


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment in which the package of the docs is installed, by pip, from a wheel of it."""
    text = DOCS.read_text(encoding="utf-8").partition("## Plug-ins")[2]
    about, module = (
        textwrap.dedent(each) for each in re.findall(r"\n\n((?:    .*\n|\n)+)", text)[:2]
    )
    assert len(module.splitlines()) < 45
    project = tomllib.loads(about)["project"]
    name, folder = project["name"].replace("-", "_"), tmp_path_factory.mktemp("series")
    points = "".join(
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in rows.items())
        for group, rows in project["entry-points"].items()
    )
    info = f"{name}-{project['version']}.dist-info"
    files = {
        f"{name}.py": module,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": points,
    }
    rows = []
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=")
        rows.append(f"{path},sha256={digest.decode()},{len(content.encode())}")
    wheel = folder / f"{name}-{project['version']}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        record = "\n".join([*rows, f"{info}/RECORD,,", ""])
        for path, content in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, content)
    target = folder / "site"
    words = shlex.split(
        "-m pip --disable-pip-version-check install -q --no-deps --no-index --target"
    )
    pip = [sys.executable, *words, str(target), str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    return {**os.environ, "PYTHONPATH": f"{target}{os.pathsep}{PACKAGE.parent}"}


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "localspec", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_plug_in_of_the_docs_is_installed_and_runs(installed: dict[str, str]) -> None:
    assert "series      Show how a series goes on." in run(installed, "--help").stdout
    assert run(installed, "series", "3", "4", "5").stdout == f"{[0.9] * 8}\n"
    assert run(installed, "series", "3", "9").stdout == "no series\n"
    few, told = run(installed, "series", "3"), "a series has two numbers at least: give more"
    assert (few.returncode, few.stderr) == (2, f"localspec: {told}\n")
    modes = run(installed, "run", "--draft", "seires", "x")
    assert "series" in modes.stderr


@pytest.mark.slow
@pytest.mark.weights
def test_the_drafter_of_the_docs_changes_no_text(installed: dict[str, str], tmp_path: Path) -> None:
    environment = {**installed, "LOCALSPEC_DATA_DIR": str(with_what_is_known(tmp_path, "blobs"))}
    # Passes of other widths may round otherwise, if not --exact.
    words = shlex.split(
        "run smollm2-135m 'Count to five.' -n 12 --temperature 0 --threads 1 --exact"
    )
    texts = [run(environment, *words, "--draft", mode) for mode in ("off", "series", "auto")]
    assert [each.returncode for each in texts] == [0, 0, 0], texts[1].stderr
    assert len({each.stdout for each in texts}) == 1

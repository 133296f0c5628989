"""A machine whose registry knows small files on a loopback hub, and the command as its users run it."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests import warm
from tests.models.loopback_hub import COMMIT, LoopbackHub

_PROGRAM = "tests.models.pull_toy"
ROOT = Path(__file__).parents[2]
REPO = "owner/toy-GGUF"
PATIENCE_S = 300
"""For a machine that is busy with other things: only a test that hangs takes so long."""


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str


@dataclass(slots=True)
class ToyMachine:
    """Data directory, hub cache and registry under one folder."""

    folder: Path
    hub: LoopbackHub
    models: dict[str, bytes] = field(default_factory=dict)
    pairs: str = ""
    unsaid: set[str] = field(default_factory=set)
    """Models of which the registry says neither revision, nor size, nor sha256."""

    def __post_init__(self) -> None:
        self.data.mkdir(exist_ok=True)  # a variable that names no folder would be told

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def blobs(self) -> list[Path]:
        return sorted((self.data / "blobs").glob("*"))

    @property
    def partials(self) -> list[Path]:
        return sorted((self.data / "partial").glob("*"))

    def offer(self, name: str, data: bytes) -> None:
        """Let the hub and the registry know a model."""
        self.models[name] = data
        self.hub.files[f"/{REPO}/resolve/{COMMIT}/{name}.gguf"] = data

    def start(
        self,
        *arguments: str,
        terminal: int | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start the command; with a terminal, that is its stdin and stderr."""
        return subprocess.Popen(
            [sys.executable, "-m", _PROGRAM, *arguments],
            stdin=subprocess.DEVNULL if terminal is None else terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if terminal is None else terminal,
            env=self._environment(variables or {}),
            cwd=ROOT,
        )

    def run(self, *arguments: str, **variables: str) -> Ended:
        """Run the command to its end, in a warm process."""
        env = self._environment(variables)
        ended = warm.run(_PROGRAM, arguments, env, cwd=ROOT, timeout_s=PATIENCE_S)
        return Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    def succeed(self, *arguments: str, **variables: str) -> Ended:
        """Run the command, and see it succeed."""
        ended = self.run(*arguments, **variables)
        assert ended.code == 0, ended.err
        return ended

    def assert_only_verified(self) -> None:
        """See that whatever has a name in the store has the bytes of that name."""
        for blob in self.blobs:
            assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name

    def _environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        first = next(iter(self.models))
        text = (
            f'default_pair = "{first}"\n[pairs."{first}"]\ntarget = "{first}"\ngood_for = "tests"\n'
        )
        for name, data in self.models.items():
            text += f'[models."{name}"]\nrepo = "{REPO}"\nfile = "{name}.gguf"\n'
            text += 'params = "1M"\ncontext = 512\nlicence = "mit"\n'
            if name not in self.unsaid:
                digest = hashlib.sha256(data).hexdigest()
                text += f'revision = "{COMMIT}"\nsize_bytes = {len(data)}\nsha256 = "{digest}"\n'
        registry = self.folder / "registry.toml"
        registry.write_text(text + self.pairs)
        others = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "LOCALSPEC_"))}
        return {
            **others,
            "TOY_REGISTRY": str(registry),
            "LOCALSPEC_DATA_DIR": str(self.data),
            "LOCALSPEC_CONFIG_DIR": str(self.folder / "no settings"),
            "HF_ENDPOINT": self.hub.url,
            "HF_HOME": str(self.folder / "hub"),
            **variables,
        }

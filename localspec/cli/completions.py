"""Names that a shell completes: of models, settings, personas and templates. Imported always, so imports nothing itself."""

from collections.abc import Iterable

import click


def complete_models(
    context: click.Context,  # noqa: ARG001 - click's signature
    parameter: click.Parameter,  # noqa: ARG001
    incomplete: str,
) -> list[str]:
    """Return the pairs, models, aliases and imports whose names begin like this."""
    from localspec.models.names import load_imports  # noqa: PLC0415
    from localspec.models.registry import load_registry  # noqa: PLC0415
    from localspec.storage.paths import data_dir  # noqa: PLC0415

    registry = load_registry()
    known = (registry.pairs, registry.models, registry.aliases, load_imports(data_dir()))
    return _beginning((name for names in known for name in names), incomplete)


def complete_keys(
    context: click.Context,  # noqa: ARG001
    parameter: click.Parameter,  # noqa: ARG001
    incomplete: str,
) -> list[str]:
    """Return the settings whose names begin like this."""
    from localspec.config.keys import KEYS  # noqa: PLC0415
    from localspec.config.own import MODEL  # noqa: PLC0415

    return _beginning([MODEL, *KEYS], incomplete)


def complete_personas(
    context: click.Context,  # noqa: ARG001
    parameter: click.Parameter,
    incomplete: str,
) -> list[str]:
    """Return the personas, or the templates, whose names begin like this."""
    from localspec.ui.preferences import read_preferences  # noqa: PLC0415

    preferences = read_preferences()
    is_persona = parameter.name == "persona"
    return _beginning(preferences.personas if is_persona else preferences.templates, incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]

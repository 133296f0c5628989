"""What a user means by a name: a pair or a model of the registry, a model on the hub, or a file.

A file of their own is named by its path, or by the name under which it was imported (`imports.toml`
beside the store, which points to it or holds a copy); a file on the hub is named `user/repo:QUANT`.
"""

import os
import re
from pathlib import Path

from msgspec.structs import replace

from localspec.display import notice
from localspec.errors import LocalspecError, ModelUnavailable, UsageError
from localspec.models.architectures import is_heads_alone
from localspec.models.entries import HubName, ModelEntry, files_of, of_shards
from localspec.models.file_names import models_in
from localspec.models.gguf import model_files, read_header
from localspec.models.ledger import IMPORTS
from localspec.models.mmproj import encoded, mmproj_in_folder, why_no_mmproj
from localspec.models.registry import Registry, name_list
from localspec.models.store import Store, sha256_of
from localspec.storage.files import private_directory
from localspec.storage.locks import locked
from localspec.storage.network import is_network_closed
from localspec.storage.paths import data_dir, shown

_LONGEST = 200


def hub_name(text: str) -> HubName | None:
    """Return the model on the hub that `user/repo:QUANT` means; None for anything else.

    What ends in `.gguf` or exists in the working directory is a file.
    """
    if len(text) > _LONGEST or text.lower().endswith(".gguf"):
        return None
    name = HubName.parse(text)
    return None if name is None or Path(text).exists() else name


def look_up(reference: str, registry: Registry, *, offline: bool = False) -> ModelEntry | Path:
    """Return the existing file that a reference means, or the entry with all that has to be known.

    Asks the hub where no registry knows what a model's bytes have to be, and nothing is pinned.

    Raises:
        ModelUnavailable: no such file or name, or the hub does not answer.
        IntegrityError: the hub has another file than the registry promises.
    """
    return learn(resolve(reference, registry), offline=offline)


def learn(model: ModelEntry | Path | HubName, *, offline: bool = False) -> ModelEntry | Path:
    """Return what a name means, with size and sha256 of every file.

    Args:
        model: passed through where nothing is to be learnt of it.
        offline: use no network.

    Raises:
        ModelUnavailable: the hub does not answer, or has no such file.
        IntegrityError: it has another file than the registry promises.
    """
    if isinstance(model, Path) or (isinstance(model, ModelEntry) and model.is_known):
        return model
    if offline or is_network_closed():
        name = model.name if isinstance(model, ModelEntry) else model.text
        raise ModelUnavailable(
            f"{name} was not found locally, and localspec is offline: go online and pull it first, "
            "or use the name of a known model"
        )
    # Few names need a hub.
    from localspec.models.repository import of_entry, of_repository  # noqa: PLC0415

    return of_repository(model) if isinstance(model, HubName) else of_entry(model)


def resolve(reference: str, registry: Registry) -> ModelEntry | Path | HubName:
    """Return what a reference means, as far as that is known without a network.

    What has a path separator or ends in `.gguf` is a path, unless it reads as `user/repo:QUANT`. A
    known name is a model even where a file of that name lies in the working directory: what a name
    means should not depend on that.

    Raises:
        ModelUnavailable: no such file, or no such name.
    """
    try:
        return _resolve(reference, registry)
    except (OSError, RuntimeError) as error:  # too long, not ours to look into, no such `~user`
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelUnavailable(
            f"{shown(reference)[:200]} cannot be a model file ({reason}): check the path"
        ) from error


def _resolve(reference: str, registry: Registry) -> ModelEntry | Path | HubName:
    reference = registry.aliases.get(reference, reference)
    on_hub = hub_name(reference)
    if on_hub is not None:
        return registry.find(on_hub.text) or _imported(on_hub.text) or on_hub
    is_path = os.sep in reference or reference.startswith("~")
    if not is_path and not reference.lower().endswith(".gguf"):
        if reference in registry.models:
            return registry.models[reference]
        is_file = Path(reference).is_file()
        return _imported(reference) or (Path(reference) if is_file else registry.model(reference))
    path = Path(reference).expanduser()
    if path.is_dir():
        raise ModelUnavailable(f"{shown(path)} is a directory: give the .gguf file in it")
    if not path.exists():
        known = name_list(registry.models)
        raise ModelUnavailable(
            f"there is no file {shown(path)}: check the path, or use a known name ({known})"
        )
    return path


def _imported(name: str) -> Path | None:
    """Return the file of an import; None where no import has the name.

    Raises:
        ModelUnavailable: it was moved or removed since.
    """
    store = Store(data_dir())
    imported = IMPORTS.load(store.root).get(name)
    path = store.path_of(imported) if imported else None
    if imported is not None and path is None:
        raise ModelUnavailable(
            f"{name} was imported from {imported.origin}, which has been moved or "
            f"replaced: pull or import it again, or `localspec rm {name}`"
        )
    return path


def models_of(name: str, registry: Registry) -> list[ModelEntry | Path | HubName]:
    """Return the models that a name stands for: a pair's target and draft model, or one model.

    A name that is both means the pair, which has the model of that name as its target. A user's own
    pair may name files by their paths, and models on the hub; alone, a path is no name.

    Raises:
        ModelUnavailable: no pair or model has this name, or a file is not there.
    """
    is_import = name in IMPORTS.load(data_dir())
    name = name if is_import else registry.name(name)
    if name in registry.pairs:
        pair = registry.pairs[name]
        return [resolve(each, registry) for each in (pair.target, pair.draft_model) if each]
    if not is_import and hub_name(name) is None:
        registry.require(name)
        return [registry.model(name)]
    return [resolve(name, registry)]


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,79}")
_LISTED = 8


def is_name(text: str, registry: Registry) -> bool:
    """Return whether a text means a pair or a model of the registry, or what was imported."""
    return registry.knows(text) or text in IMPORTS.load(data_dir())


def _model_in(folder: Path) -> Path:
    """Return the file to open of the only model in a folder.

    Raises:
        ModelUnavailable: there are several, or none.
    """
    names = models_in(each.name for each in folder.iterdir())
    if len(names) > 1:
        names = [each for each in names if not _is_heads(folder / each)] or names
    if len(names) != 1:
        listed = ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")
        what = f"several models: give one of {listed}" if names else "no .gguf file of a model"
        raise ModelUnavailable(f"{shown(folder)} has {what}")
    return folder / names[0]


def _is_heads(file: Path) -> bool:
    """Return whether a file holds heads of another model, by its header."""
    try:
        return is_heads_alone(read_header(file))
    except LocalspecError:
        return False


def _own_mmproj(name: str, file: Path) -> tuple[ModelEntry, Path] | None:
    """Return the entry of the mmproj file in the folder of a model, and the file; None, with a notice, where it does not fit."""
    path = mmproj_in_folder(file)
    if path is None:
        return None
    try:
        header = read_header(path)
        why = why_no_mmproj(read_header(file), header)
    except LocalspecError as error:
        why = f"cannot be used: {error}"
    if why is not None:
        notice(f"{name} is imported without {path.name}, which {why}")
        return None
    path, media = path.resolve(), encoded(header)
    size, sha256 = path.stat().st_size, sha256_of(path)
    return ModelEntry(f"{name} mmproj", size, sha256, takes=media), path


def _import_name(file: Path, name: str | None) -> str:
    """Return the name of an import, made of the file's where the user gives none; raises UsageError if it cannot be one."""
    if name is None:
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem.removesuffix(".gguf"))
        name = stem.strip("._-").lower()[:80] or "imported"
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:80]!r} cannot be a name: use letters, digits and . _ : -, at most 80 of them"
        )
    return name


def import_file(
    file: Path, name: str | None, registry: Registry, store: Store, *, copy: bool = False
) -> ModelEntry:
    """Give a GGUF file a name, and let the store point to it or hold a copy; the same of its mmproj file, if it has one.

    Args:
        file: the file, or a folder with one model; its header is checked first.
        name: what to call it; None makes a name of the file's.
        registry: its names are taken, but for files with the very bytes that it promises.
        store: takes it in.
        copy: copy it instead of pointing to it.

    Raises:
        ModelUnavailable: the file cannot be read.
        ModelFileError: it is no sound GGUF.
        UsageError: the name cannot be used or is taken.
        OSError: the store does not take it.
    """
    file = _model_in(file) if file.is_dir() else file
    files = [each.resolve() for each in model_files(file)]
    name = _import_name(file, name)
    parts = [
        ModelEntry(f"{name} shard {number} of {len(files)}", each.stat().st_size, sha256_of(each))
        for number, each in enumerate(files, 1)
    ]
    mmproj = _own_mmproj(name, file)
    if mmproj is not None:
        files.append(mmproj[1])
    imported = replace(of_shards(name, parts), origin=shown(files[0]), mmproj=mmproj and mmproj[0])
    private_directory(store.root)
    with locked(store.root):
        known = IMPORTS.load(store.root)
        taken = [each.sha256 for each in (known.get(name), registry.models.get(name)) if each]
        if name in registry.pairs and not taken:
            taken = [""]
        if any(sha256 != imported.sha256 for sha256 in taken):
            raise UsageError(
                f"the name {name} is taken by another model: give another one with --name"
            )
        for shard, each in zip(files_of(imported), files, strict=True):
            if copy:
                store.copy(shard, each)
            elif store.path_of(shard) is None:
                store.point_to(shard, each)
        if imported.shards:
            store.link_shards(imported)
        if name not in registry.models:
            IMPORTS.write(store.root, {**known, name: imported})
    return imported

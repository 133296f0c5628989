"""Ollama's list of models, what is known of each, and which is in memory; models are changed by the command line alone."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from localspec import __version__
from localspec.api import UsageError, data_dir, load_registry, printable_line
from localspec.chat.call_finder import offers_tools
from localspec.chat.thinking import thinking_tags
from localspec.errors import ModelFileError, ModelUnavailable
from localspec.models.entries import ModelEntry
from localspec.models.gguf import read_model
from localspec.models.inventory import Fact, facts_of
from localspec.models.store import Store, stored_sha256
from localspec.plugins.serve.answering import Body, Service
from localspec.plugins.serve.bodies import body_of
from localspec.plugins.serve.catalogue import LATEST, target_of
from localspec.plugins.serve.http import NotFound
from localspec.plugins.serve.model_pool import ServedModel

_VERSION = "0.12.6"
"""Of Ollama, whose interface this is: editors look whether it is new enough for tools and thoughts."""
_NEVER_S = 1e9
"""From now on: dates have an end."""
_SCALARS = (str, int, float, bool)
_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty")


class NameBody(msgspec.Struct):
    """A model; `name` is the older field."""

    model: str = ""
    name: str = ""


async def version(_: HttpRequest, service: Service) -> Response:  # noqa: ARG001 - a handler's signature
    """Return which version of Ollama has this interface."""
    return JSONResponse({"version": _VERSION, "localspec": __version__})


async def tags(_: HttpRequest, service: Service) -> Response:
    """List the models that a request may name."""

    def listed() -> list[Body]:
        models = dict[str, ServedModel]()
        for name in [service.loaded.name, *service.catalogue.listed()]:
            with suppress(NotFound):  # it was removed just now
                models[name] = known_model(service, name)
        return [_listed(name, model, service) for name, model in models.items()]

    return JSONResponse({"models": await asyncio.to_thread(listed)})


async def running(_: HttpRequest, service: Service) -> Response:
    """List the models in memory."""
    now, models = datetime.now(UTC), dict[str, Body]()
    # One that writes and makes vectors, too, has two engines and one name.
    for each in sorted(service.pool.entries, key=lambda each: not each.model.embeds):
        if (ready := service.pool.ready(each.model)) is not None:
            left_s = _NEVER_S if each.left_s is None else min(each.left_s, _NEVER_S)
            until = now + timedelta(seconds=left_s)
            more = {"expires_at": until.isoformat(), "size_vram": 0, "context_length": ready.n_ctx}
            models[each.model.name] = {**_listed(each.model.name, each.model, service), **more}
    return JSONResponse({"models": list(models.values())})


async def show(request: HttpRequest, service: Service) -> Response:
    """Describe a model."""
    body = await body_of(request, NameBody)
    model = await asyncio.to_thread(known_model, service, body.model or body.name)
    return JSONResponse(await asyncio.to_thread(_described, service, model))


async def pull(request: HttpRequest, service: Service) -> Response:
    """Say that a model is here; a request never starts a download."""
    body = await body_of(request, NameBody)
    name = body.model or body.name
    try:
        await asyncio.to_thread(known_model, service, name)
    except NotFound:
        wanted = printable_line(name)[:80]
        raise NotFound(
            f"model {wanted!r} is not here, and no request starts a download: run `localspec pull {wanted}`"
        ) from None
    return JSONResponse({"status": "success"})


async def change(_: HttpRequest, service: Service) -> Response:  # noqa: ARG001 - a handler's signature
    """Refuse to make, name, send or remove a model."""
    raise UsageError(
        "models are changed by the command line alone: see `localspec import`, `pull`, `list` and `rm`"
    )


def known_model(service: Service, name: str) -> ServedModel:
    """Return the model of a name, whether it writes or makes vectors.

    Raises:
        NotFound: there is none, or it is not on the disk.
    """
    try:
        return service.catalogue.find(name)
    except NotFound:
        with suppress(NotFound):
            return service.catalogue.embedder(name)
        raise


def file_of(target: ModelEntry | Path | None) -> Path | None:
    """Return the file of a model that is here."""
    return Store(data_dir()).path_of(target) if isinstance(target, ModelEntry) else target


def _listed(name: str, model: ServedModel, service: Service) -> dict[str, Any]:
    """Return a model of a name as lists have it."""
    target = target_of(model)
    entry, path = target if isinstance(target, ModelEntry) else ModelEntry(), file_of(target)
    name = name if ":" in name else name + LATEST
    size, digest = entry.size_bytes, entry.sha256
    if isinstance(target, Path):
        size, digest = target.stat().st_size, stored_sha256(target) or ""
    return {
        "name": name,
        "model": name,
        "modified_at": _changed(path),
        "size": size,
        "digest": digest,
        "details": _details(entry.params or "", entry.quant, ""),
        "capabilities": _capabilities(service, model, path),
    }


def _changed(path: Path | None) -> str:
    seconds = 0.0 if path is None else path.stat().st_mtime
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _details(parameters: str, quantisation: str, family: str) -> Body:
    return {
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family] if family else [],
        "parameter_size": parameters,
        "quantization_level": quantisation,
    }


def _described(service: Service, model: ServedModel) -> Body:
    """Return what is known of a model, its context as long as it is here."""
    target = target_of(model)
    path, facts, header = file_of(target), dict[str, Fact](), None
    if path is not None:
        reference = target.name if isinstance(target, ModelEntry) else str(path)
        facts = facts_of(reference, load_registry(), Store(data_dir()))
        header = read_model(path)
    template = (header and header.chat_template) or ""
    family = str(facts.get("architecture") or "")
    ready = service.pool.ready(model)
    n_ctx = ready.n_ctx if ready else model.launch.load.n_ctx or (header and header.context_length)
    sampling = () if model.embeds else _SAMPLING
    values = {name: getattr(model.options.sampling, name) for name in sampling}
    values |= {"num_ctx": n_ctx} if n_ctx else {}
    info = {
        name: each
        for name, each in (header.metadata if header else {}).items()
        if isinstance(each, _SCALARS) and not name.startswith("tokenizer.chat_template")
    }
    weights = {"general.parameter_count": facts["weights"]} if facts else {}
    return {
        "modelfile": f"FROM {model.name}\n",
        "parameters": "\n".join(f"{name:<30} {each}" for name, each in values.items()),
        "template": template,
        "license": facts.get("licence") or "",
        "modified_at": _changed(path),
        "details": _details(str(facts.get("params") or ""), str(facts.get("quant") or ""), family),
        "model_info": {
            **info,
            **weights,
            **({f"{family}.context_length": n_ctx} if family else {}),
        },
        "capabilities": _capabilities(service, model, path),
    }


def _capabilities(service: Service, model: ServedModel, path: Path | None) -> list[str]:
    """Return what a model does, and by its template whether it calls tools and thinks."""
    able = service.capabilities(model)
    if path is None or model.embeds:
        return able
    with suppress(ModelFileError, ModelUnavailable):  # a list has sound models, too
        header = read_model(path)
        able += ["tools"] * offers_tools(header.tool_template)
        able += ["thinking"] * bool(thinking_tags(header.chat_template or ""))
    return able

"""What plug-ins may import: these names stay, or change with the version's first number; docs/python.md shows a plug-in.

Cheap to import: each name brings its module when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localspec.chat.events import Event, Finished, Prefilling, Reply, RoundDone, Text
    from localspec.chat.request import Request
    from localspec.cli.options import (
        SectionedCommand,
        Settings,
        complete_models,
        flag,
        flags,
        option_flags,
        require_model,
        switch,
        with_settings,
    )
    from localspec.cli.progress import ProgressLine, print_json
    from localspec.decoding.drafters.drafter import DraftForecast
    from localspec.decoding.drafters.register import DrafterContext, DrafterEntry
    from localspec.decoding.round import Draft, Round, StopReason
    from localspec.display import notice, printable_line
    from localspec.entry_points import EngineEntry, Verb
    from localspec.errors import LocalspecError, UsageError
    from localspec.messages import Message
    from localspec.models.registry import load_registry
    from localspec.options import LaunchOptions, ReplyOptions, SamplingParams, changed
    from localspec.plan.make import make_plan
    from localspec.storage.files import size_text
    from localspec.storage.paths import data_dir

_HOMES = {
    "localspec.chat.events": "Event Finished Prefilling Reply RoundDone Text",
    "localspec.chat.request": "Request",
    "localspec.cli.options": "SectionedCommand Settings complete_models flag flags option_flags require_model switch with_settings",
    "localspec.cli.progress": "ProgressLine print_json",
    "localspec.decoding.drafters.drafter": "DraftForecast",
    "localspec.decoding.drafters.register": "DrafterContext DrafterEntry",
    "localspec.decoding.round": "Draft Round StopReason",
    "localspec.display": "notice printable_line",
    "localspec.entry_points": "EngineEntry Verb",
    "localspec.errors": "LocalspecError UsageError",
    "localspec.messages": "Message",
    "localspec.models.registry": "load_registry",
    "localspec.options": "LaunchOptions ReplyOptions SamplingParams changed",
    "localspec.plan.make": "make_plan",
    "localspec.storage.files": "size_text",
    "localspec.storage.paths": "data_dir",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Draft",
    "DraftForecast",
    "DrafterContext",
    "DrafterEntry",
    "EngineEntry",
    "Event",
    "Finished",
    "LaunchOptions",
    "LocalspecError",
    "Message",
    "Prefilling",
    "ProgressLine",
    "Reply",
    "ReplyOptions",
    "Request",
    "Round",
    "RoundDone",
    "SamplingParams",
    "SectionedCommand",
    "Settings",
    "StopReason",
    "Text",
    "UsageError",
    "Verb",
    "changed",
    "complete_models",
    "data_dir",
    "flag",
    "flags",
    "load_registry",
    "make_plan",
    "notice",
    "option_flags",
    "print_json",
    "printable_line",
    "require_model",
    "size_text",
    "switch",
    "with_settings",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)

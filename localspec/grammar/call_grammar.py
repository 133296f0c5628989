"""A format of calls and the functions that may be called, as a grammar in Lark of all valid calls.

Names tell the functions apart, schemas bind their arguments. Where arguments are written one by one, they stand in
the order of their schema, so that each of them stands once; a text ends where the format ends it.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from localspec.calls import ID_SLOT, INDEX_SLOT, NAME_SLOT, CallFormat, TaggedArguments, Tool
from localspec.display import printable_line
from localspec.errors import UsageError
from localspec.grammar.compiler import require_compiles
from localspec.grammar.document import member, require_known, schema_error
from localspec.grammar.matcher import GrammarRefused, embedded_schema
from localspec.grammar.patterns import whole_pattern
from localspec.grammar.sources import enforced_schema

_SLOTS = {ID_SLOT: "/[A-Za-z0-9]{9}/", INDEX_SLOT: "/[0-9]{1,3}/"}
_TYPES = frozenset({"null", "boolean", "number", "array"})
TYPES = (*_TYPES, "object", "string", "integer")
_OF_TEXTS = frozenset({"type", "enum", "const", "pattern", "minLength", "maxLength", "$defs", "definitions"})  # fmt: skip
_MORE_PROPERTIES = frozenset({"additionalProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas"})  # fmt: skip
"""Without any of them a function takes the arguments that its schema names, and no others."""
_IN_LARK = {"/": r"\/", "\n": r"\n", "\r": r"\r", "\\\n": r"\n", "\\\r": r"\r"}
_LARK_ESCAPED = re.compile(r"\\.|[/\n\r]", re.DOTALL)
_ANNOTATIONS = frozenset({"description", "title", "default", "examples", "$comment", "deprecated"})


class CallGrammar:
    """Writes one grammar.

    Args:
        form: how calls are written.
        control: ids of control tokens by their text; a format may be made of them.
        eog: ids that end a generation: nothing can stand behind one.
    """

    def __init__(self, form: CallFormat, control: Mapping[str, int], eog: Collection[int]) -> None:
        self._form = form
        self._control = control
        self._eog = frozenset(eog)
        texts = sorted(map(re.escape, control), key=len, reverse=True)
        self._parts = re.compile("|".join((*texts, f"[{''.join((*_SLOTS, NAME_SLOT))}]")))
        self._rules: list[str] = []
        self._calls = 0

    def source(
        self, tools: Sequence[Tool], names: Collection[str], most: int | None, *, begun: bool
    ) -> str:
        """Return the grammar.

        Args:
            tools: the functions that there are.
            names: of those that may be called, at least one.
            most: calls in an answer; None for any number.
            begun: the trigger stands there already.

        Raises:
            UsageError: a schema of arguments is wrong, or cannot be kept, with the place.
        """
        form = self._form
        before, begin = form.begin.split(form.trigger, 1) if form.trigger else ("", form.begin)
        head = self._written(begin if begun else form.trigger + begin)
        head = f"{_quoted(before)}? {head}" if before and not begun else head
        calls = " | ".join(self._named(each) for each in tools if each.name in names)
        more = ""
        if form.next is not None and not self._ends(form.next) and most != 1:
            times = "*" if most is None else f"{{0,{most - 1}}}"
            more = f"({self._written(form.next)} call){times}"
        self._rules.append(f"start: {head} call {more} {self._written(form.end)}")
        self._rules.append(f"call: {calls}")
        return "\n".join(self._rules) + "\n"

    def _named(self, tool: Tool) -> str:
        """Add the rules of a function; return the name of the one that is its calls. Errors name it."""
        rules = len(self._rules)
        for each in (tool, *looser(tool)):
            try:
                return self._call(each)
            except UsageError as error:
                del self._rules[rules:]
                refusal = error
        raise tool_error(tool, refusal)

    def _call(self, tool: Tool) -> str:
        self._calls += 1
        rule = f"call_{self._calls}"
        # Some languages write null for a list or an object that is not there.
        given = {name: each for name, each in tool.parameters.items() if each is not None}
        schema = {"type": "object", **given}
        if not schema.keys() & _MORE_PROPERTIES:
            schema["additionalProperties"] = False
        tagged = self._form.tagged
        if tagged is None:
            thens = (self._form.then, *self._form.also)
            ways = [self._written(each, tool.name) or '""' for each in thens]
            arguments = f"({' | '.join(ways)}) {rule}_arguments"
            self._rules.append(f"{rule}_arguments: {_json(schema)}")
        else:
            arguments = self._pairs(rule, tool, schema, tagged)
        self._rules.append(f"{rule}: {_quoted(tool.name)} {arguments}")
        return rule

    def _pairs(
        self, rule: str, tool: Tool, schema: Mapping[str, Any], tagged: TaggedArguments
    ) -> str:
        name = tool.name
        properties = schema.get("properties", {})
        required = schema.get("required", ())
        listed = isinstance(required, list | tuple) and all(isinstance(e, str) for e in required)
        if not isinstance(properties, Mapping) or not listed or not set(required) <= {*properties}:
            raise schema_error("", f"{name} requires arguments that are not among its properties")
        definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        keys = list(properties)
        for number, key in enumerate(keys):
            place = member("", "properties", key)
            value = properties[key]
            value = {**value, **definitions} if isinstance(value, Mapping) else value
            rules = len(self._rules)
            try:
                pair = self._pair(f"{rule}_{number}", key, value, place, tagged)
            except UsageError:
                if tool.strict:
                    raise
                del self._rules[rules:]
                pair = self._pair(f"{rule}_{number}", key, by_type(value), place, tagged)
            self._rules.append(f"{rule}_{number}: {pair}")
        for at in range(len(keys), 0, -1):
            following = f"{self._written(tagged.next, keys[at - 1])} "
            self._rules.append(
                f"{rule}_after_{at}: {' | '.join(self._next(rule, keys, required, at, following))}"
            )
        first = [each for each in self._next(rule, keys, required, 0, "") if each != '""']
        some = f"{self._written(tagged.first, name)} ({' | '.join(first)})" if first else ""
        none = "" if required or tagged.none is None else self._written(tagged.none, name) or '""'
        if not some and not none:
            raise UsageError(f"the model has no way to write a call of {name} without arguments")
        return f"({' | '.join(filter(None, (some, none)))})"

    def _next(
        self, rule: str, keys: Sequence[str], required: Collection[str], at: int, before: str
    ) -> Iterator[str]:
        """Yield what may come from the argument `at` on."""
        for number in range(at, len(keys)):
            yield f"{before}{rule}_{number} {rule}_after_{number + 1}"
            if keys[number] in required:
                return
        yield '""'

    def _pair(self, rule: str, key: str, schema: Any, path: str, tagged: TaggedArguments) -> str:
        """Return how an argument is written."""
        types = schema.get("type") if isinstance(schema, dict) else None
        if types == "string" and not tagged.quoted:
            close = tagged.string.close.replace(NAME_SLOT, key)
            text = self._text(rule, schema, path, close)
            return f"{_quoted(key)} {self._written(tagged.string.open, key)} {text}"
        kind = str(types).replace("integer", "number")
        opened = tagged.other.open.replace(ID_SLOT, kind if kind in _TYPES else "object")
        close = tagged.other.close.replace(NAME_SLOT, key)
        self._rules.append(f"{rule}_value: {_json(schema)}")
        return f"{_quoted(key)} {self._written(opened, key)} {rule}_value {self._written(close)}"

    def _text(self, rule: str, schema: Mapping[str, Any], path: str, close: str) -> str:
        """Return a text that stands there as it is, and what ends it."""
        require_known(schema, path)
        for keyword in schema.keys() - _OF_TEXTS - _ANNOTATIONS:
            raise schema_error(
                path, f"{keyword} cannot be kept in a text without quotes: remove it"
            )
        if "const" in schema or "enum" in schema:
            values = schema["enum"] if "enum" in schema else [schema["const"]]
            known = [_quoted(each) or '""' for each in values if isinstance(each, str)]
            if not known:
                raise schema_error(path, "no text is allowed here: make the argument optional")
            return f"({' | '.join(known)}) {self._written(close)}"
        least, most = schema.get("minLength", 0), schema.get("maxLength", "")
        texts = (
            [f"(?s:.{{{least},{most}}})"] if least or most != "" or "pattern" not in schema else []
        )
        texts += [whole_pattern(schema["pattern"])] if "pattern" in schema else []
        name = f"{rule}_text"
        terminal = f"{name.upper()}: {' & '.join(map(_regex, texts))}"
        try:
            require_compiles(f"start: {name.upper()}\n{terminal}\n")
        except GrammarRefused as error:  # else it would be one of all tools
            raise schema_error(path, str(error)) from None
        self._rules.append(terminal)
        control = next(
            (self._control[each] for each in self._control if close.startswith(each)), None
        )
        if control is not None:
            return f"{name.upper()} {self._written(close)}"
        # The shortest one: it ends with the first `close`.
        before = self._parts.split(close)[0]
        self._rules.append(f"{name}[suffix={_quoted(before)}]: {name.upper()}")
        return f"{name} {self._written(close.removeprefix(before))}"

    def _ends(self, text: str) -> bool:
        return any(each in text for each, token in self._control.items() if token in self._eog)

    def _written(self, text: str, name: str = "") -> str:
        """Return a text of the format, up to where it would end the answer."""
        parts, at = list[str](), 0
        for part in self._parts.finditer(text):
            parts.append(_quoted(text[at : part.start()]))
            at = part.end()
            if part[0] in self._control:
                token = self._control[part[0]]
                if token in self._eog:
                    return " ".join(filter(None, parts))
                parts.append(f"<[{token}]>")
            else:
                parts.append(_quoted(name) if part[0] == NAME_SLOT else _SLOTS[part[0]])
        return " ".join(filter(None, (*parts, _quoted(text[at:]))))


def tool_error(tool: Tool, error: Exception) -> UsageError:
    """Return an error about a function, with its name."""
    return UsageError(f"tool {printable_line(tool.name)[:60]}: {error}")


def looser(tool: Tool) -> Iterator[Tool]:
    """Yield a function that cannot be kept with fewer and fewer bounds; nothing where that would be an error."""
    if tool.strict:
        return
    parameters = tool.parameters
    definitions = {key: parameters[key] for key in ("$defs", "definitions") if key in parameters}
    properties = _properties(tool)
    kept = {key: _kept(value, definitions) for key, value in properties.items()}
    yield replace(tool, parameters={**parameters, "properties": kept})
    yield loosened(tool)
    yield replace(tool, parameters={"type": "object", "additionalProperties": True})


def _kept(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return the schema of an argument, or only its type where it cannot be kept."""
    try:
        enforced_schema({**schema, **definitions} if isinstance(schema, Mapping) else schema)
    except UsageError:
        return by_type(schema)
    return schema


def loosened(tool: Tool) -> Tool:
    """Return a function whose arguments have their names, and may be anything of their types."""
    types = {name: by_type(each) for name, each in _properties(tool).items()}
    needed = tool.parameters.get("required")
    required = [each for each in types if isinstance(needed, list) and each in needed]
    return replace(tool, parameters={"type": "object", "properties": types, "required": required})


def by_type(schema: Any) -> dict[str, Any]:
    """Return the schema of anything of a schema's type."""
    kinds = schema.get("type") if isinstance(schema, Mapping) else None
    listed = kinds if isinstance(kinds, list) else [kinds]
    return {"type": kinds} if listed and all(each in TYPES for each in listed) else {}


def _properties(tool: Tool) -> Mapping[str, Any]:
    properties = tool.parameters.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""


def _regex(text: str) -> str:
    """Return a regular expression as Lark writes it: slashes are escaped, and it is on one line."""
    return f"/{_LARK_ESCAPED.sub(lambda each: _IN_LARK.get(each[0], each[0]), text)}/"


def _json(schema: Any) -> str:
    return f"%json {embedded_schema(enforced_schema(schema))}"

"""A JSON schema; whatever grammar comes of it has to be sound itself."""

from localspec.structured.gbnf import read_gbnf
from localspec.structured.json_schema import schema_from_text, schema_gbnf
from localspec.structured.soundness import require_sound
from localspec.structured.unrolling import unrolled

SEEDS = tuple(
    each.encode()
    for each in (
        '{"type": "object", "properties": {"a": {"type": "integer", "minimum": -5, "maximum": 999}}, "required": ["a"]}',
        '{"type": "array", "items": {"$ref": "#/$defs/x"}, "minItems": 1, "maxItems": 3, "$defs": {"x": {"enum": [1, "a", null]}}}',
        '{"anyOf": [{"type": "string", "pattern": "^[a-z]{2,4}(x|y)?$"}, {"const": {"a": [1.5]}}]}',
        '{"type": ["string", "null"], "minLength": 2, "maxLength": 9, "format": "date-time"}',
        '{"$ref": "#", "type": "number", "exclusiveMinimum": 0.5, "multipleOf": 3}',
        '{"allOf": [{"properties": {"b": true}}, {"additionalProperties": false}], "type": "object"}',
        '{"oneOf": [{"type": "integer"}, {"type": "boolean"}], "title": "t", "description": "d"}',
        '{"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"items": {"$ref": "#/properties/b"}}}, "required": ["b"]}',
        '{"anyOf": [{"type": "null"}, {"allOf": [{"$ref": "#/$defs/x"}]}], "$defs": {"x": {"properties": {"next": {"$ref": "#"}}}}}',
    )
)


def run(data: bytes) -> None:
    gbnf = schema_gbnf(schema_from_text(data.decode(errors="replace")))
    read_gbnf(gbnf)
    require_sound(unrolled(gbnf))

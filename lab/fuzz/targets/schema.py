"""A JSON schema: it is kept, or refused by name and place."""

from localspec.grammar import require_sound
from localspec.options import ReplyOptions

MOST_S = 10.0
"""llguidance's own limits end what would take long; they count steps, not seconds."""

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
        '{"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {}, "b": {"format": "date"}}, "dependencies": {"a": ["c"]}}',
        '{"patternProperties": {"^x[^\\\\s]": {"minimum": 1e300}}, "minProperties": 1, "unevaluatedProperties": false}',
        '{"anyOf": [{"type": "null"}, {"allOf": [{"$ref": "#/$defs/x"}]}], "$defs": {"x": {"properties": {"next": {"$ref": "#"}}}}}',
    )
)


def run(data: bytes) -> None:
    require_sound(ReplyOptions(json_schema=data.decode(errors="replace")))

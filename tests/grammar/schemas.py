"""Twenty JSON schemas of the kinds that people use, and what to ask a model for each."""

from typing import Any, NamedTuple


class Asked(NamedTuple):
    name: str
    prompt: str
    schema: dict[str, Any]


def obj(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    """Return a closed object; by default all its properties are required."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
        "additionalProperties": False,
    }


BOOLEAN = {"type": "boolean"}

ASKED = (
    Asked(
        "person",
        "Extract the person as JSON: Maria Gomez, 34, lives in Porto and works as a nurse.",
        obj(
            name={"type": "string", "minLength": 1, "maxLength": 40},
            age={"type": "integer", "minimum": 0, "maximum": 130},
            city={"type": "string", "maxLength": 40},
            job={"type": "string", "maxLength": 40},
        ),
    ),
    Asked(
        "sentiment",
        "Classify this review: 'The battery lasts two days, but the screen scratches easily.'",
        obj(
            sentiment={"enum": ["positive", "neutral", "negative", "mixed"]},
            confidence={"type": "number", "minimum": 0, "maximum": 1},
            reasons={
                "type": "array",
                "items": {"type": "string", "maxLength": 60},
                "minItems": 1,
                "maxItems": 3,
            },
        ),
    ),
    Asked(
        "recipe",
        "Give a short recipe for pancakes as JSON.",
        obj(
            title={"type": "string", "maxLength": 60},
            servings={"type": "integer", "minimum": 1, "maximum": 12},
            ingredients={
                "type": "array",
                "minItems": 2,
                "maxItems": 6,
                "items": obj(
                    name={"type": "string", "maxLength": 30},
                    amount={"type": "number", "exclusiveMinimum": 0, "maximum": 5000},
                    unit={"enum": ["g", "ml", "piece", "tsp", "tbsp", "cup"]},
                ),
            },
            steps={
                "type": "array",
                "items": {"type": "string", "maxLength": 90},
                "minItems": 2,
                "maxItems": 4,
            },
        ),
    ),
    Asked(
        "pydantic-order",
        "Make up an order of two items, as JSON.",
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Order",
            "type": "object",
            "properties": {
                "id": {"type": "string", "format": "uuid"},
                "placed": {"type": "string", "format": "date-time"},
                "customer": {"$ref": "#/$defs/Customer"},
                "lines": {
                    "type": "array",
                    "items": {"$ref": "#/$defs/Line"},
                    "minItems": 1,
                    "maxItems": 3,
                },
                "note": {
                    "anyOf": [{"type": "string", "maxLength": 50}, {"type": "null"}],
                    "default": None,
                },
            },
            "required": ["id", "placed", "customer", "lines"],
            "$defs": {
                "Customer": {
                    "type": "object",
                    "title": "Customer",
                    "properties": {
                        "name": {"type": "string", "maxLength": 40},
                        "email": {"type": "string", "format": "email"},
                    },
                    "required": ["name", "email"],
                },
                "Line": {
                    "type": "object",
                    "title": "Line",
                    "properties": {
                        "sku": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"},
                        "quantity": {"type": "integer", "minimum": 1, "maximum": 99},
                        "price": {"type": "number", "minimum": 0.01, "maximum": 999.99},
                    },
                    "required": ["sku", "quantity", "price"],
                },
            },
        },
    ),
    Asked(
        "tree",
        "Describe a small family tree of three people as JSON.",
        {
            "$ref": "#/$defs/node",
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "maxLength": 20},
                        "children": {
                            "type": "array",
                            "items": {"$ref": "#/$defs/node"},
                            "maxItems": 2,
                        },
                    },
                    "required": ["name", "children"],
                    "additionalProperties": False,
                }
            },
        },
    ),
    Asked(
        "shapes",
        "Give two shapes, a circle and a rectangle, as JSON.",
        {
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": {
                "oneOf": [
                    {
                        "type": "object",
                        "properties": {
                            "kind": {"const": "circle"},
                            "radius": {"type": "number", "exclusiveMinimum": 0, "maximum": 100},
                        },
                        "required": ["kind", "radius"],
                    },
                    {
                        "type": "object",
                        "properties": {
                            "kind": {"const": "rectangle"},
                            "width": {"type": "number", "minimum": 1, "maximum": 50},
                            "height": {"type": "number", "minimum": 1, "maximum": 50},
                        },
                        "required": ["kind", "width", "height"],
                    },
                ]
            },
        },
    ),
    Asked(
        "tool-call",
        "What is the weather in Paris in celsius? Call the tool.",
        {
            "anyOf": [
                obj(
                    tool={"const": "get_weather"},
                    arguments=obj(
                        ["city"],
                        city={"type": "string", "maxLength": 40},
                        unit={"enum": ["celsius", "fahrenheit"]},
                    ),
                ),
                obj(tool={"const": "none"}, reason={"type": "string", "maxLength": 80}),
            ]
        },
    ),
    Asked(
        "translations",
        "Translate 'good morning' into Japanese, Greek and French, as JSON.",
        obj(
            ja={"type": "string", "maxLength": 30},
            el={"type": "string", "maxLength": 30},
            fr={"type": "string", "maxLength": 30},
        ),
    ),
    Asked(
        "unicode-keys",
        "Gib die Größe und den Preis eines Tisches als JSON an.",
        {
            "type": "object",
            "properties": {
                "größe": {"type": "integer", "minimum": 10, "maximum": 300},
                "preis €": {"type": "number", "minimum": 0, "maximum": 10000},
                'größe "neu"': BOOLEAN,
            },
            "required": ["größe", "preis €"],
            "additionalProperties": False,
        },
    ),
    Asked(
        "config",
        "Write a server configuration as JSON.",
        obj(
            ["host", "port"],
            host={"type": "string", "format": "hostname"},
            port={"type": "integer", "minimum": 1, "maximum": 65535},
            tls=BOOLEAN,
            level={"enum": ["debug", "info", "warn", "error"]},
            workers={"type": ["integer", "null"], "minimum": 1, "maximum": 64},
        ),
    ),
    Asked(
        "labels",
        "Which of bug, docs, ui, perf fit 'The page renders slowly and the button is misplaced'?",
        obj(
            labels={
                "type": "array",
                "items": {"enum": ["bug", "docs", "ui", "perf"]},
                "uniqueItems": True,
                "minItems": 1,
            },
            priority={"type": "integer", "enum": [1, 2, 3]},
        ),
    ),
    Asked(
        "geojson",
        "Give the location of Lisbon as GeoJSON.",
        obj(
            type={"const": "Feature"},
            geometry=obj(
                type={"const": "Point"},
                coordinates={
                    "type": "array",
                    "prefixItems": [
                        {"type": "number", "minimum": -180, "maximum": 180},
                        {"type": "number", "minimum": -90, "maximum": 90},
                    ],
                    "items": False,
                    "minItems": 2,
                },
            ),
            properties=obj(name={"type": "string", "maxLength": 40}),
        ),
    ),
    Asked(
        "calendar",
        "Put a one-hour meeting with Ana and Ben on 2026-03-05 at 10:00 UTC.",
        obj(
            ["title", "start"],
            title={"type": "string", "maxLength": 50},
            start={"type": "string", "format": "date-time"},
            day={"type": "string", "format": "date"},
            minutes={"type": "integer", "minimum": 15, "maximum": 480, "multipleOf": 15},
            people={"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 4},
        ),
    ),
    Asked(
        "map-of-scores",
        "Rate apples, pears and plums from 0 to 10, as JSON.",
        {
            "type": "object",
            "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 10},
            "minProperties": 1,
            "maxProperties": 5,
        },
    ),
    Asked(
        "open-object",
        "Describe a bicycle as JSON with a name and anything else.",
        {
            "type": "object",
            "properties": {"name": {"type": "string", "maxLength": 30}},
            "required": ["name"],
            "additionalProperties": {"type": ["string", "number", "boolean"], "maxLength": 30},
            "maxProperties": 5,
        },
    ),
    Asked(
        "inheritance",
        "Describe an employee with name, email and salary as JSON.",
        {
            "allOf": [
                {"$ref": "#/definitions/person"},
                {
                    "type": "object",
                    "properties": {
                        "salary": {"type": "integer", "minimum": 1000, "maximum": 500000},
                        "name": {"maxLength": 30},
                    },
                    "required": ["salary"],
                },
            ],
            "definitions": {
                "person": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "minLength": 2},
                        "email": {"type": "string", "format": "email"},
                    },
                    "required": ["name"],
                }
            },
        },
    ),
    Asked(
        "chess-move",
        "Give one opening chess move with a comment, as JSON.",
        obj(
            move={
                "type": "string",
                "pattern": "^([KQRBN]?[a-h]?[1-8]?x?[a-h][1-8](=[QRBN])?[+#]?|O-O(-O)?)$",
            },
            comment={"type": "string", "maxLength": 60},
        ),
    ),
    Asked(
        "matrix",
        "Give a 2 by 2 matrix of numbers as JSON.",
        {
            "type": "array",
            "minItems": 2,
            "maxItems": 2,
            "items": {
                "type": "array",
                "items": {"type": "number", "minimum": -10, "maximum": 10},
                "minItems": 2,
                "maxItems": 2,
            },
        },
    ),
    Asked(
        "quiz",
        "Write a quiz question about planets with three choices, as JSON.",
        obj(
            question={"type": "string", "maxLength": 90},
            choices={
                "type": "array",
                "items": {"type": "string", "maxLength": 25},
                "minItems": 3,
                "maxItems": 3,
            },
            answer={"type": "integer", "minimum": 0, "maximum": 2},
            source={"type": "string", "format": "uri"},
        ),
    ),
    Asked(
        "yes-no",
        "Is the sky blue on a clear day? Answer as JSON.",
        {
            "type": "object",
            "properties": {
                "answer": {"type": "boolean"},
                "why": {"type": "string", "minLength": 5, "maxLength": 80},
            },
            "required": ["answer", "why"],
        },
    ),
)

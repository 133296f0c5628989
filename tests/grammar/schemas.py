"""JSON schemas of the kinds that people use, and a question to a model for each."""

from typing import Any, NamedTuple

Schema = dict[str, Any]


class Asked(NamedTuple):
    name: str
    prompt: str
    schema: Schema


def obj(required: list[str] | None = None, **properties: Any) -> Schema:
    """Return a closed object; by default all its properties are required."""
    names = list(properties) if required is None else required
    return {**typed("object", properties=properties, required=names), "additionalProperties": False}


def text(most: int, least: int = 0) -> Schema:
    return {"type": "string", **({"minLength": least} if least else {}), "maxLength": most}


def whole(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def number(least: float, most: float) -> Schema:
    return {"type": "number", "minimum": least, "maximum": most}


def some(items: Schema, most: int, least: int = 0) -> Schema:
    bounds = {**({"minItems": least} if least else {}), "maxItems": most}
    return {"type": "array", "items": items, **bounds}


def typed(name: str, **more: Any) -> Schema:
    return {"type": name, **more}


def kind(of: str, **properties: Any) -> Schema:
    return typed("object", properties={"kind": {"const": of}, **properties}, required=["kind", *properties])  # fmt: skip


BOOLEAN = {"type": "boolean"}

ASKED = (
    Asked(
        "person", "Extract the person as JSON: Maria Gomez, 34, lives in Porto and works as a nurse.",
        obj(name=text(40, 1), age=whole(0, 130), city=text(40), job=text(40)),
    ),
    Asked(
        "recipe", "Give a short recipe for pancakes as JSON.",
        obj(
            title=text(60), servings=whole(1, 12),
            ingredients=some(obj(
                name=text(30), amount=typed("number", exclusiveMinimum=0, maximum=5000),
                unit={"enum": ["g", "ml", "piece", "tsp", "tbsp", "cup"]},
            ), 6, 2),
            steps=some(text(90), 4, 2),
        ),
    ),
    Asked(
        "pydantic-order", "Make up an order of two items, as JSON.",
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Order", "type": "object",
            "properties": {
                "id": typed("string", format="uuid"), "placed": typed("string", format="date-time"),
                "customer": {"$ref": "#/$defs/Customer"}, "lines": some({"$ref": "#/$defs/Line"}, 3, 1),
                "note": {"anyOf": [text(50), {"type": "null"}], "default": None},
            },
            "required": ["id", "placed", "customer", "lines"],
            "$defs": {
                "Customer": typed(
                    "object", title="Customer", properties={"name": text(40), "email": typed("string", format="email")},
                    required=["name", "email"],
                ),
                "Line": typed(
                    "object", title="Line", required=["sku", "quantity", "price"],
                    properties={
                        "sku": typed("string", pattern="^[A-Z]{3}-[0-9]{4}$"), "quantity": whole(1, 99), "price": number(0.01, 999.99),
                    },
                ),
            },
        },
    ),
    Asked(
        "shapes", "Give two shapes, a circle and a rectangle, as JSON.",
        some({"oneOf": [
            kind("circle", radius=typed("number", exclusiveMinimum=0, maximum=100)),
            kind("rectangle", width=number(1, 50), height=number(1, 50)),
        ]}, 3, 1),
    ),
    Asked(
        "unicode-keys", "Gib die Größe und den Preis eines Tisches als JSON an.",
        obj(["größe", "preis €"], **{"größe": whole(10, 300), "preis €": number(0, 10000), 'größe "neu"': BOOLEAN}),
    ),
    Asked(
        "labels", "Which of bug, docs, ui, perf fit 'The page renders slowly and the button is misplaced'?",
        obj(labels=some({"enum": ["bug", "docs", "ui", "perf"]}, 4, 1), priority=typed("integer", enum=[1, 2, 3])),
    ),
    Asked(
        "geojson", "Give the location of Lisbon as GeoJSON.",
        obj(
            type={"const": "Feature"},
            geometry=obj(
                type={"const": "Point"},
                coordinates=typed("array", prefixItems=[number(-180, 180), number(-90, 90)], items=False, minItems=2),
            ),
            properties=obj(name=text(40)),
        ),
    ),
    Asked(
        "map-of-scores", "Rate apples, pears and plums from 0 to 10, as JSON.",
        typed("object", additionalProperties=whole(0, 10), minProperties=1, maxProperties=5),
    ),
    Asked(
        "open-object", "Describe a bicycle as JSON with a name and anything else.",
        typed(
            "object", properties={"name": text(30)}, required=["name"], maxProperties=5,
            additionalProperties={"type": ["string", "number", "boolean"], "maxLength": 30},
        ),
    ),
    Asked(
        "inheritance", "Describe an employee with name, email and salary as JSON.",
        {
            "allOf": [
                {"$ref": "#/definitions/person"},
                typed("object", properties={"salary": whole(1000, 500000), "name": {"maxLength": 30}}, required=["salary"]),
            ],
            "definitions": {"person": typed(
                "object", properties={"name": typed("string", minLength=2), "email": typed("string", format="email")}, required=["name"],
            )},
        },
    ),
    Asked(
        "chess-move", "Give one opening chess move with a comment, as JSON.",
        obj(
            move=typed("string", pattern="^([KQRBN]?[a-h]?[1-8]?x?[a-h][1-8](=[QRBN])?[+#]?|O-O(-O)?)$"), comment=text(60),
        ),
    ),
)  # fmt: skip

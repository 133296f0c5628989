"""Ten more JSON schemas, as programs send them: long names, constants, unions, references, much that is forced."""

from tests.grammar.schemas import BOOLEAN, Asked, obj

_SHORT = {"type": "string", "maxLength": 40}
_DAY = {"type": "string", "format": "date"}

MORE = (
    Asked(
        "weather-tool",
        "Call the weather tool for Lisbon tomorrow, in metric units.",
        obj(
            tool_name={"const": "get_weather_forecast"},
            arguments=obj(
                location_name=_SHORT,
                measurement_system={"enum": ["metric", "imperial"]},
                include_hourly_forecast=BOOLEAN,
            ),
        ),
    ),
    Asked(
        "invoice",
        "Extract: invoice 2026-118 of 3 May 2026, 2 chairs at 49.90 euros each.",
        obj(
            invoice_number=_SHORT,
            invoice_date=_DAY,
            currency_code={"enum": ["EUR", "USD", "GBP"]},
            line_items={
                "type": "array",
                "minItems": 1,
                "maxItems": 2,
                "items": obj(
                    description=_SHORT,
                    quantity_ordered={"type": "integer", "minimum": 1, "maximum": 999},
                    unit_price={"type": "number", "minimum": 0, "maximum": 10000},
                ),
            },
        ),
    ),
    Asked(
        "review",
        "Judge this change: 'rename a variable and fix an off-by-one error'.",
        obj(
            requires_changes=BOOLEAN,
            severity_of_findings={"enum": ["none", "minor", "major", "critical"]},
            summary_for_author={"type": "string", "maxLength": 80},
        ),
    ),
    Asked(
        "route",
        "A customer writes: 'my parcel never came'. Which team, and how urgent?",
        obj(
            assigned_department={"enum": ["billing", "delivery", "returns", "technical"]},
            priority_level={"type": "integer", "minimum": 1, "maximum": 5},
            needs_human_attention=BOOLEAN,
        ),
    ),
    Asked(
        "event",
        "Describe the event that a user signed up, as JSON.",
        {
            "oneOf": [
                obj(event_type={"const": "user_signed_up"}, user_identifier=_SHORT),
                obj(event_type={"const": "user_deleted"}, reason_for_leaving=_SHORT),
            ]
        },
    ),
    Asked(
        "citation",
        "Cite Einstein's 1905 paper on special relativity.",
        {
            "type": "object",
            "properties": {
                "authors": {"type": "array", "items": {"$ref": "#/$defs/author"}, "maxItems": 2},
                "publication_year": {"type": "integer", "minimum": 1600, "maximum": 2026},
                "title_of_work": {"type": "string", "maxLength": 80},
            },
            "required": ["authors", "publication_year", "title_of_work"],
            "additionalProperties": False,
            "$defs": {"author": obj(given_name=_SHORT, family_name=_SHORT)},
        },
    ),
    Asked(
        "settings",
        "Give sensible settings of a small web server.",
        obj(
            listen_address={"type": "string", "format": "ipv4"},
            port_number={"type": "integer", "minimum": 1, "maximum": 65535},
            enable_compression=BOOLEAN,
            log_level={"enum": ["debug", "info", "warning", "error"]},
            maximum_connections={"type": "integer", "minimum": 1, "maximum": 10000},
        ),
    ),
    Asked(
        "medication",
        "Extract: ibuprofen, 400 mg, three times a day, with food.",
        obj(
            medication_name=_SHORT,
            dose_in_milligrams={"type": "integer", "minimum": 1, "maximum": 5000},
            times_per_day={"type": "integer", "minimum": 1, "maximum": 12},
            take_with_food=BOOLEAN,
        ),
    ),
    Asked(
        "entities",
        "Find the names in: 'Ada Lovelace met Charles Babbage in London'.",
        obj(
            people_mentioned={"type": "array", "items": _SHORT, "maxItems": 3},
            places_mentioned={"type": "array", "items": _SHORT, "maxItems": 3},
            contains_dates=BOOLEAN,
        ),
    ),
    Asked(
        "grade",
        "Grade this answer out of ten: 'The capital of Australia is Sydney.'",
        obj(
            score_out_of_ten={"type": "integer", "minimum": 0, "maximum": 10},
            explanation_of_score={"type": "string", "minLength": 5, "maxLength": 80},
            is_factually_correct=BOOLEAN,
        ),
    ),
)

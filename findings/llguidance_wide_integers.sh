#!/bin/sh
# A JSON schema whose enum lists 64-bit ids makes llguidance write ids that are not in the enum, and forbids those that are.
#
# One would guess: an enum is a list of texts to a mask, so the worst that a wide number can be is refused; and since serde_json
# keeps 64-bit integers, and the largest of them comes out right, all of them do.
# What happens: numbers of const and enum are spelled through a double, without error or warning. From 2^53 on the last digits
# change (1234567890123456789 is forced as …6768, and beyond 2^63 zeros stand at the end), two ids that are neighbours become one text, and the true text
# is not allowed at any temperature. 9223372036854775807 is right by luck: its double is 2^63, which is clamped back. A minimum of
# 2^53 + 1 lets 2^53 through. So every answer is invalid under the schema that made it, and a test with the largest integer of
# 64 bits, or with ids below 2^53, sees nothing.
# Version: llguidance 1.9.1, judged by jsonschema 4.25.1. 29 November 2026.
# Who meets it: tools that let a model choose among snowflake ids (Discord, X), trace ids, or hashes as numbers.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q llguidance==1.9.1 jsonschema==4.25.1 > pip.log 2>&1
cat > ids.py <<'PYTHON'
import json
import sys

import jsonschema
import llguidance
from llguidance import LLMatcher, LLTokenizer

BYTES = LLTokenizer("byte")


def matcher(schema):
    made = LLMatcher(BYTES, LLMatcher.grammar_from_json_schema(json.dumps(schema)), log_level=0)
    assert not made.is_error(), made.get_error()
    return made


def allows(schema, text):
    tokens, made = list(text.encode()), matcher(schema)
    return made.try_consume_tokens(tokens) == len(tokens) and made.is_accepting()


def valid(schema, text):
    return jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))


print("llguidance", llguidance.__version__)
seen = []
for value in (1234567890123456789, 2**53 + 1, 2**64 - 1, 2**63 - 1):
    schema = {"const": value}
    forced = matcher(schema).compute_ff_bytes().decode()
    seen.append((allows(schema, str(value)), valid(schema, forced)))
    print(f"const {value}: forces {forced}; valid {seen[-1][1]}; the value itself is allowed {seen[-1][0]}")
ids = {"enum": [1234567890123456789, 1234567890123456790]}
texts = [text for text in ("1234567890123456789", "1234567890123456790", "1234567890123456768") if allows(ids, text)]
print(f"enum of two ids: allows {texts}; valid {[valid(ids, text) for text in texts]}")
least = {"type": "integer", "minimum": 2**53 + 1}
below = allows(least, str(2**53))
print(f"minimum {2**53 + 1}: allows {2**53}: {below}")
as_described = seen == [(False, False)] * 3 + [(True, True)] and texts == ["1234567890123456768"] and below
sys.exit(0 if as_described else 1)
PYTHON
venv/bin/python ids.py

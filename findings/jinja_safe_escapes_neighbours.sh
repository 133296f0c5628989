#!/bin/sh
# In jinja2 with autoescape off, the filter `safe` is what turns HTML escaping on: for everything that is added to its result.
#
# One would guess: without autoescape nothing is ever escaped, so `safe` in a chat template is a leftover without effect, and an
# implementation may ignore it (llama.cpp's does, so its prompts are other ones than those of jinja2 for the same template and tools).
# What happens: `safe` returns a Markup, whose `+` escapes the other operand, on the left as well as on the right: quotes become
# &#34;, ' becomes &#39;, & becomes &amp;. `~` does so only with autoescape on. So `"Use '"|safe + name + "': " + description` of Functionary
# 3.1 shows a model &#34; wherever a description or a schema has a quote, and `name + '[ARGS]' + (arguments|tojson|safe)` of
# Ministral 3 escapes a name that stands before the part that was called safe. A text without quotes, < and & shows no difference,
# and `safe` at the end of an expression none either, so a template's own examples look right.
# Version: jinja2 3.1.6, markupsafe 3.0.3. 29 November 2026.
# Who meets it: whoever renders chat templates with Hugging Face's settings of jinja2 (ImmutableSandboxedEnvironment, no autoescape), and
# whoever compares prompts or token counts between that and another engine.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q jinja2==3.1.6 markupsafe==3.0.3 > pip.log 2>&1
cat > safe.py <<'PYTHON'
import json
import sys

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
environment.filters["tojson"] = lambda value: json.dumps(value)
tool = {"name": "find", "description": 'See "A & B"'}


def rendered(source):
    return environment.from_string(source).render(tool=tool)


cases = {
    "plain": ('{{ "Use " + tool.description }}', 'Use See "A & B"'),
    "safe before": ('{{ "Use "|safe + tool.description }}', "Use See &#34;A &amp; B&#34;"),
    "safe behind": ('{{ tool.description + "!"|safe }}', "See &#34;A &amp; B&#34;!"),
    "of JSON": ('{{ "Use "|safe + tool|tojson }}', None),
    "joined by ~": ('{{ "Use "|safe ~ tool.description }}', 'Use See "A & B"'),
    "safe at the end": ("{{ tool.description|safe }}", 'See "A & B"'),
}
print("jinja2", jinja2.__version__, "autoescape", environment.autoescape)
as_described = environment.autoescape is False
for name, (source, expected) in cases.items():
    text = rendered(source)
    print(f"{name:16} {source:44} {text}")
    as_described &= "&#34;" in text if expected is None else text == expected
print("as described" if as_described else "it has changed")
sys.exit(not as_described)
PYTHON
venv/bin/python safe.py

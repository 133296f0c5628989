"""What an answer has to look like (a JSON schema, a grammar, a regular expression), and which tokens may follow for that.

The only importer of llguidance, which does the parsing and the masks; it is loaded with the first such answer.
"""

from localspec.grammar.grammars import Grammars, require_arguments, require_sound

__all__ = ["Grammars", "require_arguments", "require_sound"]

"""A grammar, in GBNF, in Lark, or as a regular expression: the first byte says which."""

from localspec.grammar import require_sound
from localspec.options import ReplyOptions

MOST_S = 10.0
"""llguidance's own limits end what would take long; they count steps, not seconds."""

SEEDS = (
    b'groot ::= "a" [b-z]* ("x" | item{2,5})? # c\nitem ::= "\\x41" | [^\\n"]+\n',
    b'groot ::= object\nobject ::= "{" ws (string ":" value ("," string ":" value)*)? "}"\nstring ::= "\\"" [^"]* "\\""\nvalue ::= object | string\nws ::= [ \\t]{0,20}\n',
    b'groot ::= a\na ::= b? "y"\nb ::= "x"\n',
    b"groot ::= ((.{0,20}){1,3})",
    b'groot ::= "\\U0001F600" [\\u00e9-\\U0010FFFF] <think> !a\n',
    b'lstart: "a" B+ c?\nB: /[0-9]{2,3}/ | "x"i\nc: "(" c ")" | %json {"type": "integer"}\n%ignore / /\n',
    b"lstart: <think> a[lazy, max_tokens=3] // c\na: /(?s:.*)/ & ~/b+/\n",
    rb"r(a|b{2,3})*[^\d\s]+(?i:x)\u{e9}\p{L}",
)


def run(data: bytes) -> None:
    text = data[1:].decode(errors="replace")
    match data[:1]:
        case b"l":
            require_sound(ReplyOptions(lark=text))
        case b"r":
            require_sound(ReplyOptions(regex=text))
        case _:
            require_sound(ReplyOptions(grammar=text))

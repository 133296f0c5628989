"""A grammar in GBNF."""

from localspec.structured.soundness import require_sound

SEEDS = (
    b'root ::= "a" [b-z]* ("x" | item{2,5})? # c\nitem ::= "\\x41" | [^\\n"]+\n',
    b'root ::= object\nobject ::= "{" ws (string ":" value ("," string ":" value)*)? "}"\nstring ::= "\\"" [^"]* "\\""\nvalue ::= object | string\nws ::= [ \\t]{0,20}\n',
    b'root ::= a\na ::= b | ""\nb ::= a "x"\n',
    b"root ::= (((((.{0,2000}){3,2}){1,})))",
    b'root ::= "\\U0001F600" [\\u00e9-\\U0010FFFF] <think> !a\n',
)


def run(data: bytes) -> None:
    require_sound(data.decode(errors="replace"))

"""GateRule: what must not be seen, and the rules that localspec has: known forms of keys, random texts, addresses and numbers.

Sources: the makers' own descriptions of their keys, and what public scanners of repositories look for. A key is known by
what it begins with wherever there is such a beginning, so that it needs no guess.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from localspec.gates.randomness import bits_of, is_random, kinds_of

Check = Callable[[str, str], bool]
"""Whether a head and what follows it are what they look like."""
OWN = "own"
"""The group of users' own rules."""
_WORD, _LETTERS, _URLSAFE = r"A-Za-z0-9_", r"A-Za-z0-9", r"A-Za-z0-9_-"


@dataclass(frozen=True, slots=True)
class GateRule:
    """A pattern, and what stands around it; see `patterns`. Head and body are what matches.

    Args:
        name: what people read where it was masked.
        group: what it belongs to: `secrets`, `email`, `telephone`, `payment`, or `own`.
        body: what is not to be seen; a part of it neither, where the text ends in it.
        head: what it begins with; where a body may begin like the rest of it, the shorter alternative comes first.
        before: characters that do not stand before it.
        after: characters that do not stand behind it.
        tail: characters behind it that belong to it, however many there are; a full stop only where another follows.
        end: what ends them, itself one of them; empty if only another character does.
        shows_head: whether the head is no secret.
        check: whether a match is one; None where the pattern suffices.
        telling: so many characters of a body, where the text ends in it, are one without the check; 0 leaves it to that.
    """

    name: str
    group: str
    body: str
    head: str = ""
    before: str = ""
    after: str = ""
    tail: str = ""
    end: str = ""
    shows_head: bool = False
    check: Check | None = None
    telling: int = 0

    @property
    def is_named(self) -> bool:
        """Whether its beginning tells what it is."""
        return bool(self.head) and self.check is None


_SPELLED = re.compile(r"(?i)(example|sample|changeme|placeholder|your|xxxx|\.\.\.|<|\$\{|%\()")


def is_password(_: str, body: str) -> bool:
    """Return whether what is assigned to a name like `password` looks like one: digits among letters, which repeat little."""
    kinds = set(kinds_of(body))
    return (
        "0" in kinds
        and bool(kinds & {"a", "A"})
        and bits_of(body) >= 2.2
        and not _SPELLED.search(body)
    )


def is_card(head: str, body: str) -> bool:
    """Return whether the digits of a number add up as those of payment cards do. Source: ISO/IEC 7812, Luhn."""
    digits = [int(each) for each in head + body if each.isdigit()][::-1]
    doubled = [sum(divmod(2 * each, 10)) for each in digits[1::2]]
    return len(set(digits)) > 1 and (sum(digits[::2]) + sum(doubled)) % 10 == 0


def is_account(head: str, body: str) -> bool:
    """Return whether the check digits of an account number are right. Source: ISO 13616, modulo 97."""
    text = "".join((head + body).split())
    return int("".join(str(int(each, 36)) for each in text[4:] + text[:4])) % 97 == 1


def is_telephone(head: str, body: str) -> bool:
    """Return whether a number has as many digits as telephone numbers do. Source: ITU-T E.164."""
    digits = [each for each in head + body if each.isdigit()]
    return 8 <= len(digits) <= 15 and len(set(digits)) > 2


def is_address(head: str, body: str) -> bool:
    """Return whether the name of a host ends like one: in a text of letters that is no name of a file."""
    is_file = _FILE.fullmatch(body.rpartition(".")[2])
    return not head.startswith((".", "-")) and ".." not in head and not is_file


_FILE = re.compile("py|js|ts|md|txt|html|css|json|png|svg|jpg|gif|service", re.IGNORECASE)


def _key(name: str, head: str, body: str, tail: str = "", *, before: str = "") -> GateRule:
    return GateRule(name, "secrets", body, head, before=before, tail=tail)


_BEGINNINGS = (
    _key("GitHub token", "gh[pousr]_", f"[{_LETTERS}]{{36}}", _LETTERS),
    _key("GitHub token", "github_pat_", f"[{_LETTERS}]{{22}}_[{_LETTERS}]{{40}}", _WORD),
    _key("GitLab token", "gl(pat|dt|rt|cbt|ptt|soat)-", f"[{_URLSAFE}]{{20}}", f".{_URLSAFE}"),
    _key("AWS access key", "A(KIA|SIA|BIA|CCA)", "[A-Z2-7]{16}", before=_LETTERS),
    _key("Slack token", "xox[abeoprs]-", f"[{_URLSAFE}]{{10}}", _URLSAFE),
    _key("Slack token", "xapp-[0-9]-", f"[{_URLSAFE}]{{16}}", _URLSAFE),
    _key("Slack webhook", r"hooks\.slack\.com/(services|workflows)/", f"[{_LETTERS}/]{{20}}", f"{_LETTERS}/"),
    _key("Anthropic key", "sk-ant-", f"[{_URLSAFE}]{{24}}", _URLSAFE),
    _key("OpenAI key", "sk-(proj|svcacct|admin)-", f"[{_URLSAFE}]{{24}}", _URLSAFE),
    _key("API key", "sk-(|or-v1-)", f"[{_LETTERS}]{{32}}", _LETTERS, before=_LETTERS),
    _key("Google key", "AIza", f"[{_URLSAFE}]{{35}}", _URLSAFE),
    _key("Google secret", "GOCSPX-", f"[{_URLSAFE}]{{28}}", _URLSAFE),
    _key("Hugging Face token", "hf_", f"[{_LETTERS}]{{34}}", _LETTERS, before=_LETTERS),
    _key("Stripe key", "[rs]k_(live|test)_", f"[{_LETTERS}]{{16}}", _LETTERS, before=_LETTERS),
    _key("Stripe webhook secret", "whsec_", f"[{_LETTERS}+/]{{24}}", f"{_LETTERS}+/="),
    _key("npm token", "npm_", f"[{_LETTERS}]{{36}}", _LETTERS, before=_LETTERS),
    _key("PyPI token", "pypi-AgEI", f"[{_URLSAFE}]{{32}}", _URLSAFE),
    _key("SendGrid key", r"SG\.", rf"[{_URLSAFE}]{{22}}\.[{_URLSAFE}]{{16}}", _URLSAFE),
    _key("Twilio key", "SK", "[0-9a-f]{32}", before=_LETTERS),
    _key("Telegram token", "[0-9]{8,10}:AA", f"[{_URLSAFE}]{{33}}", before=_LETTERS),
    _key("Discord token", "[MNO]", rf"[{_URLSAFE}]{{23,27}}\.[{_URLSAFE}]{{6}}\.[{_URLSAFE}]{{27}}", _URLSAFE, before=_LETTERS),
    _key("DigitalOcean token", "do[opr]_v1_", "[a-f0-9]{64}"),
    _key("Shopify token", "shp(at|ss|ca|pa)_", "[a-fA-F0-9]{32}"),
    _key("Databricks token", "dapi", "[a-f0-9]{32}", "a-f0-9-", before=_LETTERS),
    _key("Docker token", "dckr_(pat|oat)_", f"[{_URLSAFE}]{{24}}", _URLSAFE),
    _key("Vault token", r"hv[sbr]\.", f"[{_URLSAFE}]{{24}}", _URLSAFE, before=_LETTERS),
    _key("age key", "AGE-SECRET-KEY-1", "[0-9A-Z]{58}"),
    _key("Azure key", "[AS](ccountKey|haredAccessKey)=", f"[{_LETTERS}+/]{{40}}", f"{_LETTERS}+/="),
    _key("web token", "eyJ", rf"[{_URLSAFE}]{{8,512}}\.eyJ[{_URLSAFE}]{{8}}", f".{_URLSAFE}"),
    GateRule(
        "private key", "secrets", rf"(\s|\\r|\\n){{1,4}}[{_LETTERS}+/=:, -]{{16}}", "-----BEGIN [A-Z ]{0,24}PRIVATE KEY( BLOCK)?-----",
        tail=rf"{_LETTERS}+/=:,.\s\\-", end="KEY-----",
    ),
    GateRule(
        "password in an address", "secrets", r"[^\s:/@\"'<>{}]{3,80}+@", r"[a-z][a-z0-9+]{1,15}+://[^\s:/@\"'<>{}]{0,64}+:",
        before=_LETTERS, shows_head=True, check=lambda _, body: not _SPELLED.search(body), telling=1,
    ),
    GateRule(
        "password", "secrets", rf"[{_LETTERS}+/=_.!@#%^&*~-]{{5,63}}[{_LETTERS}+/=_!@#%^&*~-]",
        r"(?i)(?=[abprstABPRST])(pass(word|wd|phrase)|pwd|secret([_-]?(access)?[_-]?key)?|(api|access|auth|private)[_-]?key|(access|auth|api|bearer|refresh)?[_-]?token)"
        r"[\"']?( is)?\s{0,2}(:=|=>|=|:)\s{0,2}[\"']?",
        after=r"(\[", tail=rf"{_LETTERS}+/=_.!@#%^&*~-", shows_head=True, check=is_password, telling=1,
    ),
    GateRule(
        "random text", "secrets", f"[+/{_URLSAFE}]{{8,48}}", f"[+/{_URLSAFE}]{{24}}",
        before=f"+/.{_URLSAFE}", tail=f"+/={_URLSAFE}", check=lambda head, body: is_random(head + body),
    ),
)  # fmt: skip


def _number(name: str, group: str, head: str, body: str, check: Check, telling: int, *, before: str = r"A-Za-z0-9_.+/#-", after: str = _WORD) -> GateRule:  # fmt: skip
    return GateRule(name, group, body, head, before, after, check=check, telling=telling)


def _telephone(head: str, body: str, after: str = f"{_WORD}/") -> GateRule:
    return _number("telephone number", "telephone", head, body, is_telephone, 4, after=after)


_PERSONAL = (
    _number(
        "e-mail address", "email", r"[A-Za-z0-9._%+-]{1,64}+@",
        rf"[{_LETTERS}](-?[{_LETTERS}]){{0,40}}(\.[{_LETTERS}](-?[{_LETTERS}]){{0,40}}){{0,4}}\.[A-Za-z]{{2,18}}",
        is_address, 1, before=r"A-Za-z0-9._%+-", after=_LETTERS,
    ),
    _telephone(r"(?=[+0])(\+|00)[1-9]", r"([ ./-]?\(?[0-9]\)?){5,13}[ ./-]?[0-9]", _WORD),
    _telephone(r"(?=[(0])\(?0[1-9][0-9]{1,3}", r"([ /-]|\) ?)[0-9]{2,4}[ -][0-9]{2,4}([ -][0-9]{2,4}){0,2}"),
    _telephone(r"(?=[(2-9])(\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}[ .-])", r"[0-9]{3}[ .-][0-9]{4}"),
    _number("payment card", "payment", r"[3-6][0-9]{2}", r"[0-9]( ?-?[0-9]){9,15}", is_card, 6),
    _number("account number", "payment", "[A-Z]{2}[0-9]{2}", "( ?[0-9A-Z]){11,30}", is_account, 6, before=_LETTERS),
)  # fmt: skip
RULES: tuple[GateRule, ...] = (*_BEGINNINGS, *_PERSONAL)
"""The rules that localspec has."""
GROUPS = tuple(dict.fromkeys(each.group for each in RULES))
"""What rules belong to."""

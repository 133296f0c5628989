"""Planted secrets: texts that look like keys, passwords, addresses and numbers, drawn at random. None of them was ever anybody's."""

import string
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from localspec.gates.rules import is_card

_LETTERS = string.ascii_letters + string.digits
_URLSAFE = _LETTERS + "_-"
_HEX = "0123456789abcdef"
_BASE32 = string.ascii_uppercase + "234567"


@dataclass(frozen=True, slots=True)
class Planted:
    """A secret.

    Args:
        rule: the name of the rule that is to find it.
        head: what tells what it is, and may be seen where the text ends in it.
        body: what must not be seen.
    """

    rule: str
    head: str
    body: str

    @property
    def text(self) -> str:
        """All of it."""
        return self.head + self.body


def _drawn(random: Random, characters: str, size: int) -> str:
    return "".join(random.choices(characters, k=size))


def _simple(rule: str, heads: str, characters: str, *sizes: int) -> Callable[[Random], Planted]:
    def draw(random: Random) -> Planted:
        size = random.choice(sizes)
        return Planted(rule, random.choice(heads.split()), _drawn(random, characters, size))

    return draw


def _password(random: Random) -> Planted:
    names = ["password", "api_key", "client_secret", "AUTH_TOKEN", "Passphrase", "secret-key", "DB_PASSWORD"]  # fmt: skip
    head = random.choice(names) + random.choice(['="', ": ", " = '", " is: ", "="])
    if random.random() < 0.3:  # as people choose them: small letters and a digit
        body = "".join(random.sample("abcdefghijkmnopqrstuvwxyz", random.randint(5, 14)))
        return Planted("password", head, f"{body}{random.randint(1, 9)}")
    body = _drawn(random, _LETTERS, random.randint(8, 30))
    return Planted("password", head, f"{body[:6]}k7Q{body[6:]}")


def _address(random: Random) -> Planted:
    head = (
        random.choice(["postgres", "https", "mysql", "redis"]) + f"://{_drawn(random, 'abc', 5)}:"
    )
    body = _drawn(random, _LETTERS + "!$%", random.randint(8, 24))
    return Planted("password in an address", head, f"{body}@")


def _private_key(random: Random) -> Planted:
    kind = random.choice(["", "RSA ", "EC ", "OPENSSH "])
    lines = [_drawn(random, _LETTERS + "+/", 64) for _ in range(random.randint(2, 6))]
    lines.append(f"-----END {kind}PRIVATE KEY-----")
    return Planted("private key", f"-----BEGIN {kind}PRIVATE KEY-----", "\n" + "\n".join(lines))


def _web_token(random: Random) -> Planted:
    parts = [
        _drawn(random, _URLSAFE, random.randint(*each)) for each in ((17, 33), (40, 120), (43, 86))
    ]
    return Planted("web token", "eyJ", f"{parts[0]}.eyJ{parts[1]}.{parts[2]}")


def _discord(random: Random) -> Planted:
    parts = [_drawn(random, _URLSAFE, each) for each in (23, 6, 38)]
    return Planted("Discord token", random.choice("MNO"), ".".join(parts))


def _github_pat(random: Random) -> Planted:
    body = f"{_drawn(random, _LETTERS, 22)}_{_drawn(random, _LETTERS, 59)}"
    return Planted("GitHub token", "github_pat_", body)


def _sendgrid(random: Random) -> Planted:
    return Planted(
        "SendGrid key", "SG.", f"{_drawn(random, _URLSAFE, 22)}.{_drawn(random, _URLSAFE, 43)}"
    )


def _telegram(random: Random) -> Planted:
    return Planted(
        "Telegram token", f"{random.randint(10**8, 10**10 - 1)}:AA", _drawn(random, _URLSAFE, 33)
    )


def _email(random: Random) -> Planted:
    name = random.choice(["ann", "bob.b", "c_d", "eve+news"]) + str(random.randint(0, 99))
    host = _drawn(random, string.ascii_lowercase, random.randint(3, 12))
    return Planted(
        "e-mail address", f"{name}@", host + random.choice([".org", ".co.uk", ".example.com"])
    )


def _telephone(random: Random) -> Planted:
    def digits(size: int) -> str:
        return _drawn(random, "123456789", size)

    form = random.randrange(3)
    if form == 0:
        return Planted(
            "telephone number", "+4", f"1 {digits(2)} {digits(3)} {digits(2)} {digits(2)}"
        )
    if form == 1:
        return Planted("telephone number", "+1", f" ({digits(3)}) {digits(3)}-{digits(4)}")
    return Planted("telephone number", "+49", f" {digits(3)} {digits(7)}")


def _card(random: Random) -> Planted:
    while True:
        body = random.choice("45") + _drawn(random, string.digits, 15)
        if is_card("", body):
            parts = [body[at : at + 4] for at in range(0, 16, 4)]
            text = random.choice(["", " ", "-"]).join(parts)
            return Planted("payment card", text[:3], text[3:])


FORMATS: dict[str, Callable[[Random], Planted]] = {
    "GitHub": _simple("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", _LETTERS, 36),
    "GitHub, fine-grained": _github_pat,
    "GitLab": _simple("GitLab token", "glpat- gldt-", _URLSAFE, 20),
    "AWS": _simple("AWS access key", "AKIA ASIA", _BASE32, 16),
    "Slack": _simple("Slack token", "xoxb- xoxp- xoxa-", _LETTERS + "-", 24, 48, 60),
    "Anthropic": _simple("Anthropic key", "sk-ant-", _URLSAFE, 95, 101),
    "OpenAI": _simple("OpenAI key", "sk-proj- sk-svcacct-", _URLSAFE, 48, 120),
    "older API keys": _simple("API key", "sk-", _LETTERS, 48),
    "Google": _simple("Google key", "AIza", _URLSAFE, 35),
    "Google OAuth": _simple("Google secret", "GOCSPX-", _URLSAFE, 28),
    "Hugging Face": _simple("Hugging Face token", "hf_", _LETTERS, 34),
    "Stripe": _simple("Stripe key", "sk_live_ rk_test_", _LETTERS, 24, 99),
    "npm": _simple("npm token", "npm_", _LETTERS, 36),
    "PyPI": _simple("PyPI token", "pypi-AgEI", _URLSAFE, 150),
    "SendGrid": _sendgrid,
    "Twilio": _simple("Twilio key", "SK", _HEX, 32),
    "Telegram": _telegram,
    "Discord": _discord,
    "DigitalOcean": _simple("DigitalOcean token", "dop_v1_", _HEX, 64),
    "Databricks": _simple("Databricks token", "dapi", _HEX, 32),
    "Slack app": _simple("Slack token", "xapp-1-", _LETTERS + "-", 64),
    "Slack webhook": _simple("Slack webhook", "hooks.slack.com/services/", _LETTERS, 44),
    "Stripe webhook": _simple("Stripe webhook secret", "whsec_", _LETTERS, 32),
    "Shopify": _simple("Shopify token", "shpat_ shpss_", _HEX, 32),
    "Docker": _simple("Docker token", "dckr_pat_ dckr_oat_", _URLSAFE, 27),
    "Vault": _simple("Vault token", "hvs. hvb.", _URLSAFE, 90),
    "age": _simple("age key", "AGE-SECRET-KEY-1", _BASE32, 58),
    "Azure": _simple("Azure key", "AccountKey= SharedAccessKey=", _LETTERS, 86),
    "JSON web token": _web_token,
    "private key": _private_key,
    "password in a URL": _address,
    "password by its name": _password,
    "e-mail": _email,
    "telephone": _telephone,
    "payment card": _card,
}
"""How secrets are drawn, by what they are."""


def planted(random: Random, which: str | None = None) -> Planted:
    """Return a secret, of one format or of any."""
    return FORMATS[which or random.choice([*FORMATS])](random)

"""Patterns of tools' arguments: 43 forms that people write, and 30 as public MCP servers have them; a text that each takes and one that it does not.

Where there is no second text, no mask can keep the pattern: the argument may be any text.
"""

FORMS: tuple[tuple[str, str, str | None], ...] = (
    ("^(GET|POST)$", "GET", "PUT"), (r"^.*\.(png|jpe?g)$", "a.jpeg", "a.gif"), (r"^$|^\d+$", "12", "x"), (r"^\/$", "/", "a"),
    (r"^https?:\/\/", "http://a", "ftp://a"), (r"^[\/]$", "/", "\\"), ("^a|b$", "ax", "xa"), ("^(a|b)", "bx", "xb"), ("(a|b)$", "xb", "bx"),
    ("(^a|b$)", "xb", "bx"), ("^(?:^a|b)c$", "ac", "xac"), ("(^|,)id($|,)", "a,id", "aid"), ("^(|a)$", "a", "b"), ("^((a|b)|c)$", "c", "d"),
    ("^(?<year>[0-9]{4})$", "2026", "26"), ("^(yes|no)?$", "yes", "maybe"), ("a|b|c", "xbx", "xyz"), ("^/", "/a", "a"), ("/$", "a/", "a"),
    ("a/b", "xa/by", "ab"), (r"^[^\/]+\/[^\/]+$", "a/b", "ab"), (r"^\$[0-9]+$", "$5", "5"), (r"^\^a$", "^a", "a"), (r"^a\|b$", "a|b", "a"),
    ("^[|$^]$", "|", "a"), ("^[$]{2}$", "$$", "$"), (r"^\(\)$", "()", "("), (r"^[()]+$", "(", "a"), ("^.$", "x", "xy"), (r"^\S+$", "ab", "a b"),
    ("^[A-Z]{3}-[0-9]+$", "ABC-1", "ab-1"), (r"^a\nb$", "a\nb", "ab"), ("^a{2,3}$", "aaa", "a"), ("^a*?b+?$", "aab", "a"), (r"^\u0041$", "A", "B"),
    (r"^\x2f$", "/", "x"), ("^é+$", "éé", "e"), ("^$", "", "a"),
    ("^(?!-)a", "anything", None), (r"\bword\b", "anything", None), (r"^(a)\1$", "anything", None), ("[", "anything", None), ("(?<=a)b", "anything", None),
)  # fmt: skip

_DATE = r"\d{4}-\d{2}-\d{2}"
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
PUBLIC: tuple[tuple[str, str, str | None], ...] = (
    (r"^I?\d+[:|-]\d+(?:;\d+[:|-]\d+)*$", "I5:1;2:3", "5"),  # Figma's nodes
    (r"^https:\/\/app\.bugsnag\.com\/([^/]+)\/([^/]+)\/errors\/([^/]+)", "https://app.bugsnag.com/a/b/errors/c", "https://app.bugsnag.com/a"),
    (r"^[a-zA-Z0-9@#%^&*()_+\-=[\]{}|;:,.<>?~`]*$", "p[]~`w", "p w"),  # Dokploy's passwords
    (r"^(all|\d+[smhd])$", "15m", "15"), (r"^[\p{L}\p{N} ._\-]+$", "Größe 1", "a/b"),  # Actual's budgets
    (rf"^{_DATE}T\d{{2}}:\d{{2}}:\d{{2}}([+-]\d{{2}}:\d{{2}}|Z)$", "2026-11-29T01:02:03Z", "2026-11-29"),  # calendars
    (rf"^{_DATE}$", "2026-11-29", "today"), (r"^([01]\d|2[0-3]):[0-5]\d$", "23:59", "24:00"), (r"^(0[1-9]|1[0-2])\/\d{2}$", "12/26", "13/26"),
    (r"^arn:aws(?:-us-gov|-cn)?:iam::\d{12}:role/[\w+=,.@/-]+$", "arn:aws:iam::123456789012:role/a", "arn:aws:s3:::a"),
    (r"^[\w.-]+\/[\w.-]+$", "octo/repo.js", "octo"), ("^[CDG][A-Z0-9]{8,}$", "C0123ABCD", "c01"), (r"^\d{10}\.\d{6}$", "1712345678.000100", "1"),  # Slack
    (rf"^{_LABEL}(\.{_LABEL})*$", "a.b-c", "-a"), ("^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$", "500Mi", "much"),  # Kubernetes
    (r"^(?:(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])$", "10.0.0.1", "10.0.0"),
    ("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$", "YWI=", "YWI"),  # Zod's base64
    (r"^([a-fA-F0-9]{8}-[a-fA-F0-9]{4}-[1-8][a-fA-F0-9]{3}-[89abAB][a-fA-F0-9]{3}-[a-fA-F0-9]{12}|0{8}-0{4}-0{4}-0{4}-0{12})$", "123e4567-e89b-42d3-a456-426614174000", "1"),
    (r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-[0-9A-Za-z.-]+)?$", "1.2.3-rc.1", "1.2"), (r"^(?:\d{5}|2[AB]\d{3})$", "2A004", "2C004"),
    (r"^#([0-9a-f]{3}|[0-9a-f]{6})$|^$", "#fff", "#ff"), (r"^(\*|[0-5]?\d)(\s+(\*|\d+)){4}$", "0 1 * * 2", "now"),  # cron
    (r"\S", " a ", "  "), ("^[0-9a-f]{7,40}$", "abc1234", "main"), (r"(?P<workflow>wf_[a-z]+)", "wf_a", "wf"), (r"^s3:\/\/[^\/]+\/.+$", "s3://a/b", "s3://a"),
    (r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$", "anything", None),  # Zod's e-mail
    (r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", "anything", None),  # pydantic's Decimal
    (r"^(?=.*\d)(?=.*[a-z]).{8,}$", "anything", None), (r"^P(?!$)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?)?$", "anything", None),
)  # fmt: skip

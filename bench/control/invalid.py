"""A hundred changes that must be refused: key, what is put there, and a word of the reason."""

_NUMBERS = ("many", "-1", "0", "1.5", "1e3", "", "0x10", "1,000", "NaN", "9" * 20)
_FRACTIONS = ("heavy", "-0.1", "nan", "1001", "inf", "1,5", "")


def _each(
    key: str, field: str, values: tuple[str, ...]
) -> list[tuple[str, dict[str, str] | None, str]]:
    return [(key, {field: value}, field) for value in values]


INVALID: list[tuple[str, dict[str, str] | None, str]] = [
    *_each("forebay:class:short", "limit", _NUMBERS),
    *_each("forebay:class:short", "max_prompt_tokens", _NUMBERS),
    *_each("forebay:class:short", "queue_limit", ("all", "-1", "2.5")),
    *_each("forebay:class:long", "ttft_target", ("soon", "0", "-5", "90000", "nan")),
    *_each("forebay:backend:short-0", "limit", _NUMBERS),
    *_each("forebay:backend:short-0", "weight", _FRACTIONS),
    *_each("forebay:backend:short-0", "drain", ("maybe", "2", "")),
    *_each(
        "forebay:backend:long-0",
        "classes",
        (
            "Short!",
            "long,,!",
        ),
    ),
    *_each("forebay:burst", "window", ("soon", "0", "-1", "90000")),
    *_each("forebay:burst", "recovery_step", ("0", "1.1", "half")),
    *_each("forebay:burst", "whole_pool", ("perhaps", "3")),
    *_each("forebay:tenant:acme", "weight", ("0", "-1", "x")),
    *_each("forebay:tenant:acme", "priority", ("101", "-101", "high")),
    *_each("forebay:tenant:acme", "requests_per_minute", ("0", "-5", "few")),
    *_each("forebay:tenant:acme", "tokens_per_minute", ("0", "x")),
    *_each("forebay:tenant:acme", "concurrent", ("0", "x")),
    *_each("forebay:tenant:acme", "classes", ("long", "long=x", "long=-1")),
    *_each("forebay:model:m", "paused", ("maybe",)),
    *_each("forebay:model:m", "concurrent", ("0",)),
    *_each("forebay:peak", "windows", ("always", "* 9-17 * *", "60 * * * *", "* 9-5 * * *")),
    *_each("forebay:peak", "windows", ("* * * * xyz", "*/0 * * * *")),
    *_each("forebay:peak", "timezone", ("Mars/Olympus", "../etc/passwd")),
    *_each("forebay:peak", "limit_share", ("0", "1.1", "most")),
    *_each("forebay:peak", "lead", ("-1", "90000")),
    ("forebay:class:short", {"limt": "5"}, "did you mean limit?"),
    ("forebay:class:short", {"color": "red"}, "no such field; fields: limit, "),
    ("forebay:backend:short-0", {"url": "http://other:1"}, "cannot be changed while running"),
    ("forebay:backend:short-0", {"api_key": "x"}, "cannot be changed while running"),
    ("forebay:backend:short-0", {"classes": "shrt"}, "do not exist: shrt; there are: long, short"),
    ("forebay:class:short", {"max_prompt_tokens": "none"}, "exactly one class"),
    ("forebay:class:long", {"max_prompt_tokens": "1024"}, "exactly one class"),
    ("forebay:class:short", None, "not a hash: DEL forebay:class:short, then use HSET"),
    ("forebay:burst", None, "not a hash"),
    ("forebay:tenant:acme", None, "not a hash"),
    ("forebay:tenant:Acme Corp", {"weight": "1"}, "a name is made of a-z"),
    ("forebay:tenant:acme", {"classes": "huge=1"}, "do not exist: huge; there are: long, short"),
    ("forebay:key:fb-1", {"tenant": "acme"}, "sha256: Field required"),
    ("forebay:key:fb-1", {"tenant": "acme", "sha256": "secret"}, "sha256:"),
    ("forebay:key:fb-1", {"tenant": "a b", "sha256": "0" * 64}, "tenant:"),
    ("forebay:key:fb-1", {"tenant": "a", "sha256": "0" * 64, "expires": "friday"}, "expires:"),
    ("forebay:canary:m", {"old": "short-0"}, "new: Field required"),
    ("forebay:canary:m", {"old": "short-0", "new": "short-0"}, "in both groups: short-0"),
    ("forebay:canary:m", {"old": "short-0", "new": "x"}, "do not exist: x; there are: long-0"),
    ("forebay:canary:m", {"old": "short-0", "new": "short-1", "steps": "1,0.5"}, "must grow"),
    ("forebay:canary:m", {"old": "short-0", "new": "short-1", "steps": "1"}, "the first step"),
    ("forebay:canary:m", {"old": "short-0", "new": "short-1", "order": "go"}, "order:"),
]

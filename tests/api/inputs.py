"""Hostile and careless input for the fuzzer: bytes of whole connections, from a seeded source.

`connection(rng)` is what one client does. Bodies come from well-formed requests of every endpoint
that are then spoilt: in their values, their JSON, their framing, or by how they are sent.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gateway.api.endpoints import ENDPOINTS, REFUSED

MODEL = "forebay-demo"
_USER = {"role": "user", "content": "What is a forebay?"}
_BASES: dict[str, dict[str, Any]] = {
    "Chat": {"messages": [_USER], "max_tokens": 1},
    "Completion": {"prompt": "Once", "max_tokens": 1},
    "Response": {"input": "Once", "max_output_tokens": 1},
    "Messages": {"messages": [_USER], "max_tokens": 1},
    "CountTokens": {"messages": [_USER]},
    "Embedding": {"input": ["one", "two"]},
    "Score": {"queries": "one", "documents": ["two"]},
    "Rerank": {"query": "one", "documents": ["two"]},
    "Audio": {"file": "x"},
    "Tokenize": {"prompt": "one"},
    "Detokenize": {"tokens": [1, 2]},
    "Any": {"input": "one"},
}
_FIELDS = (
    *("model", "messages", "prompt", "input", "stream", "max_tokens", "n", "stop", "tools"),
    *("tool_choice", "temperature", "logprobs", "response_format", "stream_options", "echo"),
    *("kv_transfer_params", "truncate_prompt_tokens", "add_special_tokens", "documents", "query"),
    *("chat_template_kwargs", "continue_final_message", "add_generation_prompt", "reasoning"),
    *("previous_response_id", "instructions", "system", "thinking", "max_output_tokens"),
)
_SCALARS: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 2**64, 10**40, 0.5, 1e308, -0.0),
    *("", "x", "\x00", "\u2028", "日本", "🦊" * 40, "a" * 20_000, "<|im_start|>", "\\", "]" * 50),
)
_RAW = (
    *(b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e-999", b"01", b"+1", b".5", b"1.", b"0x1"),
    *(b"'x'", b'"\\ud800"', b'"\\u12"', b'"\xff\xfe"', b'"\xc3\x28"', b"tru", b"undefined", b"//"),
    b"9" * 5000,
    b"[" * 600 + b"]" * 600,
    b"[" * 3000,
    b'{"a":' * 900 + b"1" + b"}" * 900,
)


@dataclass(frozen=True)
class Connection:
    """What one client sends, in these pieces, and how it ends.

    `answers`: how many complete requests are in it (0: nobody can say). `then`: read (wait for the
    answers), close (leave at once), half (end its own side, then read).
    """

    kind: str
    pieces: list[bytes]
    answers: int
    then: str = "read"


def connection(rng: random.Random) -> Connection:
    """The next client."""
    kind = rng.choice(list(_KINDS))
    return _KINDS[kind](rng)


def request(rng: random.Random, body: bytes | None = None, **extra: str) -> bytes:
    """A well-framed request of any endpoint."""
    method, path, own = _target(rng)
    body = own if body is None else body
    headers = {"host": "x", "content-type": "application/json", "content-length": str(len(body))}
    lines = [f"{method} {path} HTTP/1.1", *(f"{n}: {v}" for n, v in (headers | extra).items())]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def _target(rng: random.Random) -> tuple[str, str, bytes]:
    if rng.random() < 0.05:
        path = rng.choice([*REFUSED, "/", "//", "/v1/x?y=z", "/%00", "/v1/models/%2e%2e", "*"])
        return rng.choice(("GET", "POST", "DELETE", "PATCH", "OPTIONS")), path, b"{}"
    endpoint = rng.choice([e for e in ENDPOINTS if e.path != "/metrics"])
    path = endpoint.path.replace("{response_id}", rng.choice(("resp_1", "x", "%20")))
    path = path.replace("{model}", rng.choice((MODEL, "org/x", "?")))
    base = _BASES.get(endpoint.accepts)
    body = b"" if base is None else json.dumps({"model": MODEL} | base).encode()
    return endpoint.method, path, body


def _document(rng: random.Random) -> dict[str, Any]:
    return {"model": MODEL} | rng.choice(list(_BASES.values()))


def _value(rng: random.Random, depth: int = 0) -> Any:
    chance = rng.random()
    if depth > 4 or chance < 0.6:
        return rng.choice(_SCALARS)
    size = rng.randint(0, 4)
    if chance < 0.8:
        return [_value(rng, depth + 1) for _ in range(size)]
    names = (*_FIELDS, "role", "content", "type", "text", "function", "name", "arguments", "url")
    return {rng.choice(names): _value(rng, depth + 1) for _ in range(size)}


def _wrong_types(rng: random.Random) -> Connection:
    document = _document(rng)
    for _ in range(rng.randint(1, 4)):
        document[rng.choice(_FIELDS)] = _value(rng)
    return Connection("wrong types", [request(rng, json.dumps(document).encode())], 1)


def _odd_messages(rng: random.Random) -> Connection:
    document = {"model": MODEL, "max_tokens": 1}
    name = rng.choice(("messages", "input", "prompt"))
    document[name] = [_value(rng, 1) for _ in range(rng.randint(1, 5))]
    return Connection("odd messages", [request(rng, json.dumps(document).encode())], 1)


def _malformed(rng: random.Random) -> Connection:
    body = bytearray(json.dumps(_document(rng) | {"seed": _value(rng)}).encode())
    for _ in range(rng.randint(1, 6)):
        where = rng.randrange(len(body))
        action = rng.random()
        if action < 0.4:
            body[where] = rng.randrange(256)
        elif action < 0.7:
            del body[where : where + rng.randint(1, 9)]
        else:
            body[where:where] = rng.randbytes(rng.randint(1, 9))
        if not body:
            break
    return Connection("malformed JSON", [request(rng, bytes(body))], 1)


def _raw_values(rng: random.Random) -> Connection:
    field = rng.choice(_FIELDS).encode()
    body = json.dumps(_document(rng)).encode()[:-1]
    return Connection(
        "odd JSON", [request(rng, b'%b,"%b":%b}' % (body, field, rng.choice(_RAW)))], 1
    )


def _duplicates(rng: random.Random) -> Connection:
    body = json.dumps(_document(rng)).encode()[:-1]
    for _ in range(rng.randint(1, 5)):
        name = rng.choice(_FIELDS)
        body += b',"%b":%b' % (name.encode(), json.dumps(_value(rng)).encode())
    return Connection("duplicate keys", [request(rng, body + b"}")], 1)


_CHUNK_SIZES = (b"%x", b"%X", b"0%x", b"000000%x", b"%x;ext=1", b'%x;a="b"', b"-%x", b"%xg")
_CHUNK_ENDS = (b"\r\n", b"\r\n", b"\r\n", b"\n", b"")
_LAST_CHUNKS = (b"0\r\n\r\n", b"0\r\nx-trailer: 1\r\n\r\n", b"0\r\n", b"ffffffffffffffff\r\n")


def _chunked(rng: random.Random) -> Connection:
    method, path, body = _target(rng)
    head = f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    if rng.random() < 0.2:
        head += f"content-length: {len(body)}\r\n"
    head += rng.choice(("transfer-encoding: chunked\r\n", "Transfer-Encoding: gzip, chunked\r\n"))
    pieces = [head.encode() + b"\r\n"]
    while body:
        size = rng.randint(1, len(body))
        told = rng.choice(_CHUNK_SIZES) % size
        pieces.append(told + b"\r\n" + body[:size] + rng.choice(_CHUNK_ENDS))
        body = body[size:]
    pieces.append(rng.choice(_LAST_CHUNKS))
    return Connection("chunked oddities", pieces, 0, rng.choice(("half", "close")))


def _framing(rng: random.Random) -> Connection:
    data = bytearray(request(rng, **rng.choice(_ODD_HEADERS)))
    if rng.random() < 0.6:
        where = rng.randrange(min(len(data), 120))
        data[where : where + rng.randint(0, 2)] = rng.randbytes(rng.randint(0, 3))
    return Connection("framing", [bytes(data)], 0, rng.choice(("half", "close")))


_ODD_HEADERS: tuple[dict[str, str], ...] = (
    {"content-length": "-1"},
    {"content-length": "99999999999999999999"},
    {"content-length": "5, 5"},
    {"content-length": "2"},
    {"transfer-encoding": "chunked"},
    {"transfer-encoding": "identity"},
    {"expect": "100-continue"},
    {"upgrade": "h2c", "connection": "upgrade"},
    {"connection": "close"},
    {"content-type": "text/plain"},
    {"content-type": "multipart/form-data; boundary=x"},
    {"content-type": "Application/JSON"},
    {"content-type": "APPLICATION/json; charset*=utf-8''x"},
    {"content-type": "Multipart/Form-Data; boundary*1=b; boundary*=c"},
    {"x-request-id": "\xe9" * 200},
    {"x-request-timeout": "0"},
    {"x-request-timeout": "1e9"},
    {"x-forebay-keep-alive": "0.2"},
    {"authorization": "Bearer \xff"},
    {"traceparent": "0" * 5000},
    {f"x-{n}": "y" * 100 for n in range(900)},
    {"host": ""},
)


_FIELDS_OF_FORMS = (
    b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\n%b\r\n' % MODEL.encode(),
    b"--x\r\nContent-Disposition: form-data; name = model\r\n\r\nother\r\n",
    b"--x\r\nContent-Disposition: form-data; name*=utf-8''model\r\n\r\nother\r\n",
    b'--x\r\nContent-Disposition: form-data; name="vllm_xargs"\r\n\r\n{"a": 1}\r\n',
    b'--x\r\ncontent-disposition: form-data; name="file"; filename="b"\r\n\r\nRIFX\r\n',
)
_LAST_OF_FORMS = (
    b'--x\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\nRIFF\r\n--x--'
)
_FORM_TYPES = (
    *(b"; boundary=x", b"; boundary=x", b"; Boundary = x", b'; boundary="x"; charset=UTF-8'),
    *(b"", b'; boundary="', b"; boundary=" + b"y" * 3000, b"; charset=utf-16; boundary=x"),
    *(b"; boundary*=x", b"; boundary*0=x; boundary*1=y", b"; boundary*1=b; boundary*=c"),
    *(b"; boundary*=utf-8''x; boundary=y", b"; boundary=x; boundary=y", b"; boundary*0*=%ff'"),
)
_FORM_KINDS = (b"multipart/form-data", b"Multipart/Form-Data", b"MULTIPART/FORM-DATA ")


def _form(rng: random.Random) -> Connection:
    fields = [_FIELDS_OF_FORMS[0], *rng.choices(_FIELDS_OF_FORMS, k=rng.randint(0, 2))]
    rng.shuffle(fields)
    spoilt = bytearray(b"".join(fields) + _LAST_OF_FORMS)
    if rng.random() < 0.02:  # beyond what is gathered in pieces
        spoilt[-7:-7] = b"RIFF" * 100_000
    for _ in range(rng.choice((0, 0, 1, 2, 3))):
        where = rng.randrange(len(spoilt))
        spoilt[where : where + rng.randint(0, 9)] = rng.randbytes(rng.randint(0, 9))
    head = b"POST /v1/audio/transcriptions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n"
    kind = b"content-type: " + rng.choice(_FORM_KINDS) + rng.choice(_FORM_TYPES)
    return Connection("forms", [head % len(spoilt) + kind + b"\r\n\r\n" + bytes(spoilt)], 1)


def _pipelined(rng: random.Random) -> Connection:
    number = rng.randint(2, 6)
    data = b"".join(request(rng, json.dumps(_document(rng)).encode()) for _ in range(number))
    return Connection("pipelining", [data], number)


def _half_closed(rng: random.Random) -> Connection:
    data = request(rng)
    if rng.random() < 0.5:
        data = data[: rng.randrange(len(data))]
    return Connection("half-closed", [data], 0, "half")


def _abandoned(rng: random.Random) -> Connection:
    body = json.dumps(_document(rng) | {"stream": True, "max_tokens": 300}).encode()
    return Connection("abandoned", [request(rng, body)], 0, "close")


def _dribbled(rng: random.Random) -> Connection:
    data = request(rng)
    cuts = sorted(rng.sample(range(len(data)), min(len(data), rng.randint(1, 12))))
    bounds = [0, *cuts, len(data)]
    return Connection("dribbled", [data[a:b] for a, b in pairwise(bounds)], 1)


def _noise(rng: random.Random) -> Connection:
    return Connection("noise", [rng.randbytes(rng.randint(1, 400))], 0, "half")


_KINDS: dict[str, Callable[[random.Random], Connection]] = {
    "wrong types": _wrong_types,
    "odd messages": _odd_messages,
    "malformed": _malformed,
    "raw": _raw_values,
    "duplicates": _duplicates,
    "chunked": _chunked,
    "framing": _framing,
    "forms": _form,
    "pipelined": _pipelined,
    "half-closed": _half_closed,
    "abandoned": _abandoned,
    "dribbled": _dribbled,
    "noise": _noise,
}

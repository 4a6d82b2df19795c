"""Forms: nobody may name one model to the gateway and another to the engine behind it.

What a head or a content type means is what Starlette makes of it; what it makes of something odd
is not asked: that is refused.
"""

import itertools
import time
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.types import ServedModel
from gateway.api import multipart
from gateway.api.endpoints import ENDPOINTS
from gateway.api.media import MediaCosts
from gateway.api.preparing import MediaLimits, Prepared, Preparing
from gateway.directory import Directory, Row
from gateway.http_types import Request
from gateway.tasks import Tasks
from tokenizer_pool.errors import InvalidRequest
from tokenizer_pool.pool import TokenizerPool
from tokenizer_pool.requests import STRIPPED
from tokenizer_pool.types import PoolSettings, Wanted

FILE = ('name="file"; filename="a.wav"', b'RIFF\r\n\r\nname="model"\r\n--xy')
MODEL = ('name="model"', b"whisper")
TYPE = "multipart/form-data; boundary=xyz"
(FORMS, _) = (e for e in ENDPOINTS if e.multipart)


def form(*fields: tuple[str, bytes], boundary: bytes = b"xyz") -> bytes:
    parts = [
        b"--%b\r\nContent-Disposition: form-data; %b\r\n\r\n%b\r\n" % (boundary, name.encode(), v)
        for name, v in fields
    ]
    return b"".join(parts) + b"--%b--\r\n" % boundary


def with_head(head: bytes, value: bytes = b"whisper") -> bytes:
    return b"--xyz\r\n%b\r\n\r\n%b\r\n--xyz--\r\n" % (head, value)


def asked(body: bytes) -> str | None:
    return multipart.model_in(body, multipart.parts_of(body, b"xyz"))


def refused(body: bytes) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        asked(body)
    return error.value


@pytest.mark.parametrize("fields", list(itertools.permutations([MODEL, FILE, ('name="n"', b"")])))
def test_the_fields_of_a_form_are_found(fields: list[tuple[str, bytes]]) -> None:
    body = form(*fields)
    parts = multipart.parts_of(body, b"xyz")
    assert [body[part.value : part.end] for part in parts] == [value for _, value in fields]
    assert asked(body) == "whisper"
    assert asked(b"\r\n" + body) == "whisper"
    assert multipart.as_sent(body, parts, None) is body
    renamed = [(name, b"other" if value == b"whisper" else value) for name, value in fields]
    assert multipart.as_sent(body, parts, "other") == form(*renamed)


@pytest.mark.parametrize(
    "head",
    [
        b'content-disposition:form-data;name="model"',
        b"Content-Disposition: form-data; name=model",
        b'Content-Disposition: Form-Data ; Name = "model" ',
        b'content-type: text/plain; charset=x\r\nContent-Disposition: form-data; name="model"',
        b'Content-Disposition: form-data; filename="a;\\" name=\\"n\\""; name="model"',
        b'Content-Disposition: form-data; filename="C:\\a\\\\b"; name="model"',
        b"Content-Disposition: form-data; name=\"model\"; filename*=utf-8''a%20b",
        "Content-Disposition: form-data; filename=my sound é; name=model".encode(),
    ],
)
def test_a_name_is_found_however_it_is_written(head: bytes) -> None:
    assert asked(with_head(head)) == "whisper"


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"content-type: text/plain",
        b'Content-Disposition: attachment; name="model"',
        b'Content-Disposition: form-data; name="model',
        b'Content-Disposition: form-data; name="mod\\el"',
        b"Content-Disposition: form-data; name*=utf-8''model",
        b'Content-Disposition: form-data; name="a"; name*0="model"',
        b'Content-Disposition: form-data; name="a"; name="model"',
        b'Content-Disposition: form-data; name="a"; NAME="model"',
        b'Content-Disposition: form-data; filename="a\\\\"; name="x"; foo="; name="model"',
        b'Content-Disposition: form-data;\r\n name="model"',
        b'Content-Disposition: form-data; name="a"\r\nContent-Disposition: form-data; name="model"',
        b'Content-Disposition : form-data; name="model"',
        b'Content-Disposition: form-data; name="a"\nX: form-data; name="model"',
        b'Content-Disposition: form-data; name="' + b"m" * 9000 + b'"',
        b"Content-Disposition: form-data" + b"; a=b" * 1500 + b' name="model"',
    ],
)
def test_a_head_that_servers_may_read_in_another_way_is_refused(head: bytes) -> None:
    error = refused(with_head(head))
    assert error.code == "invalid_form"
    assert "Content-Disposition: form-data; name=" in error.message


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "begin with the boundary"),
        (b"x\r\n" + form(MODEL), "begin with the boundary"),
        (b"--xyz", "line's end"),
        (form(MODEL).replace(b"--xyz--", b"--xyz"), "head of a field"),
        (form(MODEL)[:-30], "head of a field"),
        (form(MODEL)[:-10], "last boundary is missing"),
        (form(MODEL, boundary=b"xyzz"), "line's end"),
        (form(('name="file"', b"a\r\n--xyz b"), MODEL), "line's end"),
        (form(*[('name="a"', b"")] * 1001), "1000 fields"),
    ],
)
def test_a_form_that_is_not_whole_is_refused(body: bytes, told: str) -> None:
    error = refused(body)
    assert error.code == "invalid_form"
    assert told in error.message


@pytest.mark.parametrize(
    "body", [b"--xyz--\r\n", form(FILE), form(('name="models"', b"x")), form(('name="model"', b""))]
)
def test_a_form_without_a_model_names_none(body: bytes) -> None:
    assert asked(body) is None


def test_a_model_is_named_once_and_its_name_has_a_bound() -> None:
    other = ("name = model", b"other")
    assert "more than one" in refused(form(MODEL, FILE, other)).message
    assert "more than one" in refused(form(other, MODEL)).message
    assert "too long" in refused(form(('name="model"', b"x" * 5000))).message


@given(st.binary(max_size=200), st.binary(min_size=1, max_size=3))
def test_any_bytes_are_a_form_or_refused(body: bytes, boundary: bytes) -> None:
    with suppress(InvalidRequest):
        for part in multipart.parts_of(body, boundary):
            assert 0 <= part.start < part.value <= part.end < part.next <= len(body)


def test_the_cost_of_a_large_form_grows_with_its_size_alone() -> None:
    """Heads without an end, and boundaries that only begin: 400 times the work if it squared."""

    def seconds(size: int) -> float:
        sound = (b"\r\n--xy" * (size // 6))[:size]
        body = form(MODEL, ('name="file"; filename="a"', sound), *[('name="n"', b"")] * 900)
        least = float("inf")
        for _ in range(3):
            began = time.perf_counter()
            parts = multipart.parts_of(body, b"xyz")
            assert len(multipart.as_sent(body, parts, "other")) == len(body) - 2
            least = min(least, time.perf_counter() - began)
        return least

    assert seconds(20_000_000) < 100 * seconds(1_000_000)


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        (TYPE, b"xyz"),
        ('Multipart/Form-Data; charset=UTF8; boundary="x y"', b"x y"),
        ("multipart/form-data ; Boundary = xyz ", b"xyz"),
        ("multipart/mixed; boundary=xyz", None),
        ("application/json", None),
        ("", None),
    ],
)
def test_the_boundary_is_read_from_the_content_type(
    content_type: str, boundary: bytes | None
) -> None:
    assert multipart.boundary_of(content_type) == boundary


@pytest.mark.parametrize(
    "content_type",
    [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        'multipart/form-data; boundary="xyz',
        "multipart/form-data; boundary*1=b; boundary*=c",
        "multipart/form-data; boundary=xyz; boundary*=utf-8''abc",
        "multipart/form-data; boundary=xyz; boundary=abc",
        "multipart/form-data; boundary=xyz; charset=utf-16",
        "multipart/form-data; boundary=xyz; charset=\xfe",
        "multipart/form-data; boundary=" + "y" * 3000,
    ],
)
def test_a_content_type_that_names_no_one_boundary_is_refused(content_type: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        multipart.boundary_of(content_type)
    assert error.value.code == "invalid_form"
    assert "content type" in error.value.message


async def prepared(body: bytes, content_type: str = TYPE) -> Prepared:
    """As the gateway prepares it, with one model and another name for it."""
    directory = Directory()
    directory.put("b", Row(ready=True, models=(ServedModel("whisper", "whisper", None),)))
    preparing = Preparing(
        TokenizerPool(PoolSettings(cache_dir=Path()), Tasks().spawn),
        directory,
        {"whisper-1": "whisper"},
        costs=MediaCosts(),
        limits=MediaLimits(1, 1),
    )
    headers = {b"content-type": content_type.encode("latin-1")}
    request = Request("POST", FORMS.path, headers, body, 0.0, 0.0)
    return await preparing.prepare(request, FORMS, "", Wanted())


@pytest.mark.parametrize("name", [b"whisper", b"whisper-1", b""])
async def test_a_form_goes_on_with_its_models_own_name(name: bytes) -> None:
    found = await prepared(form(FILE, ('name="model"', name)))
    assert found.prompt.model == "whisper"
    sent = form(FILE, ('name="model"', name and b"whisper"))
    assert found.prompt.body(ids=False) == sent


async def test_what_a_client_may_not_steer_is_taken_out_of_a_form() -> None:
    fields = [(f'name="{name}"', b'{"a":1}') for name in sorted(STRIPPED)]
    language = ('name="language"', b"en")
    body = form(*fields[:3], MODEL, *fields[3:], FILE, fields[0], language)
    found = await prepared(body)
    assert found.prompt.body(ids=False) == form(MODEL, FILE, language)


async def test_a_large_form_may_come_as_a_view() -> None:
    view = cast("bytes", memoryview(form(FILE, ('name="model"', b"whisper-1"))))
    assert (await prepared(view)).prompt.body(ids=False) == form(FILE, MODEL)


async def test_a_form_that_nobody_can_read_is_told_so() -> None:
    with pytest.raises(InvalidRequest, match="boundary"):
        await prepared(form(MODEL), "multipart/form-data; boundary*1=b; boundary*=c")

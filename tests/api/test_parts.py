"""The pure parts of the API surface: the table, the router, held responses, media."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.types import BackendSpec
from gateway.api import held, openapi, waiting
from gateway.api.endpoints import ENDPOINTS, REFUSED, Means
from gateway.api.media import FIRST_GUESS, MediaCosts
from gateway.api.router import Router
from gateway.api.schemas import BODIES
from gateway.directory import Directory, Row
from gateway.errors import ClientError, render_error, render_sse_error
from gateway.http_types import Request
from gateway.request_ids import RequestIds
from tokenizer_pool.shapes import SHAPES
from tokenizer_pool.types import Kind


@pytest.fixture(scope="module")
def router() -> Router:
    return Router(ENDPOINTS)


@pytest.mark.parametrize(
    ("path", "row", "name"),
    [
        ("/v1/chat/completions", "/v1/chat/completions", ""),
        ("/v1/responses/resp_1", "/v1/responses/{response_id}", "resp_1"),
        ("/v1/responses/resp_1/cancel", "/v1/responses/{response_id}/cancel", "resp_1"),
        ("/v1/models/org/name", "/v1/models/{model}", "org/name"),
        ("/v1/models", "/v1/models", ""),
    ],
)
def test_a_path_finds_its_row(router: Router, path: str, row: str, name: str) -> None:
    endpoint, found = router.find(path)
    assert endpoint is not None
    assert (endpoint.path, found) == (row, name)


@pytest.mark.parametrize(
    "path",
    ["", "/", "/v1", "/v1/models/", "/v1/responses//cancel", "/v1/responses/a/b", "/tokenize/"],
)
def test_other_paths_find_nothing(router: Router, path: str) -> None:
    assert router.find(path) == (None, "")


def test_no_path_is_both_served_and_refused() -> None:
    assert not {endpoint.path for endpoint in ENDPOINTS} & REFUSED.keys()


def test_every_row_is_one_that_the_rest_knows() -> None:
    for endpoint in ENDPOINTS:
        assert not endpoint.accepts or endpoint.accepts in BODIES
        shaped = endpoint.means in (Means.SHAPED, Means.PASSED)
        assert not shaped or endpoint.kind in {*SHAPES, Kind.CHAT, Kind.COMPLETION}


def test_the_document_has_every_row_and_refers_to_nothing_that_it_lacks() -> None:
    document = openapi.document("1")
    rows = {(path, method) for path, methods in document["paths"].items() for method in methods}
    assert rows == {(endpoint.path, endpoint.method.lower()) for endpoint in ENDPOINTS}
    names = [o["operationId"] for m in document["paths"].values() for o in m.values()]
    assert len(set(names)) == len(names)
    referred = {
        part.split('"')[0] for part in json.dumps(document).split("#/components/schemas/")[1:]
    }
    assert referred <= document["components"]["schemas"].keys()


def rows(*urls: str) -> dict[str, Row]:
    return {f"b{n}": Row(BackendSpec(f"b{n}", url)) for n, url in enumerate(urls)}


def test_a_responses_id_names_the_backend_that_holds_it() -> None:
    urls = [f"http://gpu-{n}:8000" for n in range(64)]
    known = rows(*urls)
    for number, url in enumerate(urls):
        assert held.holder(held.new_id(url), known) == f"b{number}"


@pytest.mark.parametrize("name", ["", "resp_", "resp_1", "resp_" + "0" * 32, "x" * 37])
def test_an_id_of_someone_else_names_no_backend(name: str) -> None:
    assert held.holder(name, rows("http://a:1") | {"unknown": Row()}) is None


def test_the_id_goes_into_the_body_as_its_last_and_so_its_only_one() -> None:
    directory = Directory()
    directory.put("b0", rows("http://a:1")["b0"])
    body = json.loads(held.with_id(b'{"model":"m","request_id":"mine"}', "b0", directory))
    assert held.holder(body["request_id"], directory.rows) == "b0"
    assert held.with_id(b'{"model":"m"}', "gone", directory) == b'{"model":"m"}'


def usage(tokens: int) -> bytes:
    return b'..."usage":{"prompt_tokens":%d,"total_tokens":9}}' % tokens


def test_the_cost_of_a_picture_is_learned_from_the_counts() -> None:
    costs = MediaCosts()
    assert costs.guess("m", [("image", 2)]) == 2 * FIRST_GUESS["image"]
    for _ in range(40):
        costs.learn("m", (("image", 2),), 10, usage(510))
    assert costs.guess("m", [("image", 1)]) == 250
    assert costs.guess("other", [("image", 1)]) == FIRST_GUESS["image"]
    assert costs.guess("m", [("audio", 1)]) == FIRST_GUESS["audio"]


@pytest.mark.parametrize("tail", [b"", b"no count", b'\\"usage\\":{\\"prompt_tokens\\":5'])
def test_nothing_is_learned_where_nothing_is_told(tail: bytes) -> None:
    costs = MediaCosts()
    costs.learn("m", (("image", 1),), 10, tail)
    costs.learn("m", (("image", 1), ("audio", 1)), 10, usage(5000))
    assert costs.guess("m", [("image", 1)]) == FIRST_GUESS["image"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(FIRST_GUESS)),
            st.integers(1, 100),
            st.integers(0, 10**9),
            st.integers(0, 10**9 - 1),
        ),
        max_size=30,
    )
)
def test_whatever_is_told_the_guess_stays_in_bounds(
    told: list[tuple[str, int, int, int]],
) -> None:
    costs = MediaCosts()
    for kind, number, text, counted in told:
        costs.learn("m", ((kind, number),), text, usage(counted))
    for kind in FIRST_GUESS:
        assert 0 <= costs.guess("m", [(kind, 1)]) <= 1_000_000


def test_costs_of_many_models_are_not_kept() -> None:
    costs = MediaCosts()
    for number in range(1000):
        costs.learn(f"m{number}", (("image", 1),), 0, usage(100_000))
    assert costs.guess("m0", [("image", 1)]) == FIRST_GUESS["image"]
    assert costs.guess("m999", [("image", 1)]) > FIRST_GUESS["image"]


@pytest.mark.parametrize(
    ("asked", "default", "interval"),
    [
        (None, None, None),
        (None, 15.0, 15.0),
        (b"5", None, 5.0),
        (b"0.01", None, waiting.LEAST),
        (b"0", 15.0, None),
        (b"soon", 15.0, 15.0),
        (b"1e3", None, None),
    ],
)
def test_who_asks_for_comments_gets_them(
    asked: bytes | None, default: float | None, interval: float | None
) -> None:
    headers = {} if asked is None else {waiting.HEADER: asked}
    request = Request("POST", "/", headers, b"", 0.0, 0.0)
    assert waiting.interval_of(request, default) == interval


def test_the_page_for_people_names_every_endpoint() -> None:
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    for endpoint in ENDPOINTS:
        assert f"`{endpoint.path.replace('{response_id}', '{id}')}`" in page, endpoint.path


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ClientError(400, "m"), "invalid_request_error"),
        (ClientError(404, "m"), "not_found_error"),
        (ClientError(413, "m"), "request_too_large"),
        (ClientError(429, "m", retry_after=2.0), "rate_limit_error"),
        (ClientError(500, "m"), "api_error"),
        (ClientError(503, "m", retry_after=2.0), "overloaded_error"),
    ],
)
def test_anthropics_clients_get_anthropics_errors(error: ClientError, kind: str) -> None:
    status, headers, body = render_error(error, anthropic=True)
    assert json.loads(body) == {"type": "error", "error": {"type": kind, "message": "m"}}
    assert status == error.status
    assert (b"retry-after-ms", b"2000") in headers or error.retry_after is None
    event = render_sse_error(error, anthropic=True)
    assert event == b"event: error\ndata: " + body + b"\n\n"


@pytest.mark.parametrize(
    ("code", "pointless"),
    [
        ("internal_error", True),
        ("tokenizer_failed", True),
        ("backend_total", True),
        ("backend_stream", False),
        ("tokenizer_queue_full", False),
    ],
)
def test_clients_are_told_when_a_retry_is_pointless(code: str, pointless: bool) -> None:
    _, headers, _ = render_error(ClientError(504, "m", code=code))
    assert ((b"x-should-retry", b"false") in headers) is pointless


def test_a_client_keeps_its_id_if_it_is_fit_to_be_one() -> None:
    ids = RequestIds()

    def of(given: bytes | None) -> str:
        headers = {} if given is None else {b"x-request-id": given}
        return ids.of(Request("GET", "/", headers, b"", 0.0, 0.0))

    assert of(b"mine-1") == "mine-1"
    made = {of(None), of(b""), of(b"two words"), of(b"x" * 129), of(b"\xe9")}
    assert len(made) == 5
    assert all(len(one) == 32 for one in made)

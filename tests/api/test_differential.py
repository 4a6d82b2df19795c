"""The gateway makes no difference, in front of a simulated engine."""

import httpx2 as httpx

from tests.api.contract import Service
from tests.api.differential import OWN_CODES, cases, differences


def test_a_client_cannot_tell_the_gateway_from_the_engine(service: Service) -> None:
    wrong = []
    with httpx.Client(base_url=service.engine) as direct, httpx.Client(base_url=service.url) as own:
        for case in cases(service.model):
            answers = [case.send(client) for client in (direct, own)]
            wrong += [f"{case.name}: {what}" for what in differences(case, *answers)]
    assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong[:30])


def test_a_difference_would_be_seen() -> None:
    case = cases("m")[0]

    def answer(document: object, status: int = 200, **headers: str) -> httpx.Response:
        return httpx.Response(status, json=document, headers={"x-request-id": "r"} | headers)

    same = answer({"id": "a", "created": 1, "choices": [1]})
    assert not [*differences(case, same, answer({"id": "b", "created": 2, "choices": [1]}))]
    assert [*differences(case, same, answer({"choices": [2]}))]
    assert [*differences(case, same, answer({"choices": [1]}, 201))]
    assert [*differences(case, same, answer({"choices": [1]}, 200, warning="x"))]
    refused = answer({"error": {"message": "m", "type": "t", "code": 400}}, 400)
    for code in OWN_CODES:
        own = answer({"error": {"message": "o", "type": "t", "code": code}}, 400)
        assert not [*differences(case, refused, own)]
    other = answer({"error": {"message": "o", "type": "t", "code": None}}, 400)
    assert [*differences(case, refused, other)]

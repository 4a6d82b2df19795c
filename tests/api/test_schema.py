"""What /openapi.json says is what the gateway does: schemathesis tries each endpoint."""

from typing import Any

import httpx2 as httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from gateway.api.endpoints import ENDPOINTS, REFUSED
from gateway.api.openapi import document
from tests.api.contract import Service

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
schema = schemathesis.openapi.from_dict(document("0"), config=SchemathesisConfig())


@schema.parametrize()
@settings(
    max_examples=8,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_every_endpoint_answers_as_the_document_says(case: Any, service: Service) -> None:
    case.call_and_validate(base_url=service.url, checks=CHECKS, timeout=20)


def test_the_document_is_served_as_it_is_made(service: Service) -> None:
    served = httpx.get(f"{service.url}/openapi.json").json()
    made = document(served["info"]["version"])
    assert served == made


def test_what_is_for_the_engines_operator_is_refused(service: Service) -> None:
    with httpx.Client(base_url=service.url) as client:
        for path, why in REFUSED.items():
            for method in ("GET", "POST"):
                answer = client.request(method, path, json={})
                assert answer.status_code == 404
                error = answer.json()["error"]
                assert error["code"] == "unknown_endpoint"
                assert why in error["message"]


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda e: f"{e.method} {e.path}")
def test_every_endpoint_is_there_and_takes_its_method_only(service: Service, endpoint: Any) -> None:
    path = endpoint.path.replace("{model}", service.model).replace("{response_id}", "resp_1")
    right = httpx.request(endpoint.method, service.url + path)
    assert right.status_code != 405
    if right.status_code == 404:
        assert right.json().get("error", {}).get("code") != "unknown_endpoint"
    wrong = httpx.delete(service.url + path)
    assert wrong.status_code == 405
    assert wrong.headers["allow"] == endpoint.method
    assert f"takes {endpoint.method}, not DELETE" in wrong.json()["error"]["message"]

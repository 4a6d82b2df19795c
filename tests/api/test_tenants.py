"""What a tenant that may use some of the models can do with them, at a gateway before an engine."""

from dataclasses import dataclass
from typing import Any

import httpx2 as httpx
import pytest

from gateway.tenancy.keys import new_key
from tests.api.conftest import MODEL, StartEngine, StartGateway


@dataclass(frozen=True)
class Place:
    """A gateway, and a key whose tenant may use the adapter `poet` alone."""

    url: str
    key: str

    def ask(self, method: str, path: str, **sent: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.key}"}
        return httpx.request(method, self.url + path, headers=headers, timeout=60, **sent)


@pytest.fixture(scope="module")
def place(start_engine: StartEngine, start_gateway: StartGateway) -> Place:
    key = new_key()
    gateway = start_gateway(
        start_engine("--lora-modules", "poet"),
        keys={"k": {"tenant": "acme", "sha256": key.sha256}},
        tenants={"acme": {"models": ["poet"]}},
        aliases={"whisper-1": MODEL},
    )
    return Place(gateway.url, key.secret)


def test_a_tenants_own_stored_response_is_fetched_and_cancelled(place: Place) -> None:
    body = {"model": "poet", "input": "Remember 12.", "max_output_tokens": 1}
    made = place.ask("POST", "/v1/responses", json=body)
    assert made.status_code == 200
    path = f"/v1/responses/{made.json()['id']}"
    assert place.ask("GET", path).json()["id"] == made.json()["id"]
    cancelled = place.ask("POST", f"{path}/cancel")
    assert (cancelled.status_code, "synchronous" in cancelled.text) == (400, True)
    refused = place.ask("POST", "/v1/responses", json=body | {"model": MODEL})
    assert refused.status_code == 403


@pytest.mark.parametrize("name", [MODEL, "whisper-1"])
def test_a_form_does_not_get_a_model_that_its_tenant_may_not_use(place: Place, name: str) -> None:
    path, files = "/v1/audio/transcriptions", {"file": ("a.wav", b"RIFF")}
    refused = place.ask("POST", path, data={"model": name}, files=files)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "model_not_allowed")
    both = place.ask("POST", path, data={"model": ["poet", name]}, files=files)
    assert (both.status_code, both.json()["error"]["code"]) == (400, "invalid_form")

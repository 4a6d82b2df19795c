"""The record of a request that went well."""

from gateway.record import Outcome, RequestRecord

RECORD = RequestRecord(
    request_id="r1",
    path="/v1/chat/completions",
    outcome=Outcome.COMPLETED,
    status=200,
    model="m",
    service_class="short",
    backend="b",
    channel="ids",
    prompt_tokens=12,
    stream=True,
    attempts=1,
    stages={"read": 0.001, "tokenize": 0.002},
    ttft=0.1,
    e2e=0.5,
    error="",
)

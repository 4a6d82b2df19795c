"""The gateway makes no difference, in front of a real vLLM."""

import httpx2 as httpx

from tests.api.differential import cases, differences
from tests.real_vllm.servers import Server


def test_a_client_cannot_tell_the_gateway_from_vllm(vllm: Server, gateway: Server) -> None:
    wrong = []
    with (
        httpx.Client(base_url=vllm.url, timeout=60) as direct,
        httpx.Client(base_url=gateway.url, timeout=60) as through,
    ):
        for case in cases("tiny"):
            answers = [case.send(client) for client in (direct, through)]
            wrong += [f"{case.name}: {what}" for what in differences(case, *answers)]
    assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong[:40])

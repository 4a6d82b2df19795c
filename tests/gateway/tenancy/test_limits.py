"""What a request meets before it may queue, in virtual time and without Redis."""

from typing import Any

import pytest

from gateway.config import Config
from gateway.replicas.config import ReplicasConfig
from gateway.replicas.sharing import Sharing
from gateway.tenancy.allowance import Refused
from gateway.tenancy.limits import Limits, quotas_of, slots_of
from gateway.tenancy.stand_in import STAND_IN, stands_in
from scheduler.model import Ticket
from tokenizer_pool.prefix import prefix_hashes_of


def config(**changes: Any) -> Config:
    return Config.model_validate({"backends": {"a": {"url": "http://h:1"}}} | changes)


class Gateway:
    """Limits with all that they need, alone in the world."""

    def __init__(self, **changes: Any) -> None:
        settings = config(**changes)
        self.sharing = Sharing(None, ReplicasConfig(), tuple, lambda _: None)
        self.sharing.configure(slots_of(settings), quotas_of(settings))
        self.limits = Limits(settings, self.sharing)
        self.number = 0

    def ask(self, now: float = 0.0, **fields: Any) -> tuple[str, Refused | None]:
        self.number += 1
        values = {"id": str(self.number), "model": "m", "prompt_tokens": 10, "tenant": "acme"}
        ticket = Ticket(**(values | fields))
        return ticket.id, self.limits.take(ticket, now)

    def refusal(self, now: float = 0.0, **fields: Any) -> tuple[int, str] | None:
        _, refused = self.ask(now, **fields)
        return None if refused is None else (refused.status, refused.code)


def tenant(**fields: Any) -> dict[str, Any]:
    return {"tenants": {"acme": fields}}


def test_without_limits_everything_is_taken() -> None:
    gateway = Gateway()
    assert all(gateway.refusal(prompt_tokens=10**6) is None for _ in range(1000))


@pytest.mark.parametrize(
    ("settings", "ticket", "refused"),
    [
        (tenant(models=["m", "n"]), {}, None),
        (tenant(models=["n"]), {}, (403, "model_not_allowed")),
        (tenant(models=["n"]), {"tenant": "other"}, None),
        (tenant(classes={"long": 0}), {"prompt_tokens": 1025}, (403, "class_not_allowed")),
        (tenant(classes={"long": 0}), {"prompt_tokens": 1024}, None),
        ({"models": {"m": {"paused": True}}}, {}, (503, "model_paused")),
        ({"models": {"m": {"paused": True}}}, {"model": "n"}, None),
        ({"models": {"m": {"max_prompt_tokens": 9}}}, {}, (400, "context_length_exceeded")),
        ({"models": {"m": {"max_prompt_tokens": 10}}}, {}, None),
        (tenant(tokens_per_minute=99), {"max_tokens": 90}, (429, "rate_limit_exceeded")),
    ],
)
def test_what_is_allowed(
    settings: dict[str, Any], ticket: dict[str, Any], refused: tuple[int, str] | None
) -> None:
    assert Gateway(**settings).refusal(**ticket) == refused


@pytest.mark.parametrize(
    ("settings", "bound"),
    [
        (tenant(concurrent=3), 3),
        (tenant(classes={"short": 2}), 2),
        ({"models": {"m": {"concurrent": 4}}}, 4),
        (tenant(concurrent=3) | {"models": {"m": {"concurrent": 2}}}, 2),
    ],
)
def test_concurrent_requests_are_bounded_and_come_back(
    settings: dict[str, Any], bound: int
) -> None:
    gateway = Gateway(**settings)
    taken = [gateway.ask() for _ in range(bound)]
    assert [refused for _, refused in taken] == [None] * bound
    _, refused = gateway.ask()
    assert refused is not None
    assert (refused.status, refused.code) == (429, "concurrent_requests_exceeded")
    assert refused.retry_after
    gateway.limits.ended(taken[0][0], 1.0, served=True)
    assert gateway.refusal(1.0) is None
    assert gateway.refusal(1.0) is not None


RULES = [
    tenant(models=["n"]),
    tenant(classes={"short": 0}),
    {"models": {"m": {"paused": True}}},
    {"models": {"m": {"max_prompt_tokens": 9}}},
    {"models": {"m": {"concurrent": 1}}},
]


@pytest.mark.parametrize("settings", RULES)
def test_a_model_that_only_stands_for_a_stored_response_is_judged_by_no_rule(
    settings: dict[str, Any],
) -> None:
    gateway = Gateway(**settings)
    assert [gateway.refusal(prefix=STAND_IN) for _ in range(3)] == [None] * 3
    assert [gateway.refusal() for _ in range(3)] != [None] * 3


@pytest.mark.parametrize("settings", [tenant(concurrent=2), tenant(requests_per_minute=2)])
def test_fetching_a_stored_response_counts_as_a_request(settings: dict[str, Any]) -> None:
    gateway = Gateway(**settings)
    assert [gateway.refusal(prefix=STAND_IN) for _ in range(2)] == [None] * 2
    assert gateway.refusal(prefix=STAND_IN) is not None


@pytest.mark.parametrize("first", [0, 2**32 - 1])
def test_no_prompt_has_the_mark_of_what_stands_in(first: int) -> None:
    hashes = prefix_hashes_of([first] * 300)
    assert hashes
    assert min(hashes) >= 0
    assert not stands_in(Ticket("x", "m", 300, prefix=hashes))


def test_requests_per_minute_come_back_a_minute_later() -> None:
    gateway = Gateway(**tenant(requests_per_minute=5))
    assert [gateway.refusal(float(n)) for n in range(5)] == [None] * 5
    _, refused = gateway.ask(10.0)
    assert refused is not None
    assert refused.code == "rate_limit_exceeded"
    assert refused.retry_after is not None
    assert 50.0 < refused.retry_after < 52.0
    assert gateway.refusal(10.0 + refused.retry_after) is None


def test_tokens_are_reserved_on_the_exact_count_and_settled_on_usage() -> None:
    gateway = Gateway(**tenant(tokens_per_minute=100))
    first, refused = gateway.ask(prompt_tokens=20, max_tokens=60)
    assert refused is None
    assert gateway.refusal(prompt_tokens=21) is not None
    gateway.limits.settle(first, 5, 1.0)
    gateway.limits.ended(first, 1.0, served=True)
    assert gateway.refusal(1.0, prompt_tokens=75) is None
    assert gateway.refusal(1.0, prompt_tokens=1) is not None


def test_a_longer_answer_than_reserved_counts_too() -> None:
    gateway = Gateway(**tenant(tokens_per_minute=100))
    first, _ = gateway.ask(prompt_tokens=20)
    gateway.limits.settle(first, 70, 0.0)
    assert gateway.refusal(prompt_tokens=11) is not None
    assert gateway.refusal(prompt_tokens=10) is None


def test_what_was_not_served_costs_nothing_so_a_retry_is_no_second_request() -> None:
    gateway = Gateway(**tenant(tokens_per_minute=100, requests_per_minute=1))
    for _ in range(3):
        failed, refused = gateway.ask(prompt_tokens=100)
        assert refused is None
        gateway.limits.ended(failed, 0.0, served=False)
    served, _ = gateway.ask(prompt_tokens=100)
    gateway.limits.ended(served, 0.0, served=True)
    assert gateway.refusal(prompt_tokens=1) is not None


def test_a_request_that_can_never_fit_is_not_told_to_try_again() -> None:
    _, refused = Gateway(**tenant(tokens_per_minute=50)).ask(prompt_tokens=51)
    assert refused is not None
    assert refused.retry_after is None
    assert (b"x-should-retry", b"false") in refused.headers()


def test_clients_are_told_as_by_openai() -> None:
    gateway = Gateway(**tenant(requests_per_minute=10, tokens_per_minute=1000))
    gateway.ask(prompt_tokens=30)
    told = gateway.limits.allowance(Ticket("x", "m", 1, tenant="acme"), 0.0)
    assert told is not None
    headers = dict(told.headers())
    assert headers[b"x-ratelimit-limit-requests"] == b"10"
    assert headers[b"x-ratelimit-remaining-requests"] == b"9"
    assert headers[b"x-ratelimit-remaining-tokens"] == b"970"
    assert headers[b"x-ratelimit-reset-tokens"] == b"1m1s"
    assert gateway.limits.allowance(Ticket("x", "m", 1, tenant="other"), 0.0) is None


def test_lowered_limits_leave_what_was_taken_alone() -> None:
    gateway = Gateway(**tenant(concurrent=3))
    taken = [gateway.ask()[0] for _ in range(3)]
    lower = config(**tenant(concurrent=1))
    gateway.sharing.configure(slots_of(lower), quotas_of(lower))
    gateway.limits.configure(lower)
    for ticket_id in taken[:2]:
        gateway.limits.ended(ticket_id, 0.0, served=True)
        assert gateway.refusal() is not None
    gateway.limits.ended(taken[2], 0.0, served=True)
    assert gateway.refusal() is None

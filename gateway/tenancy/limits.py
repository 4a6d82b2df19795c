"""What a request meets before it may queue: its tenant's and its model's limits.

Everything is decided at once, from the leases and accounts that this gateway holds; nothing waits.
A ticket that is taken counts until it has ended, whatever ended it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gateway.config import Config
from gateway.replicas.sharing import Sharing, Use
from gateway.tenancy.account import Account
from gateway.tenancy.allowance import Allowance, Refused, seconds, too_large
from gateway.tenancy.config import TenantConfig
from gateway.tenancy.stand_in import stands_in
from scheduler.model import Ticket

_SLOTS_BACK = 1.0
"""Seconds after which a concurrent slot may be free: requests end, but nobody knows when."""


@dataclass(frozen=True, slots=True)
class _Taken:
    slots: tuple[str, ...]
    prompt: int
    bills: "tuple[_Bill, ...]"


@dataclass(frozen=True, slots=True)
class _Bill:
    """What the ticket would spend of each account."""

    name: str
    amount: int
    unit: str


class Limits:
    """The limits in force, and what is taken of them here."""

    def __init__(self, config: Config, sharing: Sharing) -> None:
        self._sharing = sharing
        self.configure(config)
        self._used: dict[str, int] = {}
        self._short: dict[str, int] = {}
        self._taken: dict[str, _Taken] = {}

    def configure(self, config: Config) -> None:
        """The limits of the next tickets; those that were taken count on. What they need of
        `sharing` must be there."""
        self._config = config
        bounds = (
            (float("inf") if spec.max_prompt_tokens is None else spec.max_prompt_tokens, name)
            for name, spec in config.classes.items()
        )
        self._bounds = sorted(bounds)

    def uses(self) -> Iterator[Use]:
        """What of each lease is in use here, and what would be."""
        for name in slots_of(self._config):
            used = self._used.get(name, 0)
            yield name, used, used + self._short.pop(name, 0)

    def take(self, ticket: Ticket, now: float) -> Refused | None:
        """Count the ticket, or say why not. A retry is a new ticket; the one before, which was
        not served, costs nothing."""
        refused = None if stands_in(ticket) else self._forbidden(ticket)
        if refused is not None:
            return refused
        slots = self._slots(ticket)
        bills = self._bills(ticket)
        refused = self._short_of_slots(ticket, slots) or self._short_of_quota(ticket, bills, now)
        if refused is not None:
            return refused
        for name in slots:
            self._used[name] = self._used.get(name, 0) + 1
        for bill in bills:
            self._account(bill.name).spend(bill.amount, now)
        if slots or bills:
            self._taken[ticket.id] = _Taken(slots, ticket.prompt_tokens, tuple(bills))
        return None

    def allowance(self, ticket: Ticket, now: float) -> Allowance | None:
        """What the tenant has left; None when it has no quota."""
        tenant = self._tenant(ticket)
        if tenant is None:
            return None
        views = {
            unit: self._account(f"{ticket.tenant}:{unit}").view(now)
            for unit, limit in (
                ("requests", tenant.requests_per_minute),
                ("tokens", tenant.tokens_per_minute),
            )
            if limit is not None
        }
        if not views:
            return None
        return Allowance(ticket.id, views.get("requests"), views.get("tokens"))

    def settle(self, ticket_id: str, answer: int, now: float) -> None:
        """The answer has so many tokens: what was taken too much goes back, too little is taken."""
        taken = self._taken.get(ticket_id)
        if taken is None:
            return
        bills = []
        for bill in taken.bills:
            if bill.unit == "tokens":
                used = taken.prompt + answer
                self._spend_more(bill, used - bill.amount, now)
                bill = replace(bill, amount=used)  # noqa: PLW2901 - what stands in its place
            bills.append(bill)
        self._taken[ticket_id] = replace(taken, bills=tuple(bills))

    def ended(self, ticket_id: str, now: float, *, served: bool) -> None:
        """The ticket is over. One that was not served costs nothing."""
        taken = self._taken.pop(ticket_id, None)
        if taken is None:
            return
        for bill in () if served else taken.bills:
            self._spend_more(bill, -bill.amount, now)
        for name in taken.slots:
            self._used[name] -= 1
            if not self._used[name]:
                del self._used[name]

    def priority(self, ticket: Ticket) -> int:
        tenant = self._tenant(ticket)
        return 0 if tenant is None else tenant.priority

    def _tenant(self, ticket: Ticket) -> TenantConfig | None:
        return self._config.tenants.get(ticket.tenant)

    def _account(self, name: str) -> Account:
        return self._sharing.accounts[name]

    def _class_of(self, ticket: Ticket) -> str:
        return next(name for bound, name in self._bounds if ticket.prompt_tokens <= bound)

    def _forbidden(self, ticket: Ticket) -> Refused | None:
        tenant, model = self._tenant(ticket), self._config.models.get(ticket.model)
        if tenant is not None and tenant.models and ticket.model not in tenant.models:
            message = f"this API key may not use the model {ticket.model}"
            return Refused(ticket.id, 403, "model_not_allowed", message)
        if tenant is not None and tenant.classes.get(self._class_of(ticket)) == 0:
            name, tokens = self._class_of(ticket), ticket.prompt_tokens
            message = f"this API key may not send {name} prompts; this one has {tokens} tokens"
            return Refused(ticket.id, 403, "class_not_allowed", message)
        if model is not None and model.paused:
            message = f"the model {ticket.model} is paused by the operator; retry later"
            return Refused(ticket.id, 503, "model_paused", message, 30.0)
        longest = None if model is None else model.max_prompt_tokens
        if longest is not None and ticket.prompt_tokens > longest:
            message = (
                f"This gateway takes prompts of up to {longest} tokens for {ticket.model}. "
                f"However, your prompt has {ticket.prompt_tokens} tokens. Shorten the prompt."
            )
            return Refused(ticket.id, 400, "context_length_exceeded", message)
        return None

    def _slots(self, ticket: Ticket) -> tuple[str, ...]:
        """The leases that the ticket takes one slot of."""
        tenant, model = self._tenant(ticket), self._config.models.get(ticket.model)
        names = []
        if tenant is not None and tenant.concurrent is not None:
            names.append(f"tenant:{ticket.tenant}")
        if stands_in(ticket):
            return tuple(names)
        if model is not None and model.concurrent is not None:
            names.append(f"model:{ticket.model}")
        if tenant is not None and (name := self._class_of(ticket)) in tenant.classes:
            names.append(f"tenant:{ticket.tenant}:{name}")
        return tuple(names)

    def _short_of_slots(self, ticket: Ticket, slots: tuple[str, ...]) -> Refused | None:
        for name in slots:
            lease = self._sharing.leases[name]
            if self._used.get(name, 0) >= lease.may_use:
                self._short[name] = self._short.get(name, 0) + 1
                self._sharing.hurry()
                who = "the model has" if name.startswith("model:") else "this API key's tenant has"
                message = f"{who} {lease.capacity} requests at a time, and all are in use; retry"
                code = "concurrent_requests_exceeded"
                return Refused(ticket.id, 429, code, message, _SLOTS_BACK)
        return None

    def _bills(self, ticket: Ticket) -> list[_Bill]:
        tenant = self._tenant(ticket)
        if tenant is None:
            return []
        bills = []
        if tenant.requests_per_minute is not None:
            bills.append(_Bill(f"{ticket.tenant}:requests", 1, "requests"))
        if tenant.tokens_per_minute is not None:
            amount = ticket.prompt_tokens + ticket.max_tokens
            bills.append(_Bill(f"{ticket.tenant}:tokens", amount, "tokens"))
        return bills

    def _short_of_quota(self, ticket: Ticket, bills: list[_Bill], now: float) -> Refused | None:
        for bill in bills:
            account = self._account(bill.name)
            if bill.amount > account.limit:
                message = too_large(account.limit, bill.amount, bill.unit)
                return Refused(ticket.id, 429, "rate_limit_exceeded", message, None)
            if not account.room(bill.amount, now):
                account.refused(bill.amount)
                self._sharing.hurry()
                wait = account.wait(bill.amount, now)
                message = (
                    f"this API key's tenant has {account.limit} {bill.unit} per minute; "
                    f"try again in {seconds(wait)} s"
                )
                return Refused(ticket.id, 429, "rate_limit_exceeded", message, wait)
        return None

    def _spend_more(self, bill: _Bill, amount: int, now: float) -> None:
        if (account := self._sharing.accounts.get(bill.name)) is not None:
            account.spend(amount, now)


def slots_of(config: Config) -> dict[str, int]:
    """What is bounded in number at a time, over all gateways, besides backends."""
    slots: dict[str, int] = {}
    for name, model in config.models.items():
        if model.concurrent is not None:
            slots[f"model:{name}"] = model.concurrent
    for name, tenant in config.tenants.items():
        if tenant.concurrent is not None:
            slots[f"tenant:{name}"] = tenant.concurrent
        slots.update((f"tenant:{name}:{c}", n) for c, n in tenant.classes.items() if n)
    return slots


def quotas_of(config: Config) -> dict[str, int]:
    """What is bounded in any minute, over all gateways."""
    quotas: dict[str, int] = {}
    for name, tenant in config.tenants.items():
        if tenant.requests_per_minute is not None:
            quotas[f"{name}:requests"] = tenant.requests_per_minute
        if tenant.tokens_per_minute is not None:
            quotas[f"{name}:tokens"] = tenant.tokens_per_minute
    return quotas

"""What a change of the settings would do to the traffic of this moment, in words. Pure.

`traffic` is what `/ready` says: counts, not guesses. What only the future can show is not told.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.config import BackendConfig, Config

Traffic = Mapping[str, Any]


def impact(before: Config, after: Config, traffic: Traffic) -> list[str]:
    """One sentence for each thing that clients could notice."""
    told = [*_backends(before, after, traffic), *_classes(before, after, traffic)]
    told += [*_tenants(before, after), *_models(before, after)]
    return told or ["nothing that requests now waiting or in flight would notice"]


def _backends(before: Config, after: Config, traffic: Traffic) -> Iterator[str]:
    for name, new in after.backends.items():
        old, seen = before.backends.get(name), traffic.get("backends", {}).get(name, {})
        if old is None or old == new:
            continue
        flying = int(seen.get("in_flight", 0))
        if _takes(old) and not _takes(new):
            others = [n for n, b in after.backends.items() if n != name and _stands_in(b, new)]
            where = f"new ones go to {', '.join(others)}" if others else _NOWHERE
            end = "finish" if new.drain else "go on"
            yield f"backend {name}: its {flying} requests in flight {end}; {where}"
        elif _takes(new) and not _takes(old):
            first = ", once it is proved and warm" if old.drain else ""
            yield f"backend {name}: takes requests again{first}"
        if new.limit < old.limit:
            over = max(0, flying - new.limit)
            yield (
                f"backend {name}: limit {old.limit} → {new.limit}, {flying} in flight: "
                + (f"nothing new until {over} of them have ended" if over else "it has room still")
            )
        elif new.limit > old.limit:
            yield f"backend {name}: room for {new.limit - old.limit} more requests at once"
        if set(new.classes) != set(old.classes):
            yield f"backend {name}: serves {', '.join(new.classes) or 'all classes'} from now on"


_NOWHERE = "no other backend serves its classes: new ones wait, and then expire with 503"


def _takes(backend: BackendConfig) -> bool:
    return backend.weight > 0 and not backend.drain


def _stands_in(other: BackendConfig, gone: BackendConfig) -> bool:
    shared = not other.classes or not gone.classes or set(other.classes) & set(gone.classes)
    return _takes(other) and bool(shared)


def _classes(before: Config, after: Config, traffic: Traffic) -> Iterator[str]:
    for name, new in after.classes.items():
        old, pool = before.classes[name], traffic.get("pools", {}).get(name, {})
        queued, flying = int(pool.get("queued", 0)), int(pool.get("in_flight", 0))
        if new.max_prompt_tokens != old.max_prompt_tokens:
            yield (
                f"class {name}: up to {new.max_prompt_tokens or 'any number of'} tokens (was "
                f"{old.max_prompt_tokens or 'any'}); {queued} waiting are sorted anew"
            )
        if new.limit != old.limit and new.limit is not None and flying >= new.limit:
            yield f"class {name}: {flying} in flight, limit {new.limit}: nothing new until they end"
        if new.queue_limit < old.queue_limit and queued >= new.queue_limit:
            yield f"class {name}: {queued} wait already: one more that must wait gets 429"


def _tenants(before: Config, after: Config) -> Iterator[str]:
    if bool(before.keys) != bool(after.keys):
        yield (
            "requests without an API key are refused with 401 from now on"
            if after.keys
            else "nobody needs an API key any more: the gateway is open"
        )
    for name in sorted({k.tenant for k in before.keys.values()}):
        had = sum(k.tenant == name for k in before.keys.values())
        has = sum(k.tenant == name for k in after.keys.values())
        if after.keys and has < had:
            yield f"tenant {name}: {has or 'none'} of its {had} keys still works"
    for name, new in after.tenants.items():
        old = before.tenants.get(name)
        for field in ("requests_per_minute", "tokens_per_minute", "concurrent"):
            bound, was = getattr(new, field), getattr(old, field, None)
            if bound is not None and (was is None or bound < was):
                yield f"tenant {name}: more than {bound} {field.replace('_', ' ')} gets 429"


def _models(before: Config, after: Config) -> Iterator[str]:
    for name, new in after.models.items():
        old = before.models.get(name)
        if new.paused and not (old is not None and old.paused):
            yield f"model {name}: new requests are refused with 503, those in flight finish"

"""One backend's slots between three gateways: never more in flight than its limit, also when one
of the gateways is killed, and none idle for long."""

import asyncio
import time
from typing import Any

from bench.control.client import ask
from bench.control.fleet import Fleet

AT_ONCE = 30
LONG: dict[str, Any] = {"max_tokens": 40, "ignore_eos": True}


async def slots(fleet: Fleet, backend: str, limit: int, seconds: float) -> dict[str, Any]:
    """More requests than slots all the time; the last gateway is killed half way."""
    seen: list[tuple[float, int]] = []
    stop = asyncio.Event()

    async def client(number: int) -> None:
        while not stop.is_set():
            if await ask(fleet, number, **LONG) == 0:
                await asyncio.sleep(0.2)

    async def watch() -> None:
        while not stop.is_set():
            seen.append((time.monotonic(), await _in_flight(fleet, backend)))
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        for number in range(AT_ONCE):
            group.create_task(client(number))
        await asyncio.sleep(seconds)
        fleet.gateways[-1].process.kill()
        killed = time.monotonic()
        await asyncio.sleep(seconds)
        stop.set()
    whole = [at - killed for at, count in seen if at > killed + 0.2 and count == limit]
    before = [count for at, count in seen if at < killed]
    return {
        "limit": limit,
        "most_in_flight": max(count for _, count in seen),
        "samples": len(seen),
        "mean_in_flight_before": round(sum(before) / len(before), 2),
        "all_slots_in_use_again_after_s": round(min(whole), 2) if whole else None,
    }


async def _in_flight(fleet: Fleet, backend: str) -> int:
    """What the engine itself counts."""
    async with fleet.http.get(f"{fleet.engines[backend]}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    wanted = ("vllm:num_requests_running", "vllm:num_requests_waiting")
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines if line.startswith(wanted))

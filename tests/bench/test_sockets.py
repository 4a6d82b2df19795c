"""What the comparison of sockets with the simulation says of its figures."""

from bench.sockets import summary


def _figures(fixed: float, p99: float) -> dict[str, float]:
    return {
        "short_p50": 10.0 + fixed,
        "short_mean": 12.0 + fixed,
        "short_p99": p99 + fixed,
        "long_mean": 800.0 + fixed,
        "long_p99": 2000.0 + fixed,
    }


def test_what_every_request_pays_is_told_apart_from_what_differs_beyond_it() -> None:
    detail = {
        "direct": {"sockets": _figures(2.0, 400.0), "simulated": _figures(0.0, 400.0)},
        "forebay": {"sockets": _figures(5.0, 40.0), "simulated": _figures(0.0, 20.0)},
    }
    found = summary(detail)
    assert (found["direct_fixed_ms"], found["forebay_fixed_ms"]) == (2.0, 5.0)
    assert found["direct_short_mean_sockets_over_simulated"] == 1.167
    assert found["direct_short_mean_beyond_fixed"] == 1.0
    assert found["forebay_short_p99_sockets_over_simulated"] == 2.25
    assert found["forebay_short_p99_beyond_fixed"] == 1.8
    assert found["short_p99_ratio_simulated"] == 20.0

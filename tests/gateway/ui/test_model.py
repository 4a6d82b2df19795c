"""What the page is made from: news, counts, timeline, settings. No clock, no socket."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.types import BackendSpec, BackendStatus, State
from gateway.config import Config
from gateway.metrics import TTFT_BUCKETS, Metrics
from gateway.record import Outcome
from gateway.ui import counts
from gateway.ui.counts import Counts
from gateway.ui.news import KEPT as NEWS_KEPT
from gateway.ui.news import Kind, News
from gateway.ui.settings import shown
from gateway.ui.timeline import KEPT, Second, Timeline
from scheduler.events import Decided
from tests.gateway.report.days import record

SPEC = BackendSpec("short-0", "http://127.0.0.1:1")


def minute(*records: object, before: Metrics | None = None) -> dict[str, Counts]:
    metrics = Metrics()
    for one in records:
        metrics.observe(one)  # type: ignore[arg-type]
    return counts.read(metrics.rows)


def test_counts_are_those_of_the_metrics_by_class() -> None:
    found = minute(
        record(0.07),
        record(0.2, model="another"),
        record(None, outcome=Outcome.SHED, status=429),
        record(None, outcome=Outcome.ABANDONED, status=499),
        record(3.0, service_class="long"),
    )
    assert set(found) == {"short", "long"}
    short = found["short"]
    assert (short.requests, short.failed, sum(short.buckets)) == (4, 1, 2)
    assert short.seconds == pytest.approx(0.27)
    assert short.stages["queue"] == (4, pytest.approx(0.04))


def test_a_window_is_the_difference_of_two_readings() -> None:
    metrics = Metrics()
    metrics.observe(record(0.07))
    before = counts.read(metrics.rows)["short"]
    metrics.observe(record(0.5, stages={"read": 0.0, "queue": 0.3}))
    window = counts.since(counts.read(metrics.rows)["short"], before)
    told = counts.document(window, 10.0, TTFT_BUCKETS)
    assert told["rate"] == 0.1
    assert told["mean"] == pytest.approx(0.5)
    stages = {stage["name"]: stage["seconds"] for stage in told["stages"]}
    assert stages == {"read": pytest.approx(0.0), "queue": pytest.approx(0.3)}


def test_of_a_quiet_minute_nothing_is_said() -> None:
    told = counts.document(Counts(), 60.0, TTFT_BUCKETS)
    assert (told["streams"], told["mean"], told["p50"], told["stages"]) == (0, None, None, [])


@given(st.lists(st.floats(0.0001, 59), min_size=1, max_size=40), st.floats(0.01, 1.0))
def test_a_quantile_lies_in_the_bucket_of_the_exact_one(values: list[float], share: float) -> None:
    found = counts.quantile(minute(*map(record, values))["short"], share, TTFT_BUCKETS)
    exact = sorted(values)[max(0, -(-int(share * len(values) * 1e9) // int(1e9)) - 1)]
    above = min(bound for bound in TTFT_BUCKETS if bound >= exact)
    below = max((bound for bound in TTFT_BUCKETS if bound < exact), default=0.0)
    assert found is not None
    assert below <= found <= above or found == pytest.approx(below)


def test_what_lies_above_every_bucket_is_told_as_the_last_bound() -> None:
    assert counts.quantile(minute(record(500.0))["short"], 0.5, TTFT_BUCKETS) == TTFT_BUCKETS[-1]


def test_news_has_the_newest_and_is_bounded() -> None:
    news = News()
    for number in range(NEWS_KEPT + 5):
        news.decided(Decided("long", "burst: a long prompt", 8, 4, f"arrived:{number}"))
    items = news.items()
    assert len(items) == NEWS_KEPT
    assert items[-1].cause == f"arrived:{NEWS_KEPT + 4}"
    assert items[-1].text == "limit 8 → 4: burst: a long prompt"
    assert items[-1].kind is Kind.BURST


def test_each_kind_of_news_is_heard_once() -> None:
    heard: list[tuple[Kind, str]] = []
    news = News()
    news.heard = lambda item: heard.append((item.kind, item.subject))
    down = BackendStatus(SPEC, State.DOWN, None, "refused")
    news.backend(down)
    news.backend(BackendStatus(SPEC, State.DOWN, None, "refused", share=0.5))
    news.decided(Decided("long", "limit recovers", 4, 8, "woke"))
    news.distrusted("short-0", "m", "it counts otherwise")
    news.accepted()
    news.rejected({"forebay:burst": "no such field", "forebay:class:x": "no such class"})
    assert heard == [
        (Kind.BACKEND, "short-0"),
        (Kind.LIMIT, "long"),
        (Kind.CHANNEL, "short-0"),
        (Kind.SETTINGS, "settings"),
        (Kind.SETTINGS, "forebay:burst"),
        (Kind.SETTINGS, "forebay:class:x"),
    ]


def test_the_timeline_is_fifteen_minutes_and_knows_when_a_class_came() -> None:
    timeline = Timeline()
    for second in range(KEPT + 10):
        classes = {"short": (1, 2, 3, 4, 0.1)}
        if second >= KEPT + 8:
            classes["new"] = (9, 9, 9, 9, None)  # type: ignore[assignment]
        timeline.add(Second(float(second), classes))
    document = timeline.document()
    assert len(timeline) == len(document["times"]) == KEPT == 15 * 60
    assert document["times"][0] == 10.0
    assert document["classes"]["new"]["queued"][-3:] == (0, 9, 9)
    assert document["classes"]["short"]["effective"][-1] == 3
    orjson.dumps(document)


def test_no_secret_is_shown() -> None:
    config = Config.model_validate(
        {
            "redis": "redis://user:topsecret@redis:6379",
            "backends": {
                "a": {"url": "http://a", "api_key": "topsecret"},
                "b": {"url": "http://b"},
            },
            "keys": {"k": {"sha256": "ab" * 32, "tenant": "t"}},
            "tenants": {"t": {}},
        }
    )
    settings = shown(config)
    assert "topsecret" not in repr(settings)
    assert "abab" not in repr(settings)
    assert settings["backends.a.api_key"] == "(set)"
    assert settings["backends.b.api_key"] is None
    assert settings["redis"] == "redis://redis:6379"
    assert settings["burst.prompt_tokens"] == 2048

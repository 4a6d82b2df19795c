"""The load generator's pure parts: arrivals, prompts, answers, numbers."""

import time
from itertools import islice, pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from bench.fake_vllm import TOKENIZER
from bench.load.answer import DocumentReading, StreamReading, seconds, stages
from bench.load.arrivals import Arrivals, Rhythm, jobs, limited, sizes
from bench.load.exchange import snake_case
from bench.load.plan import Lengths, Planner
from bench.load.prompts import InexactTokenizer, Prompts, length_with
from bench.load.run import Effort
from bench.load.sample import Sample
from bench.load.summary import Objective, detail, flat
from bench.load.target import Api, Target
from bench.workload import Job


class TestArrivals:
    @pytest.mark.parametrize("rhythm", list(Rhythm))
    def test_every_rhythm_keeps_the_asked_rate(self, rhythm: Rhythm):
        times = list(islice(Arrivals(50.0, rhythm, off=1.0).times(Random(1)), 20_000))
        assert times == sorted(times)
        assert 20_000 / times[-1] == pytest.approx(50.0, rel=0.06)

    def test_gamma_gaps_vary_as_asked(self):
        times = list(islice(Arrivals(1.0, Rhythm.GAMMA, variation=3.0).times(Random(1)), 50_000))
        gaps = [later - earlier for earlier, later in pairwise(times)]
        mean = sum(gaps) / len(gaps)
        variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
        assert variance**0.5 / mean == pytest.approx(3.0, rel=0.05)

    def test_nothing_comes_in_the_pauses(self):
        arrivals = Arrivals(20.0, Rhythm.ON_OFF, on=1.0, off=3.0)
        times = list(islice(arrivals.times(Random(1)), 2_000))
        assert max(at % 4.0 for at in times) <= 1.0

    def test_constant_is_constant(self):
        assert list(islice(Arrivals(4.0, Rhythm.CONSTANT).times(Random(1)), 3)) == [0.25, 0.5, 0.75]

    def test_the_same_seed_gives_the_same_jobs(self):
        def some(seed: int) -> list[Job]:
            return limited(
                jobs(Arrivals(9.0), sizes("lognormal:300:1"), sizes("8"), seed=seed),
                count=50,
                duration=None,
            )

        assert some(1) == some(1) != some(2)

    def test_duration_and_count_both_bound(self):
        endless = jobs(Arrivals(10.0, Rhythm.CONSTANT), sizes("5"), sizes("1"), seed=0)
        assert len(limited(endless, count=None, duration=1.05)) == 10
        endless = jobs(Arrivals(10.0, Rhythm.CONSTANT), sizes("5"), sizes("1"), seed=0)
        assert len(limited(endless, count=3, duration=1.05)) == 3

    def test_sizes_are_drawn_as_told(self):
        random = Random(1)
        assert {sizes("7")(random) for _ in range(9)} == {7}
        drawn = [sizes("100@0.9,8000@0.1")(random) for _ in range(3000)]
        assert set(drawn) == {100, 8000}
        assert drawn.count(8000) == pytest.approx(300, rel=0.2)
        uniform = [sizes("uniform:3:5")(random) for _ in range(100)]
        assert set(uniform) == {3, 4, 5}
        lognormal = sorted(sizes("lognormal:1000:0.5")(random) for _ in range(3001))
        assert lognormal[1500] == pytest.approx(1000, rel=0.1)

    @pytest.mark.parametrize("text", ["", "x", "0", "uniform:5:3", "uniform:5", "5@-1", "-3"])
    def test_what_is_no_distribution_is_refused(self, text: str):
        with pytest.raises(ValueError, match=r".+"):
            sizes(text)(Random(1))

    @pytest.mark.parametrize("wrong", [{"rate": 0}, {"rate": 1, "on": 0}, {"rate": 1, "off": -1}])
    def test_impossible_arrivals_are_refused(self, wrong: dict[str, float]):
        with pytest.raises(ValueError, match="over 0"):
            Arrivals(**wrong)


PROMPTS = Prompts(length_with(TOKENIZER / "tokenizer.json"))
REFERENCE: Tokenizer = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))


def tokens(text: str) -> int:
    return len(REFERENCE.encode(text, add_special_tokens=False).ids)


class TestPrompts:
    @given(st.integers(1, 3000), st.integers(-(2**60), 2**60))
    @settings(max_examples=60, deadline=None)
    def test_a_text_has_exactly_the_tokens_asked_for(self, wanted: int, seed: int):
        text = PROMPTS.text(wanted, seed)
        assert tokens(text) == wanted
        assert text == text.strip()
        assert text == PROMPTS.text(wanted, seed)

    def test_more_than_the_corpus_can_be_asked_for(self):
        assert tokens(PROMPTS.text(150_000, 1)) == 150_000

    def test_texts_of_different_seeds_begin_differently(self):
        beginnings = {PROMPTS.text(200, seed)[:40] for seed in range(50)}
        assert len(beginnings) == 50

    @given(st.integers(1, 200), st.lists(st.integers(0, 5), max_size=12))
    @settings(max_examples=60, deadline=None)
    def test_a_chain_has_exactly_the_tokens_of_its_whole(self, wanted: int, prefix: list[int]):
        parts = PROMPTS.chained(wanted, prefix, block=16)
        assert tokens("".join(parts)) == wanted

    def test_equal_prefixes_are_equal_text_and_different_ones_are_not(self):
        one = PROMPTS.chained(64, [1, 2, 3, 4], block=16)
        other = PROMPTS.chained(80, [1, 2, 9], block=16)
        assert one[:2] == other[:2]
        assert one[2] != other[2]
        assert len(other) == 5

    def test_the_template_is_counted_in(self):
        planner = Planner(PROMPTS, Lengths(short=100), overhead=24, seed=0)
        plan = [Job(0.0, 100, 4), Job(1.5, 200, 4), Job(2.0, 10, 4)]
        short, long, tiny = planner.requests(plan, warm_up=1.0)
        assert [tokens("".join(r.parts)) for r in (short, long, tiny)] == [76, 176, 1]
        assert (short.service_class, long.service_class) == ("short", "long")
        assert (short.warm_up, long.warm_up) == (True, False)

    def test_a_file_that_is_no_tokenizer_is_said(self, tmp_path):
        (tmp_path / "tokenizer.json").write_text("{}")
        with pytest.raises(InexactTokenizer, match=r"tokenizer\.json"):
            length_with(tmp_path / "tokenizer.json")

    def test_a_tokenizer_without_words_is_said(self):
        with pytest.raises(InexactTokenizer, match="no single token"):
            Prompts(lambda text: 2 * len(text))


STREAM = (
    b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
    b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n'
    b": a comment\n\n"
    b'data: {"choices":[{"delta":{"content":" there"}}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\n'
    b"data: [DONE]\n\n"
)


def read_stream(*pieces: bytes) -> StreamReading:
    reading = StreamReading(first_at=1.0)
    for piece in pieces:
        reading.write(piece)
    return reading


class TestAnswers:
    @given(st.sets(st.integers(1, len(STREAM) - 1)))
    def test_however_a_stream_is_cut_its_events_are_the_same(self, cuts: set[int]):
        edges = [0, *sorted(cuts), len(STREAM)]
        reading = StreamReading(first_at=1.0)
        came = {}
        for begin, end in pairwise(edges):
            reading.write(STREAM[begin:end])
            came[end] = reading.last
        answer = reading.answer()
        assert (answer.prompt_tokens, answer.output_tokens, answer.error) == (7, 2, "")
        ends = [STREAM.index(b"Hi") + 9, STREAM.index(b"there") + 12]
        for at, end in zip(answer.times, ends, strict=True):
            # The time is that of the piece in which the event became whole.
            assert at == came[min(edge for edge in edges if edge >= end)]

    def test_the_first_piece_came_before_it_was_read(self):
        assert read_stream().last == 0.0
        assert read_stream(STREAM).answer().times == (1.0, 1.0)
        before = time.monotonic()
        assert before <= read_stream(STREAM[:5], STREAM[5:]).last <= time.monotonic()

    @pytest.mark.parametrize(
        ("delta", "tokens"),
        [
            ('{"role":"assistant","content":""}', 0),
            ('{"role":"assistant","content":"x"}', 1),
            ('{"content":""}', 1),
            ('{"content":null,"tool_calls":[{}]}', 1),
            ('{"reasoning":"hm"}', 1),
            ("{}", 0),
        ],
    )
    def test_a_token_may_be_half_a_character_but_a_role_is_none(self, delta: str, tokens: int):
        body = f'data: {{"choices":[{{"delta":{delta}}}]}}\n\n'.encode()
        assert len(read_stream(body).answer().times) == tokens

    def test_completions_have_text(self):
        body = b'data: {"choices":[{"index":0,"text":"a"}]}\n\ndata: [DONE]\n\n'
        assert read_stream(body).answer().times == (1.0,)

    @pytest.mark.parametrize(
        ("body", "error"),
        [
            (STREAM.removesuffix(b"data: [DONE]\n\n"), "incomplete"),
            (b"", "incomplete"),
            (b'data: {"error":{"message":"gone"}}\n\n', "error_event"),
            (b'data: {"error":{"message":"gone"}}\n\ndata: [DONE]\n\n', "error_event"),
        ],
    )
    def test_a_stream_that_is_not_whole_is_an_error(self, body: bytes, error: str):
        assert read_stream(body).answer().error == error

    def test_a_document_is_read_for_its_usage(self):
        def read(*pieces: bytes, status: int = 200) -> DocumentReading:
            reading = DocumentReading(1.0, status)
            for piece in pieces:
                reading.write(piece)
            return reading

        usage = b'{"usage":{"prompt_tokens":3,"completion_tokens":4}}'
        answer = read(usage[:9], usage[9:]).answer()
        assert (answer.prompt_tokens, answer.output_tokens) == (3, 4)
        assert read(usage).last == 1.0
        assert read(b'{"usa').answer().error == "incomplete"
        assert read(usage, status=404).answer().error == "http_404"

    def test_a_retry_after_is_read_as_seconds_or_not_at_all(self):
        assert (seconds("7"), seconds("0.25"), seconds("")) == (7.0, 0.25, None)
        assert seconds("Wed, 21 Oct 2026 07:28:00 GMT") is None

    def test_stages_are_milliseconds(self):
        assert stages("read;dur=0.5, total, queue;dur=20") == (("read", 0.0005), ("queue", 0.02))
        assert stages("") == ()


def sample(number: int, ttft: float, **more) -> Sample:
    begin = float(number)
    fields = {
        "service_class": "short",
        "warm_up": False,
        "intended": begin,
        "sent": begin + 0.0001,
        "ended": begin + ttft + 0.9,
        "status": 200,
        "first_token": begin + ttft,
        "last_token": begin + ttft + 0.9,
        "output_tokens": 10,
        "gaps": (0.1,) * 9,
    }
    return Sample(number, **(fields | more))


class TestSummary:
    def test_latencies_count_from_the_intended_start(self):
        one = sample(3, 0.2, sent=3.15)
        assert one.ttft == pytest.approx(0.2)
        assert one.lateness == pytest.approx(0.15)
        assert one.tpot == pytest.approx(0.1)
        assert one.e2e == pytest.approx(1.1)

    def test_classes_errors_and_the_warm_up_are_apart(self):
        samples = [
            sample(0, 9.0, warm_up=True),
            *(sample(n, 0.1) for n in range(1, 5)),
            sample(5, 0.5, service_class="long"),
            sample(6, 0.0, error="http_429", retry_after=3.0, status=429, first_token=None),
        ]
        found = detail(samples, Effort(10.0, 1.0), Objective(ttft=0.3))
        assert found["all"]["requests"] == 6
        assert found["all"]["errors"] == {"http_429": 1}
        assert found["all"]["retry_after_s"] == {"http_429": {"count": 1, "p50": 3.0, "max": 3.0}}
        assert found["classes"]["short"]["ttft_ms"]["max"] == 100.0
        assert found["classes"]["long"]["ttft_ms"]["p50"] == 500.0
        assert found["warm_up"]["ttft_ms"]["p50"] == 9000.0
        # Five complete answers and four good ones in the 5.9 s from 1.0 to 6.9.
        assert found["all"]["requests_per_s"] == pytest.approx(5 / 5.9, abs=1e-3)
        assert found["all"]["goodput_per_s"] == pytest.approx(4 / 5.9, abs=1e-3)
        assert flat(found)["long_ttft_ms_p99"] == 500.0
        assert flat(found)["errors"] == 1

    def test_goodput_may_ask_for_a_tpot_too(self):
        assert Objective(ttft=0.3, tpot=0.2).met(sample(0, 0.1))
        assert not Objective(ttft=0.3, tpot=0.05).met(sample(0, 0.1))
        assert not Objective(ttft=None).met(sample(0, 0.1, error="cancelled"))

    def test_the_generator_says_when_it_was_the_bottleneck(self):
        punctual = [sample(n, 0.1) for n in range(100)]
        assert detail(punctual, Effort(10.0, 1.0), Objective())["generator"]["bottleneck"] == []
        late = [sample(n, 0.1, sent=n + 0.05) for n in range(100)]
        reasons = detail(late, Effort(10.0, 9.9), Objective())["generator"]["bottleneck"]
        assert "50.0 ms late" in reasons[0]
        assert "99% of a core" in reasons[1]

    def test_no_samples_are_no_numbers(self):
        found = detail([], Effort(1.0, 0.0), Objective())
        assert found["all"]["ttft_ms"] == {}
        assert flat(found)["requests"] == 0


class TestTarget:
    @pytest.mark.parametrize(
        ("url", "origin", "path"),
        [
            ("http://h:1", "http://h:1", "/v1/chat/completions"),
            ("http://h:1/", "http://h:1", "/v1/chat/completions"),
            ("https://h/v1/", "https://h", "/v1/chat/completions"),
            ("http://h/team/v1", "http://h", "/team/v1/chat/completions"),
        ],
    )
    def test_the_address_may_have_a_path(self, url: str, origin: str, path: str):
        target = Target(url, "m")
        assert (target.origin, target.path) == (origin, path)

    def test_a_completion_has_a_prompt_and_no_stream_options_unless_streamed(self):
        body = Target("http://h", "m", Api.COMPLETIONS, stream=False).body(["a", "b"], 3)
        assert b'"prompt":"ab"' in body
        assert b"stream_options" not in body


def test_errors_are_named_in_snake_case():
    assert snake_case("FirstTokenTimeout") == "first_token_timeout"

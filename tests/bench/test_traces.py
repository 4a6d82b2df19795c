"""Each format of recorded traffic, as its publisher writes it."""

from pathlib import Path

import pytest

from bench.traces import LOGGED_ANSWER, UnknownTrace, read
from bench.workload import Job

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:03.9900000,300,0
2023-11-16 18:17:04.0319600,3180,8
"""
MOONCAKE = """{"timestamp": 0, "input_length": 1100, "output_length": 7, "hash_ids": [0, 1, 2]}
{"timestamp": 2500, "input_length": 90, "output_length": 1, "hash_ids": [0]}
"""
LOG = """{"time": 1000.0, "prompt_tokens": 40, "e2e": 0.5, "service_class": "short"}
{"time": 1000.2, "prompt_tokens": 9000, "e2e": 2.2, "service_class": "long", "output_tokens": 7}
"""


def jobs(tmp_path: Path, name: str, text: str, limit: int | None = None) -> list[Job]:
    (tmp_path / name).write_text(text)
    return [
        Job(round(job.at, 6), job.prompt, job.output, prefix=job.prefix)
        for job in read(tmp_path / name, limit)
    ]


def test_azures_csv_without_the_requests_that_had_no_answer(tmp_path: Path):
    assert jobs(tmp_path, "a.csv", AZURE) == [Job(0.0, 4808, 10), Job(0.052, 3180, 8)]


def test_mooncakes_lines_keep_their_prefixes(tmp_path: Path):
    assert jobs(tmp_path, "m.jsonl", MOONCAKE) == [
        Job(0.0, 1100, 7, prefix=(0, 1, 2)),
        Job(2.5, 90, 1, prefix=(0,)),
    ]


def test_our_request_log_is_in_the_order_of_arrival(tmp_path: Path):
    assert jobs(tmp_path, "requests.jsonl", LOG) == [
        Job(0.0, 9000, 7),
        Job(1.5, 40, LOGGED_ANSWER),
    ]


@pytest.mark.parametrize(("name", "text"), [("a.csv", AZURE), ("m.jsonl", MOONCAKE)])
def test_a_limit_keeps_the_first_ones(tmp_path: Path, name: str, text: str):
    assert jobs(tmp_path, name, text, 1) == jobs(tmp_path, name, text)[:1]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "when,how\n1,2\n"),
        ("a.csv", AZURE + "yesterday,1,1\n"),
        ("a.jsonl", "not json\n"),
        ("a.jsonl", '{"timestamp": 1, "input_length": 3}\n'),
        ("a.jsonl", "[1]\n"),
        ("a.jsonl", LOG + '{"time": 1}\n'),
    ],
)
def test_what_it_does_not_know_is_said_with_the_files_name(tmp_path: Path, name: str, text: str):
    with pytest.raises(UnknownTrace, match=r"a\.(csv|jsonl)"):
        jobs(tmp_path, name, text)

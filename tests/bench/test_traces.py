"""Each format of recorded traffic, as its publisher writes it."""

from pathlib import Path

import pytest

from bench.traces import ANSWER, UnknownTrace, read_trace
from bench.workload import Job

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,0
"""
MOONCAKE = """
{"timestamp": 500, "input_length": 1100, "output_length": 7, "hash_ids": [0, 1, 2]}
{"timestamp": 2500, "input_length": 90, "output_length": 1, "hash_ids": [0]}
"""
LOG = """
{"time": 1000.0, "e2e": 0.5, "prompt_tokens": 40, "service_class": "short"}
{"time": 1000.2, "e2e": 2.2, "prompt_tokens": 9000, "output_tokens": 5}
"""


def read(tmp_path: Path, name: str, text: str) -> list[Job]:
    path = tmp_path / name
    path.write_text(text)
    return [
        Job(round(job.at, 6), job.prompt, job.output, prefix=job.prefix) for job in read_trace(path)
    ]


def test_azures_csv(tmp_path: Path):
    assert read(tmp_path, "azure.csv", AZURE) == [Job(0.0, 4808, 10), Job(0.052, 3180, 1)]


def test_mooncakes_lines_keep_their_prefixes(tmp_path: Path):
    assert read(tmp_path, "mooncake.jsonl", MOONCAKE) == [
        Job(0.0, 1100, 7, prefix=(0, 1, 2)),
        Job(2.0, 90, 1, prefix=(0,)),
    ]


def test_our_request_log_is_in_the_order_of_arrival(tmp_path: Path):
    assert read(tmp_path, "requests.jsonl", LOG) == [Job(0.0, 9000, 5), Job(1.5, 40, ANSWER)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "when,how\n1,2\n"),
        ("a.csv", AZURE + "yesterday,1,1\n"),
        ("a.jsonl", "not json\n"),
        ("a.jsonl", '{"timestamp": 1, "input_length": 3}\n'),
        ("a.jsonl", "[1]\n"),
        ("a.jsonl", ""),
    ],
)
def test_what_it_does_not_know_is_said_with_the_files_name(tmp_path: Path, name: str, text: str):
    with pytest.raises(UnknownTrace, match=r"a\.(csv|jsonl)"):
        read(tmp_path, name, text)

"""What recorded traffic says of the classes' prompts."""

from pathlib import Path

import pytest

from backends.plans.shapes import Shape, UnknownTraffic, assumed, read_lengths, shapes_of

BOUNDS = {"long": None, "short": 100, "middle": 1000}


def test_lengths_fall_into_the_first_class_that_takes_them() -> None:
    found = shapes_of([1, 100, 101, 1000, 1001, 9000], BOUNDS)
    assert {name: shape.longest for name, shape in found.items()} == {
        "short": 100,
        "middle": 1000,
        "long": 9000,
    }
    assert found["short"] == Shape(50.5, 100, 100, 2)
    assert found["short"].origin == "2 recorded requests"


def test_a_class_without_traffic_is_not_among_them() -> None:
    assert shapes_of([5000], BOUNDS).keys() == {"long"}


def test_the_95th_percentile_is_one_of_the_lengths() -> None:
    assert shapes_of(range(1, 101), {"all": None})["all"].p95 == 96


def test_what_is_assumed_says_so() -> None:
    assert assumed(50) == Shape(25, 25, 50)
    assert assumed(50).origin == "assumed"


def test_a_request_log_and_an_azure_trace_are_read(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    log.write_text('{"prompt_tokens": 7}\n\n{"prompt_tokens": 0}\n{"prompt_tokens": 9}\n')
    assert read_lengths(log) == [7, 9]
    trace = tmp_path / "azure.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,374,44\nx,0,1\n")
    assert read_lengths(trace) == [374]
    mooncake = tmp_path / "mooncake.jsonl"
    mooncake.write_text('{"timestamp": 0, "input_length": 6758, "output_length": 500}\n')
    assert read_lengths(mooncake) == [6758]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.csv", "a,b\n1,2\n", r"a\.csv is not .* an Azure trace"),
        ("a.csv", "ContextTokens\nx\n", "is not .* an Azure trace"),
        ("a.csv", "ContextTokens\n", "no request"),
        ("a.jsonl", "{}\n", "is not a request log .* a Mooncake trace"),
        ("a.jsonl", "hello\n", "is not a request log"),
        ("a.jsonl", "[1]\n", "is not a request log"),
        ("a.jsonl", "", "no request"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, text: str, why: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UnknownTraffic, match=why):
        read_lengths(path)

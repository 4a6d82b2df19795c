"""`forebay plan` at the command line."""

from pathlib import Path

import yaml
from typer.testing import CliRunner, Result

from backends.plans import file
from gateway.cli import app

TOKENIZER = Path(__file__).parents[3] / "bench" / "data" / "tokenizer"


def plan(*options: str, cache: Path | None = None) -> Result:
    environment = {"FOREBAY_CACHE": str(cache)} if cache else {}
    return CliRunner().invoke(app, ["plan", *options], env=environment)


def test_the_readme_s_example_prints_command_lines() -> None:
    shown = plan("--model", "13b", "--gpu-memory", "80", "--class", "short", "--class", "long")
    assert shown.exit_code == 0, shown.output
    assert "vllm serve MODEL --port 8001 \\\n  --max-num-seqs 32 \\\n" in shown.output
    assert "CUDA_VISIBLE_DEVICES=1 vllm serve MODEL --port 8002" in shown.output
    assert "--long-prefill-token-threshold 3072" in shown.output


def test_engines_are_numbered_and_get_ports_and_gpus_of_their_own(tmp_path: Path) -> None:
    shown = plan(
        *("--model", "org/Llama-2-13b-chat", "--gpu-memory", "80", "--gpus", "2"),
        *("--class", "short=2", "--class", "long", "--port", "9000", "--format", "plan"),
    )
    assert shown.exit_code == 0, shown.output
    path = tmp_path / "plan.yaml"
    path.write_text(shown.output)
    engines = file.read(path).engines
    assert [(e.name, e.port, e.gpus) for e in engines] == [
        ("short-0", 9000, (0, 1)),
        ("short-1", 9001, (2, 3)),
        ("long-0", 9002, (4, 5)),
    ]
    assert {e.model for e in engines} == {"org/Llama-2-13b-chat"}


def test_recorded_traffic_changes_the_shape(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    log.write_text('{"prompt_tokens": 600}\n' * 10)
    options = ("--model", "7b", "--gpu-memory", "80", "--class", "short", "--class", "long")
    assumed = yaml.safe_load(plan(*options, "--format", "plan").output)
    shown = plan(*options, "--traffic", str(log), "--format", "plan").output
    seen = yaml.safe_load(shown)
    flags = "engines", "short-0", "flags", "max-num-seqs"
    for step in flags:
        assumed, seen = assumed[step], seen[step]
    assert (assumed, seen) == (48, 32), "a mean of 600 is the long row of the table"
    assert "10 recorded requests" in shown
    assert "the traffic has no request of class long: assumed" in shown


def test_classes_are_those_of_the_gateway_s_file(tmp_path: Path) -> None:
    config = tmp_path / "forebay.yaml"
    config.write_text("classes: {chat: {max_prompt_tokens: 300}, rest: {ttft_target: 2}}\n")
    options = ("--model", "7b", "--gpu-memory", "80", "--config", str(config))
    shown = plan(*options, "--class", "rest", "--prefill-rate", "1000")
    assert "--max-num-queued-tokens 2000" in shown.output
    refused = plan(*options, "--class", "short")
    assert refused.exit_code == 2
    assert "no class short; there are chat, rest" in refused.output


def test_the_fast_tokenizer_is_proved_when_a_tokenizer_is_given(tmp_path: Path) -> None:
    shown = plan(
        *("--model", "7b", "--gpu-memory", "80", "--class", "long", "--format", "kubernetes"),
        *("--tokenizer", str(TOKENIZER)),
        cache=tmp_path,
    )
    assert shown.exit_code == 0, shown.output
    assert yaml.safe_load(shown.output)["env"] == [{"name": "VLLM_USE_FASTOKENS", "value": "1"}]
    lost = plan(
        *("--model", "7b", "--gpu-memory", "80", "--class", "long"),
        *("--tokenizer", str(tmp_path / "nothing")),
        cache=tmp_path,
    )
    assert lost.exit_code == 2


def test_what_cannot_be_planned_says_what_to_change() -> None:
    common = ("--gpu-memory", "80", "--class", "short")
    for options, why in [
        (("--model", "mystery", *common), "how large is mystery? Say it: --size BILLIONS"),
        (("--model", "70b", *common), "use at least 4 GPUs"),
        (("--model", "7b", "--gpu-memory", "80", "--class", "short=0"), "CLASS=ENGINES"),
        (("--model", "7b", *common, "--traffic", "/nowhere.csv"), "No such file"),
        (("--model", "70b", *common, "--gpus", "3"), "use 2 or 4"),
        (("--model", "70b", *common, "--size", "0"), "Say more than 0: --size BILLIONS"),
        (("--model", "0b", *common), "Say more than 0: --size BILLIONS"),
        (
            ("--model", "7b", "--gpu-memory", "80", "--class", "short=3", "--port", "65534"),
            "use --port 65533 or less",
        ),
    ]:
        refused = plan(*options)
        assert refused.exit_code == 2
        assert why in refused.output
        assert "forebay plan: " in refused.output


def test_a_plan_file_is_printed_in_another_form(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    made = plan(*("--model", "7b", "--gpu-memory", "80", "--class", "short", "--format", "plan"))
    path.write_text(made.output.replace("max-num-seqs: 48", "max-num-seqs: 96"))
    shown = plan("--from", str(path), "--format", "compose")
    assert shown.exit_code == 0, shown.output
    assert "--max-num-seqs=96" in yaml.safe_load(shown.output)["services"]["short-0"]["command"]


def test_a_plan_file_keeps_its_reasons_and_notes(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    made = plan(*("--model", "7b", "--gpu-memory", "80", "--class", "long", "--format", "plan"))
    path.write_text(made.output)
    assert plan("--from", str(path), "--format", "plan").output == made.output
    assert "--max-num-seqs: long pool: min(32, 1.5 × 80 GB)" in plan("--from", str(path)).output


def test_what_a_plan_file_says_already_is_not_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("engines: {a: {model: m, port: 1}}\n")
    assert plan("--from", str(path)).exit_code == 0
    refused = plan("--from", str(path), "--peak", "--class", "short", "--port", "8001")
    assert refused.exit_code == 2
    assert "leave out --class, --peak, --port, or change the file" in refused.output


def test_the_last_port_that_there_is(tmp_path: Path) -> None:
    common = ("--model", "7b", "--gpu-memory", "80", "--format", "plan")
    made = plan(*common, "--class", "short=3", "--port", "65533")
    assert made.exit_code == 0, made.output
    path = tmp_path / "plan.yaml"
    path.write_text(made.output)
    assert [engine.port for engine in file.read(path).engines] == [65533, 65534, 65535]
    assert plan(*common, "--class", "short", "--port", "0").exit_code == 2


def test_without_a_plan_file_the_rules_need_their_facts() -> None:
    shown = plan("--model", "7b")
    assert shown.exit_code == 2
    assert "--from FILE" in shown.output

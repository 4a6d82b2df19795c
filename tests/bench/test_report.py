"""The report: which measurements, what their figures say, and the source's claims beside them."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.report import text
from bench.report.claims import CLAIMS, NOT_MEASURED, Claim
from bench.report.headline import HEADLINES, judged, summary
from bench.report.run import Ended, run
from bench.report.suite import SUITE, Step, chosen

COMMANDS = {command.name or command.callback.__name__ for command in app.registered_commands}


class TestSuite:
    def test_every_step_is_a_command(self):
        assert {step.command for step in SUITE} <= COMMANDS
        assert len({step.name for step in SUITE}) == len(SUITE)

    def test_every_claim_has_a_step(self):
        names = {step.name for step in SUITE}
        assert {claim.step for claim in CLAIMS} <= names
        assert {one.claim.step for one in HEADLINES} <= names

    def test_what_needs_a_real_vllm_is_only_run_when_asked(self):
        assert not any(step.real for step in chosen(quick=False, real=False, only=None))
        assert any(step.real for step in chosen(quick=False, real=True, only=None))
        brief = [step.name for step in chosen(quick=True, real=False, only=None)]
        assert "warm" in brief
        assert "ttft" not in brief
        (one,) = chosen(quick=False, real=False, only="prefix")
        assert one.name == "prefix"
        with pytest.raises(ValueError, match="no such step: x"):
            chosen(quick=False, real=False, only="x")


class TestClaims:
    def test_a_figure_is_made_of_the_results(self):
        claim = Claim("TTFT", "compare", "{a:.1f} ms, {b:.0%}, {c:.0f}")
        assert claim.told({"compare": {"a": 1.26, "b": 0.5}}) == "1.3 ms, 50%, –"
        assert claim.told({}) == NOT_MEASURED

    def test_every_claim_can_be_told_of_an_empty_result(self):
        for claim in CLAIMS:
            assert "–" in claim.told({claim.step: {}})


class TestHeadline:
    def test_each_is_met_missed_or_not_known(self):
        results = {
            "ttft": {"share_direct_default_8k_c1": 0.34},
            "ttft-curve": {"share_direct_default_8k_c32": -0.16},
            "simulate-headline": {"ttft_mean_ms": 120.0, "ttft_p99_ms": 601.0},
        }
        found = {one["name"]: one for one in judged(results)}
        assert found["preprocessing_share_low"]["met"] is True
        assert found["preprocessing_share_high"]["met"] is False
        assert found["preprocessing_spared"]["met"] is None
        assert found["target_at_scale"]["met"] is False
        assert found["burst"]["met"] is None
        assert found["burst"]["figure"] == NOT_MEASURED
        flat = summary(list(found.values()))
        assert flat["preprocessing_share_low"] == 1.0
        assert "burst" not in flat
        assert flat["met"] + 2 + flat["not_measured"] == len(HEADLINES)

    def test_every_claim_can_hold_and_not_hold(self):
        """With all figures at 0, and at very much; a judgement that never changes is none."""

        class Always(dict):
            def __init__(self, value: float, but: str = "") -> None:
                self.value, self.but = value, but

            def __getitem__(self, key: str) -> float:
                return 1e6 - self.value if self.but and self.but in key else self.value

        for one in HEADLINES:
            seen = {
                one.holds(Always(value, but))
                for value in (0.0, 1e6)
                for but in ("", "forebay", "no_hold_halving", "cold")
            }
            assert seen == {True, False}, one.name


ENVIRONMENT = {
    "command": "python -m bench prefix --rounds 1",
    "cores": 2,
    "processor": "P",
    "python": "3.11",
    "revision": "abc",
}


class TestText:
    def test_each_claim_has_its_command_figure_and_machine(self):
        documents = {
            "prefix": {"summary": {"forebay_hit_share": 0.79}, "environment": ENVIRONMENT},
            "warm": {"summary": {}, "environment": ENVIRONMENT | {"revision": ""}},
        }
        ended = [
            Ended("prefix", ("prefix", "--rounds", "1"), 0, 1.0),
            Ended("ttft", ("ttft",), 3, 1.0),
        ]
        said = text.figures(documents, ended)
        assert "Measured on 2 cores (P), Python 3.11, revisions abc, unknown." in said
        assert "| `python -m bench prefix --rounds 1` | 79% of –" in said
        assert "- `ttft` failed with status 3" in said
        assert said.count("\n|") == len(CLAIMS) + 2

    def test_it_takes_its_place_in_a_page_again_and_again(self):
        page = f"# Title\n\n{text.BEGIN}\nold\n{text.END}\n\nmore\n"
        new = text.placed(page, "new")
        assert new == f"# Title\n\n{text.BEGIN}\nnew\n{text.END}\n\nmore\n"
        assert text.placed(new, "old") == page
        with pytest.raises(ValueError, match="has no"):
            text.placed("# Title\n", "new")


@pytest.mark.slow
def test_a_step_that_fails_is_told_and_the_others_go_on(tmp_path: Path):
    told: list[str] = []
    steps = [Step("bad", "no-such-command"), Step("good", "headline", ("--from", str(tmp_path)))]
    (tmp_path / "prefix.json").write_text(json.dumps({"summary": {}, "environment": ENVIRONMENT}))
    bad, good = run(steps, tmp_path, told.append, quick=False)
    assert bad.status == 2
    assert "No such command" in bad.said
    assert good.status == 0
    assert told[0].startswith("bad: failed")
    assert json.loads((tmp_path / "good.json").read_text())["summary"]["met"] == 0


@pytest.mark.slow
def test_the_report_in_brief_writes_results(tmp_path: Path):
    flags = ["--quick", "--only", "selfcheck"]
    (tmp_path / "out").mkdir()
    before = Ended("prefix", ("prefix", "--rounds", "9"), 0, 1.0)
    earlier = {"detail": {"steps": [asdict(before)]}}
    (tmp_path / "out" / "report.json").write_text(json.dumps(earlier))
    ended = CliRunner().invoke(app, ["report", "--out", str(tmp_path / "out"), *flags])
    assert ended.exit_code == 0, ended.output
    index = json.loads((tmp_path / "out" / "report.json").read_text())
    assert index["summary"]["failed"] == 0
    assert [step["name"] for step in index["detail"]["steps"]] == ["prefix", "selfcheck"]
    assert json.loads((tmp_path / "out" / "selfcheck.json").read_text())["summary"]
    said = (tmp_path / "out" / "report.md").read_text()
    assert "µs CPU" in said
    assert "| `python -m bench selfcheck --rounds 1 " in said


def test_a_brief_report_is_written_into_no_page(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(f"{text.BEGIN}\nfigures\n{text.END}\n")
    before = page.read_text()
    ended = CliRunner().invoke(app, ["report", "--quick", "--page", str(page)])
    assert ended.exit_code == 2
    assert "no figures to keep" in ended.output
    assert page.read_text() == before


def test_without_results_there_is_no_headline(tmp_path: Path):
    ended = CliRunner().invoke(app, ["headline", "--from", str(tmp_path)])
    assert "no results" in str(ended.exception)

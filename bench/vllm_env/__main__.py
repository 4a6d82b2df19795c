"""`python3 -m bench.vllm_env`: build what is missing and say where it is."""

import sys

from bench.vllm_env.build import BuildError, build
from bench.vllm_env.layout import locate


def _say(line: str) -> None:
    print(f"vllm-env: {line}", flush=True)


def main() -> int:
    layout = locate()
    try:
        build(layout, _say)
    except BuildError as failure:
        print(failure, file=sys.stderr)
        return 1
    _say(f"environment {layout.environment}")
    _say(f"models      {layout.models}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

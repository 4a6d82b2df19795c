"""Parses command lines with the installed vLLM's own parser; runs inside the vLLM environment.

Reads a JSON list of argument lists from stdin, writes the list of what each came to. A line that
vLLM refuses ends the process with the parser's message.
"""

import json
import sys

from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser


def main() -> None:
    parser = make_arg_parser(FlexibleArgumentParser())
    parsed = [vars(parser.parse_args(line)) for line in json.load(sys.stdin)]
    json.dump(parsed, sys.stdout, default=str)


if __name__ == "__main__":
    main()

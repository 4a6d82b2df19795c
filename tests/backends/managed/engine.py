"""A stand-in for `vllm serve`: a process that listens, says so, and can be told to be difficult.

python engine.py [--stubborn] [--child FILE] [--crash] (--model NAME | NAME) --host H --port P …
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--stubborn", action="store_true")
    parser.add_argument("--crash", action="store_true")
    parser.add_argument("--child")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    options, others = parser.parse_known_args()
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.child:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with open(options.child, "w") as file:
            file.write(str(child.pid))
    print("x" * 40_000)
    print(f"given {' '.join(others)} with {os.environ.get('MARK', 'no mark')}", flush=True)
    if options.crash:
        sys.exit(3)
    server = HTTPServer((options.host, options.port), Health)
    print("listening", flush=True)
    server.serve_forever()
    time.sleep(600)


if __name__ == "__main__":
    main()

"""Requests as OpenTelemetry spans. Off unless an endpoint is configured.

`context` reads and writes `traceparent`, `spans` makes a request's spans from its record once it
has ended, so that a request in progress costs no more than its ids; `export` sends them, from a
thread of the official SDK.
"""

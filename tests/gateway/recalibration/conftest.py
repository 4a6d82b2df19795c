"""A real Redis for each test."""

from tests.gateway.control.conftest import redis

__all__ = ["redis"]

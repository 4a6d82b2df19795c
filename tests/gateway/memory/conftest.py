"""Gateways and engines, as the integration tests have them."""

from tests.gateway.ui.quick import cache_dir, start_engine, start_gateway

__all__ = ["cache_dir", "start_engine", "start_gateway"]

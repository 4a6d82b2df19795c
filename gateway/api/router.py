"""Finds the row of the table that a path means."""

from collections.abc import Iterable

from gateway.api.endpoints import Endpoint


class Router:
    """`find` costs one look-up for paths without a name in them."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._plain: dict[str, Endpoint] = {}
        self._named: list[tuple[str, str, Endpoint]] = []
        for endpoint in endpoints:
            before, brace, rest = endpoint.path.partition("{")
            if brace:
                self._named.append((before, rest.partition("}")[2], endpoint))
            else:
                self._plain[endpoint.path] = endpoint

    @property
    def paths(self) -> list[str]:
        return [*self._plain, *(endpoint.path for _, _, endpoint in self._named)]

    def find(self, path: str) -> tuple[Endpoint | None, str]:
        """The row, and the name in the path where the row has one."""
        endpoint = self._plain.get(path)
        if endpoint is not None:
            return endpoint, ""
        for before, behind, candidate in self._named:
            name = path[len(before) : len(path) - len(behind)]
            fits = path.startswith(before) and path.endswith(behind)
            if fits and name.strip("/") and (candidate.deep or "/" not in name):
                return candidate, name
        return None, ""

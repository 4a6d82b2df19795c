"""EndpointSlices are listed, watched, and followed through everything that a watch goes through."""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from backends.discovery.kubernetes import Cluster, KubernetesSource, Selection
from backends.discovery.slices import backends_of
from backends.discovery.source import Backoff, Template
from tests.backends.discovery.answers import following
from tests.backends.discovery.api_server import ApiServer, endpoint
from tests.backends.scripted import until

TEMPLATE = Template("k8s", classes=frozenset(("short",)), limit=7)
SELECTION = Selection(labels="app=vllm", port="http")


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "token").write_text("t1\n")
    (tmp_path / "namespace").write_text("ns")
    return tmp_path


def source(server: ApiServer, account: Path, **more: Any) -> KubernetesSource:
    cluster = Cluster(f"http://127.0.0.1:{server.port}", account, **more)
    return KubernetesSource(TEMPLATE, SELECTION, cluster, backoff=Backoff(0.02, 0.1))


async def test_what_is_there_is_listed_in_all_its_pages(account: Path) -> None:
    server = ApiServer(page=1)
    await server.put("s-1", endpoint("10.0.0.1", "vllm-0", ready=True))
    await server.put("s-2", endpoint("10.0.0.2", "vllm-1"), endpoint("10.0.0.3", ready=None))
    async with server.serving(), following(source(server, account)) as answers:
        await answers.until("vllm-0", "vllm-1", "k8s-10.0.0.3-8000")
        assert answers.last["vllm-1"] == "10.0.0.2:8000"
        assert len(server.lists) == 2
        (first, *_) = answers.specs[-1]
        assert (first.classes, first.limit) == (frozenset(("short",)), 7)


async def test_changes_are_followed_without_listing_again(account: Path) -> None:
    server = ApiServer()
    await server.put("s-1", endpoint("10.0.0.1", "vllm-0"))
    async with server.serving(), following(source(server, account)) as answers:
        await answers.until("vllm-0")
        await server.put("s-2", endpoint("10.0.0.2", "vllm-1"))
        await answers.until("vllm-0", "vllm-1")
        await server.put("s-1", endpoint("10.0.0.1", "vllm-0", ready=False, serving=True))
        await answers.until("vllm-1")
        await server.delete("s-2")
        await answers.until()
        assert len(server.lists) == 1


async def test_a_watch_that_ends_or_is_cut_goes_on_from_where_it_was(account: Path) -> None:
    server = ApiServer()
    async with server.serving(), following(source(server, account, watch_for=1)) as answers:
        await answers.until()
        await server.put("s-1", endpoint("10.0.0.1", "vllm-0"))
        await answers.until("vllm-0")
        await server.bookmark()
        reached = str(server.version)
        await until(lambda: server.watches[-1]["resourceVersion"] == reached)
        await until(lambda: bool(server.open_watches))
        await server.cut_watches()
        await server.put("s-2", endpoint("10.0.0.2", "vllm-1"))
        await answers.until("vllm-0", "vllm-1")
        assert len(server.lists) == 1


@pytest.mark.parametrize("as_status", [True, False], ids=["status", "event"])
async def test_a_version_that_expired_has_everything_listed_again(
    account: Path, as_status: bool
) -> None:
    server = ApiServer(gone_as_status=as_status)
    await server.put("s-1", endpoint("10.0.0.1", "vllm-0"))
    async with server.serving(), following(source(server, account, watch_for=1)) as answers:
        await answers.until("vllm-0")
        await until(lambda: bool(server.open_watches))
        await server.cut_watches()
        await until(lambda: not server.open_watches)
        await server.delete("s-1")
        await server.put("s-9", endpoint("10.0.0.9", "vllm-9"))
        server.compact()
        await answers.until("vllm-9")
        assert len(server.lists) == 2


async def test_a_lost_server_keeps_the_last_answer_and_a_new_token_is_read(account: Path) -> None:
    server = ApiServer()
    await server.put("s-1", endpoint("10.0.0.1", "vllm-0"))
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(AsyncExitStack())
        await first.enter_async_context(server.serving())
        answers = await stack.enter_async_context(following(source(server, account)))
        await answers.until("vllm-0")
        await first.aclose()
        server.token = "t2"
        await stack.enter_async_context(server.serving(server.port))
        await until(lambda: server.refused > 0)
        (account / "token").write_text("t2")
        await server.put("s-2", endpoint("10.0.0.2", "vllm-1"))
        await answers.until("vllm-0", "vllm-1")
        names = [[spec.name for spec in specs] for specs in answers.specs]
        assert all("vllm-0" in found for found in names), "it was never lost"


@pytest.mark.parametrize("status", [403, 500])
async def test_a_server_that_refuses_is_asked_again(account: Path, status: int) -> None:
    server = ApiServer(refuse=status)
    await server.put("s-1", endpoint("10.0.0.1", "vllm-0"))
    async with server.serving(), following(source(server, account)) as answers:
        await until(lambda: server.refused > 0)
        assert not answers.specs
        server.refuse = 0
        await answers.until("vllm-0")


async def test_a_missing_account_is_waited_for(tmp_path: Path, account: Path) -> None:
    server = ApiServer()
    async with server.serving():
        elsewhere = tmp_path / "not-mounted-yet"
        async with following(source(server, elsewhere)) as answers:
            elsewhere.mkdir()
            for name in ("token", "namespace"):
                (elsewhere / name).write_text((account / name).read_text())
            await answers.until()


def test_the_cluster_around_a_pod() -> None:
    around = Cluster.around({"KUBERNETES_SERVICE_HOST": "10.1.0.1", "KUBERNETES_SERVICE_PORT": "6"})
    assert around.url == "https://10.1.0.1:6"
    assert Cluster.around({"KUBERNETES_SERVICE_HOST": "fd00::1"}).url == "https://[fd00::1]:443"
    with pytest.raises(ValueError, match="not in a Kubernetes pod"):
        Cluster.around({})


# What slices mean


def slice_of(*endpoints: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8000}, {"name": "metrics", "port": 9000}],
        "endpoints": list(endpoints),
        **fields,
    }


def addresses(port: str | int, *slices: dict[str, Any]) -> dict[str, str]:
    return {spec.name: spec.url for spec in backends_of(slices, port, TEMPLATE)}


def test_ports_by_name_or_number() -> None:
    item = slice_of(endpoint("10.0.0.1", "p"))
    assert addresses("http", item) == {"p": "http://10.0.0.1:8000"}
    assert addresses("metrics", item) == {"p": "http://10.0.0.1:9000"}
    assert addresses("other", item) == {}
    assert addresses(7, item) == {"p": "http://10.0.0.1:7"}
    assert addresses(7, slice_of(endpoint("10.0.0.1", "p"), ports=None)) == {
        "p": "http://10.0.0.1:7"
    }


def test_who_terminates_or_has_no_address_is_not_found() -> None:
    leaving = endpoint("10.0.0.1", "p", ready=False, serving=True, terminating=True)
    assert addresses("http", slice_of(leaving, {"addresses": []}, endpoint("10.0.0.2", "q"))) == {
        "q": "http://10.0.0.2:8000"
    }
    assert addresses("http", slice_of(endpoints=None)) == {}


def test_a_pod_in_two_slices_is_one_backend_by_ipv4() -> None:
    six = slice_of(endpoint("fd00::7", "p"), addressType="IPv6")
    four = slice_of(endpoint("10.0.0.7", "p"))
    assert addresses("http", six, four, four) == {"p": "http://10.0.0.7:8000"}
    assert addresses("http", six) == {"p": "http://[fd00::7]:8000"}


def test_a_pod_s_name_is_used_unless_it_is_too_long() -> None:
    item = slice_of(endpoint("10.0.0.1", "p" * 64), endpoint("10.0.0.2", "q" * 63))
    assert list(addresses("http", item)) == ["k8s-10.0.0.1-8000", "q" * 63]

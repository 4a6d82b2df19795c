"""General HTTP proxies: nginx, haproxy, envoy.

With several servers each sends a request where the fewest are open, which their documentation
advises where requests cost unequally; buffering and delays that would hold a stream back are off.
"""

import json
from pathlib import Path

from bench.peers.place import HOST, Place, program

_NGINX = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_max_body_size 64m;
  client_body_buffer_size 4m;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  keepalive_requests 1000000000;
  upstream engine {{
    {balance}
    {servers}
    keepalive 256;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://engine;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 600s;
    }}
  }}
}}
"""

_HAPROXY = """\
global
  nbthread 1
  maxconn 4096
defaults
  mode http
  option http-no-delay
  timeout connect 5s
  timeout client 600s
  timeout server 600s
frontend clients
  bind 127.0.0.1:{port}
  default_backend engines
backend engines
  balance leastconn
  {servers}
"""


def nginx(place: Place) -> list[str]:
    """No buffering, and connections to the engines that are kept."""
    configuration = place.folder / "nginx.conf"
    configuration.write_text(
        _NGINX.format(
            folder=place.folder,
            port=place.port,
            balance="least_conn;" if place.others else "",
            servers=" ".join(f"server {upstream};" for upstream in place.upstreams),
        )
    )
    return [program("nginx"), "-p", str(place.folder), "-c", str(configuration)]


def haproxy(place: Place) -> list[str]:
    """`http-no-delay`: by default it holds small chunks back."""
    servers = "\n  ".join(
        f"server engine{number} {upstream}" for number, upstream in enumerate(place.upstreams)
    )
    configuration = _written(
        place, "haproxy.cfg", _HAPROXY.format(port=place.port, servers=servers)
    )
    return [program("haproxy"), "-db", "-f", str(configuration)]


def envoy(place: Place) -> list[str]:
    """One thread, no access log, no time limit on a stream."""
    document = {
        "static_resources": {"listeners": [_listener(place)], "clusters": [_cluster(place)]}
    }
    configuration = _written(place, "envoy.json", json.dumps(document, indent=1))
    return [
        *(program("envoy"), "-c", str(configuration), "--concurrency", "1"),
        *("--log-level", "warning", "--use-dynamic-base-id"),
    ]


def _listener(place: Place) -> dict[str, object]:
    types = "type.googleapis.com/envoy.extensions.filters"
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": f"{types}.http.router.v3.Router"},
    }
    route = {"match": {"prefix": "/"}, "route": {"cluster": "engines", "timeout": "0s"}}
    manager = {
        "@type": f"{types}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "clients",
        "http_filters": [router],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
    }
    name = "envoy.filters.network.http_connection_manager"
    return {
        "address": _address(HOST, place.port),
        "filter_chains": [{"filters": [{"name": name, "typed_config": manager}]}],
    }


def _cluster(place: Place) -> dict[str, object]:
    endpoints = []
    for upstream in place.upstreams:
        host, _, port = upstream.rpartition(":")
        endpoints.append({"endpoint": {"address": _address(host, int(port))}})
    return {
        "name": "engines",
        "type": "STATIC",
        "connect_timeout": "5s",
        "lb_policy": "LEAST_REQUEST",
        "load_assignment": {
            "cluster_name": "engines",
            "endpoints": [{"lb_endpoints": endpoints}],
        },
    }


def _address(host: str, port: int) -> dict[str, object]:
    return {"socket_address": {"address": host, "port_value": port}}


def _written(place: Place, name: str, text: str) -> Path:
    path = place.folder / name
    path.write_text(text)
    return path

"""The index of the monitoring port: a link to each page."""

from __future__ import annotations

_LINKS = (
    ("/varz", "General"),
    ("/jsz", "JetStream"),
    ("/connz", "Connections"),
    ("/accountz", "Accounts"),
    ("/accstatz", "Account Stats"),
    ("/subsz", "Subscriptions"),
    ("/routez", "Routes"),
    ("/leafz", "LeafNodes"),
    ("/gatewayz", "Gateways"),
    ("/raftz", "Raft Groups"),
    ("/healthz", "Health Probe"),
    ("/debug/vars", "Expvar"),
    ("/metrics", "Prometheus"),
)


def html(base: str) -> bytes:
    """The page; `base` is the path below which all pages are."""
    links = "\n".join(f'    <li><a href=".{base}{path}">{name}</a> <code>{path}</code></li>' for path, name in _LINKS)
    return f"""<!doctype html>
<html lang="en">
  <head><title>Penstock</title></head>
  <body>
    <h1>Penstock</h1>
    <ul>
{links}
    </ul>
  </body>
</html>
""".encode()

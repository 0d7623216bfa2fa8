"""The configuration of nginx in front of the SuperLink: SuperNodes get in, nobody else.

Flower serves SuperNodes, those who start runs and its own processes on one port, and asks only the
first for a key. So the SuperLink listens on this machine alone, and nginx hands on what SuperNodes
need.
"""

from __future__ import annotations

from pathlib import Path

# What a registered SuperNode calls; it need not register or unregister itself.
FLEET = (
    "activate-node", "deactivate-node", "send-node-heartbeat", "pull-messages", "push-messages",
    "get-run", "get-fab", "push-object", "pull-object", "confirm-message-received",
)  # fmt: skip
PARTS = ("push-object",)  # what brings parts of answers, of at most 64 MB; all else is small
LARGEST_PART, LARGEST_REQUEST = "80m", "256k"
# Requests at once from one address. The SuperLink holds a part in memory before it asks for a key,
# and a SuperNode sends two at once; whoever is refused for this (503) tries again.
MOST_PARTS, MOST_REQUESTS = 32, 1000

TEMPLATE = """\
# nginx in front of the SuperLink: nginx -c @folder@/nginx.conf
# Only what SuperNodes call is handed on, and nothing is kept on disk.
daemon off;
pid @folder@/.flwr/nginx.pid;
error_log stderr warn;
worker_rlimit_nofile 20000;
events { worker_connections 8192; }
http {
    access_log off;
    client_body_temp_path @folder@/.flwr/nginx/body;
    proxy_temp_path @folder@/.flwr/nginx/proxy;
    fastcgi_temp_path @folder@/.flwr/nginx/fastcgi;
    uwsgi_temp_path @folder@/.flwr/nginx/uwsgi;
    scgi_temp_path @folder@/.flwr/nginx/scgi;
    server_tokens off;
    # Whoever connects and sends nothing more must not keep a connection.
    client_header_timeout 5s;
    client_body_timeout 20s;
    lingering_time 5s;
    lingering_timeout 2s;
    reset_timedout_connection on;
    limit_conn_zone $binary_remote_addr zone=parts:1m;
    limit_conn_zone $binary_remote_addr zone=requests:1m;
    upstream link {
        server @link@;
        keepalive 64;
        keepalive_timeout 3s;  # the SuperLink closes an idle connection after 5 s
    }
    server {
        listen @port@ ssl;
        ssl_certificate @folder@/keys/server.pem;
        ssl_certificate_key @folder@/keys/server.key;
        ssl_protocols TLSv1.2 TLSv1.3;
@locations@        location / { return 403; }
    }
}
"""

# A small request is handed on once it is complete; a large one as it comes, so that it is not kept.
LOCATION = """\
        location ~ ^/v1/fleet/(@fleet@)$ {
            limit_except POST { deny all; }
            limit_conn @zone@ @most@;
            client_max_body_size @largest@;
            @body@;
            proxy_pass https://link;
            proxy_ssl_verify on;
            proxy_ssl_trusted_certificate @folder@/keys/ca.crt;
            proxy_ssl_name localhost;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
            proxy_buffering off;
            proxy_read_timeout 300s;
        }
"""


def proxy_config(folder: Path, port: int, link: str) -> str:
    """The configuration for the app in `folder`: from `port` to the SuperLink at `link`."""
    parts = _fill(
        LOCATION,
        fleet="|".join(PARTS),
        zone="parts",
        most=str(MOST_PARTS),
        largest=LARGEST_PART,
        body="proxy_request_buffering off",
    )
    others = _fill(
        LOCATION,
        fleet="|".join(call for call in FLEET if call not in PARTS),
        zone="requests",
        most=str(MOST_REQUESTS),
        largest=LARGEST_REQUEST,
        body=f"client_body_buffer_size {LARGEST_REQUEST}",  # in memory
    )
    text = _fill(TEMPLATE, locations=parts + others)
    return _fill(text, folder=str(folder), port=str(port), link=link)


def _fill(text: str, **values: str) -> str:
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text

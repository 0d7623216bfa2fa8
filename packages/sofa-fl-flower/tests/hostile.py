"""A SuperNode with a registered key that sends what it likes, over Flower's HTTP."""

from __future__ import annotations

import time
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest, PushMessagesRequest
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor


class Hostile:
    """It is taken for connected for the minute after it was made."""

    def __init__(self, address: str, certificate: Path, key: Path) -> None:
        private = load_ssh_private_key(key.read_bytes(), None)
        assert isinstance(private, EllipticCurvePrivateKey)
        public = private.public_key()
        self.client = FleetHttpClient.from_server_address(
            address,
            False,
            certificate.read_bytes(),
            [
                RuntimeVersionHttpInterceptor(component_name="SuperNode"),
                NodeAuthHttpInterceptor(private, public),
            ],
        )
        request = ActivateNodeRequest(public_key=public_key_to_bytes(public), heartbeat_interval=60)
        self.node = Node(node_id=self.client.ActivateNode(request).node_id)

    def receive(self) -> Message:
        """The next message of the server."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            found = self.client.PullMessages(PullMessagesRequest(node=self.node))
            if found.messages_list:
                return message_from_proto(found.messages_list[0])
            time.sleep(0.1)
        raise AssertionError("no message within a minute")

    def announce(self, message: Message, tree: ObjectTree) -> None:
        """Say that a message comes, and send none of its parts."""
        self.client.PushMessages(
            PushMessagesRequest(
                node=self.node,
                messages_list=[message_to_proto(remove_content_from_message(message))],
                message_object_trees=[tree],
            )
        )

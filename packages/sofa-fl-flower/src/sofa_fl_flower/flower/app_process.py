"""The resident process of a SuperNode: hands one message after another to the ClientApp.

Flower's `flwr-clientapp` handles one message and ends; this process lives as long as its SuperNode.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from logging import ERROR, INFO
from pathlib import Path
from typing import Any

import httpx
from flwr.app import Message
from flwr.app.error import Error
from flwr.cli.install import install_from_fab
from flwr.clientapp import ClientApp
from flwr.clientapp.utils import get_load_client_app_fn
from flwr.common.config import get_project_config
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore import log
from flwr.supercore.constant import TaskType
from flwr.supercore.fab import Fab
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.run import Run, RunNotRunningException
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from sofa_fl_flower.flower.flower_patches import local_retries, shorten_retries
from sofa_fl_flower.flower.node_site import POLICY
from sofa_fl_flower.machine.policy import load_policy
from sofa_fl_flower.machine.site import open_site
from sofa_fl_flower.transport.message_checks import RefusalError, safe_reason

ACQUIRE_TASK = "/flwr.proto.Runtime/AcquireTask"
SHORTEST, LONGEST = 0.04, 0.25  # seconds between two polls for a message


class ClientAppProcess:
    """Polls the SuperNode at `address` for messages, until the process `parent` has ended.

    It signs what it asks for with the `secret` that the SuperNode was started with.
    """

    def __init__(self, address: str, parent: int, secret: bytes) -> None:
        self.address, self.parent, self.secret = address, parent, secret
        self.policy = load_policy(Path(os.environ[POLICY]))
        self.is_installed = False

    def run(self) -> None:
        client = self.client(None)
        pause = SHORTEST
        while os.getppid() == self.parent:
            try:
                response = client.AcquireTask(
                    AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
                )
            except httpx.HTTPError:  # the SuperNode is starting, or gone
                time.sleep(LONGEST)
                continue
            if response.HasField("task") and response.token:
                self.answer(response.token)
                pause = SHORTEST
            else:
                time.sleep(pause)
                pause = min(pause * 1.2, LONGEST)

    def client(self, token: str | None) -> RuntimeHttpClient:
        name = "SuperExec" if token is None else "flwr-clientapp"
        interceptors: list[Any] = [RuntimeVersionHttpInterceptor(component_name=name)]
        if token is not None:
            interceptors.append(RuntimeTokenHttpInterceptor(token))
        else:
            interceptors.append(
                SuperExecAuthHttpInterceptor(
                    master_secret=self.secret, protected_methods=[ACQUIRE_TASK]
                )
            )
        return RuntimeHttpClient.from_server_address(
            server_address=self.address,
            insecure=True,  # on this machine
            root_certificates=None,
            interceptors=interceptors,
            retry_invoker=local_retries(),
        )

    def app(self, run: Run, fab: Fab) -> ClientApp:
        """Load the app that the site's policy allows: its own copy, or one with the right hash."""
        policy = self.policy
        if policy.app is not None:
            folder = Path(policy.app)
            parts = get_project_config(folder)["tool"]["flwr"]["app"]["components"]
            load = get_load_client_app_fn(parts["clientapp"], policy.app, multi_app=False)
            return load("", "", "")
        found = hashlib.sha256(fab.content).hexdigest()
        if found != policy.app_hash:
            why = f"this site runs the app {policy.app_hash}, but was sent {found}"
            open_site(Path(policy.state)).audit({"run": str(run.run_id), "refused": why})
            raise RefusalError(why)
        if not self.is_installed:
            install_from_fab(fab.content, skip_prompt=True)
            self.is_installed = True
        load = get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)
        return load(run.fab_id, run.fab_version, fab.hash_str)

    def answer(self, token: str) -> None:
        """Answer one message; an error in the app is also an answer."""
        client = self.client(token)
        heart = HeartbeatSender(make_task_heartbeat_fn_http(client))
        message = context = None
        status, details = SubStatus.FAILED, "the message could not be answered"
        try:
            heart.start()
            message, context, run, fab = pull_task_input(client)
            app = self.app(run, fab)
            reply = app(message=message, context=context)
            status, details = SubStatus.COMPLETED, ""
        # Whatever failed, the process must live to answer the next message.
        except (Exception, RunNotRunningException) as error:
            log(ERROR, "The ClientApp failed", exc_info=error)
            details = f"{type(error).__name__}: {error}"
            if message is None or context is None:
                reply = None
            else:
                code = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
                reply = Message(Error(code=code, reason=safe_reason(error)), reply_to=message)
        try:
            # A message that could not be read is left to the SuperNode, which answers for it when
            # it has heard nothing of the task for a minute.
            if reply is not None and context is not None:
                push_message(client, reply, context)
                push_task_output(client, context, status, details)
        except (httpx.HTTPError, RunNotRunningException) as error:
            log(ERROR, "The SuperNode did not accept the answer: %s", error)
        finally:
            if heart.is_running:
                heart.stop()
            client.close()


if __name__ == "__main__":
    os.environ["SOFA_FL_RESIDENT"] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its SuperNode ends it
    shorten_retries()
    log(INFO, "Start the resident ClientApp process")
    ClientAppProcess(sys.argv[1], int(sys.argv[2]), sys.stdin.buffer.read()).run()

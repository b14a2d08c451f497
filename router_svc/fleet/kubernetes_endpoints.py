"""The ready endpoints of a Kubernetes Service, from its EndpointSlices.

They are listed, then watched from the list's version on; a watch that ends or fails, or is too old
for the API server, begins with a new list. So nothing is missed for longer than a pause.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kubernetes import client

log = logging.getLogger(__name__)

_WATCH_SECONDS = 300
_PAUSE_SECONDS = 1.0
_DEFAULT_PORT_NAME = "grpc"


@dataclass(frozen=True, slots=True)
class KubernetesService:
    """A Service in the cluster that this process runs in, or that its kubeconfig names.

    `port_name`: the named port to use; "grpc" if the slices have it, else their only port.
    """

    namespace: str
    service: str
    port_name: str | None = None

    async def targets(self) -> AsyncIterator[frozenset[str]]:
        """The endpoints that are ready and not terminating."""
        loop = asyncio.get_running_loop()
        found: asyncio.Queue[frozenset[str]] = asyncio.Queue()
        stop = threading.Event()

        def tell(targets: frozenset[str]) -> None:
            if not stop.is_set():
                loop.call_soon_threadsafe(found.put_nowait, targets)

        # The client waits on a socket: a thread of its own, which ends with the process.
        thread = threading.Thread(target=self._follow, args=(tell, stop), daemon=True)
        thread.start()
        try:
            known: frozenset[str] | None = None
            while True:
                targets = await found.get()
                if targets != known:
                    known = targets
                    yield targets
        finally:
            stop.set()

    def _follow(self, tell: Callable[[frozenset[str]], None], stop: threading.Event) -> None:
        from kubernetes import watch

        api: client.DiscoveryV1Api | None = None
        selector = f"kubernetes.io/service-name={self.service}"
        fault = ""
        while not stop.is_set():
            try:
                if api is None:
                    api = _api()
                listed = api.list_namespaced_endpoint_slice(self.namespace, label_selector=selector)
                slices = {each.metadata.name: each for each in listed.items}
                tell(self._ready(slices))
                fault = ""
                events = watch.Watch().stream(
                    api.list_namespaced_endpoint_slice,
                    self.namespace,
                    label_selector=selector,
                    resource_version=listed.metadata.resource_version,
                    timeout_seconds=_WATCH_SECONDS,
                )
                for event in events:
                    name = event["object"].metadata.name
                    if event["type"] == "DELETED":
                        slices.pop(name, None)
                    else:
                        slices[name] = event["object"]
                    tell(self._ready(slices))
                    if stop.is_set():
                        return
                stop.wait(_PAUSE_SECONDS)  # a server that ends each watch at once is not hammered
            except Exception as error:  # noqa: BLE001 -- whatever it was, a new list may work
                if (reason := _in_a_line(error)) != fault:
                    log.warning("endpoints of %s/%s: %s", self.namespace, self.service, reason)
                fault = reason
                stop.wait(_PAUSE_SECONDS)

    def _ready(self, slices: dict[str, Any]) -> frozenset[str]:
        targets = set()
        for each in slices.values():
            port = self._port(each.ports or [])
            if port is None:
                continue
            for endpoint in each.endpoints or []:
                conditions = endpoint.conditions
                # Unknown counts as ready; see the EndpointSlice API.
                if conditions is not None and (
                    conditions.ready is False or conditions.terminating is True
                ):
                    continue
                for address in endpoint.addresses:
                    host = f"[{address}]" if each.address_type == "IPv6" else address
                    targets.add(f"{host}:{port}")
        return frozenset(targets)

    def _port(self, ports: list[Any]) -> int | None:
        wanted = self.port_name or _DEFAULT_PORT_NAME
        for port in ports:
            if port.name == wanted:
                return int(port.port)
        if self.port_name is None and len(ports) == 1:
            return int(ports[0].port)
        log.warning("service %s/%s has no port %s", self.namespace, self.service, wanted)
        return None


def _api() -> client.DiscoveryV1Api:
    """The cluster's API. Raises ConfigException where nothing says how to reach one."""
    from kubernetes import client, config

    try:
        config.load_incluster_config()
    except config.ConfigException as outside:
        try:
            config.load_kube_config()
        except config.ConfigException as error:
            reason = f"neither in a cluster ({outside}) nor with a kubeconfig ({error})"
            raise config.ConfigException(reason) from error
    return client.DiscoveryV1Api()


def _in_a_line(error: Exception) -> str:
    """What the client's errors say; those of the API server have headers and a body below it."""
    status, reason = vars(error).get("status"), vars(error).get("reason")
    return f"{status} {reason}" if status else " ".join(str(error).split())

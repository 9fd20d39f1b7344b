"""RabbitMQ's management API: what a vhost has, and how to give it what it lacks."""

from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import httpx2

from farmiq.plumbing.tls import Tls

TIMEOUT_S = 30.0
_NOT_FOUND = 404


class ApiError(Exception):
    """The API refused or did not answer; the text says what was asked and what it said."""


class Api:
    """One vhost, as the administrator of the address."""

    def __init__(self, url: str, *, vhost: str, tls: Tls | None = None) -> None:
        parts = urlsplit(url)
        bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        self._vhost = quote(vhost, safe="")
        self._client = httpx2.Client(
            base_url=bare.rstrip("/") + "/api/",
            auth=(unquote(parts.username or ""), unquote(parts.password or "")),
            verify=(tls or Tls()).client() if parts.scheme == "https" else True,
            timeout=TIMEOUT_S,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._client.close()

    def version(self) -> int:
        """The major version of the broker."""
        return int(str(self._request("GET", "overview")["rabbitmq_version"]).partition(".")[0])

    def amqp_url(self, user: str, password: str) -> str:
        """Return the address for a login of this vhost, by the port on which the broker listens."""
        ports = {
            listener["protocol"]: listener["port"]
            for listener in self._request("GET", "overview")["listeners"]
        }
        scheme = "amqp" if "amqp" in ports else "amqps"
        port = ports.get("amqp") or ports.get("amqp/ssl", 5671)
        login = f"{quote(user, safe='')}:{quote(password, safe='')}"
        return f"{scheme}://{login}@{self._client.base_url.host}:{port}/{self._vhost}"

    def exchanges(self) -> list[dict[str, Any]]:
        return self._list("exchanges/{}")

    def queues(self) -> list[dict[str, Any]]:
        return self._list("queues/{}")

    def bindings(self) -> list[dict[str, Any]]:
        return self._list("bindings/{}")

    def policies(self) -> list[dict[str, Any]]:
        return self._list("policies/{}")

    def permissions(self) -> list[dict[str, Any]]:
        return self._list("vhosts/{}/permissions")

    def topic_permissions(self) -> list[dict[str, Any]]:
        return self._list("vhosts/{}/topic-permissions")

    def users(self) -> set[str]:
        return {str(user["name"]) for user in self._request("GET", "users")}

    def make_exchange(self, name: str, arguments: dict[str, Any]) -> None:
        body = {"type": "topic", "durable": True, "arguments": arguments}
        self._request("PUT", f"exchanges/{self._vhost}/{quote(name, safe='')}", body)

    def make_queue(self, name: str, arguments: dict[str, Any]) -> None:
        body = {"durable": True, "arguments": arguments}
        self._request("PUT", f"queues/{self._vhost}/{quote(name, safe='')}", body)

    def bind(self, exchange: str, queue: str, routing_key: str) -> None:
        path = f"bindings/{self._vhost}/e/{quote(exchange, safe='')}/q/{quote(queue, safe='')}"
        self._request("POST", path, {"routing_key": routing_key, "arguments": {}})

    def unbind(self, exchange: str, queue: str, routing_key: str) -> None:
        path = f"bindings/{self._vhost}/e/{quote(exchange, safe='')}/q/{quote(queue, safe='')}"
        self._request("DELETE", f"{path}/{quote(routing_key, safe='')}", missing_is_fine=True)

    def set_policy(self, name: str, *, pattern: str, definition: dict[str, Any]) -> None:
        body = {"pattern": pattern, "definition": definition, "apply-to": "queues", "priority": 0}
        self._request("PUT", f"policies/{self._vhost}/{quote(name, safe='')}", body)

    def set_user(self, name: str, *, password: str) -> None:
        self._request("PUT", f"users/{quote(name, safe='')}", {"password": password, "tags": ""})

    def allow(self, user: str, permissions: dict[str, str]) -> None:
        self._request("PUT", f"permissions/{self._vhost}/{quote(user, safe='')}", permissions)

    def allow_keys(self, user: str, *, exchange: str, write: str) -> None:
        body = {"exchange": exchange, "write": write, "read": ".*"}
        self._request("PUT", f"topic-permissions/{self._vhost}/{quote(user, safe='')}", body)

    def remove_keys(self, user: str) -> None:
        path = f"topic-permissions/{self._vhost}/{quote(user, safe='')}"
        self._request("DELETE", path, missing_is_fine=True)

    def _list(self, path: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] | None = self._request(
            "GET", path.format(self._vhost), missing_is_fine=True
        )
        if rows is None:
            vhost = unquote(self._vhost)
            raise ApiError(f"the broker has no virtual host {vhost!r}: make it, or name another")
        return rows

    def _request(
        self, method: str, path: str, body: Any = None, *, missing_is_fine: bool = False
    ) -> Any:
        try:
            answer = self._client.request(method, path, json=body)
        except httpx2.HTTPError as error:
            raise ApiError(f"the management API does not answer: {error}") from error
        if missing_is_fine and answer.status_code == _NOT_FOUND:
            return None
        if answer.is_error:
            why = answer.text[:300]
            raise ApiError(f"{method} {path}: {answer.status_code} {why}")
        return answer.json() if answer.content else None

"""Sends spans to a collector: OTLP over HTTP, in its JSON form. Loaded only where traces are on.

Nothing waits for it: what a slow or absent collector does not take is dropped and counted.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import groupby
from typing import Any
from urllib.parse import unquote

import httpx2
import msgspec
import prometheus_client

from farmiq import __version__
from farmiq.plumbing import http_client, log, tracing
from farmiq.plumbing.tls import Tls
from farmiq.plumbing.tracing import Span

ROUTE = "/v1/traces"
MAX_WAITING = 8192
MAX_POSTED = 512
EVERY_S = 1.0
TIMEOUT_S = 5.0
_OK = 200

SPANS = prometheus_client.Counter(
    "farmiq_trace_spans_total", "Spans for the collector of traces", ["outcome"]
)


class Exporter:
    def __init__(
        self, endpoint: str, *, ratio: float, headers: Mapping[str, str], tls: Tls
    ) -> None:
        self.ratio = ratio
        self._tls = tls
        self._url = endpoint.rstrip("/") + ROUTE
        self._headers = {**headers, "Content-Type": "application/json"}
        self._waiting: deque[Span] = deque()
        self._log = log.get("traces")

    def add(self, spans: Sequence[Span]) -> None:
        room = max(0, MAX_WAITING - len(self._waiting))
        self._waiting.extend(spans[:room])
        SPANS.labels(outcome="dropped").inc(max(0, len(spans) - room))

    async def run(self) -> None:
        """Send what waits, for ever."""
        async with self.client() as client:
            while True:
                await asyncio.sleep(EVERY_S)
                await self.flush(client)

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(timeout=TIMEOUT_S, verify=self._tls.client())

    async def flush(self, client: httpx2.AsyncClient) -> None:
        while self._waiting:
            spans = [self._waiting.popleft() for _ in range(min(MAX_POSTED, len(self._waiting)))]
            await self._post(client, spans)

    async def _post(self, client: httpx2.AsyncClient, spans: Sequence[Span]) -> None:
        body = msgspec.json.encode(document(spans))
        try:
            answer = await http_client.send(
                client, "POST", self._url, content=body, headers=self._headers
            )
            why = None if answer.status == _OK else f"it answered {answer.status}"
        except http_client.FAILED as error:
            why = http_client.why(error)
        SPANS.labels(outcome="dropped" if why else "sent").inc(len(spans))
        if why:
            self._log.warning("traces.not_sent", reason=why, count=len(spans))


@contextlib.asynccontextmanager
async def exporting(endpoint: str, *, ratio: float, headers: str, tls: Tls) -> AsyncIterator[None]:
    """Traces are on while this is entered; what waits at the end is sent, if that goes quickly."""
    exporter = Exporter(endpoint, ratio=ratio, headers=parse_headers(headers), tls=tls)
    sending = asyncio.create_task(exporter.run())
    tracing.use(exporter)
    try:
        yield
    finally:
        tracing.use(None)
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sending
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUT_S), exporter.client() as client:
                await exporter.flush(client)


def parse_headers(text: str) -> dict[str, str]:
    """OTEL_EXPORTER_OTLP_HEADERS: name=value,name=value, values as in a URL."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs}


def document(spans: Sequence[Span]) -> dict[str, Any]:
    """The body of a request, as OTLP's JSON has it."""
    by_service = groupby(sorted(spans, key=lambda span: span.service), lambda span: span.service)
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes({"service.name": service})},
                "scopeSpans": [
                    {
                        "scope": {"name": "farmiq", "version": __version__},
                        "spans": [_span(span) for span in of_service],
                    }
                ],
            }
            for service, of_service in by_service
        ]
    }


def _span(span: Span) -> dict[str, Any]:
    return {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "parentSpanId": span.parent_id,
        "name": span.name,
        "kind": int(span.kind),
        "startTimeUnixNano": str(span.started_ns),
        "endTimeUnixNano": str(span.ended_ns),
        "attributes": _attributes(span.attributes),
        "links": [{"traceId": trace_id, "spanId": span_id} for trace_id, span_id in span.links],
    }


def _attributes(values: Mapping[str, str | int]) -> list[dict[str, Any]]:
    return [
        {
            "key": key,
            "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value},
        }
        for key, value in values.items()
    ]

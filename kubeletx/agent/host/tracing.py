"""`SpanSender`: sends spans to an OpenTelemetry collector with OTLP over gRPC.

Ended spans wait in a bounded queue, from which a thread sends them. Without an answer of the collector they are lost. The
module is imported only if traces are configured.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, cast

import structlog
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Tracer

from kubeletx.api import BoundedThreadPool

from ..config.tree import TracingSettings

log = structlog.get_logger(__name__)

QUEUE_LENGTH: Final = 2048
DEFAULT_ENDPOINT: Final = "localhost:4317"


class SpanSender:
    """Samples spans and sends them until `close`."""

    def __init__(
        self,
        settings: TracingSettings,
        *,
        node: str,
        version: str,
        send_seconds: float = 5.0,
        stop_seconds: float = 2.0,
    ) -> None:
        """`send_seconds`: deadline of one call of the collector. `stop_seconds`: time for which `close` waits for it."""
        for name in ("opentelemetry.exporter", "opentelemetry.sdk"):
            logging.getLogger(name).setLevel(
                logging.CRITICAL
            )  # `_Reporting` logs the loss of the collector once
        self._stop_seconds = stop_seconds
        self._exporter = _Reporting(settings.endpoint or DEFAULT_ENDPOINT, send_seconds)
        self._processor = BatchSpanProcessor(
            cast("SpanExporter", self._exporter), max_queue_size=QUEUE_LENGTH
        )
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(settings.sampling_rate_per_million / 1e6)),
            resource=Resource(
                {
                    "service.name": "kubeletx",
                    "service.version": version,
                    "service.instance.id": node,
                    "k8s.node.name": node,
                }
            ),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(self._processor)

    @property
    def tracer(self) -> Tracer:
        return self._provider.get_tracer("kubeletx")

    async def close(self) -> None:
        """Send what is in the queue, for `stop_seconds` at most."""
        thread = BoundedThreadPool("tracing", threads=1)
        flush = asyncio.create_task(thread.run(self._processor.shutdown), name="tracing-flush")
        await asyncio.wait({flush}, timeout=self._stop_seconds)
        self._exporter.shutdown()  # ends a call that the collector does not answer
        await asyncio.wait({flush}, timeout=self._stop_seconds)
        thread.close()


class _Reporting:
    """A span exporter. Sends spans; logs once when the collector stops taking them, and once when it takes them again."""

    def __init__(self, endpoint: str, send_seconds: float) -> None:
        self._endpoint = endpoint
        self._exporter = OTLPSpanExporter(endpoint=endpoint, insecure=True, timeout=send_seconds)
        self._last = SpanExportResult.SUCCESS
        self._is_shut_down = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is not self._last:
            self._last = result
            if result is SpanExportResult.SUCCESS:
                log.info("Collector of traces takes spans again", endpoint=self._endpoint)
            else:
                log.warning("Collector of traces does not take spans; they are lost", endpoint=self._endpoint)
        return result

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return True  # nothing waits here

    def shutdown(self) -> None:
        if not self._is_shut_down:
            self._is_shut_down = True
            self._exporter.shutdown()

"""Component of the agent: traces of pods' starts, if they are configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import kubeletx

from .node import NodeAssembly
from .part import Part, PartContext

if TYPE_CHECKING:
    from kubeletx.pods import StartTraces


def make_traces(ctx: PartContext, node: NodeAssembly) -> StartTraces | None:
    """Start to send traces; None if no pod is to be sampled. Then OpenTelemetry is not imported."""
    if not ctx.config.tracing.sampling_rate_per_million:
        return None
    from kubeletx.pods import StartTraces

    from ..host.tracing import SpanSender

    sender = SpanSender(ctx.config.tracing, node=node.reporter.name, version=kubeletx.__version__)
    traces = StartTraces(sender.tracer)
    ctx.made.add(Part(name="tracing", close=(sender.close, traces.end_all)))
    return traces

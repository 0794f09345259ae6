"""Sets up OpenTelemetry for a process of the command line, by the standard variables of OpenTelemetry.

Nothing is imported unless one of them names a collector. A host program sets up the SDK itself.
"""

from __future__ import annotations

import os

from stepkeep.cli.printer import warn

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def install_tracing(service: str) -> None:
    """Send spans to the collector that the environment names. `OTEL_SERVICE_NAME` replaces the name of the service."""
    named = [name for name in ENDPOINTS if os.environ.get(name)]
    if not named or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        warn(f"{named[0]} is set, but no spans are sent: pip install 'stepkeep[otel]'")
        return
    about = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": service}
    provider = TracerProvider(resource=Resource.create(about))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)

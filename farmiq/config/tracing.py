"""Settings of traces, by the names that OpenTelemetry gives them."""

from pydantic import SecretStr

from farmiq.config.settings import Settings, setting


class TracedSettings(Settings):
    otlp_endpoint: str | None = setting(
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        None,
        "address of a collector of traces (OTLP over HTTP), such as "
        "http://127.0.0.1:4318; default: no traces",
    )
    otlp_headers: SecretStr | None = setting(
        "OTEL_EXPORTER_OTLP_HEADERS",
        None,
        "headers for it: name=value,name=value, such as a key",
    )
    trace_ratio: float = setting(
        "OTEL_TRACES_SAMPLER_ARG",
        0.01,
        "which share of all events is traced, 0 to 1; the same events at every hop if edge and "
        "cloud have the same share",
        ge=0,
        le=1,
    )

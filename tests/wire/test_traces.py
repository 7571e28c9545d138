"""Spans by OpenTelemetry's protocol, as a collector gets them: of a server that is built with `--features otel`."""

import concurrent.futures
import pathlib
import socket
import threading

import frames
import pytest
import support

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
# Spans are sent together, at least so often.
SENT_EVERY_MS = 100


@pytest.fixture(autouse=True)
def _uplake_alone():
    support.only_uplake("its spans are its own")


class Collector:
    """Takes spans over gRPC, on a free port."""

    def __init__(self):
        try:
            import grpc
            from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as messages
        except ImportError:
            support.missing("grpcio and opentelemetry-proto", "pip install grpcio opentelemetry-proto")
        self.lock, self.spans, self.services, self.headers = threading.Lock(), [], set(), set()

        def export(request, context):
            with self.lock:
                self.headers |= {tuple(pair) for pair in context.invocation_metadata()}
                for resource in request.resource_spans:
                    self.services |= {
                        a.value.string_value for a in resource.resource.attributes if a.key == "service.name"
                    }
                    self.spans += [span for scope in resource.scope_spans for span in scope.spans]
            return messages.ExportTraceServiceResponse()

        method = grpc.unary_unary_rpc_method_handler(
            export, messages.ExportTraceServiceRequest.FromString, messages.ExportTraceServiceResponse.SerializeToString
        )
        service = "opentelemetry.proto.collector.trace.v1.TraceService"
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {"Export": method})])
        self.endpoint = f"http://127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def named(self, name):
        with self.lock:
            return [span for span in self.spans if span.name == name]

    def stop(self):
        self.server.stop(None)


def _words(span):
    """The attributes of a span."""
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


@pytest.fixture
def collector():
    if b"OTEL_EXPORTER_OTLP_ENDPOINT" not in pathlib.Path(support.binary()).read_bytes():
        support.missing("a binary that sends spans", "cargo build --release -p uplake --features otel")
    collector = Collector()
    yield collector
    collector.stop()


def _environment(endpoint):
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": str(SENT_EVERY_MS),
        "OTEL_EXPORTER_OTLP_HEADERS": "x-of=tests", "OTEL_SERVICE_NAME": "of tests",
    }


def a_collector_is_told_of_statements_in_their_clients_traces(fresh, collector):
    server = fresh(env=_environment(collector.endpoint))
    with server.raw() as wire:
        wire.rows(f"set uplake.traceparent = '00-{TRACE}-{SPAN}-01'")
        assert wire.rows("select count(*) from numbers where digit = 3") == [["1000"]]
        wire.rows("reset uplake.traceparent")
        assert wire.rows("select count(*) from people where name = 'a secret'") == [["0"]]
        wire.ask(frames.query("select nothing"))
    status, _, _ = server.ask(
        "POST", "/sql", b"select count(*) from people", headers={"traceparent": f"00-{TRACE}-{SPAN}-01"}
    )
    assert status == 200

    def statements():
        found = [(_words(span), span) for span in collector.named("statement")]
        return [(told, span) for told, span in found if span.trace_id.hex() == TRACE]

    support.within(10, lambda: len(statements()) >= 2, "both statements of the client's trace have come")
    protocols = set()
    for told, span in statements():
        assert span.parent_span_id.hex() == SPAN
        assert told["db.system"] == "uplake" and told["uplake.role"] == support.USER, told
        assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
        protocols.add(told["uplake.protocol"])
        stages = [s for s in collector.named("run") if s.parent_span_id == span.span_id]
        assert len(stages) == 1 and stages[0].trace_id == span.trace_id, stages
    assert protocols == {"postgres", "http"}
    # One that failed says how, and no span has a statement's text or the message of an error.
    failed = lambda: [s for s in collector.named("statement") if _words(s).get("db.response.status_code") == "42703"]
    support.within(10, failed, "the one that failed has come")
    support.within(10, lambda: collector.named("connection"), "the connection has come")
    assert collector.services == {"of tests"} and ("x-of", "tests") in collector.headers
    with collector.lock:
        assert not any("secret" in str(span) or "nothing" in str(span) for span in collector.spans)
    server.free()


def spans_that_wait_are_sent_when_the_server_ends(fresh, collector):
    environment = _environment(collector.endpoint) | {"OTEL_BSP_SCHEDULE_DELAY": "3600000"}
    server = fresh(env=environment)
    with server.raw() as wire:
        assert wire.rows("select count(*) from people") == [["4"]]
    server.stop()
    assert any(_words(span).get("db.response.returned_rows") == 1 for span in collector.named("statement"))


@pytest.mark.parametrize("how", ["nobody", "silent"])
def a_collector_that_is_not_there_hurts_nobody(fresh, collector, how):
    """Nobody listens there, or who does never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
        if how == "nobody":
            listener.close()
        server = fresh(env=_environment(endpoint))
        with server.raw() as wire:
            for _ in range(200):
                assert wire.rows("select count(*) from people") == [["4"]]
        server.free(5)
        # It waits for its last spans, but not for long.
        server.stop()

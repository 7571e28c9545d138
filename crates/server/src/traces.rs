//! Spans of connections, and of statements and their stages, for whoever collects them with OpenTelemetry's protocol.
//!
//! A span is made when what it is about is over: its times are known then (`cost`), and nothing is done for it before.
//!
//! ```text
//! traceparent of the client ─► statement ─► queue, plan, run, send
//! ```
//!
//! # Not here
//! Which statement of a client's trace it is (`traceparent`). Where spans go, which are sampled, and whose they are:
//! the variables of OpenTelemetry's SDK.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{
    Span, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId,
    TraceState, Tracer, TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use ring::digest::{SHA256, digest};

use crate::roll::Member;
use crate::server::Shared;
use crate::statements::Listed;
use crate::traceparent::TraceParent;

/// Without one of these, spans go nowhere.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
const NAME: &str = "uplake";
/// What the end of a process waits for spans that are under way.
const LAST_SPANS: Duration = Duration::from_secs(2);
/// Bytes of a statement's hash.
const HASH_BYTES: usize = 8;

/// Where spans go.
#[derive(Debug)]
pub(crate) struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl Traces {
    /// To whom the environment says; `None` if it names nobody. Called on a runtime, which sends them.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of_environment() -> Result<Option<Self>, String> {
        let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if !ENDPOINTS.iter().any(is_set) {
            return Ok(None);
        }
        let exporter = opentelemetry_otlp::SpanExporter::builder().with_tonic().build();
        let exporter = exporter.map_err(|error| error.to_string())?;
        let mut resource = Resource::builder();
        if !is_set(&SERVICE_NAME) {
            resource = resource.with_service_name(NAME);
        }
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build())
            .build();
        Ok(Some(Self::to(provider)))
    }

    /// Is told of connections and statements of a server from now on.
    pub fn follow(self: &Arc<Self>, shared: &Shared) {
        let traces = Arc::clone(self);
        shared.statements.at_end(move |listed| traces.statement(listed));
        let (traces, clock) = (Arc::clone(self), Arc::clone(&shared.options.clock));
        shared.roll.at_end(move |member| traces.connection(member, clock()));
    }

    fn to(provider: SdkTracerProvider) -> Self {
        let tracer = provider.tracer(NAME);
        Self { provider, tracer }
    }

    /// A statement is over.
    pub fn statement(&self, listed: &Listed) {
        let began = moment(listed.began_millis);
        let cost = &listed.cost;
        let hash = digest(&SHA256, listed.text.as_bytes());
        let hash: String =
            hash.as_ref()[..HASH_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        let client = &listed.client;
        let mut attributes = vec![
            KeyValue::new("db.system", NAME),
            KeyValue::new("db.statement.hash", hash),
            KeyValue::new("db.response.returned_rows", number(cost.rows_out)),
            KeyValue::new("uplake.statement", number(listed.id)),
            KeyValue::new("uplake.role", client.role.clone()),
            KeyValue::new("uplake.tenant", client.tenant.clone()),
            KeyValue::new("uplake.protocol", client.protocol.name()),
            KeyValue::new("uplake.seconds", cost.total.as_secs_f64()),
            KeyValue::new("client.address", client.address.clone()),
        ];
        attributes.extend(
            listed
                .labels
                .iter()
                .map(|(name, value)| KeyValue::new(format!("uplake.label.{name}"), value.clone())),
        );
        let mut status = Status::Unset;
        if let Some(failed) = &listed.failed {
            attributes.push(KeyValue::new("db.response.status_code", failed.code.to_string()));
            // Its message may name values.
            status = Status::error(failed.code.to_string());
        }
        let span = SpanBuilder::from_name("statement")
            .with_kind(SpanKind::Server)
            .with_start_time(began)
            .with_attributes(attributes);
        let mut span = self.tracer.build_with_context(span, &parent(listed.trace));
        span.set_status(status);
        if span.is_recording() {
            let within = Context::new().with_remote_span_context(span.span_context().clone());
            let mut at = began;
            let counts = &cost.counts;
            for (stage, took) in [
                ("queue", counts.queued),
                ("plan", counts.planned),
                ("run", cost.ran()),
                ("send", cost.sent()),
            ] {
                let end = at + took;
                if !took.is_zero() {
                    let builder = SpanBuilder::from_name(stage).with_start_time(at);
                    self.tracer.build_with_context(builder, &within).end_with_timestamp(end);
                }
                at = end;
            }
        }
        span.end_with_timestamp(began + cost.total);
    }

    /// A connection is over, at this moment.
    pub fn connection(&self, member: &Member, now_millis: i64) {
        let attributes = [
            ("db.system", NAME.to_owned()),
            ("uplake.protocol", member.protocol.to_owned()),
            ("uplake.role", member.role.clone()),
            ("uplake.application", member.application.clone()),
            ("client.address", member.address.clone()),
        ];
        let span = SpanBuilder::from_name("connection")
            .with_kind(SpanKind::Server)
            .with_start_time(moment(member.since))
            .with_attributes(attributes.map(|(name, value)| KeyValue::new(name, value)));
        let mut span = self.tracer.build_with_context(span, &Context::new());
        span.end_with_timestamp(moment(now_millis));
    }

    /// The process ends: what is under way is sent, or is not. It waits for that.
    pub fn end(&self) {
        // Whoever collects may be gone.
        let _ = self.provider.shutdown_with_timeout(LAST_SPANS);
    }
}

fn parent(of: Option<TraceParent>) -> Context {
    let Some(TraceParent { trace, span, flags }) = of else { return Context::new() };
    let (trace, span) = (TraceId::from(trace), SpanId::from(span));
    let flags = TraceFlags::new(flags) & TraceFlags::SAMPLED;
    let context = SpanContext::new(trace, span, flags, true, TraceState::default());
    Context::new().with_remote_span_context(context)
}

/// Milliseconds since 1970.
fn moment(millis: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(millis).unwrap_or_default())
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::{SpanData, SpanExporter};

    use super::*;
    use crate::cost::Cost;
    use crate::failure::Failure;
    use crate::labels::Labels;
    use crate::stage::Stage;
    use crate::statements::{Before, Client, Protocol};

    #[derive(Clone, Debug, Default)]
    struct Kept(Arc<Mutex<Vec<SpanData>>>);

    impl SpanExporter for Kept {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.0.lock().unwrap().extend(batch);
            Ok(())
        }
    }

    fn listed(trace: Option<TraceParent>) -> Listed {
        let mut cost = Cost { rows_out: 7, total: Duration::from_millis(900), ..Cost::default() };
        cost.counts.queued = Duration::from_millis(100);
        cost.counts.planned = Duration::from_millis(200);
        cost.counts.in_slot = Duration::from_millis(500);
        Listed {
            id: 12,
            client: Client {
                role: "ann".into(),
                by_token: false,
                tenant: "growth".into(),
                protocol: Protocol::Postgres,
                application: "test".into(),
                address: "127.0.0.1:1".into(),
                labels: Labels::new(),
                before: Before::default(),
            },
            text: "SELECT secret".into(),
            labels: [("experiment".to_owned(), "x".to_owned())].into(),
            began_millis: 5_000,
            stage: Stage::Sending,
            cost,
            failed: None,
            trace,
            payer: Arc::default(),
        }
    }

    fn spans(of: impl Fn(&Traces)) -> Vec<SpanData> {
        let kept = Kept::default();
        let exporter = kept.clone();
        let traces =
            Traces::to(SdkTracerProvider::builder().with_simple_exporter(exporter).build());
        of(&traces);
        std::mem::take(&mut *kept.0.lock().unwrap())
    }

    fn attribute(span: &SpanData, name: &str) -> Option<String> {
        let found = span.attributes.iter().find(|pair| pair.key.as_str() == name);
        found.map(|pair| pair.value.to_string())
    }

    #[test]
    fn a_statement_is_a_span_of_its_client_and_its_stages_are_spans_of_it() {
        let parent = TraceParent { trace: 0xabc, span: 0xdef, flags: 1 };
        let found = spans(|traces| traces.statement(&listed(Some(parent))));
        let millis =
            |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
        let told: Vec<_> = found
            .iter()
            .map(|span| (&*span.name, millis(span.start_time), millis(span.end_time)))
            .collect();
        let expected = [
            ("queue", 5000, 5100),
            ("plan", 5100, 5300),
            ("run", 5300, 5600),
            ("send", 5600, 5900),
            ("statement", 5000, 5900),
        ];
        assert_eq!(told, expected);
        let whole = found.last().unwrap();
        assert_eq!(whole.parent_span_id, SpanId::from(parent.span));
        assert!(
            found.iter().all(|span| span.span_context.trace_id() == TraceId::from(parent.trace))
        );
        assert!(found[..4].iter().all(|span| span.parent_span_id == whole.span_context.span_id()));
        for (name, value) in [
            ("db.system", "uplake"),
            ("db.response.returned_rows", "7"),
            ("uplake.role", "ann"),
            ("uplake.tenant", "growth"),
            ("uplake.seconds", "0.9"),
            ("uplake.label.experiment", "x"),
        ] {
            assert_eq!(attribute(whole, name).as_deref(), Some(value), "{name}");
        }
        assert_eq!(
            attribute(whole, "db.statement.hash").map(|hash| hash.len()),
            Some(2 * HASH_BYTES)
        );
        assert!(!format!("{whole:?}").contains("secret"));
        assert_eq!(whole.status, Status::Unset);
    }

    #[test]
    fn what_failed_says_so_without_its_message() {
        let mut failed = listed(None);
        failed.failed = Some(Failure::new("57014", "of a secret"));
        let found = spans(|traces| traces.statement(&failed));
        let whole = found.last().unwrap();
        assert_eq!(whole.parent_span_id, SpanId::INVALID);
        assert_eq!(attribute(whole, "db.response.status_code").as_deref(), Some("57014"));
        assert!(!format!("{found:?}").contains("secret"));
        // Who is not sampled by its client is not here.
        let parent = TraceParent { trace: 1, span: 2, flags: 0 };
        assert!(spans(|traces| traces.statement(&listed(Some(parent)))).is_empty());
    }
}

//! Who calls: names and passwords, tokens, and sessions that a client has between its calls.
//!
//! A client that gives its name and password hears of a session token in `authorization`, as the drivers of JDBC and
//! ADBC expect, and gives that from then on. What `SET` has changed lives as long as the session.
//!
//! # Invariants
//! - A session ends [`IDLE_MILLIS`] after its last call, or when others need its place.
//! - A token is sealed with a key of this process: one that was guessed or is of another process opens nothing.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use ring::hmac;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response};
use uplake_engine::{Session, parse_labels};

use super::tickets::Id;
use crate::access_sql::BY_TOKEN;
use crate::failure::Failure;
use crate::limits::Arrival;
use crate::server::Shared;
use crate::statements::{Before, Client, Protocol};
use crate::traceparent::TRACEPARENT;

/// How long a session lives without a call.
pub(super) const IDLE_MILLIS: i64 = 15 * 60_000;
/// Sessions at once; the least recently used one gives way.
const SESSIONS: usize = 10_000;
/// What session tokens begin with.
const PREFIX: &str = "uplake_session_";
/// Characters of a client's name for itself.
const APPLICATION: usize = 128;

/// How a client says who it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Credentials {
    Password { name: String, password: String },
    Token(String),
}

/// Who calls.
pub(super) struct Caller {
    pub client: Client,
    pub session: Arc<Session>,
    /// Whose prepared statements count together.
    pub owner: String,
    /// To be told to the client.
    token: Option<String>,
}

impl Caller {
    /// The same answer, which tells the client its session.
    pub fn told<T>(&self, mut response: Response<T>) -> Response<T> {
        let token = self.token.as_ref().and_then(|token| format!("Bearer {token}").parse().ok());
        if let Some(token) = token {
            response.metadata_mut().insert("authorization", token);
        }
        response
    }

    /// The session's token, if it has just begun.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }
}

/// What the cost of a call's statements is told of by, beside what its session has set: see `labels`.
const LABELS: &str = "x-uplake-labels";

/// The role of who says so.
async fn admit(
    shared: &Shared,
    credentials: Option<Credentials>,
    address: Option<SocketAddr>,
) -> Result<String, Failure> {
    match credentials {
        // Without users a token of old is as good as none.
        Some(Credentials::Token(token)) if shared.directory.has_users() => {
            shared.by_token(&token, address, Protocol::Flight)
        }
        Some(Credentials::Password { name, password }) if shared.directory.has_users() => {
            shared.by_request(Some((name, password)), address, Protocol::Flight).await
        }
        _ => shared.by_request(None, address, Protocol::Flight).await,
    }
}

/// What a call says of who makes it.
struct Said {
    given: Option<Credentials>,
    application: String,
    labels: String,
    trace: Option<String>,
    address: Option<SocketAddr>,
    arrival: Option<Arrival>,
}

struct Open {
    role: String,
    session: Arc<Session>,
    /// Milliseconds since 1970, UTC.
    used: i64,
}

/// All sessions.
pub(super) struct Sessions {
    shared: Arc<Shared>,
    key: hmac::Key,
    open: Mutex<HashMap<Id, Open>>,
}

impl Sessions {
    /// None yet; tokens are sealed with the key.
    pub fn new(shared: Arc<Shared>, key: &[u8; 32]) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        Self { shared, key, open: Mutex::default() }
    }

    /// Who makes this call.
    ///
    /// # Errors
    /// 28000 and 28P01 if it may not; 53300 and 53400 if there are too many.
    pub fn caller<'a, T>(
        &'a self,
        request: &Request<T>,
    ) -> impl Future<Output = Result<Caller, Failure>> + Send + use<'a, T> {
        let text = |name: &str| request.metadata().get(name).and_then(|value| value.to_str().ok());
        let application =
            text("user-agent").unwrap_or_default().chars().take(APPLICATION).collect();
        let labels = text(LABELS).unwrap_or_default().to_owned();
        let trace = text(TRACEPARENT).map(str::to_owned);
        let (address, arrival) = (peer(request), request.extensions().get::<Arrival>().cloned());
        let said = credentials(request.metadata()).map(|given| Said {
            given,
            application,
            labels,
            trace,
            address,
            arrival,
        });
        async move { self.caller_of(said?).await }
    }

    async fn caller_of(&self, mut said: Said) -> Result<Caller, Failure> {
        let given = said.given.take();
        let now = (self.shared.options.clock)();
        if let Some(Credentials::Token(token)) = &given
            && token.starts_with(PREFIX)
        {
            let id = self.id_of(token).ok_or_else(lost_session)?;
            let mut all = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            let open = all.get_mut(&id).filter(|open| now.saturating_sub(open.used) <= IDLE_MILLIS);
            let open = open.ok_or_else(lost_session)?;
            self.let_in(&open.role, &said)?;
            open.used = now;
            let client = self.client(open.role.clone(), &open.session, &said)?;
            let owner = format!("session {}", URL_SAFE_NO_PAD.encode(id));
            return Ok(Caller { client, session: Arc::clone(&open.session), owner, token: None });
        }
        let has_password = matches!(given, Some(Credentials::Password { .. }));
        let by_token = matches!(given, Some(Credentials::Token(_)));
        let role = admit(&self.shared, given, said.address).await?;
        self.let_in(&role, &said)?;
        let session = Arc::new(self.shared.session(&role, &shown(said.address), Protocol::Flight));
        session.set_fact(BY_TOKEN, by_token.then_some("true"));
        let ip = said.address.map_or_else(String::new, |address| address.ip().to_string());
        let owner = format!("role {role} {ip}");
        let client = Client { by_token, ..self.client(role, &session, &said)? };
        let token = has_password.then(|| self.begin(client.role.clone(), &session, now));
        Ok(Caller { client, session, owner, token })
    }

    fn let_in(&self, role: &str, said: &Said) -> Result<(), Failure> {
        self.shared.let_in(said.arrival.as_ref(), role).inspect_err(|failure| {
            self.shared.came(role, &shown(said.address), Protocol::Flight, Some(failure));
        })
    }

    fn client(&self, role: String, session: &Session, said: &Said) -> Result<Client, Failure> {
        let labels = |text: &str| parse_labels(text).map_err(|wrong| Failure::new("22023", wrong));
        let mut all = labels(&session.labels())?;
        let set = Some(session.traceparent()).filter(|set| !set.is_empty());
        all.extend(labels(&said.labels)?);
        all.extend(said.trace.clone().or(set).map(|trace| (TRACEPARENT.to_owned(), trace)));
        Ok(Client {
            tenant: self.shared.tenant(&role).name.to_string(),
            role,
            // Sessions are of those who gave a password.
            by_token: false,
            protocol: Protocol::Flight,
            application: said.application.clone(),
            address: shown(said.address),
            labels: all,
            before: Before::default(),
        })
    }

    /// Begins a session; its token.
    pub fn begin(&self, role: String, session: &Arc<Session>, now: i64) -> String {
        let mut id = Id::default();
        (self.shared.options.random)(&mut id);
        let mut all = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= SESSIONS {
            all.retain(|_, open| now.saturating_sub(open.used) <= IDLE_MILLIS);
        }
        if all.len() >= SESSIONS
            && let Some(oldest) = all.iter().min_by_key(|(_, open)| open.used).map(|(id, _)| *id)
        {
            all.remove(&oldest);
        }
        all.insert(id, Open { role, session: Arc::clone(session), used: now });
        let mut token = id.to_vec();
        token.extend_from_slice(hmac::sign(&self.key, &id).as_ref());
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(token))
    }

    fn id_of(&self, token: &str) -> Option<Id> {
        let bytes = URL_SAFE_NO_PAD.decode(token.strip_prefix(PREFIX)?).ok()?;
        let (id, mac) = bytes.split_first_chunk::<16>()?;
        hmac::verify(&self.key, id, mac).ok()?;
        Some(*id)
    }

    /// Ends the session of this token, if there is one.
    pub fn end(&self, metadata: &MetadataMap) {
        if let Ok(Some(Credentials::Token(token))) = credentials(metadata)
            && let Some(id) = self.id_of(&token)
        {
            self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        }
    }
}

fn lost_session() -> Failure {
    Failure::new("28000", "the session is over").with_hint("connect again")
}

/// What `authorization` says.
fn credentials(metadata: &MetadataMap) -> Result<Option<Credentials>, Failure> {
    let Some(value) = metadata.get("authorization") else { return Ok(None) };
    let wrong = || {
        Failure::new("28000", "`authorization` cannot be read")
            .with_hint("write Basic and base64 of name:password, or Bearer and a token")
    };
    let (scheme, rest) =
        value.to_str().ok().and_then(|value| value.split_once(' ')).ok_or_else(wrong)?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Ok(Some(Credentials::Token(rest.to_owned())));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(wrong());
    }
    // ADBC's driver, which is written in Go, leaves the padding out.
    let text = STANDARD_NO_PAD
        .decode(rest.trim_end_matches('='))
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.ok_or_else(wrong)?;
    let (name, password) = text.split_once(':').ok_or_else(wrong)?;
    Ok(Some(Credentials::Password { name: name.to_owned(), password: password.to_owned() }))
}

/// Where the call comes from, if the listener says so.
fn peer<T>(request: &Request<T>) -> Option<SocketAddr> {
    let axum = request.extensions().get::<axum::extract::ConnectInfo<SocketAddr>>();
    request.remote_addr().or_else(|| axum.map(|info| info.0))
}

fn shown(address: Option<SocketAddr>) -> String {
    address.map_or_else(String::new, |address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &'static str) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        metadata.insert("authorization", value.parse().unwrap());
        metadata
    }

    #[test]
    fn credentials_are_read() {
        assert_eq!(credentials(&MetadataMap::new()), Ok(None));
        assert_eq!(credentials(&of("bearer  x ")), Ok(Some(Credentials::Token("x".into()))));
        let (name, password) = ("ann".to_owned(), "a:b".to_owned());
        let expected = Credentials::Password { name, password };
        assert_eq!(credentials(&of("Basic YW5uOmE6Yg==")), Ok(Some(expected)));
        for wrong in ["Basic", "Basic !", "Basic YW5u", "Basic YW5", "Digest x"] {
            assert_eq!(credentials(&of(wrong)).unwrap_err().code, "28000", "{wrong}");
        }
    }
}

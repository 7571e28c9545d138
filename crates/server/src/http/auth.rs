//! Who asks: the role of a request, and whether it may ask at all.
//!
//! # Invariants
//! - While there are no users, only this machine is served, as role `admin`, and no page of another host: a browser
//!   on this machine would ask for whoever wrote the page.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, Request, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use uplake_engine::parse_labels;

use crate::failure::Failure;
use crate::limits::Arrival;
use crate::server::Shared;
use crate::statements::{Before, Client, Protocol};
use crate::traceparent::TRACEPARENT;

/// Characters of what a client calls itself.
const APPLICATION_CHARACTERS: usize = 128;

/// What the cost of a request's statements is told of by: see `labels`.
const LABELS: &str = "x-uplake-labels";

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub SocketAddr);

/// What a request says who it is.
#[derive(Debug, PartialEq, Eq)]
enum Credentials {
    None,
    Basic { name: String, password: String },
    Bearer(String),
}

/// The one who asks.
///
/// # Errors
/// 28000 or 28P01 for who may not, 42501 for a page of another host.
pub(super) fn client<'a, B>(
    shared: &'a Shared,
    request: &Request<B>,
) -> impl Future<Output = Result<Client, Failure>> + Send + use<'a, B> {
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
    let arrival = request.extensions().get::<Arrival>().cloned();
    let may = if shared.directory.has_users() { Ok(()) } else { own_page(shared, request) };
    let given = may.and_then(|()| credentials(request.headers()));
    let application = text(request.headers(), header::USER_AGENT);
    let application = application.chars().filter(|c| !c.is_control());
    let application = application.take(APPLICATION_CHARACTERS).collect();
    let labels = text(request.headers(), header::HeaderName::from_static(LABELS));
    let mut labels = parse_labels(labels).map_err(|wrong| Failure::new("22023", wrong));
    let trace = text(request.headers(), header::HeaderName::from_static(TRACEPARENT));
    if let (Ok(labels), false) = (&mut labels, trace.is_empty()) {
        labels.insert(TRACEPARENT.to_owned(), trace.to_owned());
    }
    async move {
        let peer = peer.ok_or_else(|| Failure::bug("a request from nowhere"))?;
        let given = given?;
        let by_token = matches!(given, Credentials::Bearer(_));
        let role = role(shared, given, peer).await?;
        shared.let_in(arrival.as_ref(), &role).inspect_err(|failure| {
            shared.came(&role, &peer.to_string(), Protocol::Http, Some(failure));
        })?;
        Ok(Client {
            tenant: shared.tenant(&role).name.to_string(),
            role,
            by_token,
            protocol: Protocol::Http,
            application,
            address: peer.to_string(),
            labels: labels?,
            before: Before::default(),
        })
    }
}

/// The role of who gives these credentials.
async fn role(
    shared: &Shared,
    credentials: Credentials,
    peer: SocketAddr,
) -> Result<String, Failure> {
    match credentials {
        Credentials::None => shared.by_request(None, Some(peer), Protocol::Http).await,
        Credentials::Basic { name, password } => {
            shared.by_request(Some((name, password)), Some(peer), Protocol::Http).await
        }
        Credentials::Bearer(token) => shared.by_token(&token, Some(peer), Protocol::Http),
    }
}

/// A browser on this machine would ask for whoever wrote a page.
fn own_page<B>(shared: &Shared, request: &Request<B>) -> Result<(), Failure> {
    let listens = shared.options.http;
    let host = request.uri().authority().map(|authority| authority.as_str().to_owned());
    let host = host.unwrap_or_else(|| text(request.headers(), header::HOST).to_owned());
    if !is_own_host(&host, listens) || !is_own_page(request.headers(), listens) {
        let failure =
            Failure::new("42501", "there are no users yet: no page of another host is served");
        return Err(failure.with_hint("ask 127.0.0.1 or localhost, or make users"));
    }
    Ok(())
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn credentials(headers: &HeaderMap) -> Result<Credentials, Failure> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(Credentials::None) };
    let wrong = || Failure::new("28000", "Authorization has to be Basic or Bearer");
    let value = value.to_str().map_err(|_| wrong())?;
    let (scheme, rest) = value.split_once(' ').ok_or_else(wrong)?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Ok(Credentials::Bearer(rest.trim().to_owned()));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(wrong());
    }
    let bytes = STANDARD.decode(rest.trim()).map_err(|_| wrong())?;
    let pair = String::from_utf8(bytes).map_err(|_| wrong())?;
    let (name, password) = pair.split_once(':').ok_or_else(wrong)?;
    Ok(Credentials::Basic { name: name.to_owned(), password: password.to_owned() })
}

/// Is a page, if one asks, of this server?
fn is_own_page(headers: &HeaderMap, listens: Option<SocketAddr>) -> bool {
    // Browsers say where a request for a picture comes from, too.
    if text(headers, header::HeaderName::from_static("sec-fetch-site")) == "cross-site" {
        return false;
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let origin = origin.to_str().unwrap_or_default();
    let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    host.is_some_and(|host| is_own_host(host, listens) && host == text(headers, header::HOST))
}

/// Does `host:port` name this machine as a loopback name, or as the address that is listened to? Any other name may
/// have been made to lead here by whoever owns it.
fn is_own_host(host: &str, listens: Option<SocketAddr>) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let address = name.parse::<IpAddr>();
    address.is_ok_and(|ip| ip.is_loopback() || listens.is_some_and(|at| at.ip() == ip))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine_are_told_from_others() {
        let at = Some("10.0.0.7:8440".parse().unwrap());
        for own in ["localhost", "LOCALHOST:8440", "127.0.0.1:1", "[::1]:8440", "10.0.0.7:8440"] {
            assert!(is_own_host(own, at), "{own}");
        }
        for other in
            ["", "example.com", "localhost.example.com:8440", "10.0.0.8", "127.0.0.1.nip.io"]
        {
            assert!(!is_own_host(other, at), "{other}");
        }
    }

    #[test]
    fn credentials_are_basic_or_bearer() {
        let of = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            credentials(&headers)
        };
        let basic = Credentials::Basic { name: "admin".into(), password: "a:b".into() };
        assert_eq!(of("Basic YWRtaW46YTpi").unwrap(), basic);
        assert_eq!(of("bearer abc").unwrap(), Credentials::Bearer("abc".into()));
        for wrong in ["Basic", "Basic !", "Digest x", "Basic YWJj"] {
            assert_eq!(of(wrong).unwrap_err().code, "28000", "{wrong}");
        }
        assert_eq!(credentials(&HeaderMap::new()).unwrap(), Credentials::None);
    }
}

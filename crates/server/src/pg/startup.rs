//! From an accepted socket to a client that is logged in.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pgwire::messages::response::ErrorResponse;
use pgwire::messages::startup::{
    Authentication, BackendKeyData, NegotiateProtocolVersion, SecretKey,
};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::failure::Failure;
use crate::labels::Labels;
use crate::limits::Seat;
use crate::pg::cancel::{Cancellable, Cancels};
use crate::pg::connection::{Connection, fields, session_for};
use crate::pg::frames::{self, First};
use crate::pg::login::{self, Role};
use crate::pg::session::Settings;
use crate::pg::transaction::Transaction;
use crate::pg::wire::{Socket, Step, Stop, Wire};
use crate::roll::Member;
use crate::server::Shared;
use crate::statements::{Before, Cause, Client, Protocol};

/// TLS must be there after it.
const TLS_TIME: Duration = Duration::from_secs(5);
/// The login must be done after it.
pub(crate) const LOGIN_TIME: Duration = Duration::from_secs(10);
/// The newest minor version of protocol 3 that is spoken.
const NEWEST_MINOR: u16 = 2;
/// Bytes of a key that may stop statements: Postgres' own, and those of older clients.
const KEY_BYTES: usize = 32;
const OLD_KEY_BYTES: usize = 4;
/// The first byte of TLS without a question before it.
const TLS_HANDSHAKE: u8 = 0x16;

/// What a client says about itself.
struct Hello {
    minor: u16,
    user: String,
    database: String,
    /// Settings, in order.
    settings: Vec<(String, String)>,
    /// Options of the protocol, which nobody knows.
    options: Vec<String>,
}

/// Speaks with a new client until it is logged in; `None` if it wanted something else, and has it.
///
/// # Errors
/// [`Stop::Gone`]: the client has been told, if there was a reason.
pub(crate) async fn begin(
    shared: &Arc<Shared>,
    cancels: &Arc<Cancels>,
    tcp: TcpStream,
    peer: SocketAddr,
) -> Step<Option<Connection>> {
    let mut first = [0];
    if tcp.peek(&mut first).await? == 0 {
        return Err(Stop::Gone);
    }
    let socket = match &shared.pg_tls {
        Some(tls) if first[0] == TLS_HANDSHAKE => encrypted(Arc::clone(tls), tcp).await?,
        _ => Socket::Plain(tcp),
    };
    let mut wire = Wire::new(socket);
    loop {
        let packet = wire.first().await;
        let message = packet.and_then(|packet| frames::first(packet).map_err(Stop::Fatal));
        match message {
            Ok(First::Ssl) => match &shared.pg_tls {
                Some(tls) if !wire.is_encrypted() => {
                    // Bytes that came before TLS are nobody's.
                    let mut tcp = wire.into_plain().ok_or(Stop::Gone)?;
                    tcp.write_all(b"S").await?;
                    wire = Wire::new(encrypted(Arc::clone(tls), tcp).await?);
                }
                _ => wire.answer(b"N").await?,
            },
            Ok(First::Gss) => wire.answer(b"N").await?,
            Ok(First::Cancel { process, key }) => {
                if let Some(statement) = cancels.statement(process, &key)
                    && shared.statements.stop(statement, Cause::Client)
                {
                    shared.metrics.cancelled(Cause::Client);
                }
                return Ok(None);
            }
            Ok(First::Startup { minor, parameters }) => {
                let hello = hello(minor, parameters);
                return match log_in(shared, cancels, &mut wire, hello, peer).await {
                    Ok(welcome) => Ok(Some(welcome.connection(shared, wire).await?)),
                    Err(stop) => refuse(wire, stop).await,
                };
            }
            Err(stop) => return refuse(wire, stop).await,
        }
    }
}

async fn encrypted(tls: Arc<tokio_rustls::rustls::ServerConfig>, tcp: TcpStream) -> Step<Socket> {
    let accepted = tokio::time::timeout(TLS_TIME, TlsAcceptor::from(tls).accept(tcp)).await;
    let tls = accepted.map_err(|_| Stop::Gone)??;
    Ok(Socket::Tls(Box::new(tls)))
}

/// Tells the client why, and is done with it.
async fn refuse(mut wire: Wire, stop: Stop) -> Step<Option<Connection>> {
    if let Stop::Fatal(failure) | Stop::Failed(failure) = &stop {
        wire.put(&ErrorResponse::new(fields("FATAL", failure)));
        wire.close().await;
    }
    Err(Stop::Gone)
}

fn hello(minor: u16, parameters: Vec<(String, String)>) -> Hello {
    let mut hello = Hello {
        minor,
        user: String::new(),
        database: String::new(),
        settings: Vec::new(),
        options: Vec::new(),
    };
    let mut options = Vec::new();
    for (name, value) in parameters {
        match name.as_str() {
            "user" => hello.user = value,
            "database" => hello.database = value,
            "options" => options = command_line(&value),
            "replication" => {}
            name if name.starts_with("_pq_.") => hello.options.push(name.to_owned()),
            _ => hello.settings.push((name, value)),
        }
    }
    hello.settings.extend(options);
    hello
}

/// `-c name=value`, `-cname=value` and `--name=value`, in which a backslash keeps a blank.
fn command_line(text: &str) -> Vec<(String, String)> {
    let mut words = vec![String::new()];
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let Some(word) = words.last_mut() else { break };
        match character {
            '\\' => word.extend(characters.next()),
            blank if blank.is_whitespace() => words.push(String::new()),
            other => word.push(other),
        }
    }
    let mut settings = Vec::new();
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        let setting = match word.as_str() {
            "-c" => words.next(),
            word => word.strip_prefix("-c").or_else(|| word.strip_prefix("--")).map(str::to_owned),
        };
        if let Some((name, value)) = setting.as_deref().and_then(|setting| setting.split_once('='))
        {
            settings.push((name.replace('-', "_"), value.to_owned()));
        }
    }
    settings
}

/// What a client needs to hear, and its connection to be made of.
struct Welcome {
    role: Role,
    settings: Settings,
    engine_settings: Vec<(String, String)>,
    cancellable: Cancellable,
    seat: Seat,
    peer: SocketAddr,
}

async fn log_in(
    shared: &Arc<Shared>,
    cancels: &Arc<Cancels>,
    wire: &mut Wire,
    hello: Hello,
    peer: SocketAddr,
) -> Step<Welcome> {
    // Who comes to cancel needs none.
    let seat = shared.seat(peer).map_err(Stop::Fatal)?;
    if hello.minor > NEWEST_MINOR || !hello.options.is_empty() {
        let newest = 3 << 16 | i32::from(hello.minor.min(NEWEST_MINOR));
        wire.put(&NegotiateProtocolVersion::new(newest, hello.options.clone()));
    }
    let role = login::authenticate(shared, wire, &hello.user, peer).await;
    let role = role.and_then(|role| {
        shared.sit(&seat, &role.name).map_err(Stop::Fatal)?;
        Ok(role)
    });
    if let Err(Stop::Fatal(failure) | Stop::Failed(failure)) = &role {
        shared.came(&hello.user, &peer.to_string(), Protocol::Postgres, Some(failure));
    }
    let role = role?;
    shared.came(&role.name, &peer.to_string(), Protocol::Postgres, None);
    let database = match hello.database.as_str() {
        "" => &hello.user,
        database => database,
    };
    // Clients that say nothing ask for the database of their own name.
    if *database != shared.options.database && *database != hello.user {
        let message = format!("database \"{database}\" does not exist");
        let hint = format!("there is one, \"{}\"", shared.options.database);
        return Err(Stop::Fatal(Failure::new("3D000", message).with_hint(hint)));
    }
    let mut settings = Settings::new(&role.name, role.is_admin);
    let mut engine_settings = Vec::new();
    for (name, value) in &hello.settings {
        if name.to_lowercase().starts_with("uplake.") {
            engine_settings.push((name.clone(), value.clone()));
            continue;
        }
        settings.set(name, Some(value), false).map_err(Stop::Fatal)?;
    }
    settings.begin();
    let mut key = vec![0; if hello.minor >= 2 { KEY_BYTES } else { OLD_KEY_BYTES }];
    (shared.options.random)(&mut key);
    let key = Bytes::from(key);
    let cancellable = cancels.join(&role.name, key.clone());
    wire.put(&Authentication::Ok);
    let welcome = Welcome { role, settings, engine_settings, cancellable, seat, peer };
    welcome.put_key(wire, key);
    Ok(welcome)
}

impl Welcome {
    fn put_key(&self, wire: &mut Wire, key: Bytes) {
        for told in self.settings.told() {
            let name = told.name.to_owned();
            wire.put(&pgwire::messages::startup::ParameterStatus::new(name, told.value));
        }
        let secret = match <[u8; OLD_KEY_BYTES]>::try_from(&key[..]) {
            Ok(key) => SecretKey::I32(i32::from_be_bytes(key)),
            Err(_) => SecretKey::Bytes(key),
        };
        wire.put(&BackendKeyData::new(self.cancellable.process, secret));
    }

    async fn connection(self, shared: &Arc<Shared>, wire: Wire) -> Step<Connection> {
        let client = Client {
            by_token: false,
            tenant: shared.tenant(&self.role.name).name.to_string(),
            role: self.role.name,
            protocol: Protocol::Postgres,
            application: self.settings.application(),
            address: self.peer.to_string(),
            labels: Labels::new(),
            before: Before::default(),
        };
        let process = self.cancellable.process;
        let session = session_for(shared, &client, process, &self.settings);
        let mut connection = Connection {
            shared: Arc::clone(shared),
            wire,
            session: Arc::new(session),
            reading: None,
            settings: self.settings,
            engine_settings: BTreeSet::new(),
            transaction: Transaction::default(),
            statements: HashMap::new(),
            portals: HashMap::new(),
            over: None,
            cancellable: self.cancellable,
            membership: shared.roll.join(Member {
                id: 0,
                protocol: client.protocol.name(),
                role: client.role.clone(),
                address: client.address.clone(),
                application: client.application.clone(),
                since: (shared.options.clock)(),
            }),
            client,
            _connected: shared.metrics.connected(Protocol::Postgres),
            _seat: self.seat,
        };
        for (name, value) in self.engine_settings {
            if let Err(stop) = connection.set_engine(&name, &value).await {
                return match refuse(connection.wire, stop).await {
                    Err(stop) => Err(stop),
                    Ok(_) => Err(Stop::Gone),
                };
            }
        }
        connection.ready();
        connection.wire.flush().await?;
        Ok(connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_command_line_are_settings() {
        let found = command_line("-c a=1  -cb=2 --c-d=x\\ y -e -c nothing");
        let expected = [("a", "1"), ("b", "2"), ("c_d", "x y")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(found, expected);
        let hello =
            hello(0, vec![("user".into(), "u".into()), ("options".into(), "-c a=b".into())]);
        assert_eq!((hello.user.as_str(), hello.database.as_str()), ("u", ""));
        assert_eq!(hello.settings, [("a".to_owned(), "b".to_owned())]);
    }
}

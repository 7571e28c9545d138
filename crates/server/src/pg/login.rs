//! Who a client is.
//!
//! While there are no users, whoever is on this machine is `admin`, without a password.

use std::net::SocketAddr;
use std::time::Instant;

use pgwire::messages::startup::Authentication;

use crate::access::{Login, LoginError};
use crate::failure::Failure;
use crate::pg::frames;
use crate::pg::wire::{Step, Stop, Wire};
use crate::server::Shared;
use crate::users::wrong_password;

/// The role that a client has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    pub name: String,
    pub is_admin: bool,
}

/// Finds out whether the client is who it says. The wire is there for passwords.
///
/// # Errors
/// [`Stop::Fatal`] if it is not.
pub(crate) async fn authenticate(
    shared: &Shared,
    wire: &mut Wire,
    user: &str,
    peer: SocketAddr,
) -> Step<Role> {
    if !shared.directory.has_users() {
        let name = shared.by_password(Some((user.to_owned(), String::new())), Some(peer)).await;
        let name = name.map_err(Stop::Fatal)?;
        return Ok(Role { name, is_admin: true });
    }
    shared.check_access_is_read().map_err(Stop::Fatal)?;
    let address = peer.ip();
    shared.pace_login(address).await.map_err(Stop::Fatal)?;
    shared.may_guess(user, address).map_err(Stop::Fatal)?;
    let document = shared.directory.current();
    let known = document.access.verifier_of(user, (shared.options.clock)());
    let refused = |error: LoginError| match error {
        LoginError::Wrong => wrong_password(),
        LoginError::Malformed => Failure::new(error.code(), error.to_string()),
    };
    let begin = |first: &[u8]| Login::begin(user, known, &shared.strangers, first).map_err(refused);
    let finish = |login: Login, last: &[u8]| {
        // Others may have guessed meanwhile.
        shared.may_guess(user, address)?;
        let finished = login.finish(last);
        match &finished {
            Ok(_) => shared.failed_logins.forget(user, address),
            Err(LoginError::Wrong) => shared.failed_logins.add(user, address, Instant::now()),
            Err(LoginError::Malformed) => {}
        }
        finished.map_err(refused)
    };
    scram(wire, begin, finish).await?;
    let is_admin = document.access.of(user).is_admin();
    Ok(Role { name: user.to_owned(), is_admin })
}

/// A login by SCRAM-SHA-256 over the wire. `begin` answers the client's first message, `finish` its second, with what
/// `begin` left.
///
/// # Errors
/// [`Stop::Fatal`] if the client is not let in, with what either said.
async fn scram<L>(
    wire: &mut Wire,
    begin: impl FnOnce(&[u8]) -> Result<(String, L), Failure>,
    finish: impl FnOnce(L, &[u8]) -> Result<String, Failure>,
) -> Step {
    wire.put(&Authentication::SASL(vec![MECHANISM.to_owned()]));
    wire.flush().await?;
    let frame = wire.login_answer().await?;
    let (mechanism, message) = frames::sasl_first(&frame).map_err(Stop::Fatal)?;
    if mechanism != MECHANISM {
        let message = format!("the client chose {mechanism}, and {MECHANISM} was offered");
        return Err(Stop::Fatal(Failure::new("08P01", message)));
    }
    let (answer, login) = begin(message).map_err(Stop::Fatal)?;
    wire.put(&Authentication::SASLContinue(answer.into()));
    wire.flush().await?;
    let frame = wire.login_answer().await?;
    let message = frames::sasl_next(&frame).map_err(Stop::Fatal)?;
    let answer = finish(login, message).map_err(Stop::Fatal)?;
    wire.put(&Authentication::SASLFinal(answer.into()));
    Ok(())
}

const MECHANISM: &str = "SCRAM-SHA-256";

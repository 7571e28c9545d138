//! Who a client is.
//!
//! While there are no users, whoever is on this machine is `admin`, without a password.

use std::net::SocketAddr;

use pgwire::messages::startup::Authentication;

use crate::failure::Failure;
use crate::pg::frames;
use crate::pg::wire::{Step, Stop, Wire};
use crate::server::Shared;

/// The role of who may do everything.
pub(crate) const ADMIN: &str = "admin";

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
    _shared: &Shared,
    _wire: &mut Wire,
    user: &str,
    peer: SocketAddr,
) -> Step<Role> {
    without_users(user, peer).map_err(Stop::Fatal)
}

/// A login by SCRAM-SHA-256 over the wire. `begin` answers the client's first message, `finish` its second, with what
/// `begin` left.
///
/// # Errors
/// [`Stop::Fatal`] if the client is not let in, with what either said.
#[allow(dead_code, reason = "there are no users yet whom it could ask")]
pub(crate) async fn scram<L>(
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

fn without_users(user: &str, peer: SocketAddr) -> Result<Role, Failure> {
    if !peer.ip().to_canonical().is_loopback() {
        return Err(Failure::new("28000", "there are no users, so only this machine may connect")
            .with_hint("uplake user add NAME"));
    }
    if user != ADMIN {
        return Err(Failure::new("28000", format!("role \"{user}\" does not exist"))
            .with_hint("connect as admin, or make it: uplake user add NAME"));
    }
    Ok(Role { name: ADMIN.to_owned(), is_admin: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_users_only_admin_comes_in_and_only_from_here() {
        let from = |user: &str, peer: &str| without_users(user, peer.parse().unwrap());
        assert!(from("admin", "127.0.0.1:5").unwrap().is_admin);
        assert!(from("admin", "[::1]:5").is_ok());
        assert!(from("admin", "[::ffff:127.0.0.1]:5").is_ok());
        for (user, peer) in [("admin", "10.0.0.1:5"), ("ann", "127.0.0.1:5"), ("", "127.0.0.1:5")] {
            assert_eq!(from(user, peer).unwrap_err().code, "28000");
        }
    }
}

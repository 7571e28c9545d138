//! Which nodes there may be, as the configuration says.
//!
//! Membership only nominates: whether a node can be used is found by asking it ([`crate::nodes`]).

use std::fmt;
use std::str::FromStr;

/// The value of `--members`: a list of addresses, or a name that DNS gives the addresses of.
///
/// # Examples
/// ```
/// use uplake_cluster::members::Members;
/// let members: Members = "10.0.0.1:19001, 10.0.0.2:19001".parse()?;
/// assert_eq!(members, Members::Listed(vec!["10.0.0.1:19001".into(), "10.0.0.2:19001".into()]));
/// let members: Members = "dns:uplake-workers:19001".parse()?;
/// assert_eq!(members.to_string(), "dns:uplake-workers:19001");
/// # Ok::<(), uplake_cluster::members::MembersError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Members {
    /// `HOST:PORT` of each node, in the order given.
    Listed(Vec<String>),
    /// A name whose addresses are the nodes, such as a headless service's, asked again and again.
    Dns {
        /// The name to resolve.
        host: String,
        /// The port of every node.
        port: u16,
    },
}

/// What is wrong with a list of members.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum MembersError {
    /// Nothing between two commas, or nothing at all.
    #[error("--members has an empty address; write HOST:PORT,HOST:PORT or dns:NAME:PORT")]
    Empty,
    /// No port, or none that is a number from 1 to 65535.
    #[error("member {member:?} has no port; write HOST:PORT, such as 127.0.0.1:19001")]
    Port {
        /// As it was written.
        member: String,
    },
    /// One address twice: it would be given twice the work.
    #[error("member {member:?} is listed twice")]
    Twice {
        /// As it was written.
        member: String,
    },
}

impl FromStr for Members {
    type Err = MembersError;

    fn from_str(text: &str) -> Result<Self, MembersError> {
        if let Some(name) = text.trim().strip_prefix("dns:") {
            let (host, port) = split(name)?;
            return Ok(Self::Dns { host: host.to_owned(), port });
        }
        let mut listed: Vec<String> = Vec::new();
        for member in text.split(',').map(str::trim) {
            split(member)?;
            if listed.iter().any(|other| other == member) {
                return Err(MembersError::Twice { member: member.to_owned() });
            }
            listed.push(member.to_owned());
        }
        Ok(Self::Listed(listed))
    }
}

/// `HOST:PORT` in its pieces; the host of an IPv6 address keeps its brackets.
fn split(member: &str) -> Result<(&str, u16), MembersError> {
    if member.is_empty() {
        return Err(MembersError::Empty);
    }
    let no_port = || MembersError::Port { member: member.to_owned() };
    let (host, port) = member.rsplit_once(':').ok_or_else(no_port)?;
    let bare_v6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
    match port.parse() {
        Ok(port) if port > 0 && !host.is_empty() && !bare_v6 => Ok((host, port)),
        _ => Err(no_port()),
    }
}

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listed(listed) => f.write_str(&listed.join(",")),
            Self::Dns { host, port } => write!(f, "dns:{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_as_they_are_written() {
        for text in ["a:1", "a:1,b:65535", "[::1]:19001,127.0.0.1:19001", "dns:workers.ns.svc:7000"]
        {
            let members: Members = text.parse().expect(text);
            assert_eq!(members.to_string(), text);
        }
        let spaced: Members = " a:1 , b:2 ".parse().expect("spaces");
        assert_eq!(spaced.to_string(), "a:1,b:2");
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_word_itself() {
        for (text, said) in [
            ("", "empty address"),
            ("a:1,,b:2", "empty address"),
            ("a", "\"a\" has no port"),
            ("a:0", "\"a:0\" has no port"),
            ("a:65536", "\"a:65536\" has no port"),
            (":19001", "\":19001\" has no port"),
            ("::1:19001", "\"::1:19001\" has no port"),
            ("a:1,a:1", "\"a:1\" is listed twice"),
            ("dns:workers", "\"workers\" has no port"),
            ("dns:", "empty address"),
        ] {
            let error = text.parse::<Members>().expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}

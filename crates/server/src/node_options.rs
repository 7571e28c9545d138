//! What a server is told of other nodes.

use std::net::SocketAddr;
use std::path::PathBuf;

use uplake_cluster::members::Members;

/// The warehouse of nodes that are told of none.
pub const DEFAULT_WAREHOUSE: &str = "default";

/// What a server does for others, and others for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOptions {
    /// Where it takes parts of statements, if it does.
    pub listen: Option<SocketAddr>,
    /// Who may compute parts of its statements; `None` if it computes all of them itself.
    pub members: Option<Members>,
    /// The group of nodes that it belongs to, and asks.
    pub warehouse: String,
    /// Whom it believes.
    pub trust: TrustFiles,
}

/// Files that say whom a node believes. They are read again while a server runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustFiles {
    /// Nodes speak TLS, and each shows the other a certificate.
    pub tls: Option<NodeTlsFiles>,
    /// At least 32 random bytes that all nodes of a warehouse have: what nodes ask carries a token made with it.
    pub secret: Option<PathBuf>,
}

/// PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTlsFiles {
    /// The node's certificate, then those that vouch for it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities that sign the certificates of nodes, and of nobody else.
    pub authorities: PathBuf,
}

impl Default for NodeOptions {
    /// One node alone.
    fn default() -> Self {
        let warehouse = DEFAULT_WAREHOUSE.to_owned();
        Self { listen: None, members: None, warehouse, trust: TrustFiles::default() }
    }
}

/// A node that other machines would reach, or a member that is on another, and what is missing for that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// The option and its address.
    pub what: String,
    /// Options.
    pub missing: &'static str,
}

impl TrustFiles {
    /// What nodes on several machines need and is not given; `None` if all is there.
    fn missing(&self) -> Option<&'static str> {
        match (&self.tls, &self.secret) {
            (Some(_), Some(_)) => None,
            (Some(_), None) => Some("--node-secret"),
            (None, Some(_)) => Some("--node-tls-cert, --node-tls-key and --node-tls-ca"),
            (None, None) => {
                Some("--node-tls-cert, --node-tls-key, --node-tls-ca and --node-secret")
            }
        }
    }

    /// May nodes be on other machines?
    pub(crate) fn reaches_beyond(&self) -> bool {
        self.missing().is_none()
    }
}

impl NodeOptions {
    /// An address that is not of this machine, if there is one and not all that this needs is given: others read what is
    /// sent there, and ask what they like.
    pub fn beyond_loopback(&self) -> Option<Beyond> {
        let missing = self.trust.missing()?;
        if let Some(listen) = self.listen.filter(|listen| !listen.ip().is_loopback()) {
            return Some(Beyond { what: format!("--node {listen}"), missing });
        }
        let Some(Members::Listed(listed)) = &self.members else { return None };
        let beyond = listed.iter().find(|member| !is_loopback(member));
        beyond.map(|member| Beyond { what: format!("the member {member}"), missing })
    }
}

/// Is it certainly an address of this machine that others do not reach?
pub(crate) fn is_loopback(member: &str) -> bool {
    match member.parse::<SocketAddr>() {
        Ok(address) => address.ip().is_loopback(),
        Err(_) => member.rsplit_once(':').is_some_and(|(host, _)| host == "localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(listen: Option<&str>, members: &str) -> NodeOptions {
        NodeOptions {
            listen: listen.map(|listen| listen.parse().unwrap()),
            members: Some(members.parse().unwrap()),
            ..NodeOptions::default()
        }
    }

    #[test]
    fn nodes_are_of_this_machine() {
        let beyond = |listen: Option<&str>, members: &str| {
            options(listen, members).beyond_loopback().map(|beyond| beyond.what)
        };
        let here = "127.0.0.1:1,localhost:2,[::1]:3";
        assert_eq!(beyond(None, here), None);
        assert_eq!(beyond(Some("127.0.0.1:19001"), here), None);
        assert_eq!(beyond(Some("0.0.0.0:19001"), here).unwrap(), "--node 0.0.0.0:19001");
        for other in ["10.0.0.1:1", "example.com:1", "localhost.example.com:1", "[::]:1"] {
            assert_eq!(beyond(None, other).unwrap(), format!("the member {other}"));
        }
        // Who is behind a name is looked at whenever it is asked for.
        assert_eq!(beyond(None, "dns:workers:1"), None);
        assert_eq!(NodeOptions::default().beyond_loopback(), None);
    }

    #[test]
    fn certificates_and_a_secret_let_nodes_be_on_others() {
        let tls = NodeTlsFiles {
            certificate: "c.pem".into(),
            key: "k.pem".into(),
            authorities: "ca.pem".into(),
        };
        for (tls, secret, missing) in [
            (None, None, Some("--node-tls-cert, --node-tls-key, --node-tls-ca and --node-secret")),
            (Some(tls.clone()), None, Some("--node-secret")),
            (None, Some("s".into()), Some("--node-tls-cert, --node-tls-key and --node-tls-ca")),
            (Some(tls), Some("s".into()), None),
        ] {
            let trust = TrustFiles { tls, secret };
            for (listen, members) in [(Some("10.0.0.1:1"), "127.0.0.1:1"), (None, "10.0.0.1:1")] {
                let options = NodeOptions { trust: trust.clone(), ..options(listen, members) };
                assert_eq!(options.beyond_loopback().map(|beyond| beyond.missing), missing);
                assert_eq!(trust.reaches_beyond(), missing.is_none());
            }
        }
    }
}

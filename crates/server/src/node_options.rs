//! What a server is told of other nodes.

use std::net::SocketAddr;

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
}

impl Default for NodeOptions {
    /// One node alone.
    fn default() -> Self {
        Self { listen: None, members: None, warehouse: DEFAULT_WAREHOUSE.to_owned() }
    }
}

impl NodeOptions {
    /// An address that is not of this machine, if there is one: what is sent between nodes is not encrypted, and nobody
    /// is asked who it is.
    pub fn beyond_loopback(&self) -> Option<String> {
        if let Some(listen) = self.listen.filter(|listen| !listen.ip().is_loopback()) {
            return Some(format!("--node {listen}"));
        }
        let Some(Members::Listed(listed)) = &self.members else { return None };
        let beyond = listed.iter().find(|member| !is_loopback(member));
        beyond.map(|member| format!("the member {member}"))
    }
}

/// Is it certainly an address of this machine that others do not reach?
fn is_loopback(member: &str) -> bool {
    match member.parse::<SocketAddr>() {
        Ok(address) => address.ip().is_loopback(),
        Err(_) => member.rsplit_once(':').is_some_and(|(host, _)| host == "localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_of_this_machine() {
        let beyond = |listen: Option<&str>, members: &str| {
            let options = NodeOptions {
                listen: listen.map(|listen| listen.parse().unwrap()),
                members: Some(members.parse().unwrap()),
                ..NodeOptions::default()
            };
            options.beyond_loopback()
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
}

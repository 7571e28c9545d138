//! Options that say whom nodes believe.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use uplake_server::{NodeTlsFiles, TrustFiles};

/// Certificates and the secret of nodes.
#[derive(Args, Clone, Debug)]
pub struct NodeTrustArgs {
    /// Speak TLS with other nodes: the certificate to show them, with those that vouch for it, in PEM; read again at SIGHUP
    /// and each minute
    #[arg(long, value_name = "FILE", requires = "node_tls_key", requires = "node_tls_ca")]
    node_tls_cert: Option<PathBuf>,
    /// Its private key, in PEM
    #[arg(long, value_name = "FILE", requires = "node_tls_cert", requires = "node_tls_ca")]
    node_tls_key: Option<PathBuf>,
    /// The authority that signs the certificates of nodes, and of nobody else, in PEM
    #[arg(long, value_name = "FILE", requires = "node_tls_cert", requires = "node_tls_key")]
    node_tls_ca: Option<PathBuf>,
    /// At least 32 random bytes, the same on all nodes: who has them not is refused
    #[arg(long, value_name = "FILE")]
    node_secret: Option<PathBuf>,
}

impl NodeTrustArgs {
    /// The files; `has_nodes` if there are nodes to be believed, which `option` says.
    pub fn files(&self, has_nodes: bool, option: &str) -> Result<TrustFiles> {
        let Self { node_tls_cert, node_tls_key, node_tls_ca, node_secret } = self.clone();
        let tls = node_tls_cert.zip(node_tls_key).zip(node_tls_ca);
        let tls = tls.map(|((certificate, key), authorities)| NodeTlsFiles {
            certificate,
            key,
            authorities,
        });
        let files = TrustFiles { tls, secret: node_secret };
        if !has_nodes && files != TrustFiles::default() {
            bail!(
                "--node-tls-cert, --node-tls-key, --node-tls-ca and --node-secret are about other nodes: add {option}"
            );
        }
        Ok(files)
    }
}

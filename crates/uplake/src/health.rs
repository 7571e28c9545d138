//! `uplake health`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use uplake_server::ask_health;

use crate::output::say;
use crate::serve::HTTP;

/// What an answer may take: a look at the lake takes 5 s at most.
const LIMIT: Duration = Duration::from_secs(10);

/// Arguments of `uplake health`.
#[derive(Args, Debug)]
pub struct HealthArgs {
    /// Where the server's --http is, with TLS or without; its certificate is not checked
    #[arg(value_name = "ADDRESS:PORT", default_value_t = HTTP)]
    address: SocketAddr,
    /// Ask whether it can answer statements, too: its lake answers, and it is not about to end
    #[arg(long)]
    ready: bool,
}

/// Runs the command.
pub async fn run(args: HealthArgs) -> Result<()> {
    let path = if args.ready { "/ready" } else { "/health" };
    say!("{}", ask_health(args.address, path, LIMIT).await?);
    Ok(())
}

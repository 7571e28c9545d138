//! Sockets that listen and those that are accepted: how many may wait, and how a peer that is gone is found.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::TcpStream;

/// Connections that wait to be accepted: a second of very many.
const BACKLOG: i32 = 4096;
/// A peer that is gone without a word is found in the sum of the first and of the second, three times. While rows are
/// on their way, it is the system that finds it, by its own time for what is not acknowledged.
///
/// There is no TCP_USER_TIMEOUT: Linux ends connections by it whose clients live and take nothing for as long, which
/// is what the spool lets them do, and it looks at no count of probes once it is set.
const QUIET: Duration = Duration::from_secs(60);
const PROBE_EVERY: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;

/// Listens.
///
/// # Errors
/// The address is taken, or is not this machine's.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // A port that had connections a moment ago.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Makes an accepted socket ready: what cannot be set is not worth a client.
pub(crate) fn accepted(tcp: &TcpStream) {
    // Answers are written whole.
    let _ = tcp.set_nodelay(true);
    let keepalive =
        TcpKeepalive::new().with_time(QUIET).with_interval(PROBE_EVERY).with_retries(PROBES);
    let _ = SockRef::from(tcp).set_tcp_keepalive(&keepalive);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn accepted_sockets_look_whether_their_peer_is_there() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        assert!(listen(address).is_err(), "it is taken");
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let _client = TcpStream::connect(address).await.unwrap();
        let (tcp, _) = listener.accept().await.unwrap();
        accepted(&tcp);
        let socket = SockRef::from(&tcp);
        assert!(socket.keepalive().unwrap() && tcp.nodelay().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), QUIET);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), PROBE_EVERY);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), PROBES);
    }
}

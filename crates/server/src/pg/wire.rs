//! A socket with what has come and what is to go.
//!
//! # Invariants
//! - A future of this module that is dropped loses no byte, of what came or of what is to go.
//! - Bytes that come while a statement runs are kept, up to [`AHEAD_BYTES`]; the socket's end is seen anyway.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use pgwire::messages::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::failure::Failure;
use crate::pg::frames::{self, Frontend};

/// What is read from a socket at once.
const READ_BYTES: usize = 8 << 10;
/// What is kept of what comes while a statement runs.
const AHEAD_BYTES: usize = 1 << 20;
/// How often a socket is looked at of which no more is read.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// What a buffer may hold when nothing is in it.
const KEPT_BYTES: usize = 16 << 10;
/// Chunks up to here are copied to the small messages around them, so that one write takes all.
const COPIED_BYTES: usize = 32 << 10;
const TERMINATE: &[u8] = b"X\0\0\0\x04";

/// Why a conversation does not go on.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The statement failed; the client hears of it, and may ask again.
    Failed(Failure),
    /// The client hears of it, and no more.
    Fatal(Failure),
    /// There is nobody to tell.
    Gone,
}

impl Stop {
    /// The same with another failure of the statement.
    pub fn map(self, change: impl FnOnce(Failure) -> Failure) -> Self {
        match self {
            Self::Failed(failure) => Self::Failed(change(failure)),
            other => other,
        }
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

pub(crate) type Step<T = ()> = Result<T, Stop>;

/// With or without TLS.
pub(crate) enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Socket {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(context, buffer),
            Self::Tls(tls) => Pin::new(tls.as_mut()).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(context, bytes),
            Self::Tls(tls) => Pin::new(tls.as_mut()).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(context),
            Self::Tls(tls) => Pin::new(tls.as_mut()).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(context),
            Self::Tls(tls) => Pin::new(tls.as_mut()).poll_shutdown(context),
        }
    }
}

/// A socket and its buffers.
pub(crate) struct Wire {
    socket: Socket,
    inbox: BytesMut,
    /// Goes before `out`.
    queue: VecDeque<Bytes>,
    pub out: BytesMut,
}

impl Wire {
    pub fn new(socket: Socket) -> Self {
        Self { socket, inbox: BytesMut::new(), queue: VecDeque::new(), out: BytesMut::new() }
    }

    /// The socket, for TLS; `None` if bytes came that nobody asked for.
    pub fn into_plain(self) -> Option<TcpStream> {
        match self.socket {
            Socket::Plain(tcp) if self.inbox.is_empty() => Some(tcp),
            _ => None,
        }
    }

    pub fn is_encrypted(&self) -> bool {
        matches!(self.socket, Socket::Tls(_))
    }

    async fn read(&mut self) -> Step {
        self.inbox.reserve(READ_BYTES);
        match self.socket.read_buf(&mut self.inbox).await? {
            0 => Err(Stop::Gone),
            _ => Ok(()),
        }
    }

    fn split(&mut self, length: usize) -> BytesMut {
        let frame = self.inbox.split_to(length);
        if self.inbox.is_empty() && length > KEPT_BYTES {
            self.inbox = BytesMut::new();
        }
        frame
    }

    /// The first packet, whole.
    ///
    /// # Errors
    /// [`Stop::Fatal`] if it is too long.
    pub async fn first(&mut self) -> Step<BytesMut> {
        loop {
            match frames::first_length(&self.inbox).map_err(Stop::Fatal)? {
                Some(length) if self.inbox.len() >= length => return Ok(self.split(length)),
                _ => self.read().await?,
            }
        }
    }

    /// The next answer to a question of the login, whole.
    ///
    /// # Errors
    /// [`Stop::Fatal`] if it is none.
    pub async fn login_answer(&mut self) -> Step<BytesMut> {
        loop {
            match frames::login_head(&self.inbox).map_err(Stop::Fatal)? {
                Some(length) if self.inbox.len() >= length => return Ok(self.split(length)),
                _ => self.read().await?,
            }
        }
    }

    /// The next message, or what is wrong in it, with its type; what follows it stays.
    ///
    /// # Errors
    /// [`Stop::Fatal`] for bytes after which nobody knows where the next one begins.
    pub async fn next(&mut self) -> Step<(u8, Result<Frontend, Failure>)> {
        loop {
            match frames::head(&self.inbox).map_err(Stop::Fatal)? {
                Some((kind, length)) if self.inbox.len() >= length => {
                    return Ok((kind, frames::decode(self.split(length))));
                }
                _ => self.read().await?,
            }
        }
    }

    /// Returns once the client is gone, or says that it goes.
    async fn watch(&mut self) {
        loop {
            if self.inbox.starts_with(TERMINATE) {
                return;
            }
            if self.inbox.len() < AHEAD_BYTES {
                if self.read().await.is_err() {
                    return;
                }
                continue;
            }
            tokio::time::sleep(LOOK_EVERY).await;
            let ready = self.socket.tcp().ready(Interest::READABLE).await;
            if ready.is_ok_and(|ready| ready.is_read_closed()) {
                return;
            }
        }
    }

    /// `work`, dropped if the client goes first.
    ///
    /// # Errors
    /// Those of the work, and [`Stop::Gone`].
    pub async fn unless_gone<T, E: Into<Stop>>(
        &mut self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Step<T> {
        tokio::select! {
            biased;
            done = work => done.map_err(Into::into),
            () = self.watch() => Err(Stop::Gone),
        }
    }

    /// A message that goes with the next [`Self::flush`].
    pub fn put(&mut self, message: &impl Message) {
        let before = self.out.len();
        if message.encode(&mut self.out).is_err() {
            // One of ours that is too long for the library: a name or a text that a client made up.
            self.out.truncate(before);
        }
    }

    /// Bytes of whole messages, after what has been put.
    pub fn put_bytes(&mut self, bytes: Bytes) {
        if bytes.len() <= COPIED_BYTES {
            self.out.extend_from_slice(&bytes);
            return;
        }
        if !self.out.is_empty() {
            self.queue.push_back(self.out.split().freeze());
        }
        self.queue.push_back(bytes);
    }

    /// Sends all that has been put.
    ///
    /// # Errors
    /// [`Stop::Gone`].
    pub async fn flush(&mut self) -> Step {
        while let Some(first) = self.queue.front_mut() {
            self.socket.write_all_buf(first).await?;
            self.queue.pop_front();
        }
        self.socket.write_all_buf(&mut self.out).await?;
        self.socket.flush().await?;
        if self.out.capacity() > KEPT_BYTES {
            self.out = BytesMut::new();
        }
        Ok(())
    }

    /// Sends an answer that is no message.
    ///
    /// # Errors
    /// [`Stop::Gone`].
    pub async fn answer(&mut self, bytes: &[u8]) -> Step {
        self.out.extend_from_slice(bytes);
        self.flush().await
    }

    /// Ends the conversation; what cannot be sent soon is not.
    pub async fn close(mut self) {
        let end = async {
            let _ = self.flush().await;
            let _ = self.socket.shutdown().await;
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), end).await;
    }
}

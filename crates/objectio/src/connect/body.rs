//! The body of a response: counts its bytes and gives its connection back at the end.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use object_store::client::{HttpError, HttpErrorKind};
use parking_lot::Mutex;
use tokio::time::Sleep;

use super::dial::Sender;
use super::host::Hold;
use crate::counters::count;

/// Readers of pieces give up earlier by themselves; this is for whoever has no time-out.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);

pub(super) struct Arriving {
    body: Incoming,
    /// Until the end of the body. The mutex makes it shareable between threads; nobody shares it.
    connection: Mutex<Option<(Hold, Sender)>>,
    /// While nothing comes.
    silence: Option<Pin<Box<Sleep>>>,
}

impl Arriving {
    pub(super) fn new(body: Incoming, hold: Hold, sender: Sender) -> Self {
        let connection = Mutex::new(Some((hold, sender)));
        let mut arriving = Self { body, connection, silence: None };
        arriving.give_back_at_end();
        arriving
    }

    fn give_back_at_end(&mut self) {
        if self.body.is_end_stream()
            && let Some((hold, sender)) = self.connection.get_mut().take()
        {
            hold.keep(sender);
        }
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if polled.is_ready() {
            self.silence = None;
        }
        match polled {
            Poll::Pending => {
                let silence = &mut self.silence;
                let silence =
                    silence.get_or_insert_with(|| Box::pin(tokio::time::sleep(LONGEST_SILENCE)));
                if silence.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                drop(self.connection.get_mut().take());
                let late = io::Error::new(io::ErrorKind::TimedOut, "no byte for 30 s");
                Poll::Ready(Some(Err(HttpError::new(HttpErrorKind::Timeout, late))))
            }
            Poll::Ready(None) => {
                if let Some((hold, sender)) = self.connection.get_mut().take() {
                    hold.keep(sender);
                }
                Poll::Ready(None)
            }
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    count(|c| &c.bytes_read, data.len() as u64);
                }
                self.give_back_at_end();
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                drop(self.connection.get_mut().take());
                Poll::Ready(Some(Err(HttpError::new(HttpErrorKind::Interrupted, error))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

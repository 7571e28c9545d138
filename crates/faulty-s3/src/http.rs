//! As much of HTTP/1.1 as an S3 client needs, with a socket in our hands: a server library would
//! not let us break off in the middle of a body.

use std::io;
use std::ops::Range;
use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use uplake_testkit::random::mix;

use crate::Asked;

/// A request's head is smaller than this, or refused.
const MOST_HEAD: usize = 64 << 10;
const MOST_HEADERS: usize = 64;
/// Bodies are sent in chunks of this size, so that their pace can be kept.
pub(crate) const CHUNK: u64 = 128 << 10;
/// A prime, so that bytes from a wrong offset are wrong bytes.
const PERIOD: u64 = 16_777_259;

/// The bytes of every object named `synthetic-SIZE`: random ones, repeated every 16,777,259.
///
/// # Examples
/// ```
/// use uplake_faulty_s3::content;
/// assert_eq!(content(5..9), content(0..20)[5..9]);
/// ```
#[must_use]
pub fn content(range: Range<u64>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
    let mut at = range.start;
    while at < range.end {
        let part = pattern(at..range.end);
        bytes.extend_from_slice(&part);
        at += part.len() as u64;
    }
    bytes
}

/// The first bytes of the pattern's `range`, as many as lie together.
fn pattern(range: Range<u64>) -> Bytes {
    static PATTERN: LazyLock<Bytes> = LazyLock::new(|| {
        let words = (0..PERIOD.div_ceil(8)).flat_map(|i| mix(i).to_le_bytes());
        words.take(PERIOD as usize).collect::<Vec<u8>>().into()
    });
    let from = range.start % PERIOD;
    let to = PERIOD.min(from + (range.end - range.start));
    PATTERN.slice(from as usize..to as usize)
}

/// A body: bytes, or a range of the pattern.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    Bytes(Bytes),
    Pattern(Range<u64>),
}

impl Body {
    /// Takes up to `len` bytes from the front; empty at the end.
    pub(crate) fn take(&mut self, len: u64) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes.split_to(bytes.len().min(len as usize)),
            Self::Pattern(range) => {
                let part = pattern(range.start..range.end.min(range.start + len));
                range.start += part.len() as u64;
                part
            }
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    path: String,
    query: Vec<(String, String)>,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
}

impl Request {
    pub(crate) fn new(
        method: &str,
        target: &str,
        headers: Vec<(String, String)>,
        body: Bytes,
    ) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decode(name), percent_decode(&value.replace('+', " ")))
        });
        Self {
            method: method.to_owned(),
            path: percent_decode(path),
            query: query.collect(),
            headers,
            body,
        }
    }

    /// Bucket and key.
    pub(crate) fn target(&self) -> (&str, &str) {
        self.path.trim_start_matches('/').split_once('/').unwrap_or((&self.path[1..], ""))
    }

    /// The same write, whatever is there.
    pub(crate) fn without_conditions(&self) -> Self {
        let is_kept = |name: &str| self.method != "PUT" || !name.starts_with("if-");
        let headers = self.headers.iter().filter(|(name, _)| is_kept(name));
        Self { headers: headers.cloned().collect(), ..self.clone() }
    }

    pub(crate) fn asked(&self) -> Asked {
        let (_, key) = self.target();
        let detail = match (self.header("range"), key.is_empty()) {
            (Some(range), _) => range.to_owned(),
            (None, true) => self.query("start-after").unwrap_or_default().to_owned(),
            (None, false) => String::new(),
        };
        let key = if key.is_empty() { self.query("prefix").unwrap_or_default() } else { key };
        Asked { method: self.method.clone(), key: key.to_owned(), detail }
    }

    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The same for equal requests, whatever came between.
    pub(crate) fn identity(&self) -> u64 {
        let range = self.header("range").unwrap_or_default();
        let text = [&self.method, "\n", &self.path, "\n", range];
        let bytes = text.iter().flat_map(|part| part.bytes());
        let query = self.query.iter().flat_map(|(n, v)| n.bytes().chain(v.bytes()));
        bytes.chain(query).fold(0, |hash, byte| mix(hash ^ u64::from(byte)))
    }
}

pub(crate) fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let code = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if first == b'%' => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Body,
}

impl Response {
    pub(crate) fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Body::Bytes(Bytes::new()) }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn with_body(self, body: Body) -> Self {
        Self { body, ..self }
    }

    pub(crate) fn with_xml(self, xml: &str) -> Self {
        let xml = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>{xml}");
        self.with("content-type", "application/xml").with_body(Body::Bytes(xml.into()))
    }

    #[cfg(test)]
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The head that promises `length` bytes of body.
    pub(crate) fn head(&self, length: u64) -> String {
        let mut head = format!("HTTP/1.1 {} X\r\n", self.status);
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        if self.status != 204 && self.status != 304 {
            head += &format!("content-length: {length}\r\n");
        }
        head + "\r\n"
    }
}

/// Reads the next request of a connection; `None` when the client has closed it.
pub(crate) async fn read(
    socket: &mut TcpStream,
    buffer: &mut BytesMut,
) -> io::Result<Option<Request>> {
    let refuse = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let (mut request, head, length) = loop {
        if let Some(parsed) = parse(buffer)? {
            break parsed;
        }
        if buffer.len() > MOST_HEAD {
            return Err(refuse("the head is too long"));
        }
        if socket.read_buf(buffer).await? == 0 {
            return if buffer.is_empty() { Ok(None) } else { Err(refuse("half a head")) };
        }
    };
    let _ = buffer.split_to(head);
    if request.header("expect").is_some() {
        socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    while buffer.len() < length {
        buffer.reserve(length - buffer.len());
        if socket.read_buf(buffer).await? == 0 {
            return Err(refuse("half a body"));
        }
    }
    request.body = buffer.split_to(length).freeze();
    Ok(Some(request))
}

/// Request without body, length of its head, length of its body.
fn parse(buffer: &[u8]) -> io::Result<Option<(Request, usize, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let status = parsed.parse(buffer);
    let status = status.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let httparse::Status::Complete(head) = status else { return Ok(None) };
    let headers: Vec<(String, String)> = parsed
        .headers
        .iter()
        .map(|header| {
            let value = String::from_utf8_lossy(header.value).into_owned();
            (header.name.to_ascii_lowercase(), value)
        })
        .collect();
    let method = parsed.method.unwrap_or_default();
    let target = parsed.path.unwrap_or("/");
    let request = Request::new(method, target, headers, Bytes::new());
    let length = request.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    Ok(Some((request, head, length)))
}

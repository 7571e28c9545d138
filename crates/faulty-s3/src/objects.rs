//! The objects and what S3 answers about them: a request in, a response out, no I/O.
//!
//! # Invariants
//! - Every request is one step: conditional writes of many racers have exactly one winner.
//!
//! # Not here
//! Signatures are not checked, permissions and versions do not exist.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

use bytes::Bytes;

use crate::http::{Body, Request, Response};

/// All objects have this time: nothing may depend on it.
const MODIFIED_HTTP: &str = "Wed, 21 Oct 2026 07:28:00 GMT";
const MODIFIED_XML: &str = "2026-10-21T07:28:00.000Z";
/// Fewer than S3's: what tests list has several pages.
const UPLOADS_PAGE: usize = 3;
/// S3's own limit of one page.
const PAGE: usize = 1000;

/// One bucket of each name that is used; buckets need not be made.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// By bucket and key.
    objects: BTreeMap<(String, String), Object>,
    /// By bucket, key and id.
    uploads: BTreeMap<UploadKey, BTreeMap<u32, Object>>,
    /// Makes ETags: every write has its own, also of equal bytes.
    writes: u64,
}

type UploadKey = (String, String, String);

#[derive(Debug, Clone)]
struct Object {
    body: Body,
    etag: String,
    /// `x-amz-meta-…` headers, in lower case.
    meta: Vec<(String, String)>,
}

impl Objects {
    pub(crate) fn answer(&mut self, request: &Request) -> Response {
        let (bucket, key) = request.target();
        let (bucket, key) = (bucket.to_owned(), key.to_owned());
        let upload = request.query("uploadId");
        let upload = upload.map(|id| (bucket.clone(), key.clone(), id.to_owned()));
        match (request.method.as_str(), key.is_empty()) {
            ("GET", true) if request.query("uploads").is_some() => {
                self.list_uploads(&bucket, request)
            }
            ("GET", true) => self.list(&bucket, request),
            ("POST", true) if request.query("delete").is_some() => {
                self.delete_many(&bucket, request)
            }
            ("PUT" | "HEAD", true) => Response::new(200),
            ("GET" | "HEAD", false) => self.get(&(bucket, key), request),
            ("PUT", false) => match upload {
                Some(upload) => self.put_part(&upload, request),
                None => self.put(&(bucket, key), request),
            },
            ("POST", false) => match upload {
                Some(upload) => self.complete(&(bucket, key), &upload, request),
                None => self.begin(bucket, key),
            },
            ("DELETE", false) => {
                match upload {
                    Some(upload) => drop(self.uploads.remove(&upload)),
                    None => drop(self.objects.remove(&(bucket, key))),
                }
                Response::new(204)
            }
            _ => error(405, "MethodNotAllowed"),
        }
    }

    /// Keys of `bucket`, for tests that look behind the protocol.
    pub(crate) fn keys(&self, bucket: &str) -> Vec<String> {
        self.objects.keys().filter(|(b, _)| b == bucket).map(|(_, key)| key.clone()).collect()
    }

    fn find(&self, at: &(String, String)) -> Option<Object> {
        let synthetic = || {
            let size = at.1.rsplit('/').next()?.strip_prefix("synthetic-")?;
            let size = size.split('-').next()?.parse().ok()?;
            let etag = format!("\"synthetic-{size}\"");
            Some(Object { body: Body::Pattern(0..size), etag, meta: Vec::new() })
        };
        self.objects.get(at).cloned().or_else(synthetic)
    }

    fn get(&self, at: &(String, String), request: &Request) -> Response {
        let Some(object) = self.find(at) else { return error(404, "NoSuchKey") };
        if request.header("if-match").is_some_and(|etag| etag != "*" && etag != object.etag) {
            return error(412, "PreconditionFailed");
        }
        if request.header("if-none-match").is_some_and(|etag| etag == "*" || etag == object.etag) {
            return Response::new(304);
        }
        let size = object.body.len();
        let mut response = match request.header("range").map(|range| parse_range(range, size)) {
            None => Response::new(200).with_body(object.body),
            Some(None) => return error(416, "InvalidRange"),
            Some(Some(range)) => {
                let text = format!("bytes {}-{}/{size}", range.start, range.end - 1);
                Response::new(206).with("content-range", &text).with_body(object.body.slice(range))
            }
        };
        response = response
            .with("etag", &object.etag)
            .with("last-modified", MODIFIED_HTTP)
            .with("accept-ranges", "bytes");
        for (name, value) in &object.meta {
            response = response.with(name, value);
        }
        response
    }

    /// What a conditional write answers when its condition does not hold.
    fn refuse(&self, at: &(String, String), request: &Request) -> Option<Response> {
        let existing = self.objects.get(at);
        if request.header("if-none-match").is_some() && existing.is_some() {
            return Some(error(412, "PreconditionFailed"));
        }
        let etag = request.header("if-match")?;
        match existing {
            None => Some(error(404, "NoSuchKey")),
            Some(object) if object.etag != etag => Some(error(412, "PreconditionFailed")),
            Some(_) => None,
        }
    }

    fn store(&mut self, body: Body, request: &Request) -> Object {
        self.writes += 1;
        let meta = request.headers.iter().filter(|(name, _)| name.starts_with("x-amz-meta-"));
        Object { body, etag: format!("\"{:032x}\"", self.writes), meta: meta.cloned().collect() }
    }

    fn put(&mut self, at: &(String, String), request: &Request) -> Response {
        if let Some(refusal) = self.refuse(at, request) {
            return refusal;
        }
        let Some(source) = request.header("x-amz-copy-source") else {
            let object = self.store(Body::Bytes(request.body.clone()), request);
            let response = Response::new(200).with("etag", &object.etag);
            self.objects.insert(at.clone(), object);
            return response;
        };
        let source = crate::http::percent_decode(source.trim_start_matches('/'));
        let (bucket, key) = source.split_once('/').unwrap_or_default();
        let Some(found) = self.find(&(bucket.to_owned(), key.to_owned())) else {
            return error(404, "NoSuchKey");
        };
        let object = Object { meta: found.meta, ..self.store(found.body, request) };
        let xml =
            format!("<CopyObjectResult><ETag>{}</ETag></CopyObjectResult>", escape(&object.etag));
        self.objects.insert(at.clone(), object);
        Response::new(200).with_xml(&xml)
    }

    fn begin(&mut self, bucket: String, key: String) -> Response {
        self.writes += 1;
        let id = format!("upload-{}", self.writes);
        let xml = format!(
            "<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
        );
        self.uploads.insert((bucket, key, id), BTreeMap::new());
        Response::new(200).with_xml(&xml)
    }

    fn list_uploads(&self, bucket: &str, request: &Request) -> Response {
        let prefix = request.query("prefix").unwrap_or_default();
        let after = request.query("key-marker").zip(request.query("upload-id-marker"));
        let mut found = self.uploads.keys().filter(|(in_bucket, key, id)| {
            in_bucket == bucket
                && key.starts_with(prefix)
                && after.is_none_or(|after| (key.as_str(), id.as_str()) > after)
        });
        let mut xml = String::new();
        let mut last = None;
        for upload in found.by_ref().take(UPLOADS_PAGE) {
            let (_, key, id) = upload;
            let _ = write!(
                xml,
                "<Upload><Key>{}</Key><UploadId>{id}</UploadId><Initiated>{MODIFIED_XML}</Initiated></Upload>",
                escape(key)
            );
            last = Some((key, id));
        }
        if let (Some((key, id)), Some(_)) = (last, found.next()) {
            let _ = write!(
                xml,
                "<IsTruncated>true</IsTruncated><NextKeyMarker>{}</NextKeyMarker><NextUploadIdMarker>{id}</NextUploadIdMarker>",
                escape(key)
            );
        }
        let xml = format!("<ListMultipartUploadsResult>{xml}</ListMultipartUploadsResult>");
        Response::new(200).with_xml(&xml)
    }

    fn put_part(&mut self, upload: &UploadKey, request: &Request) -> Response {
        let part = self.store(Body::Bytes(request.body.clone()), request);
        let Some(parts) = self.uploads.get_mut(upload) else { return error(404, "NoSuchUpload") };
        let Some(number) = request.query("partNumber").and_then(|text| text.parse().ok()) else {
            return error(400, "InvalidArgument");
        };
        let response = Response::new(200).with("etag", &part.etag);
        parts.insert(number, part);
        response
    }

    fn complete(
        &mut self,
        at: &(String, String),
        upload: &UploadKey,
        request: &Request,
    ) -> Response {
        if let Some(refusal) = self.refuse(at, request) {
            return refusal;
        }
        let xml = String::from_utf8_lossy(&request.body).into_owned();
        let Some(parts) = self.uploads.get(upload) else { return error(404, "NoSuchUpload") };
        let numbers = elements(&xml, "PartNumber").map(|text| text.parse::<u32>().ok());
        let etags = elements(&xml, "ETag").map(unescape);
        let mut whole = Vec::new();
        for (number, etag) in numbers.zip(etags) {
            let part = number.and_then(|number| parts.get(&number));
            match part {
                Some(Object { body: Body::Bytes(bytes), etag: right, .. }) if *right == etag => {
                    whole.extend_from_slice(bytes);
                }
                _ => return error(400, "InvalidPart"),
            }
        }
        self.uploads.remove(upload);
        let object = self.store(Body::Bytes(whole.into()), request);
        let etag = escape(&object.etag);
        self.objects.insert(at.clone(), object);
        Response::new(200).with_xml(&format!(
            "<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>"
        ))
    }

    fn delete_many(&mut self, bucket: &str, request: &Request) -> Response {
        let xml = String::from_utf8_lossy(&request.body).into_owned();
        let mut deleted = String::new();
        for key in elements(&xml, "Key").map(unescape) {
            let _ = write!(deleted, "<Deleted><Key>{}</Key></Deleted>", escape(&key));
            self.objects.remove(&(bucket.to_owned(), key));
        }
        Response::new(200).with_xml(&format!("<DeleteResult>{deleted}</DeleteResult>"))
    }

    fn list(&self, bucket: &str, request: &Request) -> Response {
        let prefix = request.query("prefix").unwrap_or_default();
        let delimiter = request.query("delimiter").filter(|text| !text.is_empty());
        let token = request.query("continuation-token");
        let after = token.or(request.query("start-after")).unwrap_or_default();
        let most = request.query("max-keys").and_then(|text| text.parse().ok()).unwrap_or(PAGE);
        let mut contents = String::new();
        let mut prefixes: Vec<String> = Vec::new();
        let mut listed = 0;
        let mut last = "";
        let mut next = None;
        for ((in_bucket, key), object) in
            self.objects.range((bucket.to_owned(), prefix.to_owned())..)
        {
            if in_bucket != bucket || !key.starts_with(prefix) {
                break;
            }
            if key.as_str() <= after {
                continue;
            }
            let folder = delimiter.and_then(|d| {
                let end = prefix.len() + key[prefix.len()..].find(d)? + d.len();
                Some(key[..end].to_owned())
            });
            if folder.is_some() && prefixes.last() == folder.as_ref() {
                last = key;
                continue;
            }
            if listed == most {
                next = Some(last.to_owned());
                break;
            }
            listed += 1;
            last = key;
            match folder {
                Some(folder) => prefixes.push(folder),
                None => {
                    let _ = write!(
                        contents,
                        "<Contents><Key>{}</Key><LastModified>{MODIFIED_XML}</LastModified>\
                         <ETag>{}</ETag><Size>{}</Size></Contents>",
                        escape(key),
                        escape(&object.etag),
                        object.body.len()
                    );
                }
            }
        }
        let mut xml = format!("<ListBucketResult><IsTruncated>{}</IsTruncated>", next.is_some());
        if let Some(token) = next {
            let token = escape(&token);
            let _ = write!(xml, "<NextContinuationToken>{token}</NextContinuationToken>");
        }
        xml.push_str(&contents);
        for prefix in prefixes {
            let prefix = escape(&prefix);
            let _ = write!(xml, "<CommonPrefixes><Prefix>{prefix}</Prefix></CommonPrefixes>");
        }
        xml.push_str("</ListBucketResult>");
        Response::new(200).with_xml(&xml)
    }
}

/// An error as S3 writes it.
pub(crate) fn error(status: u16, code: &str) -> Response {
    Response::new(status).with_xml(&format!("<Error><Code>{code}</Code></Error>"))
}

/// `bytes=a-b`, `bytes=a-` or `bytes=-n`, cut at the end; `None` if it lies outside.
fn parse_range(header: &str, size: u64) -> Option<Range<u64>> {
    let (start, end) = header.strip_prefix("bytes=")?.split_once('-')?;
    let range = match (start.parse::<u64>(), end.parse::<u64>()) {
        (Ok(start), Ok(end)) => start..end.saturating_add(1).min(size),
        (Ok(start), Err(_)) => start..size,
        (Err(_), Ok(last)) => size - size.min(last)..size,
        _ => return None,
    };
    (range.start < range.end).then_some(range)
}

/// The texts between `<name>` and `</name>`.
fn elements<'a>(xml: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = xml;
    std::iter::from_fn(move || {
        let start = rest.find(&open)? + open.len();
        let end = start + rest[start..].find(&close)?;
        let text = &rest[start..end];
        rest = &rest[end..];
        Some(text)
    })
}

const ENTITIES: [(&str, &str); 5] =
    [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\"", "&quot;"), ("'", "&apos;")];

fn escape(text: &str) -> String {
    ENTITIES.iter().fold(text.to_owned(), |text, (plain, entity)| text.replace(plain, entity))
}

fn unescape(text: &str) -> String {
    ENTITIES.iter().rev().fold(text.to_owned(), |text, (plain, entity)| text.replace(entity, plain))
}

impl Body {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Pattern(range) => range.end - range.start,
        }
    }

    fn slice(self, range: Range<u64>) -> Self {
        match self {
            Self::Bytes(bytes) => {
                Self::Bytes(bytes.slice(range.start as usize..range.end as usize))
            }
            Self::Pattern(_) => Self::Pattern(range),
        }
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Self::Bytes(Bytes::from_static(text.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Request {
        let headers = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        Request::new(method, target, headers, Bytes::copy_from_slice(body.as_bytes()))
    }

    fn text(response: &Response) -> String {
        match &response.body {
            Body::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Body::Pattern(range) => format!("{range:?}"),
        }
    }

    #[test]
    fn conditional_writes_keep_their_conditions() {
        let mut objects = Objects::default();
        let create = [("if-none-match", "*")];
        assert_eq!(objects.answer(&request("PUT", "/b/k", &create, "one")).status, 200);
        assert_eq!(objects.answer(&request("PUT", "/b/k", &create, "two")).status, 412);
        let found = objects.answer(&request("GET", "/b/k", &[], ""));
        assert_eq!(text(&found), "one");
        let etag = found.header("etag").expect("an etag").to_owned();
        let update = [("if-match", etag.as_str())];
        assert_eq!(objects.answer(&request("PUT", "/b/k", &update, "three")).status, 200);
        assert_eq!(objects.answer(&request("PUT", "/b/k", &update, "four")).status, 412);
        assert_eq!(objects.answer(&request("PUT", "/b/none", &update, "five")).status, 404);
    }

    #[test]
    fn ranges_are_cut_at_the_end() {
        let mut objects = Objects::default();
        objects.answer(&request("PUT", "/b/k", &[], "0123456789"));
        for (range, expected) in [
            ("bytes=2-4", Some("234")),
            ("bytes=8-100", Some("89")),
            ("bytes=7-", Some("789")),
            ("bytes=-2", Some("89")),
            ("bytes=-100", Some("0123456789")),
            ("bytes=10-12", None),
        ] {
            let found = objects.answer(&request("GET", "/b/k", &[("range", range)], ""));
            assert_eq!(found.status, if expected.is_some() { 206 } else { 416 }, "{range}");
            assert!(expected.is_none_or(|expected| text(&found) == expected), "{range}");
        }
    }

    #[test]
    fn lists_have_pages_and_folders() {
        let mut objects = Objects::default();
        for key in ["a/1", "a/2", "a/x/1", "a/x/2", "a/y/1", "b&c"] {
            objects.answer(&request("PUT", &format!("/b/{key}"), &[], ""));
        }
        let list = |query: &str| {
            let target = format!("/b?list-type=2&{query}");
            request("GET", &target, &[], "")
        };
        let page = text(&objects.answer(&list("prefix=a/&delimiter=/&max-keys=3")));
        assert_eq!(elements(&page, "Key").collect::<Vec<_>>(), ["a/1", "a/2"]);
        assert_eq!(elements(&page, "Prefix").collect::<Vec<_>>(), ["a/x/"]);
        let token = elements(&page, "NextContinuationToken").next().expect("more");
        let rest = format!("prefix=a/&delimiter=/&continuation-token={token}");
        let page = text(&objects.answer(&list(&rest)));
        assert_eq!(elements(&page, "Prefix").collect::<Vec<_>>(), ["a/y/"]);
        assert!(page.contains("<IsTruncated>false"));
        let page = text(&objects.answer(&list("start-after=a/y")));
        assert_eq!(elements(&page, "Key").collect::<Vec<_>>(), ["a/y/1", "b&amp;c"]);
    }

    #[test]
    fn uploads_join_their_parts_in_order() {
        let mut objects = Objects::default();
        let begun = text(&objects.answer(&request("POST", "/b/k?uploads", &[], "")));
        let id = elements(&begun, "UploadId").next().expect("an id").to_owned();
        let mut parts = String::new();
        for (number, body) in [(2, "world"), (1, "hello ")] {
            let target = format!("/b/k?partNumber={number}&uploadId={id}");
            let answer = objects.answer(&request("PUT", &target, &[], body));
            let etag = escape(answer.header("etag").expect("an etag"));
            let part = format!("<Part><ETag>{etag}</ETag><PartNumber>{number}</PartNumber></Part>");
            parts = part + &parts;
        }
        let target = format!("/b/k?uploadId={id}");
        assert_eq!(objects.answer(&request("POST", &target, &[], &parts)).status, 200);
        assert_eq!(text(&objects.answer(&request("GET", "/b/k", &[], ""))), "hello world");
        assert_eq!(objects.answer(&request("POST", &target, &[], &parts)).status, 404);
    }
}

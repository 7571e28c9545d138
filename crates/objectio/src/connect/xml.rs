//! Whether an answer in XML may be given to the provider's client, which parses it with `quick-xml` 0.39.
//!
//! For each attribute that compares its name with all before it in the tag (RUSTSEC-2026-0194), and keeps
//! each declared namespace before anybody can refuse it (RUSTSEC-2026-0195). Both are fixed in 0.41, which
//! `object_store` 0.13 does not take. A tag of some megabytes would occupy a core for hours; an endless
//! answer would fill the memory. What providers send has tags of at most some hundred bytes.
//!
//! # Invariants
//! - What is a tag here is one there: quotes hide `>`, in closing tags too (`quick_xml::parser`).
//! - Comments, CDATA and document types, which end otherwise, are refused; no provider sends them.

/// Longest answer: Azure lists 5,000 names of 1,024 bytes, of which each may be escaped as six bytes,
/// with some 1.2 KiB of properties each: 36 MiB.
pub(super) const MOST_BYTES: usize = 64 << 20;
/// Longest tag. Azure's root has two attributes, an address and a name: under 400 bytes. 200 attributes
/// fit, so that the most bytes have 1.3 billion comparisons: seconds.
const LONGEST_TAG: usize = 1 << 10;

/// Whether every tag is short.
pub(super) fn has_short_tags(body: &[u8]) -> bool {
    let mut rest = body;
    while let Some(at) = rest.iter().position(|&byte| byte == b'<') {
        let tag = &rest[at..rest.len().min(at + LONGEST_TAG)];
        let Some(len) = tag_len(tag) else { return false };
        rest = &rest[at + len..];
    }
    true
}

/// Bytes of the tag that `text` begins with; `None` if it does not end there, or is of another kind.
fn tag_len(text: &[u8]) -> Option<usize> {
    if text.starts_with(b"<?xml") {
        return text.windows(2).position(|two| two == b"?>").map(|at| at + 2);
    }
    if matches!(text.get(1), None | Some(b'!' | b'?')) {
        return None;
    }
    let mut quote = None;
    for (at, &byte) in text.iter().enumerate() {
        match (quote, byte) {
            (None, b'>') => return Some(at + 1),
            (None, b'\'' | b'"') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_providers_pass() {
        for text in [
            "",
            "{\"access_token\": \"x\"}",
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>it's</Name><Contents><Key>a &lt; b</Key></Contents><IsTruncated/></ListBucketResult>",
            "<?xml version='1.0'?><EnumerationResults ServiceEndpoint=\"https://a.blob.core.windows.net/\" ContainerName=\"x>y\"><Blobs /></EnumerationResults>",
        ] {
            assert!(has_short_tags(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_costs_more_than_its_bytes_is_refused() {
        let attributes: String = (0..5_000).map(|n| format!(" a{n}=\">\"")).collect();
        let namespaces: String = (0..5_000).map(|n| format!(" xmlns:a{n}=''")).collect();
        for text in [
            format!("<a{attributes}/>"),
            format!("<a{namespaces}>"),
            format!("<!-- \" --><a x=\">\"{attributes}/>"),
            format!("<?x \" ?><a x=\">\"{attributes}/>"),
            format!("<a x='\"'{attributes}/>"),
            "<".repeat(5_000),
            "<!DOCTYPE a>".to_owned(),
            "<a".to_owned(),
        ] {
            assert!(!has_short_tags(text.as_bytes()), "{:.60}", text);
        }
    }
}

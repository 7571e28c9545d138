//! Access as it lies in the lake: `_uplake/access/00000042.json`, the whole state in each document.
//!
//! ```text
//! {"checksum":"<SHA-256 of all bytes after the comma that follows it>","format":1,"number":42,
//!  "at":1764150000000,"by":"ann","access":{"roles":{…},…}}        one line
//! ```
//!
//! # Invariants
//! - A document never changes. Whoever changes access writes the next number, if it is not there; who is
//!   second reads again and changes that.
//! - A document that is not byte for byte what was written is an error, not a state.
//!
//! # Not here
//! What the state means (`model`, `check`), who holds it between looks (`Directory`).

use serde::{Deserialize, Serialize};
use uplake_table::{Lake, Numbered};

use super::error::{AccessError, Result};
use super::model::Access;

/// The format that is written.
const FORMAT: u32 = 1;
/// Changes that are tried again because others were faster: of so many writers at once each gets its turn.
const TRIES: u32 = 32;
/// Of a document. Each server reads it whole after each change; 16 MiB are some 50,000 roles.
const MAX_BYTES: usize = 16 << 20;
const BEGIN: &str = "{\"checksum\":\"";
/// SHA-256 in hexadecimal.
const CHECKSUM_CHARS: usize = 64;

/// A document of the lake, or what there is before the first: number 0, nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    pub number: u32,
    /// When it was written, milliseconds since 1970, UTC, by the writer's clock.
    pub at: i64,
    /// The role that wrote it, or what else did.
    pub by: String,
    pub access: Access,
}

/// Who changes access, and when.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    pub by: &'a str,
    /// Milliseconds since 1970, UTC.
    pub now: i64,
}

/// The newest document, if its number is above `after`.
///
/// # Errors
/// [`AccessError::Damaged`], [`AccessError::TooNew`], [`AccessError::Table`].
pub async fn newer(lake: &Lake, after: u32) -> Result<Option<Document>> {
    let Some(number) = lake.newest_document(Numbered::Access, after).await? else {
        return Ok(None);
    };
    match lake.document(Numbered::Access, number).await? {
        Some((text, place)) => parsed(&text, number, &place).map(Some),
        None => {
            let place = format!("access document {number} of {}", lake.location());
            Err(AccessError::Damaged { place, reason: "it is listed and not there".into() })
        }
    }
}

/// The newest document; that before the first if there is none.
///
/// # Errors
/// As [`newer`].
pub async fn newest(lake: &Lake) -> Result<Document> {
    Ok(newer(lake, 0).await?.unwrap_or_default())
}

/// Changes access: `change` is done to the newest state, again if another writer was faster. The document
/// that was written, and what `change` answered for it.
///
/// # Errors
/// Those of `change`; [`AccessError::Busy`], [`AccessError::TooLarge`], and as [`newer`].
pub async fn change<T>(
    lake: &Lake,
    who: Change<'_>,
    mut change: impl FnMut(&mut Access) -> Result<T>,
) -> Result<(Document, T)> {
    for _ in 0..TRIES {
        let mut document = newest(lake).await?;
        let answer = change(&mut document.access)?;
        document.number += 1;
        document.at = who.now;
        who.by.clone_into(&mut document.by);
        let text = text_of(&document)?;
        if lake.add_document(Numbered::Access, document.number, &text).await? {
            return Ok((document, answer));
        }
    }
    Err(AccessError::Busy { tries: TRIES })
}

/// All of a document but its checksum.
#[derive(Serialize)]
struct Body<'a> {
    format: u32,
    number: u32,
    at: i64,
    by: &'a str,
    access: &'a Access,
}

/// A document as it is read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    #[serde(rename = "checksum")]
    _checksum: String,
    #[serde(rename = "format")]
    _format: u32,
    number: u32,
    at: i64,
    by: String,
    access: Access,
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

fn text_of(document: &Document) -> Result<String> {
    let Document { number, at, by, access } = document;
    let body = Body { format: FORMAT, number: *number, at: *at, by, access };
    let body = serde_json::to_string(&body)
        .map_err(|error| AccessError::Value(format!("access cannot be written: {error}")))?;
    // Without its brace it goes on after the checksum.
    let rest = format!("{}\n", body.get(1..).unwrap_or_default());
    let text = format!("{BEGIN}{}\",{rest}", checksum(&rest));
    if text.len() > MAX_BYTES {
        return Err(AccessError::TooLarge { bytes: text.len(), limit: MAX_BYTES });
    }
    Ok(text)
}

fn parsed(text: &str, number: u32, place: &str) -> Result<Document> {
    let damaged = |reason: String| AccessError::Damaged { place: place.to_owned(), reason };
    let cut = || damaged("it does not begin or end as a document does".to_owned());
    let after = text.strip_prefix(BEGIN).filter(|_| text.len() <= MAX_BYTES).ok_or_else(cut)?;
    let (found, rest) = after.split_at_checked(CHECKSUM_CHARS).ok_or_else(cut)?;
    let rest = rest.strip_prefix("\",").ok_or_else(cut)?;
    if checksum(rest) != found {
        return Err(damaged("its checksum is another".to_owned()));
    }
    let unread = |error: serde_json::Error| damaged(error.to_string());
    let Format { format } = serde_json::from_str(text).map_err(unread)?;
    if format > FORMAT {
        let place = place.to_owned();
        return Err(AccessError::TooNew { place, found: format, supported: FORMAT });
    }
    let whole: Whole = serde_json::from_str(text).map_err(unread)?;
    if whole.number != number {
        return Err(damaged(format!("it is document {}", whole.number)));
    }
    Ok(Document { number, at: whole.at, by: whole.by, access: whole.access })
}

fn checksum(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::model::Role;
    use super::*;

    const WHO: Change<'_> = Change { by: "test", now: 1000 };

    fn lake() -> (tempfile::TempDir, Lake) {
        let folder = tempfile::tempdir().unwrap();
        let lake = Lake::open(folder.path().to_str().unwrap()).unwrap();
        (folder, lake)
    }

    fn add(name: &str) -> impl FnMut(&mut Access) -> Result<()> {
        move |access| access.add_role(name, Role { login: true, ..Role::default() })
    }

    #[tokio::test]
    async fn what_is_written_is_read() {
        let (folder, lake) = lake();
        assert_eq!(newest(&lake).await.unwrap(), Document::default());
        let (written, ()) = change(&lake, WHO, add("ann")).await.unwrap();
        assert_eq!((written.number, written.by.as_str(), written.at), (1, "test", 1000));
        assert_eq!(newest(&lake).await.unwrap(), written);
        assert_eq!(newer(&lake, 1).await.unwrap(), None);
        assert!(folder.path().join("_uplake/access/00000001.json").is_file());
        let refused = change(&lake, WHO, add("ann")).await.unwrap_err();
        assert_eq!(refused.code(), "42710");
        assert_eq!(newest(&lake).await.unwrap().number, 1, "what is refused is not written");
    }

    #[tokio::test]
    async fn of_two_writers_at_once_both_changes_are_there() {
        let (_folder, lake) = lake();
        let names: Vec<String> = (0..16).map(|writer| format!("user{writer}")).collect();
        let writers = names.iter().map(|name| change(&lake, WHO, add(name)));
        for written in futures::future::join_all(writers).await {
            written.unwrap();
        }
        let document = newest(&lake).await.unwrap();
        assert_eq!(document.number, 16);
        assert!(names.iter().all(|name| document.access.has_role(name)));
    }

    #[tokio::test]
    async fn who_is_second_changes_what_the_first_wrote() {
        let (_folder, lake) = lake();
        change(&lake, WHO, add("ann")).await.unwrap();
        let text = text_of(&Document {
            number: 2,
            access: Access {
                roles: [("bob".to_owned(), Role::default())].into(),
                ..Access::default()
            },
            ..Document::default()
        })
        .unwrap();
        let mut tries = 0;
        let path = lake.location();
        let (written, ()) = change(&lake, WHO, |access| {
            tries += 1;
            if tries == 1 {
                // Another process is faster.
                let file = std::path::Path::new(&path).join("_uplake/access/00000002.json");
                std::fs::write(file, &text).unwrap();
            }
            add("eve")(access)
        })
        .await
        .unwrap();
        assert_eq!((tries, written.number), (2, 3));
        assert!(written.access.has_role("bob") && !written.access.has_role("ann"));
    }

    #[tokio::test]
    async fn a_damaged_document_is_an_error() {
        let (folder, lake) = lake();
        change(&lake, WHO, add("ann")).await.unwrap();
        change(&lake, WHO, add("bob")).await.unwrap();
        let file = folder.path().join("_uplake/access/00000002.json");
        let good = std::fs::read_to_string(&file).unwrap();
        let other_number = std::fs::read_to_string(file.with_file_name("00000001.json")).unwrap();
        let bad = [
            String::new(),
            good[..good.len() / 2].to_owned(),
            good.trim_end().to_owned(),
            good.replace("bob", "eve"),
            good.replacen("{\"checksum\":\"", "{\"checksum\":\"0", 1),
            format!("{good} "),
            "{}".to_owned(),
            other_number,
        ];
        for text in bad {
            std::fs::write(&file, &text).unwrap();
            let error = newest(&lake).await.unwrap_err();
            assert_eq!(error.code(), "XX001", "{text}: {error}");
            assert!(error.to_string().contains("00000002.json"), "{error}");
            // Nobody goes on from what they cannot read.
            assert!(change(&lake, WHO, add("eve")).await.is_err());
        }
        std::fs::write(&file, good).unwrap();
        assert!(newest(&lake).await.unwrap().access.has_role("bob"));
    }

    #[test]
    fn later_formats_and_unknown_fields_are_refused() {
        let text = text_of(&Document { number: 7, ..Document::default() }).unwrap();
        let again = |from: &str, to: &str| {
            let rest = text[BEGIN.len() + CHECKSUM_CHARS + 2..].replacen(from, to, 1);
            parsed(&format!("{BEGIN}{}\",{rest}", checksum(&rest)), 7, "x")
        };
        assert_eq!(again("at", "at").unwrap().number, 7);
        let newer = again("\"format\":1", "\"format\":2,\"more\":1").unwrap_err();
        assert!(matches!(newer, AccessError::TooNew { found: 2, .. }), "{newer}");
        assert_eq!(again("\"at\"", "\"more\":1,\"at\"").unwrap_err().code(), "XX001");
        assert_eq!(parsed(&text, 8, "x").unwrap_err().code(), "XX001");
    }
}

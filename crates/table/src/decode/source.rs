//! Input files as bytes: globs, standard input, compression, and what format the bytes are.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use glob::MatchOptions;
use tempfile::NamedTempFile;
use url::Url;

use super::json_array::ArrayLines;
use super::objects::Object;
use super::progress::Progress;
use crate::error::{Result, TableError};
use crate::thread::on_thread;

/// Extensions of Parquet files.
const PARQUET_NAMES: [&str; 3] = ["parquet", "parq", "pq"];
/// How Parquet files begin.
const MAGIC: &[u8; 4] = b"PAR1";
/// Bytes looked at to tell the format.
const SNIFF_BYTES: usize = 4096;

/// An input as the user named it.
#[derive(Clone, Debug)]
pub struct InputFile {
    /// What messages call it.
    pub name: String,
    /// Where its bytes are.
    pub place: Place,
}

/// Where the bytes of an input are.
#[derive(Clone, Debug)]
pub enum Place {
    /// Standard input, which is read once.
    StandardInput,
    /// A file of this machine.
    File(PathBuf),
    /// What an address names.
    Object(Arc<Object>),
}

impl InputFile {
    /// A file of this machine.
    pub fn of_path(name: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self { name: name.into(), place: Place::File(path.into()) }
    }

    /// The path of a file of this machine.
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            Place::File(path) => Some(path),
            Place::StandardInput | Place::Object(_) => None,
        }
    }

    /// Are its bytes waited for? Then no thread of the runtime may.
    pub fn is_waited_for(&self) -> bool {
        !self.path().is_some_and(Path::is_file)
    }

    /// The URL of an object in a bucket.
    pub fn url(&self) -> Option<Url> {
        match &self.place {
            Place::Object(object) => object.url(),
            Place::StandardInput | Place::File(_) => None,
        }
    }

    /// In bytes, if that is known.
    pub(crate) fn size(&self) -> Option<u64> {
        match &self.place {
            Place::StandardInput => None,
            Place::File(path) => std::fs::metadata(path).ok().map(|found| found.len()),
            Place::Object(object) => object.size,
        }
    }

    /// Can it be read from its beginning again? A pipe cannot.
    pub(super) fn is_kept(&self) -> bool {
        match &self.place {
            Place::StandardInput => false,
            Place::File(path) => path.is_file(),
            Place::Object(_) => true,
        }
    }

    /// Is it Parquet, by its content?
    ///
    /// # Errors
    /// What the file system or the store says.
    pub async fn is_parquet(&self) -> Result<bool> {
        let fail = |e| TableError::io(format!("reading {}", self.name), e);
        match &self.place {
            Place::StandardInput => Ok(false),
            Place::File(path) => starts_with(&File::open(path).map_err(fail)?, MAGIC).map_err(fail),
            Place::Object(object) => object.begins_with(MAGIC).await,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Csv,
    /// An object a line.
    Json,
    /// The same, made of one array.
    JsonArray,
}

pub(super) enum Opened {
    Text(Format, Box<dyn Read + Send>),
    Parquet(Arc<File>),
}

/// The files that a list of paths, glob patterns and `-` (standard input) stands for, in order;
/// a pattern's files are sorted by name, and so are a folder's, without those that begin with `.` or `_` and without
/// folders in it.
///
/// # Errors
/// [`TableError::NoSuchFile`] for a pattern that matches nothing and a folder without files.
pub fn expand_inputs(patterns: &[String]) -> Result<Vec<InputFile>> {
    let mut files = Vec::new();
    for pattern in patterns {
        if pattern == "-" {
            files.push(InputFile { name: "standard input".into(), place: Place::StandardInput });
            continue;
        }
        let path = PathBuf::from(pattern);
        if path.is_dir() {
            files.extend(files_of(&path)?);
            continue;
        }
        if path.exists() {
            files.push(InputFile::of_path(pattern, path));
            continue;
        }
        // As in a shell: hidden files are named, or not meant.
        let hidden = MatchOptions { require_literal_leading_dot: true, ..MatchOptions::new() };
        let matched = glob::glob_with(pattern, hidden)
            .map_err(|e| TableError::Invalid(format!("pattern `{pattern}`: {e}")))?;
        let before = files.len();
        for path in matched {
            let path = path.map_err(|e| {
                TableError::io(format!("pattern `{pattern}`"), std::io::Error::from(e))
            })?;
            if path.is_file() {
                files.push(InputFile::of_path(path.display().to_string(), path));
            }
        }
        if files.len() == before {
            return Err(TableError::NoSuchFile { pattern: pattern.clone() });
        }
    }
    Ok(files)
}

pub(super) fn open(file: &InputFile, progress: &Arc<Progress>) -> Result<Opened> {
    let fail = |e| TableError::io(format!("reading {}", file.name), e);
    let raw: Box<dyn Read + Send> = match &file.place {
        Place::StandardInput => {
            Box::new(Counted { inner: std::io::stdin(), progress: Arc::clone(progress) })
        }
        Place::Object(object) => {
            Box::new(Counted { inner: object.open()?, progress: Arc::clone(progress) })
        }
        Place::File(path) => {
            let handle = File::open(path).map_err(fail)?;
            // A pipe cannot be rewound; it is read through `peek` instead.
            let regular = handle.metadata().map_err(fail)?.is_file();
            if regular && starts_with(&handle, MAGIC).map_err(fail)? {
                return Ok(Opened::Parquet(Arc::new(handle)));
            }
            let extension = path.extension().map(OsStr::to_ascii_lowercase);
            if extension
                .is_some_and(|extension| PARQUET_NAMES.iter().any(|name| extension == *name))
            {
                return Err(TableError::Input {
                    file: file.name.clone(),
                    reason: "is named as a Parquet file and is none: it does not begin with PAR1. Was it \
                             cut or damaged on its way? Text needs another name, such as .csv"
                        .into(),
                });
            }
            Box::new(Counted { inner: handle, progress: Arc::clone(progress) })
        }
    };
    let (head, raw) = peek(raw).map_err(fail)?;
    let plain: Box<dyn Read + Send> = if head.starts_with(&[0x1f, 0x8b]) {
        Box::new(flate2::read::MultiGzDecoder::new(BufReader::with_capacity(1 << 17, raw)))
    } else if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        Box::new(zstd::stream::read::Decoder::new(raw).map_err(fail)?)
    } else {
        raw
    };
    let (head, mut plain) = peek(plain).map_err(fail)?;
    if head.starts_with(MAGIC) {
        // Parquet is read from its end: a stream has to be put down first.
        let mut spool = tempfile::tempfile().map_err(fail)?;
        std::io::copy(&mut plain, &mut spool).map_err(fail)?;
        return Ok(Opened::Parquet(Arc::new(spool)));
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&head);
    let first = text.iter().find(|b| !b.is_ascii_whitespace());
    // No header and no first record has one; a file that was never written to its disk is full of them.
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if line.contains(&0) {
        return Err(TableError::Input {
            file: file.name.clone(),
            reason: "is neither text nor Parquet: there are NUL bytes in its first line. Text has to be \
                     UTF-8 (iconv -f UTF-16 -t UTF-8 makes it so)"
                .into(),
        });
    }
    match first {
        Some(b'{') => Ok(Opened::Text(Format::Json, plain)),
        Some(b'[') => Ok(Opened::Text(Format::JsonArray, Box::new(ArrayLines::new(plain)))),
        Some(_) => Ok(Opened::Text(Format::Csv, plain)),
        None => Err(TableError::Input {
            file: file.name.clone(),
            reason: "is empty; there is nothing to read".into(),
        }),
    }
}

/// Puts standard input down in a folder, so that it can be read as often as somebody asks.
///
/// # Errors
/// What the file system says.
pub async fn keep_standard_input(folder: PathBuf) -> Result<NamedTempFile> {
    let fail = |e| TableError::io("keeping standard input on the disk".to_owned(), e);
    on_thread(move || {
        let mut file = NamedTempFile::with_prefix_in("stdin-", folder).map_err(fail)?;
        std::io::copy(&mut std::io::stdin().lock(), &mut file).map_err(fail)?;
        Ok(file)
    })
    .await
}

/// The files of a folder itself, but hidden ones and those that writers have not finished or keep for themselves (`_`).
fn files_of(folder: &Path) -> Result<Vec<InputFile>> {
    let fail = |e| TableError::io(format!("reading {}", folder.display()), e);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let path = entry.path();
        let is_hidden = entry.file_name().to_string_lossy().starts_with(['.', '_']);
        if !is_hidden && path.is_file() {
            files.push(InputFile::of_path(path.display().to_string(), path));
        }
    }
    if files.is_empty() {
        return Err(TableError::NoSuchFile { pattern: format!("{}/*", folder.display()) });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

fn starts_with(mut handle: &File, magic: &[u8; 4]) -> std::io::Result<bool> {
    let mut head = [0u8; 4];
    let mut read = 0;
    while read < 4 {
        match handle.read(&mut head[read..])? {
            0 => break,
            n => read += n,
        }
    }
    handle.seek(SeekFrom::Start(0))?;
    Ok(read == 4 && head == *magic)
}

/// The first bytes of a stream, and the whole stream.
fn peek(mut raw: Box<dyn Read + Send>) -> std::io::Result<(Vec<u8>, Box<dyn Read + Send>)> {
    let mut head = Vec::with_capacity(SNIFF_BYTES);
    (&mut raw).take(SNIFF_BYTES as u64).read_to_end(&mut head)?;
    let again = std::io::Cursor::new(head.clone()).chain(raw);
    Ok((head, Box::new(again)))
}

struct Counted<R> {
    inner: R,
    progress: Arc<Progress>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.progress.bytes_read.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

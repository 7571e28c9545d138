//! One JSON array as its values, a line each.
//!
//! # Invariants
//! - Values keep their bytes but for line ends between tokens, which become spaces.
//! - An array that is not closed, and what comes after it, are errors.

use std::io::{Error, ErrorKind, Read, Result};

/// Bytes taken from the file at once.
const READ_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// Before the array.
    Before,
    /// Between values and within them.
    Inside,
    Text,
    /// After a backslash in a text.
    Escaped,
    /// After the array.
    After,
}

pub(super) struct ArrayLines<R> {
    inner: R,
    place: Place,
    /// Open brackets within the array.
    depth: usize,
    lines: Vec<u8>,
    /// Of `lines`, what is handed on.
    taken: usize,
    buffer: Vec<u8>,
}

impl<R: Read> ArrayLines<R> {
    pub fn new(inner: R) -> Self {
        let buffer = vec![0; READ_BYTES];
        Self { inner, place: Place::Before, depth: 0, lines: Vec::new(), taken: 0, buffer }
    }

    /// Reads on until there is something to hand on; false at the end.
    fn fill(&mut self) -> Result<bool> {
        self.lines.clear();
        self.taken = 0;
        while self.lines.is_empty() {
            let read = self.inner.read(&mut self.buffer)?;
            if read == 0 {
                return match self.place {
                    Place::After => Ok(false),
                    _ => Err(wrong("the array that it begins with is not closed")),
                };
            }
            for at in 0..read {
                self.take(self.buffer[at])?;
            }
        }
        Ok(true)
    }

    fn take(&mut self, byte: u8) -> Result<()> {
        let mut push = byte;
        match (self.place, byte) {
            // A byte order mark, and what was looked at before.
            (Place::Before, b'[') => {
                self.place = Place::Inside;
                return Ok(());
            }
            (Place::Before, _) => return Ok(()),
            (Place::After, byte) if byte.is_ascii_whitespace() => return Ok(()),
            (Place::After, _) => return Err(wrong("there is text after the end of its array")),
            (Place::Text, b'\\') => self.place = Place::Escaped,
            (Place::Text, b'"') => self.place = Place::Inside,
            (Place::Escaped, _) => self.place = Place::Text,
            (Place::Text, _) => {}
            (Place::Inside, b'"') => self.place = Place::Text,
            (Place::Inside, b'{' | b'[') => self.depth += 1,
            (Place::Inside, b']') if self.depth == 0 => {
                self.place = Place::After;
                push = b'\n';
            }
            (Place::Inside, b'}' | b']') => self.depth = self.depth.saturating_sub(1),
            (Place::Inside, b',') if self.depth == 0 => push = b'\n',
            (Place::Inside, b'\n' | b'\r') => push = b' ',
            (Place::Inside, _) => {}
        }
        self.lines.push(push);
        Ok(())
    }
}

fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

impl<R: Read> Read for ArrayLines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if self.taken == self.lines.len() && !self.fill()? {
            return Ok(0);
        }
        let count = buffer.len().min(self.lines.len() - self.taken);
        buffer[..count].copy_from_slice(&self.lines[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Result<Vec<String>> {
        let mut all = String::new();
        ArrayLines::new(text.as_bytes()).read_to_string(&mut all)?;
        Ok(all.lines().map(|line| line.trim().to_owned()).filter(|l| !l.is_empty()).collect())
    }

    #[test]
    fn each_value_is_a_line() {
        let text = "\u{feff} [\n {\"a\":\n [1,2], \"b\": \"],\\\"[\"},\r\n{\"a\": null}\n]\n";
        assert_eq!(lines(text).unwrap(), ["{\"a\":  [1,2], \"b\": \"],\\\"[\"}", "{\"a\": null}"]);
        assert!(lines("[]").unwrap().is_empty());
        assert_eq!(lines("[\"\\\\\",1]").unwrap(), ["\"\\\\\"", "1"]);
    }

    #[test]
    fn an_array_that_is_cut_or_followed_is_refused() {
        for text in ["[{\"a\":1}", "[{\"a\":1},", "[\"", "[1] 2", "[1],[2]"] {
            assert!(lines(text).is_err(), "{text}");
        }
    }
}

//! What a client sends for COPY, as CSV with a line of names in front.
//!
//! CSV stays as it is, but for its own first line; text gets quotes in the place of its backslashes.

use crate::failure::Failure;
use crate::pg::copy_options::CopyCommand;
use crate::pg::encode::copy::CopyFormat;

/// Bytes of a line of text.
const LINE_BYTES: usize = 64 << 20;

/// A change of what comes, piece by piece.
pub(crate) struct Lines {
    names: Vec<String>,
    is_text: bool,
    separator: u8,
    null: Vec<u8>,
    /// The first line is the client's names.
    skips_line: bool,
    /// The line that is not at its end yet.
    line: Vec<u8>,
    number: u64,
    any: bool,
    is_over: bool,
}

impl Lines {
    /// # Errors
    /// 0A000 for what a load does not read.
    pub fn new(copy: &CopyCommand, columns: &[String]) -> Result<Self, Failure> {
        let unsupported = |what: &str| Err(Failure::new("0A000", what));
        let is_text = match copy.format {
            CopyFormat::Text => true,
            CopyFormat::Csv => false,
            CopyFormat::Binary => {
                return unsupported("COPY FROM takes text and csv, not binary");
            }
        };
        if !is_text
            && (copy.quote.is_some_and(|q| q != b'"') || copy.escape.is_some_and(|e| e != b'"'))
        {
            return unsupported("COPY FROM takes \" as QUOTE and ESCAPE alone");
        }
        if !copy.force_quote.is_empty() {
            return unsupported("FORCE QUOTE is for COPY TO");
        }
        Ok(Self {
            names: columns.to_vec(),
            is_text,
            separator: copy.delimiter.unwrap_or(if is_text { b'\t' } else { b',' }),
            null: copy.null.clone().unwrap_or_else(|| "\\N".into()).into_bytes(),
            skips_line: copy.header,
            line: Vec::new(),
            number: 0,
            any: false,
            is_over: false,
        })
    }

    /// What stands in front.
    pub fn begin(&self, out: &mut Vec<u8>) {
        let separator = if self.is_text { b',' } else { self.separator };
        for (at, name) in self.names.iter().enumerate() {
            if at > 0 {
                out.push(separator);
            }
            quote(name.as_bytes(), out);
        }
        out.push(b'\n');
    }

    /// Has no row come?
    pub fn are_none(&self) -> bool {
        !self.any
    }

    /// The next piece of what the client sends.
    ///
    /// # Errors
    /// 22P04 for a line that has too many values, or too few; 0A000 for an empty text, which a load takes for NULL.
    pub fn take(&mut self, mut data: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
        if !self.is_text && !self.skips_line {
            self.any |= !data.is_empty();
            out.extend_from_slice(data);
            return Ok(());
        }
        while let Some(end) = data.iter().position(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&data[..end]);
            data = &data[end + 1..];
            self.end_line(out)?;
            if !self.is_text {
                return self.take(data, out);
            }
        }
        if self.line.len() + data.len() > LINE_BYTES {
            return Err(Failure::new("54000", format!("a line has more than {LINE_BYTES} bytes")));
        }
        self.line.extend_from_slice(data);
        Ok(())
    }

    /// Nothing more comes.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn end(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        if self.line.is_empty() { Ok(()) } else { self.end_line(out) }
    }

    fn end_line(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        let mut line = std::mem::take(&mut self.line);
        self.number += 1;
        if std::mem::take(&mut self.skips_line) || self.is_over {
            return Ok(());
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        if line == b"\\." {
            self.is_over = true;
            return Ok(());
        }
        self.any = true;
        let mut count = 0;
        for value in values(&line, self.separator) {
            if count > 0 {
                out.push(b',');
            }
            count += 1;
            if value.is_empty() && value != self.null {
                let message =
                    format!("line {}: an empty text would be loaded as NULL", self.number);
                return Err(Failure::new("0A000", message).with_hint("write \\N, or INSERT it"));
            }
            if value != self.null {
                let plain = plain(value);
                quote(&plain, out);
            }
        }
        out.push(b'\n');
        let (wanted, number) = (self.names.len(), self.number);
        match count == wanted {
            true => Ok(()),
            false => {
                let message = format!("line {number} has {count} values for {wanted} columns");
                Err(Failure::new("22P04", message))
            }
        }
    }
}

/// The values between separators that no backslash stands before.
fn values(line: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut escaped = false;
    line.split(move |byte| {
        let ends = !escaped && *byte == separator;
        escaped = !escaped && *byte == b'\\';
        ends
    })
}

/// A value without its backslashes.
fn plain(value: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(value.len());
    let mut at = 0;
    while let Some(&byte) = value.get(at) {
        at += 1;
        let Some(&next) = value.get(at).filter(|_| byte == b'\\') else {
            plain.push(byte);
            continue;
        };
        at += 1;
        let digits = |from: usize, most: usize, radix: u32| {
            let digits = value[from..].iter().take(most);
            digits.take_while(|digit| char::from(**digit).is_digit(radix)).count()
        };
        let number = |from: usize, count: usize, radix: u32| {
            let digits = value[from..from + count].iter();
            digits.fold(0, |sum: u32, digit| {
                sum * radix + char::from(*digit).to_digit(radix).unwrap_or(0)
            }) as u8
        };
        plain.push(match next {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            b'0'..=b'7' => {
                let count = digits(at - 1, 3, 8);
                let byte = number(at - 1, count, 8);
                at += count - 1;
                byte
            }
            b'x' if digits(at, 2, 16) > 0 => {
                let count = digits(at, 2, 16);
                let byte = number(at, count, 16);
                at += count;
                byte
            }
            other => other,
        });
    }
    plain
}

fn quote(value: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in value {
        if *byte == b'"' {
            out.push(b'"');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg::copy_options::copy_command;

    fn csv(command: &str, columns: &[&str], pieces: &[&str]) -> Result<String, Failure> {
        let copy = copy_command(command).unwrap().unwrap();
        let columns: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
        let mut lines = Lines::new(&copy, &columns)?;
        let mut out = Vec::new();
        lines.begin(&mut out);
        for piece in pieces {
            lines.take(piece.as_bytes(), &mut out)?;
        }
        lines.end(&mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn text_becomes_csv_however_it_is_cut() {
        let text = "1\ta\\tb\\\\\n\\N\tx\n3\tsay \"x\"\\x41\\101\\\tz\n\\.\nafter";
        let expected = "\"n\",\"s\"\n\"1\",\"a\tb\\\"\n,\"x\"\n\"3\",\"say \"\"x\"\"AA\tz\"\n";
        for at in 0..text.len() {
            let (left, right) = text.split_at(at);
            assert_eq!(csv("COPY t FROM STDIN", &["n", "s"], &[left, right]).unwrap(), expected);
        }
        let short = csv("COPY t FROM STDIN", &["n", "s"], &["1\n"]).unwrap_err();
        assert_eq!((short.code.as_ref(), short.message.contains("line 1")), ("22P04", true));
    }

    #[test]
    fn csv_has_the_names_of_the_columns_in_front() {
        let found = csv("COPY t FROM STDIN (FORMAT csv)", &["n"], &["1\n", "2\n"]).unwrap();
        assert_eq!(found, "\"n\"\n1\n2\n");
        let found =
            csv("COPY t FROM STDIN CSV HEADER", &["n"], &["oth", "er\n1\n2", "\n"]).unwrap();
        assert_eq!(found, "\"n\"\n1\n2\n");
        let binary = csv("COPY t FROM STDIN (FORMAT binary)", &["n"], &[]).unwrap_err();
        assert_eq!(binary.code, "0A000");
    }
}

//! Numbers, texts and lists as bytes, and back.
//!
//! # Invariants
//! - What is read may be anything: it ends with an error, never with a panic, and takes no more memory than there are
//!   bytes.

use datafusion::common::{Result, plan_datafusion_err};

/// Bytes that are written.
#[derive(Default)]
pub(crate) struct Writer(pub Vec<u8>);

impl Writer {
    pub fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Seven bits a byte, the lowest first.
    pub fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub fn flag(&mut self, flag: bool) {
        self.byte(u8::from(flag));
    }

    /// All of its bits.
    pub fn float(&mut self, float: f64) {
        self.0.extend_from_slice(&float.to_le_bytes());
    }

    pub fn floats(&mut self, floats: &[f64]) {
        self.number(floats.len() as u64);
        floats.iter().for_each(|float| self.float(*float));
    }

    /// Nothing, or a number.
    pub fn option(&mut self, number: Option<u64>) {
        self.flag(number.is_some());
        if let Some(number) = number {
            self.number(number);
        }
    }
}

/// Bytes in bytes, at most: what reads them calls itself.
const DEPTH_MAX: u8 = 16;

/// Bytes that are read, and in how many others they are.
pub(crate) struct Reader<'a>(&'a [u8], u8);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes, 0)
    }

    /// The bytes that follow, as some of their own.
    pub fn inner(&mut self) -> Result<Self> {
        let bytes = self.bytes()?;
        if self.1 == DEPTH_MAX { Err(cut_off()) } else { Ok(Self(bytes, self.1 + 1)) }
    }

    pub fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> Result<u8> {
        let (first, rest) = self.0.split_first().ok_or_else(cut_off)?;
        self.0 = rest;
        Ok(*first)
    }

    pub fn number(&mut self) -> Result<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(cut_off())
    }

    /// How many of something follow, each of a byte at least.
    pub fn count(&mut self) -> Result<usize> {
        let count = usize::try_from(self.number()?).map_err(|_| cut_off())?;
        if count > self.0.len() { Err(cut_off()) } else { Ok(count) }
    }

    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.count()?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(cut_off)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub fn text(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| cut_off())
    }

    pub fn flag(&mut self) -> Result<bool> {
        Ok(self.byte()? != 0)
    }

    pub fn float(&mut self) -> Result<f64> {
        let (bytes, rest) = self.0.split_first_chunk::<8>().ok_or_else(cut_off)?;
        self.0 = rest;
        Ok(f64::from_le_bytes(*bytes))
    }

    pub fn floats(&mut self) -> Result<Vec<f64>> {
        let count = self.count()?;
        (0..count).map(|_| self.float()).collect()
    }

    pub fn option(&mut self) -> Result<Option<u64>> {
        Ok(if self.flag()? { Some(self.number()?) } else { None })
    }
}

fn cut_off() -> datafusion::common::DataFusionError {
    plan_datafusion_err!("the bytes of a plan are damaged")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Writer::default();
        let numbers = [0, 1, 127, 128, 300, 1 << 32, u64::MAX];
        numbers.iter().for_each(|number| writer.number(*number));
        writer.text("naïve");
        writer.option(None);
        writer.option(Some(7));
        let bytes = writer.0;
        let mut reader = Reader::new(&bytes);
        assert!(numbers.iter().all(|number| reader.number().unwrap() == *number));
        assert_eq!(reader.text().unwrap(), "naïve");
        assert_eq!((reader.option().unwrap(), reader.option().unwrap()), (None, Some(7)));
        assert!(reader.is_at_end() && reader.byte().is_err());
    }

    #[test]
    fn bytes_that_are_anything_are_refused() {
        assert!(Reader::new(&[5, 1, 2]).bytes().is_err());
        assert!(Reader::new(&[0xff; 11]).number().is_err());
        assert!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x7f]).count().is_err());
        assert!(Reader::new(&[1, 0xff]).text().is_err());
        let within = |bytes: Vec<u8>| {
            let mut writer = Writer::default();
            writer.bytes(&bytes);
            writer.0
        };
        let nested = (0..=DEPTH_MAX).fold(Vec::new(), |bytes, _| within(bytes));
        let mut reader = Reader::new(&nested);
        for _ in 0..DEPTH_MAX {
            reader = reader.inner().unwrap();
        }
        assert!(reader.inner().is_err());
    }
}

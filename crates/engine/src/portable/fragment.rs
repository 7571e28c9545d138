//! What a part is told beside its share: a plan or the question of a report, and the tables and domains that it is about.

use datafusion::common::{Result, plan_err};

use crate::portable::bytes::{Reader, Writer};
use crate::portable::functions::{Codec, Pin};
use crate::portable::share::Divided;

const MAGIC: &[u8] = b"UPF";
/// Goes up with every change of what is written.
const FORMAT: u8 = 5;

/// A number that processes have in common which understand each other's parts: plans of another version of this program
/// or of DataFusion may mean something else.
pub fn parts_format() -> u64 {
    let versions = [env!("CARGO_PKG_VERSION"), datafusion::DATAFUSION_VERSION];
    // FNV-1a, which is the same wherever it is computed.
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let bytes = versions.iter().flat_map(|version| version.bytes().chain([0]));
    bytes.chain([FORMAT]).fold(0xcbf2_9ce4_8422_2325, step)
}

/// What is asked of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The rows of a plan.
    Plan = 0,
    /// The cells of reports.
    Report = 1,
}

/// What stands before the plan, or what else is asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: Kind,
    pub pins: Vec<Pin>,
    /// The id domains and logs that functions of the plan have.
    pub domains: Vec<String>,
    pub divided: Vec<Divided>,
    /// What the session has set that plans depend on, by name.
    pub settings: Vec<(String, String)>,
}

pub(crate) fn to_bytes(
    codec: &Codec,
    settings: Vec<(String, String)>,
    divided: &[Divided],
    plan: &[u8],
) -> Vec<u8> {
    let pins = codec.tables.iter().map(|(pin, _)| pin.clone()).collect();
    let mut domains: Vec<String> = codec.domains.keys().cloned().collect();
    domains.sort_unstable();
    write(&Header { kind: Kind::Plan, pins, domains, divided: divided.to_vec(), settings }, plan)
}

pub(crate) fn write(header: &Header, plan: &[u8]) -> Vec<u8> {
    let mut to = Writer::default();
    MAGIC.iter().for_each(|byte| to.byte(*byte));
    to.byte(FORMAT);
    to.byte(header.kind as u8);
    to.number(header.pins.len() as u64);
    for pin in &header.pins {
        to.text(&pin.table);
        to.number(pin.version);
        to.number(pin.files.into());
    }
    to.number(header.domains.len() as u64);
    header.domains.iter().for_each(|domain| to.text(domain));
    to.number(header.divided.len() as u64);
    for divided in &header.divided {
        to.number(divided.scan as u64);
        to.text(divided.ids.as_deref().unwrap_or_default());
    }
    to.number(header.settings.len() as u64);
    for (name, value) in &header.settings {
        to.text(name);
        to.text(value);
    }
    to.bytes(plan);
    to.0
}

/// What stands before the plan, and the plan.
pub(crate) fn from_bytes(bytes: &[u8]) -> Result<(Header, &[u8])> {
    let mut from = Reader::new(bytes);
    for byte in MAGIC {
        if from.byte()? != *byte {
            return plan_err!("these are no bytes of a part");
        }
    }
    let format = from.byte()?;
    if format != FORMAT {
        return plan_err!("a part has the format {format}, this version reads {FORMAT}");
    }
    let kind = match from.byte()? {
        0 => Kind::Plan,
        1 => Kind::Report,
        other => return plan_err!("a part is of the unknown kind {other}"),
    };
    let count = from.count()?;
    let pin = |from: &mut Reader| {
        let (table, version, files) = (from.text()?.to_owned(), from.number()?, from.number()?);
        let Ok(files) = u32::try_from(files) else { return plan_err!("a part has a wrong pin") };
        Ok(Pin { table, version, files })
    };
    let pins = (0..count).map(|_| pin(&mut from)).collect::<Result<_>>()?;
    let count = from.count()?;
    let domains = (0..count).map(|_| Ok(from.text()?.to_owned())).collect::<Result<_>>()?;
    let count = from.count()?;
    let divided = |from: &mut Reader| {
        let (scan, ids) = (from.number()?, from.text()?);
        let scan = usize::try_from(scan).unwrap_or(usize::MAX);
        Ok(Divided { scan, ids: (!ids.is_empty()).then(|| ids.to_owned()) })
    };
    let divided = (0..count).map(|_| divided(&mut from)).collect::<Result<_>>()?;
    let count = from.count()?;
    let setting = |from: &mut Reader| Ok((from.text()?.to_owned(), from.text()?.to_owned()));
    let settings = (0..count).map(|_| setting(&mut from)).collect::<Result<_>>()?;
    let plan = from.bytes()?;
    match from.is_at_end() {
        true => Ok((Header { kind, pins, domains, divided, settings }, plan)),
        false => plan_err!("a part has bytes after its plan"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written_or_refused() {
        let pin = Pin { table: "events".into(), version: 300, files: u32::MAX };
        let divided = vec![
            Divided { scan: 0, ids: Some("__id_user_id".into()) },
            Divided { scan: 3, ids: None },
        ];
        let settings = vec![("datafusion.execution.time_zone".into(), "+02:00".into())];
        let domains = vec!["users:01".into()];
        let header = Header { kind: Kind::Report, pins: vec![pin], domains, divided, settings };
        let bytes = write(&header, b"plan");
        assert_eq!(from_bytes(&bytes).unwrap(), (header, b"plan".as_slice()));
        for end in 0..bytes.len() {
            assert!(from_bytes(&bytes[..end]).is_err(), "cut off after {end}");
        }
        let mut other = bytes.clone();
        other[3] += 1;
        assert!(from_bytes(&other).is_err(), "another format");
        let mut other = bytes.clone();
        other[4] = 2;
        assert!(from_bytes(&other).is_err(), "an unknown kind");
        let longer = [bytes, vec![0]].concat();
        assert!(from_bytes(&longer).is_err());
    }
}

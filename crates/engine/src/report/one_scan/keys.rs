//! Numbers for the users of a report: the ids that tables have, or numbers given here.

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Int32Type, Int64Type};
use datafusion::common::HashMap;

use crate::base::error::Result;
use crate::report::decode::as_type;

/// The number of a row without a user, or of a user nobody exposed.
pub(super) const NO_MATCH_GROUP: u32 = u32::MAX;

/// What users are told apart by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::report) enum KeyKind {
    /// Ids of one domain and log.
    Ids(String),
    Text,
    Whole,
}

impl KeyKind {
    /// `None` for keys of other types: SQL knows which of them are equal.
    pub fn of(key: &DataType) -> Option<Self> {
        match key {
            DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => Some(Self::Text),
            DataType::UInt64 => None,
            key if key.is_integer() => Some(Self::Whole),
            _ => None,
        }
    }
}

/// Numbers of exposed users, from 0 on. Ids are their own numbers.
#[derive(Debug)]
pub(super) enum Keys {
    Ids,
    Texts { numbers: HashMap<Box<str>, u32>, bytes: usize },
    Wholes(HashMap<i64, u32>),
}

impl Keys {
    pub fn new(kind: &KeyKind) -> Self {
        match kind {
            KeyKind::Ids(_) => Self::Ids,
            KeyKind::Text => Self::Texts { numbers: HashMap::default(), bytes: 0 },
            KeyKind::Whole => Self::Wholes(HashMap::default()),
        }
    }

    /// The number of each key, new ones for those that have none; [`NO_MATCH_GROUP`] for NULL.
    pub fn give(&mut self, keys: &ArrayRef) -> Result<Vec<u32>> {
        let mut given = Vec::with_capacity(keys.len());
        match self {
            Self::Ids => self.find(keys, &mut given)?,
            Self::Texts { numbers, bytes } => {
                let keys = as_type(keys, &DataType::Utf8View)?;
                for key in keys.as_string_view() {
                    let Some(key) = key else {
                        given.push(NO_MATCH_GROUP);
                        continue;
                    };
                    let next = numbers.len() as u32;
                    let number = numbers.get(key).copied().unwrap_or_else(|| {
                        *bytes += key.len();
                        numbers.insert(key.into(), next);
                        next
                    });
                    given.push(number);
                }
            }
            Self::Wholes(numbers) => {
                let keys = as_type(keys, &DataType::Int64)?;
                for key in keys.as_primitive::<Int64Type>() {
                    let next = numbers.len() as u32;
                    given.push(
                        key.map_or(NO_MATCH_GROUP, |key| *numbers.entry(key).or_insert(next)),
                    );
                }
            }
        }
        Ok(given)
    }

    /// The number of each key; [`NO_MATCH_GROUP`] for NULL and for keys without one. Neighbours are often equal.
    pub fn find(&self, keys: &ArrayRef, found: &mut Vec<u32>) -> Result<()> {
        found.clear();
        match self {
            Self::Ids => {
                let ids = as_type(keys, &DataType::Int32)?;
                found.extend(ids.as_primitive::<Int32Type>().iter().map(|id| match id {
                    Some(id) => id as u32,
                    None => NO_MATCH_GROUP,
                }));
            }
            Self::Texts { numbers, .. } => {
                let keys = as_type(keys, &DataType::Utf8View)?;
                let number = |key: &str| numbers.get(key).copied();
                found_in(keys.as_string_view().iter(), number, found);
            }
            Self::Wholes(numbers) => {
                let keys = as_type(keys, &DataType::Int64)?;
                let number = |key: i64| numbers.get(&key).copied();
                found_in(keys.as_primitive::<Int64Type>().iter(), number, found);
            }
        }
        Ok(())
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Ids => 0,
            Self::Texts { numbers, bytes } => {
                bytes + numbers.capacity() * (size_of::<(Box<str>, u32)>() + 1)
            }
            Self::Wholes(numbers) => numbers.capacity() * (size_of::<(i64, u32)>() + 1),
        }
    }
}

fn found_in<K: Copy + PartialEq>(
    keys: impl Iterator<Item = Option<K>>,
    number: impl Fn(K) -> Option<u32>,
    found: &mut Vec<u32>,
) {
    let mut last = (None, NO_MATCH_GROUP);
    for key in keys {
        if last.0 != key {
            last = (key, key.and_then(&number).unwrap_or(NO_MATCH_GROUP));
        }
        found.push(last.1);
    }
}

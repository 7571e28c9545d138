//! Rows that conditions on ids name, kept with the values that were read of them.
//!
//! Who looks at one user asks several things about him. His rows are few, but lie in large pages of every
//! file; the second question that names the same ids decodes those pages for its columns, and the rows are
//! kept, so that later ones read nothing. What is asked once leaves a note only.
//!
//! # Invariants
//! - Data files never change, and a condition that compares ids with constants says the same of a row
//!   each time: what it named once, it names again.
//! - Entries take at most a share of what is kept, and go by generations: one that was not used while
//!   half of that was filled is gone.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::{Field, FieldRef};
use datafusion::object_store::path::Path;

/// About what an entry takes beside its rows.
const ENTRY_BYTES: usize = 400;

/// One row group of one file, and conditions; without a row group, the file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PredicateKey {
    pub file: Path,
    pub row_group: Option<usize>,
    pub conditions: Arc<str>,
}

/// The rows of a row group that conditions name.
#[derive(Clone, Debug, Default)]
pub(crate) struct PredicateRows {
    /// Their numbers, in order.
    pub rows: Vec<u32>,
    /// Of columns that somebody read.
    pub columns: Vec<(FieldRef, ArrayRef)>,
}

impl PredicateRows {
    /// The values of a column, if they are kept with the type that it has.
    pub fn column(&self, field: &Field) -> Option<&ArrayRef> {
        let is_same = |of: &Field| of.name() == field.name() && of.data_type() == field.data_type();
        self.columns.iter().find(|(of, _)| is_same(of)).map(|(_, values)| values)
    }

    fn bytes(&self) -> usize {
        let column = |(field, values): &(FieldRef, ArrayRef)| {
            field.name().len() + ENTRY_BYTES / 4 + values.get_array_memory_size()
        };
        let columns: usize = self.columns.iter().map(column).sum();
        ENTRY_BYTES + self.rows.len() * size_of::<u32>() + columns
    }
}

/// Entries by generation.
#[derive(Debug, Default)]
pub(crate) struct Generations {
    young: Generation,
    old: Generation,
}

#[derive(Debug, Default)]
struct Generation {
    entries: HashMap<PredicateKey, Arc<PredicateRows>>,
    bytes: usize,
}

impl Generation {
    fn remove(&mut self, question: &PredicateKey) -> Option<Arc<PredicateRows>> {
        let gone = self.entries.remove(question)?;
        self.bytes -= gone.bytes();
        Some(gone)
    }
}

impl Generations {
    pub fn bytes(&self) -> usize {
        self.young.bytes + self.old.bytes
    }

    /// What is kept; `limit` as in [`Self::keep`].
    pub fn get(&mut self, question: &PredicateKey, limit: usize) -> Option<Arc<PredicateRows>> {
        if let Some(found) = self.young.entries.get(question) {
            return Some(Arc::clone(found));
        }
        let found = self.old.remove(question)?;
        self.keep(question.clone(), Arc::clone(&found), limit);
        Some(found)
    }

    /// Keeps an entry, if it is a small part of `limit` bytes, which all together may take.
    pub fn keep(&mut self, question: PredicateKey, named: Arc<PredicateRows>, limit: usize) {
        let bytes = named.bytes();
        self.young.remove(&question);
        self.old.remove(&question);
        if bytes > limit / 8 {
            return;
        }
        if self.young.bytes + bytes > limit / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.bytes += bytes;
        self.young.entries.insert(question, named);
    }

    /// Lets go of everything; returns its bytes.
    pub fn clear(&mut self) -> usize {
        let bytes = self.bytes();
        *self = Self::default();
        bytes
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int32Array;
    use datafusion::arrow::datatypes::DataType;

    use super::*;

    fn question(number: usize) -> PredicateKey {
        PredicateKey { file: Path::from("f"), row_group: Some(number), conditions: "id = 1".into() }
    }

    fn named(rows: usize) -> Arc<PredicateRows> {
        let values: ArrayRef = Arc::new(Int32Array::from(vec![7; rows]));
        let field = Arc::new(Field::new("c", DataType::Int32, true));
        Arc::new(PredicateRows { rows: vec![3; rows], columns: vec![(field, values)] })
    }

    #[test]
    fn a_column_whose_type_has_changed_is_another() {
        let kept = named(2);
        let of = |name: &str, data_type| kept.column(&Field::new(name, data_type, false)).is_some();
        assert!(of("c", DataType::Int32));
        assert!(!of("c", DataType::Int64) && !of("d", DataType::Int32));
    }

    #[test]
    fn what_is_used_stays_and_the_limit_holds() {
        let limit = 40 * named(10).bytes();
        let mut kept = Generations::default();
        for number in 0..1000 {
            kept.keep(question(number), named(10), limit);
            assert!(kept.bytes() <= limit);
            assert!(kept.get(&question(0), limit).is_some(), "{number}");
        }
        assert!(kept.get(&question(999), limit).is_some());
        assert!(kept.get(&question(900), limit).is_none());
        // The same question again takes the place of its entry; what is large is not kept.
        let before = kept.bytes();
        kept.keep(question(999), named(10), limit);
        assert_eq!(kept.bytes(), before);
        kept.keep(question(5), named(10_000), limit);
        assert!(kept.get(&question(5), limit).is_none());
        assert_eq!((kept.clear(), kept.bytes()), (before, 0));
    }
}

//! Who is exposed: per experiment its users, per user their experiments; and what of the rows is left out.

use datafusion::arrow::array::{Array, AsArray, MAX_INLINE_VIEW_LEN, RecordBatch, StringViewArray};
use datafusion::arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};

use datafusion::common::HashMap;

use super::keys::NO_MATCH_GROUP;
use crate::base::error::{EngineError, Result};
use crate::report::cells::Layout;
use crate::report::decode::as_type;

pub(super) const NOWHERE: usize = usize::MAX;
const NONE: u32 = u32::MAX;
/// Names that are found without hashing.
const RECENT: usize = 256;
/// The time of an exposure without one: later than every other.
const NEVER: i64 = i64::MAX;

/// A user of an experiment.
#[derive(Debug, Clone, Copy)]
pub(super) struct User {
    pub id: u32,
    /// First exposure, microseconds since 1970; [`NEVER`] without.
    time: i64,
    /// First and last variant by name.
    first: u32,
    last: u32,
    /// The arm that the assignment gives.
    assigned: u32,
}

impl User {
    pub fn assigned(&self) -> Option<usize> {
        (self.assigned != NONE).then_some(self.assigned as usize)
    }
}

/// The users of one experiment. Columns of the rows it takes: key, variant, time, dimensions, and the
/// key as text if there is an assignment to check.
#[derive(Debug)]
pub(super) struct Exposed {
    /// By id, the place in `users`.
    places: Vec<u32>,
    pub users: Vec<User>,
    /// Per dimension and user, a name.
    dimensions: Vec<Vec<u32>>,
    names: Names,
    with_key: bool,
    pub left_out: LeftOut,
}

/// Rows that do not count.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    pub without_user: u64,
    pub without_time: u64,
    /// By id a bit: is there a row from before the period?
    before: Vec<u64>,
}

impl LeftOut {
    fn add_before(&mut self, id: u32) {
        let (word, bit) = (id as usize / 64, id % 64);
        if self.before.len() <= word {
            self.before.resize((word + 1).next_multiple_of(1 << 6), 0);
        }
        self.before[word] |= 1 << bit;
    }

    /// Was a user exposed before the period?
    pub fn has_before(&self, id: u32) -> bool {
        self.before.get(id as usize / 64).is_some_and(|word| (word >> (id % 64)) & 1 == 1)
    }

    fn merge(&mut self, other: Self) {
        self.without_user += other.without_user;
        self.without_time += other.without_time;
        if self.before.len() < other.before.len() {
            self.before.resize(other.before.len(), 0);
        }
        self.before.iter_mut().zip(other.before).for_each(|(word, more)| *word |= more);
    }
}

#[derive(Debug)]
struct Names {
    texts: Vec<String>,
    numbers: HashMap<String, u32>,
    /// Short texts asked for lately, as they are in arrays, by some of their bits.
    recent: [(u128, u32); RECENT],
}

impl Default for Names {
    fn default() -> Self {
        Self { texts: Vec::new(), numbers: HashMap::default(), recent: [(0, 0); RECENT] }
    }
}

impl Names {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.texts.len() as u32;
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    /// The number of a row's text; names come again and again.
    fn number_of(&mut self, texts: &StringViewArray, row: usize) -> u32 {
        let view = texts.views()[row];
        // The bytes of a short text follow its length; a view of 0 is empty text, or no entry yet.
        let is_whole = view as u32 <= MAX_INLINE_VIEW_LEN && view != 0;
        let mixed = ((view >> 32) as u64 ^ (view >> 64) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let at = (mixed >> 32) as usize % RECENT;
        if is_whole && self.recent[at].0 == view {
            return self.recent[at].1;
        }
        let number = self.number(texts.value(row));
        if is_whole {
            self.recent[at] = (view, number);
        }
        number
    }

    fn text(&self, number: u32) -> &str {
        &self.texts[number as usize]
    }
}

impl Exposed {
    pub fn new(layout: &Layout) -> Self {
        Self {
            places: Vec::new(),
            users: Vec::new(),
            dimensions: vec![Vec::new(); layout.query.dimensions.len()],
            names: Names::default(),
            with_key: layout.query.assignment.is_some(),
            left_out: LeftOut::default(),
        }
    }

    /// Takes in rows whose users have these numbers.
    pub fn add(&mut self, batch: &RecordBatch, numbers: &[u32], layout: &Layout) -> Result<()> {
        let mut columns = batch.columns()[1..].iter();
        let mut next =
            || columns.next().ok_or_else(|| EngineError::bug("an exposure is too short"));
        let texts = |array| -> Result<StringViewArray> {
            Ok(as_type(array, &DataType::Utf8View)?.as_string_view().clone())
        };
        let variants = texts(next()?)?;
        let times = as_type(next()?, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
        let times = times.as_primitive::<TimestampMicrosecondType>();
        let dimensions =
            self.dimensions.iter().map(|_| texts(next()?)).collect::<Result<Vec<_>>>()?;
        let keys = if self.with_key { Some(texts(next()?)?) } else { None };
        let is_timed = layout.query.exposures.time.is_some();
        let start = layout.times.period.filter(|_| is_timed).map(|(at, _)| at.timestamp_micros());
        for (row, id) in numbers.iter().copied().enumerate() {
            let time = if times.is_valid(row) { times.value(row) } else { NEVER };
            if is_timed && time == NEVER {
                self.left_out.without_time += 1;
                if start.is_some() || id == NO_MATCH_GROUP {
                    continue;
                }
            }
            let is_before = start.is_some_and(|start| time < start);
            match (is_before, id) {
                (true, NO_MATCH_GROUP) => continue,
                (true, id) => {
                    self.left_out.add_before(id);
                    continue;
                }
                (false, NO_MATCH_GROUP) => {
                    self.left_out.without_user += 1;
                    continue;
                }
                (false, _) => {}
            }
            let variant = variants.value(row);
            let place = *self.place(id);
            if place == NONE {
                self.places[id as usize] = self.users.len() as u32;
                let variant = self.names.number_of(&variants, row);
                let assigned = keys.as_ref().and_then(|keys| layout.assigned(keys.value(row)));
                let assigned = assigned.map_or(NONE, |arm| arm as u32);
                self.users.push(User { id, time, first: variant, last: variant, assigned });
                for (known, values) in self.dimensions.iter_mut().zip(&dimensions) {
                    known.push(self.names.number_of(values, row));
                }
                continue;
            }
            let user = &mut self.users[place as usize];
            if variant < self.names.text(user.first) {
                user.first = self.names.number(variant);
            } else if variant > self.names.text(user.last) {
                user.last = self.names.number(variant);
            }
            if time > user.time {
                continue;
            }
            let earlier = time < user.time;
            user.time = time;
            for (known, values) in self.dimensions.iter_mut().zip(&dimensions) {
                let (known, value) = (&mut known[place as usize], values.value(row));
                if earlier || value < self.names.text(*known) {
                    *known = self.names.number_of(values, row);
                }
            }
        }
        Ok(())
    }

    /// Takes in users of other rows.
    pub fn merge(&mut self, mut other: Self) {
        self.left_out.merge(std::mem::take(&mut other.left_out));
        if self.users.is_empty() {
            other.left_out = std::mem::take(&mut self.left_out);
            *self = other;
            return;
        }
        let names: Vec<u32> =
            other.names.texts.iter().map(|text| self.names.number(text)).collect();
        let name = |number: u32| names[number as usize];
        for (theirs, user) in other.users.iter().enumerate() {
            let (first, last) = (name(user.first), name(user.last));
            let values = other.dimensions.iter().map(|values| name(values[theirs]));
            let place = *self.place(user.id);
            if place == NONE {
                self.places[user.id as usize] = self.users.len() as u32;
                self.users.push(User { first, last, ..*user });
                self.dimensions.iter_mut().zip(values).for_each(|(known, value)| known.push(value));
                continue;
            }
            let place = place as usize;
            let mine = &mut self.users[place];
            let text = |number: u32| self.names.text(number);
            if text(first) < text(mine.first) {
                mine.first = first;
            }
            if text(last) > text(mine.last) {
                mine.last = last;
            }
            if user.time > mine.time {
                continue;
            }
            let earlier = user.time < mine.time;
            mine.time = user.time;
            for (known, value) in self.dimensions.iter_mut().zip(values) {
                if earlier || text(value) < text(known[place]) {
                    known[place] = value;
                }
            }
        }
    }

    /// Where an id's place is kept.
    fn place(&mut self, id: u32) -> &mut u32 {
        if self.places.len() <= id as usize {
            self.places.resize((id as usize + 1).next_multiple_of(1 << 12), NONE);
        }
        &mut self.places[id as usize]
    }

    /// First and last variant of a user by name.
    pub fn variants(&self, user: &User) -> (&str, &str) {
        (self.names.text(user.first), self.names.text(user.last))
    }

    /// The values of a user's dimensions, by the numbers of their names.
    pub fn dimensions(&self, place: usize) -> impl Iterator<Item = usize> {
        self.dimensions.iter().map(move |values| values[place] as usize)
    }

    pub fn name(&self, number: usize) -> &str {
        &self.names.texts[number]
    }

    /// Per dimension, room for a place per name.
    pub fn by_name(&self) -> Vec<Vec<usize>> {
        vec![vec![NOWHERE; self.names.texts.len()]; self.dimensions.len()]
    }

    /// Bytes that grow with users.
    pub fn bytes(&self) -> usize {
        let user = size_of::<User>() + size_of::<u32>() * self.dimensions.len();
        let before = self.left_out.before.capacity() * size_of::<u64>();
        self.places.capacity() * size_of::<u32>() + self.users.capacity() * user + before
    }

    /// Without what only [`Self::add`] needs.
    pub fn finished(mut self) -> Self {
        (self.places, self.names.numbers) = Default::default();
        self
    }
}

/// A user in an experiment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub experiment: u32,
    /// Into the experiment's users.
    pub place: u32,
    time: i64,
}

impl Member {
    /// First exposure.
    pub fn time(&self) -> Option<i64> {
        (self.time != NEVER).then_some(self.time)
    }
}

/// One more than the greatest id.
fn ids_of(experiments: &[Exposed]) -> usize {
    let users = experiments.iter().flat_map(|exposed| &exposed.users);
    users.map(|user| user.id as usize + 1).max().unwrap_or(0)
}

/// Users by id, each with their experiments.
#[derive(Debug)]
pub(super) struct Members {
    /// By id, where its members start; one more at the end.
    starts: Vec<u32>,
    pub members: Vec<Member>,
}

impl Members {
    /// Bytes of [`Self::of`].
    pub fn bytes_of(experiments: &[Exposed]) -> usize {
        let members: usize = experiments.iter().map(|exposed| exposed.users.len()).sum();
        (ids_of(experiments) + 1) * size_of::<u32>() + members * size_of::<Member>()
    }

    pub fn of(experiments: &[Exposed]) -> Self {
        let all = || experiments.iter().flat_map(|exposed| &exposed.users);
        let ids = ids_of(experiments);
        let mut starts = vec![0u32; ids + 1];
        all().for_each(|user| starts[user.id as usize] += 1);
        let mut end = 0;
        for start in &mut starts {
            end += *start;
            *start = end;
        }
        let nobody = Member { experiment: 0, place: 0, time: NEVER };
        let mut members = vec![nobody; end as usize];
        // Backwards, so that a user's experiments are in their order and `starts` become starts.
        for (experiment, exposed) in experiments.iter().enumerate().rev() {
            for (place, user) in exposed.users.iter().enumerate() {
                let start = &mut starts[user.id as usize];
                *start -= 1;
                members[*start as usize] =
                    Member { experiment: experiment as u32, place: place as u32, time: user.time };
            }
        }
        Self { starts, members }
    }

    /// One more than the greatest id.
    pub fn ids(&self) -> usize {
        self.starts.len() - 1
    }

    /// Where the members of an id are; nowhere for an id that is not exposed.
    pub fn range(&self, id: usize) -> std::ops::Range<usize> {
        match self.starts.get(id..id + 2) {
            Some(bounds) => bounds[0] as usize..bounds[1] as usize,
            None => 0..0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Row = (u32, i64, &'static str, &'static str);

    /// Of one row.
    fn exposed((id, time, variant, value): Row) -> Exposed {
        let mut names = Names::default();
        let (variant, value) = (names.number(variant), names.number(value));
        let user = User { id, time, first: variant, last: variant, assigned: NONE };
        let mut one = Exposed {
            places: Vec::new(),
            users: vec![user],
            dimensions: vec![vec![value]],
            names,
            with_key: false,
            left_out: LeftOut::default(),
        };
        *one.place(id) = 0;
        one
    }

    /// Of each id: first and last variant, first time, and the least value of that time.
    fn by_id(exposed: &Exposed) -> Vec<(u32, &str, &str, i64, &str)> {
        let mut found: Vec<_> = exposed
            .users
            .iter()
            .zip(&exposed.dimensions[0])
            .map(|(user, value)| {
                let (first, last) = exposed.variants(user);
                (user.id, first, last, user.time, exposed.name(*value as usize))
            })
            .collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn users_of_parts_are_users_of_all_rows() {
        let mut random = 7u64;
        let mut below = |limit: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % limit
        };
        for _ in 0..300 {
            let rows: Vec<Row> = (0..1 + below(40))
                .map(|_| {
                    let time = [NEVER, 3, 2, 1][below(4)];
                    (below(6) as u32, time, ["b", "a", "c"][below(3)], ["z", "x", "y"][below(3)])
                })
                .collect();
            let mut parts: Vec<Option<Exposed>> = (0..3).map(|_| None).collect();
            for row in &rows {
                match &mut parts[below(3)] {
                    Some(part) => part.merge(exposed(*row)),
                    part => *part = Some(exposed(*row)),
                }
            }
            let whole = parts.into_iter().flatten().reduce(|mut whole, part| {
                whole.merge(part);
                whole
            });
            let mut expected = Vec::new();
            for id in 0..6 {
                let of_id = || rows.iter().filter(move |row| row.0 == id);
                let Some(time) = of_id().map(|row| row.1).min() else { continue };
                let variants = || of_id().map(|row| row.2);
                let value = of_id().filter(|row| row.1 == time).map(|row| row.3).min();
                let (first, last) = (variants().min(), variants().max());
                let row = first.zip(last).zip(value).expect("there is a row");
                let ((first, last), value) = row;
                expected.push((id, first, last, time, value));
            }
            assert_eq!(by_id(&whole.expect("a row")), expected, "{rows:?}");
        }
    }
}

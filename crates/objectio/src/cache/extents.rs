//! What the cache holds: for each object version, which byte ranges are in memory or on disk.
//!
//! An *extent* is a run of bytes as some reader asked for it, at most [`MOST_EXTENT`] long. It is in
//! memory, on disk or both. Exact ranges are kept and not aligned blocks, so that nothing is read
//! that nobody asked for and a reader never waits for a block around its range.
//!
//! # Invariants
//! - Extents of one object are disjoint; each is in at least one tier.
//! - Bytes in memory <= the limit, always.
//! - All extents of one path belong to one version of the object.
//!
//! # Not here
//! No I/O and no waiting.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;

use bytes::Bytes;
use object_store::ObjectMeta;
use object_store::path::Path;

use super::segment::Place;
use crate::dice::mix;
use crate::version::is_same_version;

/// Longest extent. Shorter ones waste fewer bytes when part of them is read from disk.
pub(super) const MOST_EXTENT: u64 = 1 << 20;
/// Ranges up to this are footers, indexes and single pages: always worth keeping.
const SMALL: u64 = 256 << 10;
/// Objects that are known at least, whatever is left of them: some 600 bytes each.
const SWEPT: usize = 8 << 10;
/// Long ranges remembered as seen once; 2 generations of 8 bytes each.
const GHOSTS: usize = 32 << 10;

/// One object version.
pub(super) type ObjectId = u64;

/// Where a part of a wanted range is.
#[derive(Debug, Clone)]
pub(super) enum Part {
    Memory(Bytes),
    Disk { object: ObjectId, start: u64, place: Place, within: Range<u64> },
    Missing,
}

#[derive(Debug)]
struct Extent {
    end: u64,
    memory: Option<Bytes>,
    place: Option<Place>,
    /// Read since it was last looked at by the clock of its tier.
    touched: bool,
}

#[derive(Debug)]
struct Object {
    path: Path,
    meta: ObjectMeta,
    extents: BTreeMap<u64, Extent>,
}

/// The directory of both tiers.
#[derive(Debug)]
pub(super) struct Extents {
    names: HashMap<Path, ObjectId>,
    objects: HashMap<ObjectId, Object>,
    next: ObjectId,
    /// With so many objects, or places of the hand, those of no use are swept out.
    sweep_at: usize,
    memory_used: u64,
    memory_limit: u64,
    /// Extents in memory, in the order the clock's hand passes them.
    hand: VecDeque<(ObjectId, u64)>,
    /// Extents by the segment they lie in.
    segments: HashMap<u32, Vec<(ObjectId, u64)>>,
    ghosts: [HashSet<u64>; 2],
}

impl Extents {
    pub(super) fn new(memory_limit: u64) -> Self {
        Self {
            names: HashMap::new(),
            objects: HashMap::new(),
            next: 0,
            sweep_at: SWEPT,
            memory_used: 0,
            memory_limit,
            hand: VecDeque::new(),
            segments: HashMap::new(),
            ghosts: Default::default(),
        }
    }

    pub(super) fn memory_used(&self) -> u64 {
        self.memory_used
    }

    pub(super) fn memory_limit(&self) -> u64 {
        self.memory_limit
    }

    /// The version of `path` the extents belong to.
    pub(super) fn meta(&self, path: &Path) -> Option<&ObjectMeta> {
        Some(&self.objects.get(self.names.get(path)?)?.meta)
    }

    /// The object for this version; extents of another version are forgotten.
    pub(super) fn object(&mut self, path: &Path, meta: &ObjectMeta) -> ObjectId {
        if let Some(id) = self.names.get(path) {
            if self.objects.get(id).is_some_and(|object| is_same_version(&object.meta, meta)) {
                return *id;
            }
            self.forget(path);
        }
        if self.objects.len().max(self.hand.len()) >= self.sweep_at {
            self.sweep();
        }
        let id = self.next;
        self.next += 1;
        self.names.insert(path.clone(), id);
        let object = Object { path: path.clone(), meta: meta.clone(), extents: BTreeMap::new() };
        self.objects.insert(id, object);
        id
    }

    /// Forgets objects of which nothing is left, and where the hand would find nothing. Bytes of the newest may be on
    /// their way to the disk.
    fn sweep(&mut self) {
        let newest = self.next.saturating_sub(SWEPT as u64 / 2);
        self.objects.retain(|id, object| *id >= newest || !object.extents.is_empty());
        self.names.retain(|_, id| self.objects.contains_key(id));
        let is_there = |(object, start): &(ObjectId, u64)| {
            let extent = self.objects.get(object).and_then(|object| object.extents.get(start));
            extent.is_some_and(|extent| extent.memory.is_some())
        };
        self.hand.retain(is_there);
        self.sweep_at = SWEPT.max(2 * self.objects.len().max(self.hand.len()));
    }

    /// Path and version of an object that is still known.
    pub(super) fn describe(&self, object: ObjectId) -> Option<(&Path, &ObjectMeta)> {
        self.objects.get(&object).map(|object| (&object.path, &object.meta))
    }

    /// Forgets everything about `path`. Its bytes on disk stay until their segment is evicted.
    pub(super) fn forget(&mut self, path: &Path) {
        let Some(id) = self.names.remove(path) else { return };
        let Some(object) = self.objects.remove(&id) else { return };
        let memory = object.extents.values().filter_map(|extent| extent.memory.as_ref());
        self.memory_used -= memory.map(|bytes| bytes.len() as u64).sum::<u64>();
    }

    /// Cuts `range` into parts by where they are, in order and without holes.
    pub(super) fn lookup(&mut self, path: &Path, range: &Range<u64>) -> Vec<(Range<u64>, Part)> {
        let mut parts = Vec::new();
        let mut at = range.start;
        let id = self.names.get(path).copied();
        if let Some((id, object)) = id.and_then(|id| Some((id, self.objects.get_mut(&id)?))) {
            let first = object.extents.range(..=at).next_back().map_or(at, |(start, _)| *start);
            for (&start, extent) in object.extents.range_mut(first..range.end) {
                if extent.end <= at {
                    continue;
                }
                if start > at {
                    parts.push((at..start, Part::Missing));
                    at = start;
                }
                let end = extent.end.min(range.end);
                let within = at - start..end - start;
                extent.touched = true;
                let part = match (&extent.memory, &extent.place) {
                    (Some(bytes), _) => {
                        Part::Memory(bytes.slice(within.start as usize..within.end as usize))
                    }
                    (None, Some(place)) => {
                        Part::Disk { object: id, start, place: place.clone(), within }
                    }
                    (None, None) => Part::Missing,
                };
                parts.push((at..end, part));
                at = end;
            }
        }
        if at < range.end {
            parts.push((at..range.end, Part::Missing));
        }
        parts
    }

    /// Bytes of `range` that some tier holds.
    pub(super) fn covered(&self, path: &Path, range: &Range<u64>) -> u64 {
        let Some(object) = self.names.get(path).and_then(|id| self.objects.get(id)) else {
            return 0;
        };
        let overlap = |(start, extent): (&u64, &Extent)| {
            extent.end.min(range.end).saturating_sub((*start).max(range.start))
        };
        object.extents.range(..range.end).map(overlap).sum()
    }

    /// The parts of `range` that no extent covers, none longer than `longest`.
    pub(super) fn uncovered(
        &self,
        object: ObjectId,
        range: &Range<u64>,
        longest: u64,
    ) -> Vec<Range<u64>> {
        let Some(object) = self.objects.get(&object) else { return Vec::new() };
        let mut free = Vec::new();
        let mut at = range.start;
        let mut take = |from: u64, to: u64| {
            if from < to {
                free.extend(crate::ranges::cut(&(from..to), longest));
            }
        };
        let first = object.extents.range(..=at).next_back().map_or(at, |(start, _)| *start);
        for (&start, extent) in object.extents.range(first..range.end) {
            take(at, start);
            at = at.max(extent.end);
        }
        take(at, range.end);
        free
    }

    /// Whether a range of `len` bytes, read `from` there, is worth pushing others out: small ones
    /// are, long ones the second time they are read.
    pub(super) fn is_worth(&mut self, object: ObjectId, from: u64, len: u64) -> bool {
        if len <= SMALL {
            return true;
        }
        let ghost = mix(mix(object) ^ (from / MOST_EXTENT));
        if self.ghosts.iter().any(|ghosts| ghosts.contains(&ghost)) {
            return true;
        }
        if self.ghosts[0].len() >= GHOSTS {
            self.ghosts.swap(0, 1);
            self.ghosts[0].clear();
        }
        self.ghosts[0].insert(ghost);
        false
    }

    /// Puts an extent into memory; `bytes` must own their memory. What is less used goes, unless
    /// `may_evict` is false. False if there is no room.
    pub(super) fn remember(
        &mut self,
        object: ObjectId,
        start: u64,
        bytes: &Bytes,
        may_evict: bool,
    ) -> bool {
        let len = bytes.len() as u64;
        let end = start + len;
        if len > self.memory_limit || !self.has_place_for(object, start, end) {
            return false;
        }
        while self.memory_used + len > self.memory_limit {
            if !may_evict || !self.evict() {
                return false;
            }
        }
        let Some(known) = self.objects.get_mut(&object) else { return false };
        let extent = known.extents.entry(start);
        let extent = extent.or_insert(Extent { end, memory: None, place: None, touched: false });
        extent.memory = Some(bytes.clone());
        self.memory_used += len;
        self.hand.push_back((object, start));
        true
    }

    /// Whether `start..end` is an extent without memory, or free.
    fn has_place_for(&self, object: ObjectId, start: u64, end: u64) -> bool {
        let Some(known) = self.objects.get(&object) else { return false };
        match known.extents.get(&start) {
            Some(extent) => extent.end == end && extent.memory.is_none(),
            None => {
                let before = known.extents.range(..end).next_back();
                before.is_none_or(|(_, extent)| extent.end <= start)
            }
        }
    }

    /// Takes one extent out of memory: the first at the hand that was not read since it came by.
    fn evict(&mut self) -> bool {
        // Every extent is passed at most twice.
        for _ in 0..2 * self.hand.len() {
            let Some((object, start)) = self.hand.pop_front() else { return false };
            let Some(known) = self.objects.get_mut(&object) else { continue };
            let Some(extent) = known.extents.get_mut(&start) else { continue };
            let Some(bytes) = &extent.memory else { continue };
            if std::mem::take(&mut extent.touched) {
                self.hand.push_back((object, start));
                continue;
            }
            self.memory_used -= bytes.len() as u64;
            extent.memory = None;
            if extent.place.is_none() {
                known.extents.remove(&start);
            }
            return true;
        }
        false
    }

    /// The extent `start..end` was written to `place`. False if it is of no use any more.
    pub(super) fn placed(&mut self, object: ObjectId, range: &Range<u64>, place: Place) -> bool {
        let segment = place.segment.number;
        let Some(known) = self.objects.get_mut(&object) else { return false };
        if let Some(extent) = known.extents.get_mut(&range.start) {
            if extent.end != range.end {
                return false;
            }
            extent.place = Some(place);
        } else {
            let before = known.extents.range(..range.end).next_back();
            if before.is_some_and(|(_, extent)| extent.end > range.start) {
                return false;
            }
            let extent =
                Extent { end: range.end, memory: None, place: Some(place), touched: false };
            known.extents.insert(range.start, extent);
        }
        self.segments.entry(segment).or_default().push((object, range.start));
        true
    }

    /// An extent's bytes on disk turned out to be unusable.
    pub(super) fn lost(&mut self, object: ObjectId, start: u64) {
        let Some(known) = self.objects.get_mut(&object) else { return };
        let Some(extent) = known.extents.get_mut(&start) else { return };
        extent.place = None;
        if extent.memory.is_none() {
            known.extents.remove(&start);
        }
    }

    /// Forgets what lies in `segment` and returns the extents of it that were read since they were
    /// written.
    pub(super) fn drop_segment(&mut self, segment: u32) -> Vec<(ObjectId, Range<u64>, Place)> {
        let mut hot = Vec::new();
        for (object, start) in self.segments.remove(&segment).unwrap_or_default() {
            let Some(known) = self.objects.get_mut(&object) else { continue };
            let Some(extent) = known.extents.get_mut(&start) else { continue };
            if extent.place.as_ref().is_none_or(|place| place.segment.number != segment) {
                continue;
            }
            let place = extent.place.take();
            if std::mem::take(&mut extent.touched)
                && let Some(place) = place
            {
                hot.push((object, start..extent.end, place));
            }
            if extent.memory.is_none() {
                known.extents.remove(&start);
            }
        }
        hot
    }

    /// Forgets the disk tier.
    pub(super) fn drop_disk(&mut self) {
        for segment in self.segments.keys().copied().collect::<Vec<_>>() {
            self.drop_segment(segment);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(path: &Path, etag: &str) -> ObjectMeta {
        ObjectMeta {
            location: path.clone(),
            last_modified: Default::default(),
            size: 1 << 30,
            e_tag: Some(etag.to_owned()),
            version: None,
        }
    }

    fn shape(parts: &[(Range<u64>, Part)]) -> String {
        let name = |part: &Part| match part {
            Part::Memory(bytes) => format!("memory({})", bytes.len()),
            Part::Disk { within, .. } => format!("disk({within:?})"),
            Part::Missing => "missing".to_owned(),
        };
        parts
            .iter()
            .map(|(range, part)| format!("{range:?} {}", name(part)))
            .collect::<Vec<_>>()
            .join(", ")
    }

    #[test]
    fn a_range_is_cut_by_where_its_parts_are() {
        let path = Path::from("a");
        let mut extents = Extents::new(1000);
        let id = extents.object(&path, &meta(&path, "1"));
        assert!(extents.remember(id, 10, &Bytes::from(vec![1; 10]), true));
        assert!(extents.remember(id, 30, &Bytes::from(vec![2; 10]), true));
        assert!(!extents.remember(id, 35, &Bytes::from(vec![2; 10]), true), "overlaps");
        assert!(!extents.remember(id, 5, &Bytes::from(vec![2; 10]), true), "overlaps");
        assert_eq!(
            shape(&extents.lookup(&path, &(15..50))),
            "15..20 memory(5), 20..30 missing, 30..40 memory(10), 40..50 missing"
        );
        assert_eq!(shape(&extents.lookup(&path, &(12..14))), "12..14 memory(2)");
        assert_eq!(
            extents.uncovered(id, &(0..50), 7),
            [0..5, 5..10, 20..25, 25..30, 40..45, 45..50]
        );
        assert_eq!(extents.covered(&path, &(15..35)), 10);
    }

    #[test]
    fn another_version_makes_the_old_one_forgotten() {
        let path = Path::from("a");
        let mut extents = Extents::new(1000);
        let old = extents.object(&path, &meta(&path, "1"));
        extents.remember(old, 0, &Bytes::from(vec![1; 10]), true);
        let new = extents.object(&path, &meta(&path, "2"));
        assert_ne!(old, new);
        assert_eq!(extents.memory_used(), 0);
        assert_eq!(shape(&extents.lookup(&path, &(0..10))), "0..10 missing");
        assert!(!extents.remember(old, 0, &Bytes::from(vec![1; 10]), true));
    }

    #[test]
    fn memory_stays_within_its_limit_and_keeps_what_is_read() {
        let path = Path::from("a");
        let mut extents = Extents::new(100);
        let id = extents.object(&path, &meta(&path, "1"));
        for i in 0..1000u64 {
            assert!(extents.remember(id, i * 10, &Bytes::from(vec![0; 10]), true));
            assert!(extents.memory_used() <= 100);
            extents.lookup(&path, &(0..10));
        }
        assert_eq!(shape(&extents.lookup(&path, &(0..10))), "0..10 memory(10)");
        assert!(!extents.remember(id, 100_000, &Bytes::from(vec![0; 101]), true));
        assert!(!extents.remember(id, 100_000, &Bytes::from(vec![0; 1]), false), "no room");
    }

    #[test]
    fn objects_of_which_nothing_is_left_are_forgotten() {
        let mut extents = Extents::new(1000);
        for n in 0..8 * SWEPT {
            let path = Path::from(format!("{n}"));
            let id = extents.object(&path, &meta(&path, "1"));
            assert!(extents.remember(id, 0, &Bytes::from(vec![1; 100]), true));
            if n % 2 == 0 {
                extents.forget(&path);
            }
        }
        assert!(extents.objects.len() <= SWEPT, "{} of {}", extents.objects.len(), 8 * SWEPT);
        assert_eq!(extents.names.len(), extents.objects.len());
        assert!(extents.hand.len() <= SWEPT, "{}", extents.hand.len());
        assert_eq!(extents.memory_used(), 1000);
    }

    #[test]
    fn long_ranges_are_worth_it_the_second_time() {
        let mut extents = Extents::new(100);
        assert!(extents.is_worth(1, 0, SMALL));
        assert!(!extents.is_worth(1, 0, SMALL + 1));
        assert!(extents.is_worth(1, 0, SMALL + 1));
        assert!(!extents.is_worth(2, 0, SMALL + 1), "another object");
        for i in 0..200_000 {
            extents.is_worth(3, i * MOST_EXTENT, SMALL + 1);
        }
        assert!(extents.ghosts.iter().map(HashSet::len).sum::<usize>() <= 2 * GHOSTS);
        assert!(!extents.is_worth(1, 0, SMALL + 1), "long ago");
    }
}

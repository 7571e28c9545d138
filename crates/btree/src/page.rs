//! One page of the tree: its bytes, how keys are found in it, and how entries come and go.
//!
//! ```text
//! word  0..4     latch, touched, home, dirty     in memory only; in the file: magic, 0, 0, 0
//! word  4        pid u32, level u8, kind u8      level 0 is a leaf
//! word  5        count, capacity, heap, dead     u16 each; the heap is the bytes heap..4096
//! word  6        lower fence at, its length, upper fence at, its length      u16 each
//! word  7        length of the prefix, u16
//! word  8..24    hints: the heads of entries 0, 16, 32, …
//! word 24..      heads[capacity]   8 bytes of the key behind the prefix, big-endian
//!                values[capacity]  u64: the value, or the child's pid
//!                slots[capacity]   u32: tail at u16, key length behind the prefix u16 (not for u64 keys)
//! …4096          heap: tails (bytes of the key behind prefix and head) and the two fences
//! ```
//!
//! A page covers the keys `lower <= key < upper`; a fence that is missing is infinite. All keys
//! between two fences share the prefix the fences share, so it is kept once, in the lower fence.
//! `u64` keys are their own heads and have neither prefix nor slots: the same code, one branch less.
//!
//! # Invariants
//! - Methods that change a page are called by the holder of its latch, or before anyone sees it.
//! - Methods that read never panic and never leave the page, whatever the words hold: a reader may
//!   see a page half-changed, and only then learns so from the latch.
//! - A page that came from a file has passed [`Page::check`], so writers can rely on its shape.
//!
//! # Not here
//! Which page is the right one: `tree`. Where pages live: `pool`.

use std::cmp::Ordering;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::key::sealed::Sealed;
use crate::key::{Entries, MAX_KEY_BYTES, common_prefix, head_of};
use crate::raw::{BLOCK, PAGE_BYTES, WORDS, Words};

const LATCH: usize = 0;
const TOUCHED: usize = 1;
const HOME: usize = 2;
const DIRTY: usize = 3;
const IDENT: usize = 4;
const SHAPE: usize = 5;
const FENCES: usize = 6;
const PREFIX: usize = 7;
const HINTS: usize = 8;
const HEADS: usize = 24;

/// Words that are not part of the image in the file.
const RUNTIME_WORDS: usize = 4;
/// First word of a page in the file.
const MAGIC: u64 = u64::from_le_bytes(*b"uplbtree");
/// Bytes of a page for entries and fences.
pub(crate) const ROOM: usize = PAGE_BYTES - HEADS * 8;
/// Entries of a page of `u64` keys: whole blocks of 16, so that values start on a cache line as heads
/// do, and a block of either is two lines. The two fences of 8 bytes fit behind.
pub(crate) const FIXED_CAPACITY: usize = (ROOM - 16) / 16 / BLOCK * BLOCK;
/// Bytes of a page of `u64` keys that are not for entries.
const FIXED_OVERHEAD: usize = ROOM - FIXED_CAPACITY * 16;
/// Bytes of an entry besides its tail: head, value, slot.
const SLOTTED_BYTES: usize = 20;
const MAX_CAPACITY: usize = FIXED_CAPACITY;
/// Compacting a page must win this much, or the page counts as full: otherwise a nearly full page
/// would be compacted at every other insert.
const MIN_COMPACTION_BYTES: usize = PAGE_BYTES / 32;
/// Length of a fence that is infinite.
const INFINITE: u16 = u16::MAX;
/// What a frame's ident is when it holds no page: 0, so that memory need not be touched before it
/// is used. A page's kind is not 0.
const NO_PAGE: u64 = 0;
/// The pid of a frame that holds no page.
pub(crate) const NO_PID: u32 = u32::MAX;
/// The pid of the tree's root.
pub(crate) const ROOT: u32 = 0;
/// Deepest tree: 4 billion pages of at least 5 children.
pub(crate) const MAX_LEVEL: u8 = 15;

/// What `touched` says to the pool's clock.
pub(crate) const COLD: u64 = 0;
pub(crate) const HOT: u64 = 1;
/// Just read from the file: the first touch is part of reading and proves nothing.
pub(crate) const FRESH: u64 = 2;

/// A page in a frame.
#[derive(Clone, Copy)]
pub(crate) struct Page<'a> {
    words: &'a Words,
}

#[derive(Clone, Copy)]
struct Shape {
    count: usize,
    capacity: usize,
    heap: usize,
    dead: usize,
}

impl Shape {
    #[inline(always)]
    fn read<K: Sealed + ?Sized>(words: &Words) -> Self {
        let word = words.get(SHAPE);
        let capacity = if K::FIXED {
            FIXED_CAPACITY
        } else {
            ((word >> 16 & 0xffff) as usize).min(MAX_CAPACITY)
        };
        Self {
            count: ((word & 0xffff) as usize).min(capacity),
            capacity,
            heap: (word >> 32 & 0xffff) as usize,
            dead: (word >> 48) as usize,
        }
    }

    #[inline]
    fn write(self, words: &Words) {
        let word = self.count as u64
            | (self.capacity as u64) << 16
            | (self.heap as u64) << 32
            | (self.dead as u64) << 48;
        words.set(SHAPE, word);
    }

    #[inline(always)]
    fn value_at(self, index: usize) -> usize {
        HEADS + self.capacity + index
    }

    #[inline]
    fn slots(self) -> usize {
        HEADS + 2 * self.capacity
    }

    /// First byte behind the arrays.
    #[inline]
    fn arrays_end(self, fixed: bool) -> usize {
        let slots = if fixed { 0 } else { self.capacity.div_ceil(2) };
        (HEADS + 2 * self.capacity + slots) * 8
    }
}

/// A page's lower and upper fence; `None` is infinite.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fences {
    pub(crate) lower: Option<Vec<u8>>,
    pub(crate) upper: Option<Vec<u8>>,
}

impl Fences {
    pub(crate) fn new(lower: Option<&[u8]>, upper: Option<&[u8]>) -> Self {
        Self { lower: lower.map(<[u8]>::to_vec), upper: upper.map(<[u8]>::to_vec) }
    }

    #[inline]
    fn prefix(&self, fixed: bool) -> usize {
        match (&self.lower, &self.upper) {
            (Some(lower), Some(upper)) if !fixed => common_prefix(lower, upper),
            _ => 0,
        }
    }

    #[inline]
    fn bytes(&self) -> usize {
        self.lower.as_ref().map_or(0, Vec::len) + self.upper.as_ref().map_or(0, Vec::len)
    }

    pub(crate) fn contain(&self, key: &[u8]) -> bool {
        self.lower.as_deref().is_none_or(|lower| lower <= key)
            && self.upper.as_deref().is_none_or(|upper| key < upper)
    }
}

/// Bytes the entries `range` need in a page with these fences, fences included.
pub(crate) fn bytes_needed(
    entries: &Entries,
    range: std::ops::Range<usize>,
    fences: &Fences,
    fixed: bool,
) -> usize {
    if fixed {
        return range.len() * 16 + FIXED_OVERHEAD;
    }
    let prefix = fences.prefix(fixed);
    let tails: usize = range.clone().map(|i| tail_len(entries.key(i).len(), prefix)).sum();
    range.len() * SLOTTED_BYTES + tails + fences.bytes() + 4
}

/// Bytes that one more entry needs in a page with these fences, for which [`Page::has_room`] asks.
pub(crate) fn bytes_for_one(key: usize, fences: &Fences) -> usize {
    SLOTTED_BYTES + tail_len(key, fences.prefix(false)) + MIN_COMPACTION_BYTES
}

#[inline]
fn tail_len(key: usize, prefix: usize) -> usize {
    key.saturating_sub(prefix + 8)
}

impl<'a> Page<'a> {
    #[inline(always)]
    pub(crate) fn new(words: &'a Words) -> Self {
        Self { words }
    }

    #[inline(always)]
    pub(crate) fn words(self) -> &'a Words {
        self.words
    }

    #[inline(always)]
    pub(crate) fn latch(self) -> &'a AtomicU64 {
        self.words.word(LATCH)
    }

    #[inline(always)]
    pub(crate) fn touched(self) -> u64 {
        self.words.get(TOUCHED)
    }

    #[inline]
    pub(crate) fn set_touched(self, touched: u64) {
        self.words.set(TOUCHED, touched);
    }

    /// Tells the clock that the page is used; writes only if that is news.
    #[inline(always)]
    pub(crate) fn touch(self) {
        let touched = self.touched();
        if touched != HOT {
            self.set_touched(if touched == FRESH { COLD } else { HOT });
        }
    }

    /// Block and checksum of the page's image in the file, 0 if it has none.
    #[inline]
    pub(crate) fn home(self) -> u64 {
        self.words.word(HOME).load(Relaxed)
    }

    #[inline]
    pub(crate) fn set_home(self, home: u64) {
        self.words.set(HOME, home);
    }

    #[inline]
    pub(crate) fn is_dirty(self) -> bool {
        self.words.get(DIRTY) != 0
    }

    #[inline(always)]
    pub(crate) fn set_dirty(self, dirty: bool) {
        if self.is_dirty() != dirty {
            self.words.set(DIRTY, u64::from(dirty));
        }
    }

    /// Pid, level and kind in one word, so that one comparison says whether a frame holds the page
    /// that was looked for.
    #[inline(always)]
    pub(crate) fn ident(self) -> u64 {
        self.words.get(IDENT)
    }

    #[inline]
    pub(crate) fn set_ident(self, ident: u64) {
        self.words.set(IDENT, ident);
    }

    #[inline]
    pub(crate) fn pid(self) -> u32 {
        let ident = self.ident();
        if ident == NO_PAGE { NO_PID } else { ident as u32 }
    }

    /// Says that the frame holds no page.
    pub(crate) fn set_no_page(self) {
        self.set_ident(NO_PAGE);
    }

    #[inline(always)]
    pub(crate) fn level(self) -> u8 {
        (self.ident() >> 32) as u8
    }

    #[inline(always)]
    pub(crate) fn count<K: Sealed + ?Sized>(self) -> usize {
        Shape::read::<K>(self.words).count
    }

    #[inline(always)]
    pub(crate) fn value<K: Sealed + ?Sized>(self, index: usize) -> u64 {
        self.words.get(Shape::read::<K>(self.words).value_at(index))
    }

    #[inline(always)]
    pub(crate) fn set_value<K: Sealed + ?Sized>(self, index: usize, value: u64) {
        self.words.set(Shape::read::<K>(self.words).value_at(index), value);
    }

    #[inline(always)]
    fn head(self, index: usize) -> u64 {
        self.words.get(HEADS + index)
    }

    #[inline(always)]
    fn prefix_len(self) -> usize {
        (self.words.get(PREFIX) & 0xffff) as usize
    }

    /// Tail offset and key length behind the prefix.
    #[inline]
    fn slot(self, shape: Shape, index: usize) -> (usize, usize) {
        let slot = self.words.get(shape.slots() + index / 2) >> (32 * (index % 2));
        ((slot & 0xffff) as usize, (slot >> 16 & 0xffff) as usize)
    }

    #[inline]
    fn set_slot(self, shape: Shape, index: usize, at: usize, len: usize) {
        let word = shape.slots() + index / 2;
        let shift = 32 * (index % 2);
        let slot = (at as u64 | (len as u64) << 16) << shift;
        self.words.set(word, self.words.get(word) & !(0xffff_ffff << shift) | slot);
    }

    /// 8 bytes from any byte of the page; byte `n` of a page is byte `n % 8` of word `n / 8`, lowest
    /// first, on every machine.
    #[inline]
    fn load_bytes(self, at: usize) -> [u8; 8] {
        let shift = 8 * (at % 8) as u32;
        let low = self.words.get(at / 8) >> shift;
        // Two shifts, because shifting by 64 at once is not defined.
        let high = (self.words.get(at / 8 + 1) << (63 - shift)) << 1;
        (low | high).to_le_bytes()
    }

    #[inline]
    fn store_bytes(self, at: usize, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let (word, byte) = ((at + done) / 8, (at + done) % 8);
            let n = (8 - byte).min(bytes.len() - done);
            let mut value = self.words.get(word).to_le_bytes();
            value[byte..byte + n].copy_from_slice(&bytes[done..done + n]);
            self.words.set(word, u64::from_le_bytes(value));
            done += n;
        }
    }

    /// Appends `len` bytes from byte `at`; nothing if that leaves the page.
    #[inline]
    fn copy_bytes(self, at: usize, len: usize, out: &mut Vec<u8>) {
        if at + len > PAGE_BYTES {
            return;
        }
        let mut done = 0;
        while done < len {
            let n = (len - done).min(8);
            out.extend_from_slice(&self.load_bytes(at + done)[..n]);
            done += 8;
        }
    }

    #[inline]
    fn compare_bytes(self, at: usize, len: usize, other: &[u8]) -> Ordering {
        let common = len.min(other.len());
        let mut done = 0;
        while done < common {
            let unused = 8 * 8usize.saturating_sub(common - done) as u32;
            let ours = u64::from_be_bytes(self.load_bytes(at + done)) >> unused;
            let theirs = head_of(&other[done..]) >> unused;
            if ours != theirs {
                return ours.cmp(&theirs);
            }
            done += 8;
        }
        len.cmp(&other.len())
    }

    #[inline]
    fn fence(self, upper: bool) -> Option<(usize, usize)> {
        let word = self.words.get(FENCES) >> if upper { 32 } else { 0 };
        let (at, len) = ((word & 0xffff) as usize, (word >> 16 & 0xffff) as u16);
        (len != INFINITE).then_some((at, usize::from(len)))
    }

    pub(crate) fn fences(self) -> Fences {
        let copy = |(at, len)| {
            let mut bytes = Vec::new();
            self.copy_bytes(at, len, &mut bytes);
            bytes
        };
        Fences { lower: self.fence(false).map(copy), upper: self.fence(true).map(copy) }
    }

    /// The fences a child must have.
    pub(crate) fn child_fences<K: Sealed + ?Sized>(self, index: usize) -> Fences {
        let key = |index| {
            let mut key = Vec::new();
            self.copy_key::<K>(index, &mut key);
            key
        };
        let own = self.fences();
        Fences {
            lower: if index == 0 { own.lower } else { Some(key(index)) },
            upper: if index + 1 < self.count::<K>() { Some(key(index + 1)) } else { own.upper },
        }
    }

    /// Whether the page has no upper fence.
    #[inline]
    pub(crate) fn is_rightmost(self) -> bool {
        self.fence(true).is_none()
    }

    /// Whether `key` is below the upper fence.
    pub(crate) fn is_below_upper<K: Sealed + ?Sized>(self, key: &K) -> bool {
        let Some((at, len)) = self.fence(true) else { return true };
        key.with_bytes(|key| self.compare_bytes(at, len, key) == Ordering::Greater)
    }

    /// The first entry of the block of 16 that `head` belongs to.
    #[inline(always)]
    fn block_of(self, head: u64, count: usize) -> usize {
        if count <= BLOCK {
            return 0;
        }
        let blocks = count.div_ceil(BLOCK);
        // A head below all hints is not above any head of the first block either.
        self.words.count_not_above(HINTS, blocks, head).saturating_sub(1) * BLOCK
    }

    /// Number of heads that are not greater than `head`.
    #[inline(always)]
    fn heads_not_above(self, head: u64, count: usize) -> usize {
        self.heads_not_above_in(self.block_of(head, count), head, count)
    }

    /// The same when the block is known, and possibly wrong by now.
    #[inline(always)]
    fn heads_not_above_in(self, start: usize, head: u64, count: usize) -> usize {
        let in_block = count.saturating_sub(start).min(BLOCK);
        start + self.words.count_not_above(HEADS + start, in_block, head)
    }

    /// The entry with this key, or where it would stand.
    #[inline(always)]
    pub(crate) fn search<K: Sealed + ?Sized>(self, key: &K) -> Result<usize, usize> {
        self.search_in(self.start_of(key), key)
    }

    /// Where a search for `key` starts.
    #[inline(always)]
    fn start_of<K: Sealed + ?Sized>(self, key: &K) -> usize {
        let head = key.head(if K::FIXED { 0 } else { self.prefix_len() });
        self.block_of(head, Shape::read::<K>(self.words).count)
    }

    /// [`Self::search`], starting where [`Self::prefetch_block`] said.
    #[inline(always)]
    pub(crate) fn search_in<K: Sealed + ?Sized>(
        self,
        start: usize,
        key: &K,
    ) -> Result<usize, usize> {
        let shape = Shape::read::<K>(self.words);
        let prefix = if K::FIXED { 0 } else { self.prefix_len() };
        let head = key.head(prefix);
        let above = self.heads_not_above_in(start, head, shape.count);
        if above == 0 || self.head(above - 1) != head {
            return Err(above);
        }
        if K::FIXED {
            return Ok(above - 1);
        }
        key.with_bytes(|key| {
            self.search_tails::<K>(shape, key.get(prefix..).unwrap_or_default(), head, above)
        })
    }

    /// Among the entries before `above` whose head is `head`.
    #[inline]
    fn search_tails<K: Sealed + ?Sized>(
        self,
        shape: Shape,
        suffix: &[u8],
        head: u64,
        above: usize,
    ) -> Result<usize, usize> {
        // Nearly always one entry has this head.
        match self.compare_tail(shape, above - 1, suffix) {
            Ordering::Equal => return Ok(above - 1),
            Ordering::Less => return Err(above),
            Ordering::Greater => {}
        }
        let mut low =
            if head == 0 { 0 } else { self.heads_not_above(head - 1, shape.count).min(above) };
        let mut high = above - 1;
        while low < high {
            let middle = low + (high - low) / 2;
            match self.compare_tail(shape, middle, suffix) {
                Ordering::Equal => return Ok(middle),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// An entry's key against a key with the same prefix and head.
    #[inline]
    fn compare_tail(self, shape: Shape, index: usize, suffix: &[u8]) -> Ordering {
        let (at, len) = self.slot(shape, index);
        if len <= 8 || suffix.len() <= 8 {
            return len.cmp(&suffix.len());
        }
        self.compare_bytes(at, len - 8, &suffix[8..])
    }

    /// Which child covers `key`.
    #[inline(always)]
    pub(crate) fn child_of<K: Sealed + ?Sized>(self, key: &K) -> usize {
        self.child_in(self.start_of(key), key)
    }

    /// [`Self::child_of`], starting where [`Self::prefetch_block`] said.
    #[inline(always)]
    pub(crate) fn child_in<K: Sealed + ?Sized>(self, start: usize, key: &K) -> usize {
        if K::FIXED {
            let count = Shape::read::<K>(self.words).count;
            return self.heads_not_above_in(start, key.head(0), count).saturating_sub(1);
        }
        match self.search_in(start, key) {
            Ok(index) => index,
            Err(index) => index.saturating_sub(1),
        }
    }

    /// Which child covers the keys just below `key`.
    pub(crate) fn child_before<K: Sealed + ?Sized>(self, key: &K) -> usize {
        let (Ok(index) | Err(index)) = self.search(key);
        index.saturating_sub(1)
    }

    /// Appends the key of an entry.
    pub(crate) fn copy_key<K: Sealed + ?Sized>(self, index: usize, out: &mut Vec<u8>) {
        let head = self.head(index).to_be_bytes();
        if K::FIXED {
            out.extend_from_slice(&head);
            return;
        }
        if let Some((at, _)) = self.fence(false) {
            self.copy_bytes(at, self.prefix_len(), out);
        }
        let (at, len) = self.slot(Shape::read::<K>(self.words), index);
        out.extend_from_slice(&head[..len.min(8)]);
        self.copy_bytes(at, len.saturating_sub(8), out);
    }

    /// Appends entries `range` to `out`.
    pub(crate) fn copy_entries<K: Sealed + ?Sized>(
        self,
        range: std::ops::Range<usize>,
        out: &mut Entries,
    ) {
        let shape = Shape::read::<K>(self.words);
        if K::FIXED {
            out.extend_fixed(
                range.map(|index| (self.head(index), self.words.get(shape.value_at(index)))),
            );
            return;
        }
        for index in range {
            self.copy_key::<K>(index, out.bytes_mut());
            out.finish_key(self.words.get(shape.value_at(index)));
        }
    }

    /// Copies the heads and values of entries from `first` on.
    #[inline]
    pub(crate) fn copy_fixed<K: Sealed + ?Sized>(
        self,
        first: usize,
        heads: &mut [u64],
        values: &mut [u64],
    ) {
        let at = Shape::read::<K>(self.words).value_at(first);
        for (index, (head, value)) in heads.iter_mut().zip(values).enumerate() {
            *head = self.words.get(HEADS + first + index);
            *value = self.words.get(at + index);
        }
    }

    /// Bytes of entries and fences, counting no holes.
    fn live_bytes<K: Sealed + ?Sized>(self, shape: Shape) -> usize {
        if K::FIXED {
            return shape.count * 16 + FIXED_OVERHEAD;
        }
        let heap = PAGE_BYTES.saturating_sub(shape.heap).saturating_sub(shape.dead);
        shape.count * SLOTTED_BYTES + 4 + heap
    }

    /// The used part of the page, 0 to 1.
    pub(crate) fn fill<K: Sealed + ?Sized>(self) -> f64 {
        self.live_bytes::<K>(Shape::read::<K>(self.words)) as f64 / ROOM as f64
    }

    /// Whether the page can take an entry with a key of this length after losing the entry
    /// `instead`. If so, [`Self::insert`] succeeds.
    pub(crate) fn has_room<K: Sealed + ?Sized>(self, key: usize, instead: Option<usize>) -> bool {
        let shape = Shape::read::<K>(self.words);
        if K::FIXED {
            return shape.count - usize::from(instead.is_some()) < FIXED_CAPACITY;
        }
        let freed =
            instead.map_or(0, |index| SLOTTED_BYTES + self.slot(shape, index).1.saturating_sub(8));
        let added = SLOTTED_BYTES + tail_len(key, self.prefix_len()) + MIN_COMPACTION_BYTES;
        self.live_bytes::<K>(shape) + added <= ROOM + freed && shape.count < MAX_CAPACITY
    }

    /// Puts an entry at `index`, where [`Self::search`] said. `false`: the page is full.
    pub(crate) fn insert<K: Sealed + ?Sized>(self, index: usize, key: &K, value: u64) -> bool {
        let mut shape = Shape::read::<K>(self.words);
        let (prefix, tail) = if K::FIXED {
            (0, 0)
        } else {
            let prefix = self.prefix_len();
            (prefix, tail_len(key.bytes_len(), prefix))
        };
        let fits = shape.count < shape.capacity && shape.arrays_end(K::FIXED) + tail <= shape.heap;
        if !fits {
            if K::FIXED || self.live_bytes::<K>(shape) + tail + MIN_COMPACTION_BYTES > ROOM {
                return false;
            }
            self.compact::<K>(tail + SLOTTED_BYTES);
            shape = Shape::read::<K>(self.words);
            if shape.count == shape.capacity || shape.arrays_end(false) + tail > shape.heap {
                return false;
            }
        }
        let above = shape.count - index;
        self.words.shift(HEADS + index, HEADS + index + 1, above);
        let at = shape.value_at(index);
        self.words.shift(at, at + 1, above);
        self.words.set(HEADS + index, key.head(prefix));
        self.words.set(at, value);
        if !K::FIXED {
            self.shift_slots_up(shape, index);
            shape.heap -= tail;
            key.with_bytes(|key| self.store_bytes(shape.heap, &key[key.len() - tail..]));
            let len = key.bytes_len().saturating_sub(prefix);
            self.set_slot(shape, index, shape.heap, len);
        }
        shape.count += 1;
        shape.write(self.words);
        self.write_hints(index, shape.count);
        true
    }

    /// Takes the entry at `index` out.
    pub(crate) fn remove<K: Sealed + ?Sized>(self, index: usize) {
        let mut shape = Shape::read::<K>(self.words);
        let above = shape.count - index - 1;
        self.words.shift(HEADS + index + 1, HEADS + index, above);
        let at = shape.value_at(index);
        self.words.shift(at + 1, at, above);
        if !K::FIXED {
            shape.dead += self.slot(shape, index).1.saturating_sub(8);
            self.shift_slots_down(shape, index);
        }
        shape.count -= 1;
        shape.write(self.words);
        self.write_hints(index, shape.count);
    }

    /// Moves the slots from `index` up by one; a slot is half a word.
    #[inline]
    fn shift_slots_up(self, shape: Shape, index: usize) {
        let (base, first) = (shape.slots(), index / 2);
        for word in (first + 1..=shape.count / 2).rev() {
            let carried = self.words.get(base + word - 1) >> 32;
            self.words.set(base + word, self.words.get(base + word) << 32 | carried);
        }
        if index.is_multiple_of(2) {
            self.words.set(base + first, self.words.get(base + first) << 32);
        }
    }

    /// Moves the slots above `index` down by one.
    #[inline]
    fn shift_slots_down(self, shape: Shape, index: usize) {
        let (base, first, last) = (shape.slots(), index / 2, (shape.count - 1) / 2);
        for word in first..=last {
            let old = self.words.get(base + word);
            let next = if word < last { self.words.get(base + word + 1) << 32 } else { 0 };
            let low = if word == first && index % 2 == 1 { old & 0xffff_ffff } else { old >> 32 };
            self.words.set(base + word, next | low);
        }
    }

    /// Renews the hints of the blocks that changed when an entry came or went at `index`.
    #[inline]
    fn write_hints(self, index: usize, count: usize) {
        for block in index.div_ceil(BLOCK)..count.div_ceil(BLOCK) {
            self.words.set(HINTS + block, self.head(block * BLOCK));
        }
    }

    /// Removes the holes and finds the capacity again, with at least `spare` bytes for one entry.
    fn compact<K: Sealed + ?Sized>(self, spare: usize) {
        let mut entries = Entries::default();
        let count = self.count::<K>();
        self.copy_entries::<K>(0..count, &mut entries);
        self.write_entries::<K>(&entries, 0..count, &self.fences(), spare);
    }

    /// Replaces everything but pid and level.
    ///
    /// # Panics
    /// If the entries do not fit; callers ask [`bytes_needed`] first.
    pub(crate) fn rewrite<K: Sealed + ?Sized>(
        self,
        entries: &Entries,
        range: std::ops::Range<usize>,
        fences: &Fences,
    ) {
        self.write_entries::<K>(entries, range, fences, 0);
    }

    fn write_entries<K: Sealed + ?Sized>(
        self,
        entries: &Entries,
        range: std::ops::Range<usize>,
        fences: &Fences,
        spare: usize,
    ) {
        let count = range.len();
        let needed = bytes_needed(entries, range.clone(), fences, K::FIXED);
        assert!(needed <= ROOM, "{count} entries need {needed} bytes of {ROOM}");
        let prefix = fences.prefix(K::FIXED);
        let capacity = if K::FIXED {
            FIXED_CAPACITY
        } else {
            // As many entries of the size they have on average as fit; 24 bytes while unknown.
            let room = ROOM - fences.bytes() - 4;
            let used = needed - fences.bytes() - 4;
            let average = if count == 0 { 24 } else { used.div_ceil(count) };
            let more = (room - used).saturating_sub(spare) / average;
            (count + more + usize::from(room >= used + spare && spare > 0)).min(MAX_CAPACITY)
        };
        let mut shape = Shape { count, capacity, heap: PAGE_BYTES, dead: 0 };
        let mut place = |bytes: &[u8]| {
            shape.heap -= bytes.len();
            self.store_bytes(shape.heap, bytes);
            shape.heap
        };
        let mut fence = |bytes: &Option<Vec<u8>>| match bytes {
            Some(bytes) => place(bytes) as u64 | (bytes.len() as u64) << 16,
            None => u64::from(INFINITE) << 16,
        };
        self.words.set(FENCES, fence(&fences.lower) | fence(&fences.upper) << 32);
        self.words.set(PREFIX, prefix as u64);
        for (index, from) in range.enumerate() {
            let key = entries.key(from);
            self.words.set(HEADS + index, head_of(&key[prefix.min(key.len())..]));
            self.words.set(HEADS + capacity + index, entries.value(from));
            if !K::FIXED {
                let tail = tail_len(key.len(), prefix);
                shape.heap -= tail;
                self.store_bytes(shape.heap, &key[key.len() - tail..]);
                self.set_slot(shape, index, shape.heap, key.len() - prefix.min(key.len()));
            }
        }
        assert!(shape.arrays_end(K::FIXED) <= shape.heap, "arrays and heap overlap");
        shape.write(self.words);
        self.write_hints(0, count);
    }

    /// Makes a frame an empty page without fences.
    pub(crate) fn format<K: Sealed + ?Sized>(self, pid: u32, level: u8) {
        self.set_ident(ident::<K>(pid, level));
        self.rewrite::<K>(&Entries::default(), 0..0, &Fences::default());
    }

    /// Copies the page as it goes into the file; only meaningful if the latch validates later.
    pub(crate) fn write_image(self, image: &mut [u8]) {
        let (words, _) = image.as_chunks_mut::<8>();
        for (index, bytes) in words.iter_mut().enumerate().take(WORDS) {
            let word = match index {
                0 => MAGIC,
                1..RUNTIME_WORDS => 0,
                _ => self.words.get(index),
            };
            *bytes = word.to_le_bytes();
        }
    }

    /// Fills the frame from an image, all but the words that exist in memory only.
    pub(crate) fn read_image(self, image: &[u8]) {
        let (words, _) = image.as_chunks::<8>();
        for (index, bytes) in words.iter().enumerate().take(WORDS).skip(RUNTIME_WORDS) {
            self.words.set(index, u64::from_le_bytes(*bytes));
        }
    }

    /// Whether the page can be relied on: every offset inside, keys ascending and between the
    /// fences, hints right. Its cost, 0.3 to 2 µs, is small beside the read it follows.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn check<K: Sealed + ?Sized>(self) -> Result<(), &'static str> {
        let word = self.words.get(SHAPE);
        let shape = Shape::read::<K>(self.words);
        if shape.capacity as u64 != word >> 16 & 0xffff || shape.count as u64 != word & 0xffff {
            return Err("more entries than a page holds");
        }
        if K::FIXED && shape.capacity != FIXED_CAPACITY {
            return Err("wrong capacity");
        }
        if shape.heap > PAGE_BYTES || shape.arrays_end(K::FIXED) > shape.heap {
            return Err("the heap overlaps the arrays");
        }
        if self.level() > MAX_LEVEL || self.ident() >> 40 != u64::from(K::KIND) {
            return Err("not a page of this tree");
        }
        if self.level() > 0 && shape.count == 0 {
            return Err("an inner page without children");
        }
        self.check_fences::<K>(shape)?;
        let fences = self.fences();
        if self.prefix_len() != fences.prefix(K::FIXED) {
            return Err("wrong prefix");
        }
        self.check_entries::<K>(shape, &fences)
    }

    fn check_fences<K: Sealed + ?Sized>(self, shape: Shape) -> Result<(), &'static str> {
        for (at, len) in [self.fence(false), self.fence(true)].into_iter().flatten() {
            if at < shape.heap || at + len > PAGE_BYTES || len > MAX_KEY_BYTES {
                return Err("a fence outside the heap");
            }
            if K::FIXED && len != 8 {
                return Err("a fence of the wrong length");
            }
        }
        Ok(())
    }

    fn check_entries<K: Sealed + ?Sized>(
        self,
        shape: Shape,
        fences: &Fences,
    ) -> Result<(), &'static str> {
        for block in 0..shape.count.div_ceil(BLOCK) {
            if self.words.get(HINTS + block) != self.head(block * BLOCK) {
                return Err("a wrong hint");
            }
        }
        if self.level() > 0
            && (0..shape.count).any(|index| self.value::<K>(index) >= u64::from(NO_PID))
        {
            return Err("a child that is no page");
        }
        let live = if K::FIXED {
            self.check_heads(shape)?;
            fences.bytes()
        } else {
            fences.bytes() + self.check_tails::<K>(shape)?
        };
        // The first key of an inner page stands for "from the lower fence on".
        let is_between = |index| {
            let mut key = Vec::new();
            self.copy_key::<K>(index, &mut key);
            fences.contain(&key)
        };
        if shape.count > 0 && !(is_between(0) && is_between(shape.count - 1)) {
            return Err("a key outside the fences");
        }
        if shape.dead > PAGE_BYTES - shape.heap || live + shape.dead != PAGE_BYTES - shape.heap {
            return Err("the heap's bytes do not add up");
        }
        Ok(())
    }

    fn check_heads(self, shape: Shape) -> Result<(), &'static str> {
        let is_ascending = (1..shape.count).all(|index| self.head(index - 1) < self.head(index));
        if is_ascending { Ok(()) } else { Err("keys out of order") }
    }

    /// Checks keys that are not their heads; gives the bytes of their tails.
    fn check_tails<K: Sealed + ?Sized>(self, shape: Shape) -> Result<usize, &'static str> {
        let mut live = 0;
        let (mut last, mut key) = (Vec::new(), Vec::new());
        for index in 0..shape.count {
            let (at, len) = self.slot(shape, index);
            let tail = len.saturating_sub(8);
            live += tail;
            if tail > 0 && (at < shape.heap || at + tail > PAGE_BYTES) {
                return Err("a key outside the heap");
            }
            if len + self.prefix_len() > MAX_KEY_BYTES {
                return Err("a key longer than the limit");
            }
            if len < 8 && self.head(index) << (8 * len) != 0 {
                return Err("bytes behind the end of a short key");
            }
            // Most keys differ in their heads.
            let is_above = index == 0 || self.head(index - 1) < self.head(index);
            key.clear();
            if !is_above || (index + 1 < shape.count && self.head(index) >= self.head(index + 1)) {
                self.copy_key::<K>(index, &mut key);
            }
            if !is_above && last >= key {
                return Err("keys out of order");
            }
            std::mem::swap(&mut last, &mut key);
        }
        Ok(live)
    }

    /// Asks for the lines a search starts with.
    #[inline(always)]
    pub(crate) fn prefetch_start(self) {
        self.words.prefetch(0);
        self.words.prefetch(HINTS);
        self.words.prefetch(HINTS + 8);
    }

    /// Asks for the lines of the first entries, where a page of the usual capacity has them.
    pub(crate) fn prefetch_first<K: Sealed + ?Sized>(self) {
        self.prefetch_start();
        (0..4).for_each(|line| self.words.prefetch(HEADS + 8 * line));
        if K::FIXED {
            (0..4).for_each(|line| self.words.prefetch(HEADS + FIXED_CAPACITY + 8 * line));
        }
    }

    /// Asks for the lines of heads and values a search for `key` will read, and says where it starts.
    #[inline(always)]
    pub(crate) fn prefetch_block<K: Sealed + ?Sized>(self, key: &K) -> usize {
        let shape = Shape::read::<K>(self.words);
        let start = self.start_of(key);
        let value = shape.value_at(start);
        self.words.prefetch(HEADS + start);
        self.words.prefetch(HEADS + start + 8);
        self.words.prefetch(value);
        self.words.prefetch(value + 8);
        if !K::FIXED {
            self.words.prefetch(value + 15);
            self.words.prefetch(shape.slots() + start / 2);
        }
        start
    }

    /// Asks for the lines of heads alone.
    #[inline(always)]
    pub(crate) fn prefetch_heads<K: Sealed + ?Sized>(self, key: &K) -> usize {
        let start = self.start_of(key);
        self.words.prefetch(HEADS + start);
        self.words.prefetch(HEADS + start + 8);
        start
    }

    /// Asks for the line of a value.
    #[inline(always)]
    pub(crate) fn prefetch_value<K: Sealed + ?Sized>(self, index: usize) {
        self.words.prefetch(Shape::read::<K>(self.words).value_at(index));
    }

    /// Asks for the lines of entries from `start` on that a scan will copy first.
    #[inline(always)]
    pub(crate) fn prefetch_run<K: Sealed + ?Sized>(self, start: usize) {
        let value = Shape::read::<K>(self.words).value_at(start);
        for line in 2..8 {
            self.words.prefetch(HEADS + start + 8 * line);
            self.words.prefetch(value + 8 * line);
        }
    }

    /// Asks for the line of the tail a search for `key` will compare.
    #[inline(always)]
    pub(crate) fn prefetch_tail<K: Sealed + ?Sized>(self, start: usize, key: &K) {
        let shape = Shape::read::<K>(self.words);
        let head = key.head(self.prefix_len());
        let index = self.heads_not_above_in(start, head, shape.count).saturating_sub(1);
        self.words.prefetch(self.slot(shape, index).0 / 8);
    }
}

/// The word that identifies a page.
#[inline(always)]
pub(crate) fn ident<K: Sealed + ?Sized>(pid: u32, level: u8) -> u64 {
    u64::from(pid) | u64::from(level) << 32 | u64::from(K::KIND) << 40
}

/// Whether an image starts as all pages in files do.
pub(crate) fn has_magic(image: &[u8]) -> bool {
    image.starts_with(&MAGIC.to_le_bytes()) && image[8..RUNTIME_WORDS * 8].iter().all(|b| *b == 0)
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;

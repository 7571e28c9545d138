//! Keys of up to 64 KiB, in order: a trie of trees, each over 480 bytes of the keys, in one tree.
//!
//! ```text
//! key of 1000 bytes ─► top layer:  0 | bytes 0..480 | 1    ─► layer 7
//!                      layer 7:    1 | 7 | bytes 480..960 | 1 ─► layer 9
//!                      layer 9:    1 | 9 | bytes 960..1000    ─► its value
//! ```
//! An entry is the layer it belongs to, up to 480 bytes of the key, and, if it has all 480, a mark:
//! 0 where the key ends there, 1 where it goes on in the layer that the value names. So entries lie
//! in the order of the keys, a key of less than 480 bytes costs one look-up as ever, and every 480
//! bytes more one. Pages know nothing of it: keys with a common beginning share its bytes, and
//! separators stay short.
//!
//! # Invariants
//! - A layer has a greater number than the one that leads to it; a number is used once, also after
//!   a crash: numbers are reserved in the tree before they are used.
//! - What leads to a layer is never taken out, so whoever is on the way down arrives. Keys that
//!   were removed leave it behind: an entry for every beginning of 480 bytes that there ever was.
//!
//! # Source
//! Mao, Kohler & Morris, "Cache craftiness for fast multicore key-value storage", EuroSys 2012.

use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::error::{Result, TreeError};
use crate::file::PageFile;
use crate::inspect::TreeStats;
use crate::scan::Direction;
use crate::tree::{Options, Tree};

/// The longest key of a [`LongTree`].
pub const MAX_LONG_KEY_BYTES: usize = 64 << 10;
/// Bytes of a key in one layer. With layer and mark an entry is below 512 bytes, which pages take.
const SLICE: usize = 480;
/// First bytes of entries: of the top layer, of the others, and of the number of layers.
const TOP: u8 = 0;
const LAYER: u8 = 1;
const LAYERS: &[u8] = &[2];
/// Marks behind a slice of full length.
const ENDS: u8 = 0;
const GOES_ON: u8 = 1;
/// Layers reserved at a time.
const RESERVED: u64 = 1024;

/// A tree with keys of up to [`MAX_LONG_KEY_BYTES`] bytes.
///
/// # Examples
/// ```
/// use uplake_btree::{LongTree, MemoryFile, Options};
/// let tree = LongTree::create(MemoryFile::default(), Options::default())?;
/// let url = [b'x'; 10_000];
/// assert_eq!(tree.put(&url, 7)?, None);
/// assert_eq!((tree.get(&url)?, tree.get(&url[1..])?), (Some(7), None));
/// # Ok::<(), uplake_btree::TreeError>(())
/// ```
pub struct LongTree {
    tree: Tree<[u8]>,
    /// The number of the next layer.
    next: AtomicU64,
    /// Numbers below are reserved. Changed under `reserving`.
    reserved: AtomicU64,
    reserving: Mutex<()>,
}

/// An entry's key.
struct Entry(Vec<u8>);

impl Entry {
    /// The first entry of a layer, whether or not it is there.
    fn first(layer: u64) -> Self {
        let mut bytes = Vec::with_capacity(crate::key::MAX_KEY_BYTES);
        if layer == 0 {
            bytes.push(TOP);
        } else {
            bytes.push(LAYER);
            bytes.extend_from_slice(&layer.to_be_bytes());
        }
        Self(bytes)
    }

    /// The entry of what is left of a key in a layer, and what is left behind it.
    fn of(layer: u64, rest: &[u8]) -> (Self, Option<&[u8]>) {
        let mut entry = Self::first(layer);
        let (slice, behind) = rest.split_at(rest.len().min(SLICE));
        entry.0.extend_from_slice(slice);
        if slice.len() == SLICE {
            entry.0.push(if behind.is_empty() { ENDS } else { GOES_ON });
        }
        (entry, (!behind.is_empty()).then_some(behind))
    }
}

/// What an entry of a layer is.
enum Found<'a> {
    /// The end of a key.
    End(&'a [u8]),
    /// A slice that goes on in another layer.
    Link(&'a [u8]),
}

/// What is left of a bound in a layer.
type Rest<'a> = Bound<&'a [u8]>;

impl LongTree {
    /// As [`Tree::create`].
    ///
    /// # Errors
    /// As [`Tree::create`].
    pub fn create(file: impl PageFile + 'static, options: Options) -> Result<Self> {
        let tree = Tree::create(file, options)?;
        tree.put(LAYERS, 1)?;
        Ok(Self::over(tree, 1))
    }

    /// As [`Tree::open`].
    ///
    /// # Errors
    /// As [`Tree::open`]; and [`TreeError::Corrupt`] if the file is of another kind of tree.
    pub fn open(file: impl PageFile + 'static, options: Options) -> Result<Self> {
        let tree: Tree<[u8]> = Tree::open(file, options)?;
        // So many layers nobody has made.
        let layers = tree.get(LAYERS)?.filter(|layers| (1..1 << 63).contains(layers));
        let layers = layers.ok_or_else(|| corrupt("it is not a tree of long keys"))?;
        Ok(Self::over(tree, layers))
    }

    fn over(tree: Tree<[u8]>, layers: u64) -> Self {
        let (next, reserved) = (AtomicU64::new(layers), AtomicU64::new(layers));
        Self { tree, next, reserved, reserving: Mutex::default() }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// If a page cannot be read or fails its checks.
    pub fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        match self.last_entry(key)? {
            Some(entry) => self.tree.get(&entry.0),
            None => Ok(None),
        }
    }

    /// The values of many keys, in the order of the keys; every look-up is atomic by itself.
    ///
    /// # Errors
    /// If a page cannot be read or fails its checks.
    ///
    /// # Panics
    /// If `values` is not as long as `keys`.
    pub fn get_many<Q: AsRef<[u8]>>(&self, keys: &[Q], values: &mut [Option<u64>]) -> Result<()> {
        assert_eq!(keys.len(), values.len(), "one value per key");
        // All keys go down layer by layer together.
        let mut ways: Vec<(usize, u64, &[u8])> =
            keys.iter().enumerate().map(|(at, key)| (at, 0, key.as_ref())).collect();
        while !ways.is_empty() {
            let entries: Vec<(Vec<u8>, Option<&[u8]>)> = ways
                .iter()
                .map(|(_, layer, rest)| Entry::of(*layer, rest))
                .map(|(entry, behind)| (entry.0, behind))
                .collect();
            let asked: Vec<&[u8]> = entries.iter().map(|(entry, _)| &entry[..]).collect();
            let mut found = vec![None; asked.len()];
            self.tree.get_many(&asked, &mut found)?;
            let mut later = Vec::new();
            for (((at, layer, _), (_, behind)), found) in ways.iter().zip(&entries).zip(found) {
                match (found, behind) {
                    (Some(child), Some(behind)) => {
                        later.push((*at, lower_layer(*layer, child)?, *behind));
                    }
                    (None, Some(_)) => values[*at] = None,
                    (found, None) => values[*at] = found,
                }
            }
            ways = later;
        }
        Ok(())
    }

    /// Sets the value of a key and returns the one it had.
    ///
    /// # Errors
    /// [`TreeError::KeyTooLong`]; or if a page cannot be read, or written to make room.
    pub fn put(&self, key: &[u8], value: u64) -> Result<Option<u64>> {
        self.tree.put(&self.way_to(key)?.0, value)
    }

    /// Sets the value of a key that has none; else returns the one it has, and changes nothing.
    ///
    /// # Errors
    /// As [`LongTree::put`].
    pub fn insert_if_absent(&self, key: &[u8], value: u64) -> Result<Option<u64>> {
        self.tree.insert_if_absent(&self.way_to(key)?.0, value)
    }

    /// Takes a key out and returns the value it had.
    ///
    /// # Errors
    /// If a page cannot be read. When only merging fails, the key is gone and the error is left out.
    pub fn remove(&self, key: &[u8]) -> Result<Option<u64>> {
        match self.last_entry(key)? {
            Some(entry) => self.tree.remove(&entry.0),
            None => Ok(None),
        }
    }

    /// The entry where a key ends, if there is a way to it.
    fn last_entry(&self, key: &[u8]) -> Result<Option<Entry>> {
        let (mut layer, mut rest) = (0, key);
        loop {
            match Entry::of(layer, rest) {
                (entry, None) => return Ok(Some(entry)),
                (entry, Some(behind)) => match self.tree.get(&entry.0)? {
                    Some(child) => (layer, rest) = (lower_layer(layer, child)?, behind),
                    None => return Ok(None),
                },
            }
        }
    }

    /// The same, and the way is made where there is none.
    fn way_to(&self, key: &[u8]) -> Result<Entry> {
        if key.len() > MAX_LONG_KEY_BYTES {
            let (found, limit) = (key.len(), MAX_LONG_KEY_BYTES);
            return Err(TreeError::KeyTooLong { found, limit });
        }
        let (mut layer, mut rest) = (0, key);
        loop {
            let (entry, behind) = Entry::of(layer, rest);
            let Some(behind) = behind else { return Ok(entry) };
            let child = match self.tree.get(&entry.0)? {
                Some(child) => child,
                None => {
                    let new = self.new_layer()?;
                    // Another thread may have been faster; then this number is nobody's.
                    self.tree.insert_if_absent(&entry.0, new)?.unwrap_or(new)
                }
            };
            (layer, rest) = (lower_layer(layer, child)?, behind);
        }
    }

    fn new_layer(&self) -> Result<u64> {
        let layer = self.next.fetch_add(1, Relaxed);
        while layer >= self.reserved.load(Relaxed) {
            let guard = self.reserving.lock().unwrap_or_else(PoisonError::into_inner);
            let reserved = self.reserved.load(Relaxed);
            if layer >= reserved {
                // In the tree first: a checkpoint that has the layer has this as well.
                self.tree.put(LAYERS, reserved + RESERVED)?;
                self.reserved.store(reserved + RESERVED, Relaxed);
            }
            drop(guard);
        }
        Ok(layer)
    }

    /// Shows the entries between two bounds to `visit`, until it breaks. See [`Tree::scan`].
    ///
    /// # Errors
    /// If a page cannot be read or fails its checks.
    pub fn scan(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
        mut visit: impl FnMut(&[u8], u64) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut scan = Scan { tree: self, direction, path: Vec::new(), visit: &mut visit };
        scan.layer(0, lower, upper).map(drop)
    }

    /// As [`Tree::checkpoint`].
    ///
    /// # Errors
    /// As [`Tree::checkpoint`].
    pub fn checkpoint(&self, position: u64) -> Result<()> {
        self.tree.checkpoint(position)
    }

    /// As [`Tree::position`].
    pub fn position(&self) -> u64 {
        self.tree.position()
    }

    /// As [`Tree::inspect`]; its entries are also those that lead from layer to layer.
    ///
    /// # Errors
    /// As [`Tree::inspect`].
    pub fn inspect(&self) -> Result<TreeStats> {
        self.tree.inspect()
    }
}

struct Scan<'a> {
    tree: &'a LongTree,
    direction: Direction,
    /// The bytes of the keys before the layer.
    path: Vec<u8>,
    visit: &'a mut dyn FnMut(&[u8], u64) -> ControlFlow<()>,
}

impl Scan<'_> {
    /// Shows the keys of a layer between what is left of the bounds.
    fn layer(&mut self, layer: u64, lower: Rest<'_>, upper: Rest<'_>) -> Result<ControlFlow<()>> {
        let skip = Entry::first(layer).0.len();
        let first = || Bound::Included(Entry::first(layer).0);
        let from = entry_bound(layer, lower).unwrap_or_else(first);
        let to = entry_bound(layer, upper).unwrap_or_else(|| behind(layer));
        let (tree, direction) = (self.tree, self.direction);
        let mut done = Ok(ControlFlow::Continue(()));
        tree.tree.scan(slice_of(&from), slice_of(&to), direction, |entry, value| {
            done = self.show(layer, &entry[skip.min(entry.len())..], value, lower, upper);
            match &done {
                Ok(flow) => *flow,
                Err(_) => ControlFlow::Break(()),
            }
        })?;
        done
    }

    fn show(
        &mut self,
        layer: u64,
        entry: &[u8],
        value: u64,
        lower: Rest<'_>,
        upper: Rest<'_>,
    ) -> Result<ControlFlow<()>> {
        let before = self.path.len();
        let flow = match read(entry)? {
            Found::End(slice) => {
                self.path.extend_from_slice(slice);
                (self.visit)(&self.path, value)
            }
            Found::Link(slice) => {
                self.path.extend_from_slice(slice);
                if self.path.len() > MAX_LONG_KEY_BYTES {
                    return Err(corrupt("a key is too long"));
                }
                let child = lower_layer(layer, value)?;
                self.layer(child, rest_of(lower, slice), rest_of(upper, slice))?
            }
        };
        self.path.truncate(before);
        Ok(flow)
    }
}

fn corrupt(what: &str) -> TreeError {
    TreeError::Corrupt { what: what.to_owned() }
}

/// The layer that an entry of `layer` names, if it may.
fn lower_layer(layer: u64, named: u64) -> Result<u64> {
    if named > layer { Ok(named) } else { Err(corrupt("a layer of long keys leads upwards")) }
}

/// What an entry is, without its layer.
fn read(entry: &[u8]) -> Result<Found<'_>> {
    match (entry.len(), entry.split_last()) {
        (0..SLICE, _) => Ok(Found::End(entry)),
        (n, Some((&ENDS, slice))) if n == SLICE + 1 => Ok(Found::End(slice)),
        (n, Some((&GOES_ON, slice))) if n == SLICE + 1 => Ok(Found::Link(slice)),
        _ => Err(corrupt("an entry of a long key is of no known form")),
    }
}

/// A bound among the entries of a layer; none if there is none in the layer.
fn entry_bound(layer: u64, bound: Rest<'_>) -> Option<Bound<Vec<u8>>> {
    let (rest, is_included) = match bound {
        Bound::Unbounded => return None,
        Bound::Included(rest) => (rest, true),
        Bound::Excluded(rest) => (rest, false),
    };
    let (entry, behind) = Entry::of(layer, rest);
    // A bound that goes on is to be looked for in the layer below.
    let is_included = is_included || behind.is_some();
    Some(if is_included { Bound::Included(entry.0) } else { Bound::Excluded(entry.0) })
}

/// The bound behind a layer.
fn behind(layer: u64) -> Bound<Vec<u8>> {
    match layer.checked_add(1) {
        Some(next) if layer > 0 => Bound::Excluded(Entry::first(next).0),
        Some(_) => Bound::Excluded(vec![LAYER]),
        None => Bound::Excluded(LAYERS.to_vec()),
    }
}

/// What is left of a bound behind a slice that goes on.
fn rest_of<'a>(bound: Rest<'a>, slice: &[u8]) -> Rest<'a> {
    let rest = |rest: &'a [u8]| rest.strip_prefix(slice).filter(|rest| !rest.is_empty());
    match bound {
        Bound::Included(key) => rest(key).map_or(Bound::Unbounded, Bound::Included),
        Bound::Excluded(key) => rest(key).map_or(Bound::Unbounded, Bound::Excluded),
        Bound::Unbounded => Bound::Unbounded,
    }
}

fn slice_of(bound: &Bound<Vec<u8>>) -> Rest<'_> {
    bound.as_ref().map(Vec::as_slice)
}

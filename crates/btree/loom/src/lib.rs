//! The tree's latches and its gate under loom, which tries every interleaving and every order the
//! memory model allows.
//!
//! The modules are those of the crate, compiled here with loom's atomics in place of the machine's.

#[cfg(test)]
#[path = "../../src/gate.rs"]
mod gate;
#[cfg(test)]
#[path = "../../src/latch.rs"]
mod latch;

#[cfg(test)]
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

    /// Few, because loom tries every order of every access.
    pub(crate) const STRIPES: usize = 1;

    pub(crate) fn relax(_give_way: bool) {
        loom::thread::yield_now();
    }

    pub(crate) fn stripe() -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::gate::Gate;
    use super::latch;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;
    use loom::sync::atomic::Ordering::Relaxed;
    use loom::thread;

    /// A page of two words that are always equal, and which page it is.
    struct Page {
        latch: AtomicU64,
        ident: AtomicU64,
        words: [AtomicU64; 2],
    }

    impl Page {
        fn new(ident: u64) -> Self {
            Self {
                latch: AtomicU64::new(4),
                ident: AtomicU64::new(ident),
                words: [AtomicU64::new(0), AtomicU64::new(0)],
            }
        }

        /// Both words, if they belong together.
        fn read(&self) -> Option<(u64, u64)> {
            let version = latch::read(&self.latch);
            let words = (self.words[0].load(Relaxed), self.words[1].load(Relaxed));
            latch::validate(&self.latch, version).then_some(words)
        }

        /// Adds one to both words, if nobody changed them since they were looked at.
        fn add(&self) -> bool {
            let version = latch::read(&self.latch);
            let old = self.words[0].load(Relaxed);
            if !latch::try_latch(&self.latch, version) {
                return false;
            }
            assert_eq!(self.words[0].load(Relaxed), old);
            self.words[0].store(old + 1, Relaxed);
            self.words[1].store(old + 1, Relaxed);
            latch::release_changed(&self.latch);
            true
        }
    }

    #[test]
    fn a_reader_never_accepts_a_mixture() {
        loom::model(|| {
            let page = Arc::new(Page::new(1));
            let writer = {
                let page = Arc::clone(&page);
                thread::spawn(move || {
                    assert!(page.add());
                    assert!(page.add());
                })
            };
            if let Some((a, b)) = page.read() {
                assert_eq!(a, b);
            }
            writer.join().expect("the writer");
            assert_eq!(page.read(), Some((2, 2)));
        });
    }

    #[test]
    fn writers_exclude_each_other_and_lose_nothing() {
        loom::model(|| {
            let page = Arc::new(Page::new(1));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let page = Arc::clone(&page);
                    thread::spawn(move || u64::from(page.add()))
                })
                .collect();
            let added: u64 = threads.into_iter().map(|t| t.join().expect("a writer")).sum();
            assert!(added > 0);
            assert_eq!(page.read(), Some((added, added)));
        });
    }

    #[test]
    fn a_release_without_change_disturbs_no_reader_and_no_writer() {
        loom::model(|| {
            let page = Arc::new(Page::new(1));
            let other = {
                let page = Arc::clone(&page);
                thread::spawn(move || {
                    latch::latch(&page.latch);
                    let seen = (page.words[0].load(Relaxed), page.words[1].load(Relaxed));
                    latch::release_unchanged(&page.latch);
                    assert_eq!(seen.0, seen.1);
                })
            };
            let added = u64::from(page.add());
            other.join().expect("the other");
            assert_eq!(page.read(), Some((added, added)));
        });
    }

    /// The pool's protocol: a table names the frame of a page; the evictor empties the frame and
    /// puts another page into it, while a reader goes from the table to the frame.
    #[test]
    fn a_frame_that_changes_its_page_is_noticed() {
        const NOWHERE: u64 = 9;
        loom::model(|| {
            let table = Arc::new([AtomicU64::new(0), AtomicU64::new(NOWHERE)]);
            let frame = Arc::new(Page::new(0));
            frame.words[0].store(100, Relaxed);
            let evictor = {
                let (table, frame) = (Arc::clone(&table), Arc::clone(&frame));
                thread::spawn(move || {
                    let version = latch::read(&frame.latch);
                    assert!(latch::try_latch(&frame.latch, version));
                    table[0].store(NOWHERE, loom::sync::atomic::Ordering::Release);
                    frame.ident.store(u64::MAX, Relaxed);
                    latch::release_changed(&frame.latch);
                    latch::latch(&frame.latch);
                    frame.words[0].store(101, Relaxed);
                    frame.ident.store(1, Relaxed);
                    latch::release_changed(&frame.latch);
                    table[1].store(0, loom::sync::atomic::Ordering::Release);
                })
            };
            for pid in [0, 1] {
                if table[pid].load(loom::sync::atomic::Ordering::Acquire) == NOWHERE {
                    continue;
                }
                let version = latch::read(&frame.latch);
                if frame.ident.load(Relaxed) != pid as u64 {
                    continue;
                }
                let value = frame.words[0].load(Relaxed);
                if latch::validate(&frame.latch, version) {
                    assert_eq!(value, 100 + pid as u64);
                }
            }
            evictor.join().expect("the evictor");
        });
    }

    /// Going down: the child's version is taken before the parent validates, so a key that moved to
    /// a new sibling is not missed.
    #[test]
    fn a_split_hides_no_key_from_a_reader() {
        loom::model(|| {
            // words[0] of the parent: 0 = all keys are in the left child, 1 = the key moved right.
            let parent = Arc::new(Page::new(0));
            let (left, right) = (Arc::new(Page::new(1)), Arc::new(Page::new(2)));
            left.words[0].store(7, Relaxed);
            let splitter = {
                let (parent, left, right) =
                    (Arc::clone(&parent), Arc::clone(&left), Arc::clone(&right));
                thread::spawn(move || {
                    latch::latch(&parent.latch);
                    latch::latch(&left.latch);
                    latch::latch(&right.latch);
                    right.words[0].store(7, Relaxed);
                    left.words[0].store(0, Relaxed);
                    parent.words[0].store(1, Relaxed);
                    latch::release_changed(&right.latch);
                    latch::release_changed(&left.latch);
                    latch::release_changed(&parent.latch);
                })
            };
            let parent_version = latch::read(&parent.latch);
            let child = if parent.words[0].load(Relaxed) == 0 { &left } else { &right };
            let version = latch::read(&child.latch);
            if latch::validate(&parent.latch, parent_version) {
                let key = child.words[0].load(Relaxed);
                if latch::validate(&child.latch, version) {
                    assert_eq!(key, 7);
                }
            }
            splitter.join().expect("the splitter");
        });
    }

    #[test]
    fn nobody_writes_while_the_gate_is_closed() {
        // One writer: with two, loom has more orders to try than anyone has patience for.
        loom::model(|| {
            let gate = Arc::new(Gate::new(0));
            let word = Arc::new(AtomicU64::new(0));
            let writer = {
                let (gate, word) = (Arc::clone(&gate), Arc::clone(&word));
                thread::spawn(move || {
                    let pass = gate.pass();
                    word.fetch_add(1, Relaxed);
                    pass.count(1);
                })
            };
            {
                let _closed = gate.close();
                let before = word.load(Relaxed);
                assert_eq!(gate.entries(), before);
                thread::yield_now();
                assert_eq!(word.load(Relaxed), before);
            }
            writer.join().expect("the writer");
            assert_eq!(gate.entries(), 1);
        });
    }
}

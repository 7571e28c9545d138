//! A disk that fails: short writes, lost writes, torn sectors, errors, and syncs that lose writes.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use uplake_btree::PageFile;

use crate::random::Random;

const SECTOR: usize = 512;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The machine stops: this operation and all later ones fail.
    Crash,
    /// This operation fails, the next ones do not.
    Once,
}

/// Counts the operations of all files of a machine, and says which of them fail.
pub struct Fuse {
    operations: AtomicUsize,
    fail_at: Option<(usize, Fault)>,
}

impl Fuse {
    pub fn new(fail_at: Option<(usize, Fault)>) -> Arc<Self> {
        Arc::new(Self { operations: AtomicUsize::new(0), fail_at })
    }

    /// Writes, syncs and cuts so far.
    pub fn operations(&self) -> usize {
        self.operations.load(SeqCst)
    }

    /// Whether this operation fails.
    fn burns(&self) -> bool {
        let number = self.operations.fetch_add(1, SeqCst);
        match self.fail_at {
            Some((at, Fault::Crash)) => number >= at,
            Some((at, Fault::Once)) => number == at,
            None => false,
        }
    }
}

struct Disk {
    /// What survives for sure.
    synced: Vec<u8>,
    /// What the running system sees.
    seen: Vec<u8>,
    /// Writes since the last sync; `None` cuts the file.
    pending: Vec<Write>,
    random: Random,
}

type Write = (u64, Option<Vec<u8>>);

pub struct SimulatedFile {
    disk: Mutex<Disk>,
    fuse: Arc<Fuse>,
}

impl SimulatedFile {
    pub fn new(bytes: Vec<u8>, fuse: &Arc<Fuse>, seed: u64) -> Self {
        let (synced, seen) = (bytes.clone(), bytes);
        let random = Random(seed * 2 + 1);
        let disk = Mutex::new(Disk { synced, seen, pending: Vec::new(), random });
        Self { disk, fuse: Arc::clone(fuse) }
    }

    /// What is on the disk after the machine stopped: any of the writes since the last sync, any
    /// sectors of them.
    pub fn after_crash(&self) -> Vec<u8> {
        let mut disk = self.disk.lock().expect("lock");
        let disk = &mut *disk;
        let mut bytes = disk.synced.clone();
        let style = disk.random.below(4);
        for (offset, written) in std::mem::take(&mut disk.pending) {
            let is_kept = match style {
                0 => false,
                1 => true,
                _ => disk.random.below(2) == 0,
            };
            match written {
                _ if !is_kept => {}
                Some(written) if style == 3 => {
                    for (i, sector) in written.chunks(SECTOR).enumerate() {
                        if disk.random.below(3) > 0 {
                            write(&mut bytes, offset as usize + i * SECTOR, sector);
                        }
                    }
                }
                written => carry_out(&mut bytes, &(offset, written)),
            }
        }
        bytes
    }
}

fn write(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if file.len() < at + bytes.len() {
        file.resize(at + bytes.len(), 0);
    }
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

fn carry_out(file: &mut Vec<u8>, (offset, written): &Write) {
    match written {
        Some(written) => write(file, *offset as usize, written),
        None => file.resize(*offset as usize, 0),
    }
}

impl PageFile for SimulatedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let disk = self.disk.lock().expect("lock");
        let seen = disk.seen.get(offset as usize..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(seen.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.disk.lock().expect("lock");
        let is_failing = self.fuse.burns();
        // A failing write has still written a part.
        let len = if is_failing { disk.random.below(bytes.len() + 1) } else { bytes.len() };
        write(&mut disk.seen, offset as usize, &bytes[..len]);
        disk.pending.push((offset, Some(bytes[..len].to_vec())));
        if is_failing { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    /// A sync that fails writes some and forgets the others: the running system sees them, no later
    /// sync writes them, and later syncs succeed.
    fn sync(&self) -> io::Result<()> {
        let mut disk = self.disk.lock().expect("lock");
        let disk = &mut *disk;
        let is_failing = self.fuse.burns();
        for write in std::mem::take(&mut disk.pending) {
            if !is_failing || disk.random.below(2) == 0 {
                carry_out(&mut disk.synced, &write);
            }
        }
        if is_failing { Err(io::Error::other("sync failed")) } else { Ok(()) }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.lock().expect("lock").seen.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut disk = self.disk.lock().expect("lock");
        if self.fuse.burns() {
            return Err(io::Error::other("cutting failed"));
        }
        disk.seen.resize(len as usize, 0);
        disk.pending.push((len, None));
        Ok(())
    }
}

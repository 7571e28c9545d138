//! The local folder: it may be torn, flipped, missing, full, shared or of another log, and the
//! answers stay those of the log.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path as StorePath;
use object_store::{ObjectStore, ObjectStoreExt};
use tempfile::TempDir;
use tokio::sync::{RwLock, RwLockReadGuard};
use uplake_domain::{Domain, LocalState, Options};

/// A process that is started has copies of this one's locks until it is that program, and who has no lock of a folder
/// writes nothing there.
static STARTING: RwLock<()> = RwLock::const_new(());

struct Place {
    store: Arc<dyn ObjectStore>,
    folder: TempDir,
    _nobody_starts: RwLockReadGuard<'static, ()>,
}

impl Place {
    async fn new() -> Self {
        let _nobody_starts = STARTING.read().await;
        let store = Arc::new(InMemory::new());
        Self { store, folder: tempfile::tempdir().expect("a folder"), _nobody_starts }
    }

    fn local(&self) -> PathBuf {
        self.folder.path().join("local")
    }

    fn file(&self) -> PathBuf {
        self.local().join("keys.log")
    }

    async fn open(&self) -> Arc<Domain> {
        open(&self.store, &self.local(), 1).await
    }

    /// Runs of different shapes: keys of one length, of several, an empty key.
    async fn fill(&self) {
        let users = self.open().await;
        for batch in [names(0..8), vec![String::new(), "x".to_owned()], names(8..20)] {
            encode(&users, &batch).await;
        }
    }

    /// Opens what is there, and compares it with the log and with what [`Place::fill`] gave.
    async fn check(&self, what: &str) {
        let users = self.open().await;
        let report = users.check().await.expect("check");
        assert_eq!(report.problems, [""; 0], "{what}");
        assert_eq!(encode(&users, &names(0..8)).await, (0..8).collect::<Vec<u32>>(), "{what}");
        assert_eq!(users.keys(), 22, "{what}");
        assert_eq!(users.id_of(b""), Some(8), "{what}");
    }
}

async fn open(store: &Arc<dyn ObjectStore>, local: &Path, writer: u128) -> Arc<Domain> {
    let (store, root) = (Arc::clone(store), StorePath::default());
    let options = Options::new(writer);
    Domain::create(store, &root, "users", Some(local.to_owned()), options).await.expect("open")
}

async fn encode(domain: &Domain, keys: &[String]) -> Vec<u32> {
    let mut ids = Vec::new();
    domain.encode(keys, &mut ids).await.expect("encode");
    ids
}

fn names(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("user_{n:04x}")).collect()
}

#[tokio::test]
async fn a_reopened_domain_reads_the_local_file_and_not_the_log() {
    let place = Place::new().await;
    place.fill().await;
    for run in 1..4 {
        let path = StorePath::from(format!("_uplake/domains/users/{run:08}.run"));
        place.store.delete(&path).await.expect("delete");
    }
    let users = place.open().await;
    assert_eq!(encode(&users, &names(0..20)).await[..8], [0, 1, 2, 3, 4, 5, 6, 7]);
    let described = users.describe().await.expect("describe");
    assert_eq!((described.local_state, described.warning), (LocalState::Writer, None));
    assert!(!users.check().await.expect("check").is_sound(), "the log itself is not whole now");
}

#[tokio::test]
async fn a_file_cut_anywhere_is_filled_up_from_the_log() {
    let place = Place::new().await;
    place.fill().await;
    let whole = fs::read(place.file()).expect("the file");
    for length in 0..whole.len() {
        fs::write(place.file(), &whole[..length]).expect("cut");
        place.check(&format!("cut to {length}")).await;
        assert_eq!(fs::metadata(place.file()).expect("there").len(), whole.len() as u64);
    }
}

#[tokio::test]
async fn a_byte_flipped_anywhere_is_noticed() {
    let place = Place::new().await;
    place.fill().await;
    let whole = fs::read(place.file()).expect("the file");
    for at in 0..whole.len() {
        let mut wrong = whole.clone();
        wrong[at] ^= 1 << (at % 8);
        fs::write(place.file(), wrong).expect("flip");
        place.check(&format!("flipped {at}")).await;
        assert_eq!(fs::metadata(place.file()).expect("there").len(), whole.len() as u64);
    }
}

#[tokio::test]
async fn what_follows_the_last_frame_is_ignored() {
    let place = Place::new().await;
    place.fill().await;
    let whole = fs::read(place.file()).expect("the file");
    for tail in [&whole[..90], &[0; 500], &whole[..]] {
        fs::write(place.file(), [&whole, tail].concat()).expect("write");
        place.check("a tail").await;
        let warning = place.open().await.describe().await.expect("describe").warning;
        assert!(warning.is_some_and(|text| text.contains("not whole")));
    }
}

#[tokio::test]
async fn a_run_of_several_frames_may_be_there_in_part() {
    let place = Place::new().await;
    let long = |n: usize| format!("k{n:065535}");
    let keys: Vec<String> = (0..200).map(long).collect();
    let users = place.open().await;
    encode(&users, &keys).await;
    drop(users);
    let whole = fs::metadata(place.file()).expect("there").len();
    let cut = |length: u64| {
        let file = fs::OpenOptions::new().write(true).open(place.file()).expect("there");
        file.set_len(length).expect("cut");
    };
    // The run has 12.5 MiB and its first frame 8.
    cut(10 << 20);
    {
        let users = place.open().await;
        assert_eq!(users.check().await.expect("check").problems, [""; 0]);
        assert_eq!(encode(&users, &keys[150..]).await, (150..200).collect::<Vec<u32>>());
        assert_eq!(fs::metadata(place.file()).expect("there").len(), whole);
    }
    // The log was put back to before the run: the part that is here must not count.
    cut(10 << 20);
    let path = StorePath::from("_uplake/domains/users/00000002.run");
    place.store.delete(&path).await.expect("delete");
    let users = place.open().await;
    assert_eq!((users.keys(), encode(&users, &names(0..2)).await), (0, vec![0, 1]));
    assert_eq!(users.check().await.expect("check").problems, [""; 0]);
}

#[tokio::test]
async fn a_folder_deleted_while_in_use_is_made_anew() {
    let place = Place::new().await;
    place.fill().await;
    {
        let users = place.open().await;
        fs::remove_dir_all(place.local()).expect("remove");
        assert_eq!(encode(&users, &names(0..2)).await, [0, 1]);
    }
    place.check("removed").await;
    assert!(place.file().exists());
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_means_memory_only() {
    let place = Place::new().await;
    fs::write(place.local(), "in the way").expect("a file");
    place.fill().await;
    place.check("no folder").await;
    let described = place.open().await.describe().await.expect("describe");
    assert_eq!(described.local_state, LocalState::Failed);
    assert!(described.warning.is_some_and(|text| text.contains("in memory only")));
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_means_memory_only() {
    let place = Place::new().await;
    fs::create_dir_all(place.file()).expect("a folder in its place");
    place.fill().await;
    let described = place.open().await.describe().await.expect("describe");
    assert_eq!((described.local_state, described.keys), (LocalState::Failed, 22));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_means_memory_only() {
    let place = Place::new().await;
    fs::create_dir_all(place.local()).expect("a folder");
    std::os::unix::fs::symlink("/dev/full", place.file()).expect("a link");
    let users = place.open().await;
    assert_eq!(encode(&users, &names(0..8)).await, (0..8).collect::<Vec<u32>>());
    let described = users.describe().await.expect("describe");
    assert_eq!(described.local_state, LocalState::Failed);
    assert!(described.warning.is_some_and(|text| text.contains("No space left")));
    assert_eq!(encode(&users, &names(4..9)).await, [4, 5, 6, 7, 8]);
    assert!(users.check().await.expect("check").is_sound());
}

#[tokio::test]
async fn who_comes_second_reads_and_does_not_write() {
    let place = Place::new().await;
    place.fill().await;
    let (first, second) = (place.open().await, open(&place.store, &place.local(), 2).await);
    let state = |described: uplake_domain::Description| (described.local_state, described.warning);
    assert_eq!(state(first.describe().await.expect("describe")), (LocalState::Writer, None));
    assert_eq!(state(second.describe().await.expect("describe")), (LocalState::Reader, None));
    assert_eq!(encode(&second, &names(20..22)).await, [22, 23]);
    assert_eq!(encode(&first, &names(21..23)).await, [23, 24]);
    assert_eq!(encode(&second, &names(21..23)).await, [23, 24]);
    second.rebuild(None).await.expect("rebuild");
    for domain in [&first, &second] {
        assert_eq!(domain.check().await.expect("check").problems, [""; 0]);
    }
}

#[tokio::test]
async fn a_rebuilt_file_is_the_same_file() {
    let place = Place::new().await;
    place.fill().await;
    let users = place.open().await;
    fs::write(place.file(), "nonsense").expect("write");
    assert!(!users.check().await.expect("check").is_sound());
    users.rebuild(None).await.expect("rebuild");
    assert!(users.check().await.expect("check").is_sound());
    drop(users);
    place.check("rebuilt").await;
}

/// The other side of [`two_processes_share_a_folder_and_one_is_killed`]: its folder and first key.
const FOLDER: &str = "UPLAKE_DOMAIN_TEST_FOLDER";
const FIRST: &str = "UPLAKE_DOMAIN_TEST_FIRST";

/// Gives ids to 3,000 keys in 60 runs, unless it is killed meanwhile.
async fn load(folder: &Path) {
    let first: usize = std::env::var(FIRST).expect("set").parse().expect("a number");
    let store: Arc<dyn ObjectStore> =
        Arc::new(LocalFileSystem::new_with_prefix(folder.join("lake")).expect("a store"));
    let users = open(&store, &folder.join("local"), u128::from(std::process::id())).await;
    for batch in 0..60 {
        encode(&users, &names(first + batch * 50..first + batch * 50 + 100)).await;
    }
    // Until it is killed: nobody writes here.
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[tokio::test]
async fn two_processes_share_a_folder_and_one_is_killed() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return load(Path::new(&folder)).await;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("lake")).expect("a lake");
    let store: Arc<dyn ObjectStore> =
        Arc::new(LocalFileSystem::new_with_prefix(folder.path().join("lake")).expect("a store"));
    let mut last = 0;
    for round in 1..=6u32 {
        let starting = STARTING.write().await;
        let mut other = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "local::two_processes_share_a_folder_and_one_is_killed"])
            .env(FOLDER, folder.path())
            .env(FIRST, last.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("another process");
        drop(starting);
        // This one comes second in odd rounds, and usually first in even ones.
        if round % 2 == 1 {
            wait_for_keys(&store, last + 300).await;
        }
        let users = open(&store, &folder.path().join("local"), 1000 + u128::from(round)).await;
        let mut first = last as usize;
        while users.keys() < last + 1000 {
            encode(&users, &names(first..first + 70)).await;
            first += 70;
        }
        other.kill().expect("kill");
        other.wait().expect("it ends");
        drop(users);
        let users = open(&store, &folder.path().join("local"), 2000 + u128::from(round)).await;
        let report = users.check().await.expect("check");
        assert_eq!(report.problems, [""; 0], "round {round}");
        last = users.keys();
        assert_eq!(users.describe().await.expect("describe").local_state, LocalState::Writer);
    }
}

async fn wait_for_keys(store: &Arc<dyn ObjectStore>, keys: u64) {
    let root = StorePath::default();
    loop {
        let options = Options::new(3);
        let opened = Domain::open(Arc::clone(store), &root, "users", None, options).await;
        if opened.is_ok_and(|users| users.keys() >= keys) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

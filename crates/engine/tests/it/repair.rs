//! Indexes that statements miss are built again while a session lives.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use uplake_engine::Session;

use crate::{block_on, session};

const PATIENCE: Duration = Duration::from_secs(60);
const SETUP: &str = "CREATE TABLE t (k INT, v TEXT) INDEXED BY (k);
    INSERT INTO t VALUES (1, 'a'), (2, 'b'); INSERT INTO t VALUES (1, 'c'), (3, 'd')";

/// The index files of the table, sorted.
fn index_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.join("lake/t/_uplake_index")).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    files.sort();
    files
}

/// What the session warns of when it looks up a key, whose rows are always the same two.
async fn warning(session: &Session) -> String {
    let found = session.query("SELECT v FROM t WHERE k = 1 ORDER BY v").await.unwrap();
    assert_eq!(found.iter().map(|batch| batch.num_rows()).sum::<usize>(), 2);
    session.take_warnings().join("\n")
}

async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !done().await {
        assert!(began.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn missing_and_damaged_indexes_are_built_again_if_the_session_repairs() {
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        let session = session(folder.path(), 256 << 20, 2);
        session.query(SETUP).await.unwrap();
        let files = index_files(folder.path());
        let whole: Vec<Vec<u8>> = files.iter().map(|f| std::fs::read(f).unwrap()).collect();
        let damage = || {
            // It may be removed already.
            let _ = std::fs::remove_file(&files[0]);
            std::fs::write(&files[1], "damaged").unwrap();
        };
        let is_whole = || (0..2).all(|n| std::fs::read(&files[n]).is_ok_and(|b| b == whole[n]));
        assert_eq!(whole.len(), 2);

        // What the session has read already would answer without the files.
        let fresh = crate::session(folder.path(), 256 << 20, 2);
        damage();
        let told = warning(&fresh).await;
        assert!(told.contains("mend it with: uplake table reindex t"), "{told}");
        assert!(!is_whole());

        for _ in 0..2 {
            damage();
            let fresh = crate::session(folder.path(), 256 << 20, 2);
            let _work = fresh.repair_indexes();
            let told = warning(&fresh).await;
            assert!(told.contains("it is being built again (and 1 more like it)"), "{told}");
            until("both are built", async || is_whole()).await;
            until("nothing to warn of", async || warning(&fresh).await.is_empty()).await;
        }

        damage();
        let fresh = crate::session(folder.path(), 256 << 20, 2);
        drop(fresh.repair_indexes());
        let told = warning(&fresh).await;
        assert!(told.contains("mend it with"), "nobody repairs any more: {told}");
    });
}

#[test]
fn an_index_that_cannot_be_written_is_told_and_a_newer_one_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        session(folder.path(), 256 << 20, 2).query(SETUP).await.unwrap();
        let files = index_files(folder.path());
        let reader = session(folder.path(), 256 << 20, 2);
        let _work = reader.repair_indexes();

        let kept = std::fs::read(&files[0]).unwrap();
        std::fs::remove_file(&files[0]).unwrap();
        std::fs::create_dir(&files[0]).unwrap();
        let failed = "building it again failed";
        until("the failure is told", async || warning(&reader).await.contains(failed)).await;
        let told = warning(&reader).await;
        assert!(told.contains("; mend it with: uplake table reindex t"), "{told}");
        std::fs::remove_dir(&files[0]).unwrap();

        // The last 16 bytes begin with the number of the format.
        let mut newer = kept;
        let format = newer.len() - 16;
        newer[format] = 2;
        std::fs::write(&files[0], &newer).unwrap();
        let other = session(folder.path(), 256 << 20, 2);
        let _work = other.repair_indexes();
        let told = warning(&other).await;
        assert!(told.contains("newer") && told.contains("mend it with"), "{told}");
        // What is asked for after it is built, so it would be by then.
        std::fs::remove_file(&files[1]).unwrap();
        let third = session(folder.path(), 256 << 20, 2);
        let _work = third.repair_indexes();
        until("the other is built", async || {
            let _ = warning(&third).await;
            files[1].exists()
        })
        .await;
        assert_eq!(std::fs::read(&files[0]).unwrap(), newer);
    });
}

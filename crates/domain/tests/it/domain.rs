//! What a user of a domain sees: ids, the log, bases, the limits.

use std::sync::Arc;

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use uplake_domain::{
    Columnar, Decimals, Domain, DomainError, LocalState, Options, list, parse_decimal,
};

type Store = Arc<InMemory>;

fn root() -> Path {
    Path::from("lakes/one")
}

async fn create(store: &Store, writer: u128) -> Arc<Domain> {
    let store = Arc::clone(store) as Arc<dyn ObjectStore>;
    Domain::create(store, &root(), "users", None, Options::new(writer)).await.expect("create")
}

async fn encode(domain: &Domain, keys: &[String]) -> Vec<u32> {
    let mut ids = Vec::new();
    domain.encode(keys, &mut ids).await.expect("encode");
    ids
}

fn names(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("user_{:x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect()
}

fn path_of(file: &str) -> Path {
    Path::from(format!("lakes/one/_uplake/domains/users/{file}"))
}

fn is_send<T: Send>(value: T) -> T {
    value
}

#[tokio::test]
async fn ids_are_dense_and_in_order_of_arrival() {
    let store = Store::default();
    let users = create(&store, 1).await;
    let data = b"bobannabobxbob";
    let keys = Columnar::new(&[0i32, 3, 7, 10, 10, 11, 14], data);
    let mut ids = Vec::new();
    is_send(users.encode(&keys, &mut ids)).await.expect("encode");
    assert_eq!(ids, [0, 1, 0, 2, 3, 0]);
    users.encode(&Columnar::new(&[3i64, 7, 7, 10], data), &mut ids).await.expect("encode");
    assert_eq!(ids, [1, 2, 0], "a slice of an array, and nothing new");
    let mut found = Vec::new();
    users.lookup_many(&["x", "", "y"], &mut found);
    assert_eq!(found, [Some(3), Some(2), None]);
    let mut keys = Vec::new();
    users.keys_of(&[3, 9, 1], |key| keys.push(key.map(<[u8]>::to_vec)));
    assert_eq!(keys, [Some(b"x".to_vec()), None, Some(b"anna".to_vec())]);
    assert_eq!(users.describe().await.expect("describe").runs, 2);
}

#[tokio::test]
async fn another_process_reads_the_same_ids_and_its_own_follow() {
    let store = Store::default();
    let (one, two) = (create(&store, 1).await, create(&store, 2).await);
    let first = encode(&one, &names(0..100)).await;
    // Two does not know run 2 yet, loses it, and reads it.
    let second = encode(&two, &names(50..150)).await;
    assert_eq!(first[50..], second[..50]);
    assert_eq!(second[50..], (100..150).collect::<Vec<u32>>());
    assert_eq!(one.id_of(names(120..121)[0].as_bytes()), None);
    one.refresh().await.expect("refresh");
    assert_eq!(one.id_of(names(120..121)[0].as_bytes()), Some(120));
    assert!(one.check().await.expect("check").is_sound());
}

#[tokio::test]
async fn any_bytes_are_keys_up_to_the_limit() {
    let store = Store::default();
    let users = create(&store, 1).await;
    let longest = vec![b'x'; 64 << 10];
    let keys: [&[u8]; 5] = [b"", &[0xFF, 0, 0x80], &[0], &[0, 0], &longest];
    let mut ids = Vec::new();
    users.encode(&keys, &mut ids).await.expect("encode");
    assert_eq!(ids, [0, 1, 2, 3, 4]);
    let again = create(&store, 2).await;
    keys.iter().zip(0..).for_each(|(key, id)| assert_eq!(again.key_of(id).as_deref(), Some(*key)));
    let before = users.describe().await.expect("describe");
    let too_long = vec![b'x'; (64 << 10) + 1];
    let error = users.encode(&[b"new", &too_long[..]], &mut ids).await.expect_err("too long");
    assert!(matches!(error, DomainError::KeyTooLong { found: 65_537, limit: 65_536 }), "{error}");
    assert_eq!(users.describe().await.expect("describe"), before, "nothing was written");
}

#[tokio::test]
async fn a_number_and_its_text_have_one_id() {
    let store = Store::default();
    let users = create(&store, 1).await;
    let mut ids = Vec::new();
    users.encode(&Decimals::new([7, -7, 42, 7]), &mut ids).await.expect("encode");
    assert_eq!(ids, [0, 1, 2, 0]);
    users.encode(&["42", "042", "7"], &mut ids).await.expect("encode");
    assert_eq!(ids, [2, 3, 0]);
    let numbers: Vec<_> =
        (0..4).map(|id| parse_decimal(&users.key_of(id).expect("there"))).collect();
    assert_eq!(numbers, [Some(7), Some(-7), Some(42), None]);
    let mut found = Vec::new();
    users.lookup_many(&Decimals::new([42, 43, i64::MIN]), &mut found);
    assert_eq!(found, [Some(2), None, None]);
}

#[tokio::test]
async fn a_domain_that_is_not_there_is_missing_until_created() {
    let store = Store::default() as Arc<dyn ObjectStore>;
    let root = root();
    let open = || Domain::open(Arc::clone(&store), &root, "users", None, Options::new(1));
    assert!(matches!(open().await, Err(DomainError::Missing { .. })));
    for name in ["users", "a-b_9"] {
        let store = Arc::clone(&store);
        Domain::create(store, &root, name, None, Options::new(2)).await.expect("create");
    }
    assert_eq!(open().await.expect("open").keys(), 0);
    assert_eq!(list(&store, &root).await.expect("list"), ["a-b_9", "users"]);
    for name in ["", "Users", "9a", "a/b", "a.b", "ä", &"x".repeat(65)] {
        let store = Arc::clone(&store);
        let created = Domain::create(store, &root, name, None, Options::new(3)).await;
        assert!(matches!(created, Err(DomainError::Name { .. })), "{name}");
    }
}

#[tokio::test]
async fn a_thousand_runs_become_one_base_and_stay_readable() {
    let store = Store::default();
    let users = create(&store, 1).await;
    for run in 0..999 {
        encode(&users, &names(run * 3..run * 3 + 3)).await;
    }
    let all = encode(&users, &names(0..2997)).await;
    assert_eq!(all, (0..2997).collect::<Vec<u32>>());
    let cold = create(&store, 2).await;
    assert_eq!(encode(&cold, &names(0..2997)).await, all);

    // Two compact at once; both wrote the same bytes.
    assert_eq!(cold.compact().await.expect("compact"), 1000);
    let bytes = || async {
        store.get(&path_of("base-00001000.run")).await.expect("get").bytes().await.expect("bytes")
    };
    let base = bytes().await;
    store.delete(&path_of("base-00001000.run")).await.expect("delete");
    assert_eq!(users.compact().await.expect("compact"), 1000);
    assert_eq!(bytes().await, base);

    let late = create(&store, 3).await;
    let freed = users.vacuum(i64::MAX).await.expect("vacuum");
    assert_eq!((freed.runs, freed.bases), (999, 0));
    for domain in [&users, &late, &create(&store, 4).await] {
        assert!(domain.check().await.expect("check").is_sound());
        assert_eq!(encode(domain, &names(0..2997)).await, all);
    }
    let described = users.describe().await.expect("describe");
    assert_eq!((described.runs, described.emptied_runs, described.base), (1000, 999, Some(1000)));
}

#[tokio::test]
async fn a_reader_left_behind_goes_on_from_the_base() {
    let store = Store::default();
    let (behind, users) = (create(&store, 1).await, create(&store, 2).await);
    encode(&behind, &names(0..10)).await;
    for run in 1..20 {
        encode(&users, &names(run * 10..run * 10 + 10)).await;
    }
    users.compact().await.expect("compact");
    encode(&users, &names(200..210)).await;
    users.compact().await.expect("compact");
    let freed = users.vacuum(i64::MAX).await.expect("vacuum");
    assert_eq!((freed.runs, freed.bases), (21, 1));
    // It would put run 3, which is empty now but still taken.
    assert_eq!(encode(&behind, &names(205..215)).await, (205..215).collect::<Vec<u32>>());
    assert!(behind.check().await.expect("check").is_sound());
    assert_eq!(behind.vacuum(i64::MAX).await.expect("nothing to do").runs, 0);
}

#[tokio::test]
async fn vacuum_leaves_what_is_young() {
    let store = Store::default();
    let users = create(&store, 1).await;
    encode(&users, &names(0..10)).await;
    users.compact().await.expect("compact");
    assert_eq!(users.vacuum(0).await.expect("vacuum").runs, 0);
}

#[tokio::test]
async fn a_domain_made_anew_is_noticed() {
    let store = Store::default();
    let folder = tempfile::tempdir().expect("a folder");
    let open = |writer| {
        let store = Arc::clone(&store) as Arc<dyn ObjectStore>;
        let local = Some(folder.path().to_owned());
        async move { Domain::create(store, &root(), "users", local, Options::new(writer)).await }
    };
    let old = open(1).await.expect("create");
    encode(&old, &names(0..10)).await;
    for run in ["00000001.run", "00000002.run"] {
        store.delete(&path_of(run)).await.expect("delete");
    }
    let other = create(&store, 9).await;
    encode(&other, &names(5..6)).await;
    encode(&other, &names(6..7)).await;
    assert!(matches!(old.refresh().await, Err(DomainError::Replaced { .. })));
    drop(old);
    let new = open(2).await.expect("open");
    assert_eq!(encode(&new, &names(5..7)).await, [0, 1]);
    assert_eq!(new.keys(), 2);
    assert!(new.check().await.expect("check").is_sound());
}

#[tokio::test]
async fn many_threads_of_one_load_share_runs() {
    let store = Store::default();
    let users = create(&store, 1).await;
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let users = Arc::clone(&users);
            tokio::spawn(async move {
                for batch in 0..20 {
                    let first = batch * 500 + thread * 37;
                    encode(&users, &names(first..first + 1000)).await;
                }
            })
        })
        .collect();
    for thread in threads {
        thread.await.expect("a thread");
    }
    assert_eq!(users.keys(), (19 * 500 + 7 * 37 + 1000) as u64);
    let report = users.check().await.expect("check");
    assert_eq!(report.problems, [""; 0]);
    let again = create(&store, 2).await;
    let all = names(0..10_000);
    assert_eq!(encode(&again, &all).await, encode(&users, &all).await);
    assert_eq!(again.describe().await.expect("describe").local_state, LocalState::None);
}

//! Changed bytes give an error or a sound answer. `examples/fuzz` does the same for hours.
#![forbid(unsafe_code)]

#[path = "../examples/fuzz/hostile.rs"]
mod hostile;

use uplake_testkit::random::Random;

#[test]
fn changed_bytes_never_panic_and_never_name_a_row_beyond_the_file() {
    let corpus = hostile::Corpus::new();
    let rounds = if cfg!(miri) {
        15
    } else if cfg!(debug_assertions) {
        4_000
    } else {
        40_000
    };
    for round in 0..rounds {
        let caught = std::panic::catch_unwind(|| corpus.try_one(&mut Random::stream(7, round)));
        assert!(caught.is_ok(), "seed 7, round {round}");
    }
}

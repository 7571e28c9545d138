//! Changed bytes give an error or a sound answer. `examples/fuzz` does the same for hours.

#[path = "../../examples/fuzz/hostile.rs"]
mod fuzz;

use uplake_testkit::{random::Random, soak};

#[test]
fn changed_bytes_never_panic_and_never_name_a_row_beyond_the_file() {
    let corpus = fuzz::Corpus::new();
    let rounds = if cfg!(miri) { 15 } else { 40_000 * soak() };
    for round in 0..rounds {
        let caught = std::panic::catch_unwind(|| corpus.try_one(&mut Random::stream(7, round)));
        assert!(caught.is_ok(), "seed 7, round {round}");
    }
}

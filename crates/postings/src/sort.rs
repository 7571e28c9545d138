//! Sorting of packed runs, the inner loop of a union.

use crate::prefetch;
use crate::run::Run;
use crate::run::unpack;

/// Values up to which a comparison sort is as fast as a radix sort's first pass over its counters.
const SMALL: usize = 192;
/// Largest digit: 2,048 counters of 4 bytes stay in the first-level cache beside the data.
const MAX_DIGIT_BITS: u32 = 11;

/// Sorts packed runs by their start, of which only the lowest `bits` bits are in use.
///
/// Runs that start together keep the order they came in; they are joined anyway. `spare` is
/// working memory, worth keeping between calls.
pub(crate) fn sort_packed(values: &mut Vec<u64>, spare: &mut Vec<u64>, bits: u32) {
    // One list, or terms in row order, come sorted; the look stops at the first that is not.
    if values.is_sorted() {
        return;
    }
    if values.len() <= SMALL {
        values.sort_unstable();
    } else {
        radix(values, spare, bits, |value| (value >> 32) as usize);
    }
}

/// Sorts packed runs that hardly overlap, as [`sort_packed`] does: two passes over the upper 22 bits
/// of the start, of which at most 512 rows are one; what is left is put right one by one.
pub(crate) fn sort_apart(values: &mut Vec<u64>, spare: &mut Vec<u64>, bits: u32) {
    if values.len() <= SMALL {
        values.sort_unstable();
        return;
    }
    let skip = bits.saturating_sub(2 * MAX_DIGIT_BITS);
    radix(values, spare, bits - skip, |value| (value >> (32 + skip)) as usize);
    let mut moves = 0;
    for at in 1..values.len() {
        let value = values[at];
        let mut to = at;
        while to > 0 && values[to - 1] > value {
            values[to] = values[to - 1];
            to -= 1;
        }
        values[to] = value;
        moves += at - to;
        // Only hostile bytes have so many runs in so few rows.
        if moves > 4 * values.len() {
            values.sort_unstable();
            return;
        }
    }
}

/// Sorts numbers of which only the lowest `bits` bits are in use.
pub(crate) fn sort_numbers(values: &mut Vec<u32>, spare: &mut Vec<u32>, bits: u32) {
    if values.len() <= SMALL {
        values.sort_unstable();
    } else {
        radix(values, spare, bits, |value| value as usize);
    }
}

/// Sorts by digits from the lowest, each pass stable. All passes are counted in one.
fn radix<T: Copy + Default>(
    values: &mut Vec<T>,
    spare: &mut Vec<T>,
    bits: u32,
    key: impl Fn(T) -> usize,
) {
    match bits.div_ceil(MAX_DIGIT_BITS) {
        0 | 1 => radix_passes::<T, 1>(values, spare, bits, key),
        2 => radix_passes::<T, 2>(values, spare, bits, key),
        _ => radix_passes::<T, 3>(values, spare, bits, key),
    }
}

fn radix_passes<T: Copy + Default, const PASSES: usize>(
    values: &mut Vec<T>,
    spare: &mut Vec<T>,
    bits: u32,
    key: impl Fn(T) -> usize,
) {
    const PLACES: usize = 1 << MAX_DIGIT_BITS;
    let digit = bits.div_ceil(PASSES as u32);
    let mask = ((1usize << digit) - 1) % PLACES;
    let count = values.len();
    spare.resize(count.max(spare.len()), T::default());
    spare.truncate(count);
    let (mut from, mut to) = (&mut values[..], &mut spare[..]);
    let mut places = [[0u32; PLACES]; PASSES];
    for (at, &value) in from.iter().enumerate() {
        // The passes write here and there, so the processor does not see what is coming.
        if at % (64 / size_of::<T>()) == 0 {
            prefetch::line(to, at);
        }
        for (pass, places) in places.iter_mut().enumerate() {
            places[key(value) >> (pass as u32 * digit) & mask] += 1;
        }
    }
    for (pass, places) in places.iter_mut().enumerate() {
        let mut sum = 0;
        for place in &mut places[..=mask] {
            sum += std::mem::replace(place, sum);
        }
        for &value in &*from {
            let place = &mut places[key(value) >> (pass as u32 * digit) & mask];
            to[*place as usize] = value;
            *place += 1;
        }
        std::mem::swap(&mut from, &mut to);
    }
    if PASSES % 2 == 1 {
        std::mem::swap(values, spare);
    }
}

/// Sorted packed runs as maximal ones. Without branches, like [`join_numbers`].
pub(crate) fn join_packed(sorted: &[u64]) -> Vec<Run> {
    let Some(&first) = sorted.first() else { return Vec::new() };
    let mut runs = vec![Run::new(0, 0); sorted.len()];
    let Run { mut start, mut end } = unpack(first);
    let mut count = 0;
    for &value in sorted {
        let run = unpack(value);
        let is_new = run.start > end;
        runs[count] = Run::new(start, end);
        count += usize::from(is_new);
        start = if is_new { run.start } else { start };
        end = end.max(run.end);
    }
    runs[count] = Run::new(start, end);
    runs.truncate(count + 1);
    runs
}

/// Where runs of consecutive numbers start and end: start, end, start, end …
///
/// Repeated numbers are joined. Without branches, because whether a number follows the one before
/// is a matter of chance.
pub(crate) fn join_numbers(sorted: &[u32], edges: &mut Vec<u32>) {
    edges.clear();
    let Some(&first) = sorted.first() else { return };
    edges.resize(2 * sorted.len(), 0);
    let pairs = edges.as_chunks_mut::<2>().0;
    let (mut start, mut end, mut count) = (first, first, 0);
    for &number in sorted {
        let is_new = number > end;
        pairs[count] = [start, end];
        count += usize::from(is_new);
        start = if is_new { number } else { start };
        end = number.saturating_add(1);
    }
    pairs[count] = [start, end];
    edges.truncate(2 * count + 2);
}

#[cfg(test)]
mod tests {
    use super::*;
    use uplake_testkit::random::Random;

    #[test]
    fn sorts_by_the_upper_half() {
        let mut random = Random::new(5);
        let many = if cfg!(miri) { 400 } else { 5000 };
        for (count, bits) in
            [(0, 32), (1, 1), (192, 24), (193, 24), (many, 24), (many, 32), (300, 3)]
        {
            let draw = |random: &mut Random| {
                let start = random.below(1 << bits);
                start << 32 | (start + 1)
            };
            let mut values: Vec<u64> = (0..count).map(|_| draw(&mut random)).collect();
            let mut expected = values.clone();
            expected.sort_unstable();
            sort_packed(&mut values, &mut Vec::new(), bits);
            assert_eq!(values, expected, "{count} values of {bits} bits");
            let mut numbers: Vec<u32> =
                (0..count).map(|_| random.below(1 << bits) as u32).collect();
            let mut expected = numbers.clone();
            expected.sort_unstable();
            sort_numbers(&mut numbers, &mut Vec::new(), bits);
            assert_eq!(numbers, expected, "{count} numbers of {bits} bits");
        }
    }

    #[test]
    fn runs_far_and_near_are_sorted_and_joined() {
        let mut random = Random::new(6);
        for (count, bits, length) in [
            (0u64, 20, 5),
            (1, 31, 9),
            (150, 12, 3),
            (600, 31, 90),
            (600, 31, 1 << 25),
            (500, 9, 4),
        ] {
            // The last fills a few rows with many runs, which only hostile bytes do.
            let draw = |random: &mut Random| {
                let start = random.below(1 << bits);
                start << 32 | (start + 1 + random.below(length))
            };
            let mut packed: Vec<u64> = (0..count).map(|_| draw(&mut random)).collect();
            let runs = packed.iter().map(|&run| unpack(run));
            let expected: Vec<Run> = crate::RowSet::from_runs(runs).runs().collect();
            sort_apart(&mut packed, &mut Vec::new(), bits);
            assert!(packed.is_sorted(), "{count} runs of {bits} bits");
            assert_eq!(join_packed(&packed), expected, "{count} runs of {bits} bits");
        }
    }

    #[test]
    fn numbers_in_a_row_are_joined() {
        for (numbers, expected) in [
            (vec![], vec![]),
            (vec![7], vec![7, 8]),
            (vec![0, 0, 1, 2, 4, 4, 6, 7], vec![0, 3, 4, 5, 6, 8]),
        ] {
            let mut edges = vec![9; 3];
            join_numbers(&numbers, &mut edges);
            assert_eq!(edges, expected, "{numbers:?}");
        }
    }
}

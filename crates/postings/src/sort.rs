//! Sorting of packed runs, the inner loop of a union.

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

/// Sorts numbers of which only the lowest `bits` bits are in use.
pub(crate) fn sort_numbers(values: &mut Vec<u32>, spare: &mut Vec<u32>, bits: u32) {
    if values.len() <= SMALL {
        values.sort_unstable();
    } else {
        radix(values, spare, bits, |value| value as usize);
    }
}

/// Sorts by digits from the lowest, each pass stable.
fn radix<T: Copy + Default>(
    values: &mut Vec<T>,
    spare: &mut Vec<T>,
    bits: u32,
    key: impl Fn(T) -> usize,
) {
    let passes = bits.div_ceil(MAX_DIGIT_BITS).max(1);
    let digit = bits.div_ceil(passes);
    let mask = (1usize << digit) - 1;
    spare.clear();
    spare.resize(values.len(), T::default());
    for pass in 0..passes {
        let place_of = |value| key(value) >> (pass * digit) & mask;
        let mut places = [0u32; 1 << MAX_DIGIT_BITS];
        for &value in &*values {
            places[place_of(value)] += 1;
        }
        let mut sum = 0;
        for place in &mut places[..=mask] {
            sum += std::mem::replace(place, sum);
        }
        for &value in &*values {
            let place = &mut places[place_of(value)];
            spare[*place as usize] = value;
            *place += 1;
        }
        std::mem::swap(values, spare);
    }
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
}

//! The hash functions that assignment systems use: FNV-1a, MurmurHash3, MD5, SHA-1, SHA-256.
//!
//! They decide who sees which arm and protect nothing, so speed and audited crates matter less
//! than having no dependency: each is checked against its published test vectors.
//!
//! # Not here
//! No streaming: ids are short.

/// FNV-1a, 32 bits.
pub fn fnv1a_32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// FNV-1a over UTF-16 code units, as JavaScript code computes it with `charCodeAt`. The same as
/// [`fnv1a_32`] for ASCII.
pub fn fnv1a_32_utf16(text: &str) -> u32 {
    text.encode_utf16()
        .fold(0x811C_9DC5, |hash, unit| (hash ^ u32::from(unit)).wrapping_mul(0x0100_0193))
}

/// MurmurHash3, x86, 32 bits.
pub fn murmur3_32(bytes: &[u8], seed: u32) -> u32 {
    let scramble =
        |word: u32| word.wrapping_mul(0xCC9E_2D51).rotate_left(15).wrapping_mul(0x1B87_3593);
    let mut hash = seed;
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        hash ^= scramble(little_endian(word));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xE654_6B64);
    }
    hash ^= scramble(little_endian(words.remainder()));
    hash ^= bytes.len() as u32;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85EB_CA6B);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xC2B2_AE35);
    hash ^ (hash >> 16)
}

fn little_endian(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, byte| (word << 8) | u32::from(*byte))
}

fn big_endian(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |word, byte| (word << 8) | u32::from(*byte))
}

/// The message with its padding: a 1 bit, zeros, and the length in bits.
fn padded(bytes: &[u8], length: impl Fn(u64) -> [u8; 8]) -> Vec<u8> {
    let mut message = bytes.to_vec();
    message.push(0x80);
    while message.len() % 64 != 56 {
        message.push(0);
    }
    message.extend(length(bytes.len() as u64 * 8));
    message
}

/// MD5 (RFC 1321).
pub fn md5(bytes: &[u8]) -> [u8; 16] {
    const ROTATIONS: [[u32; 4]; 4] =
        [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    let constants: [u32; 64] =
        std::array::from_fn(|i| (((i + 1) as f64).sin().abs() * 4_294_967_296.0) as u32);
    let mut state = [0x6745_2301u32, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];
    for block in padded(bytes, u64::to_le_bytes).chunks_exact(64) {
        let words: [u32; 16] = std::array::from_fn(|i| little_endian(&block[4 * i..4 * i + 4]));
        let [mut a, mut b, mut c, mut d] = state;
        for i in 0..64 {
            let (mix, word) = match i / 16 {
                0 => ((b & c) | (!b & d), i),
                1 => ((d & b) | (!d & c), (5 * i + 1) % 16),
                2 => (b ^ c ^ d, (3 * i + 5) % 16),
                _ => (c ^ (b | !d), (7 * i) % 16),
            };
            let sum = a.wrapping_add(mix).wrapping_add(constants[i]).wrapping_add(words[word]);
            let next = b.wrapping_add(sum.rotate_left(ROTATIONS[i / 16][i % 4]));
            (a, b, c, d) = (d, next, b, c);
        }
        for (value, add) in state.iter_mut().zip([a, b, c, d]) {
            *value = value.wrapping_add(add);
        }
    }
    let mut digest = [0; 16];
    for (out, word) in digest.chunks_exact_mut(4).zip(state) {
        out.copy_from_slice(&word.to_le_bytes());
    }
    digest
}

/// SHA-1 (RFC 3174).
pub fn sha1(bytes: &[u8]) -> [u8; 20] {
    let mut state = [0x6745_2301u32, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476, 0xC3D2_E1F0];
    for block in padded(bytes, u64::to_be_bytes).chunks_exact(64) {
        let mut words = [0u32; 80];
        for i in 0..80 {
            words[i] = if i < 16 {
                big_endian(&block[4 * i..4 * i + 4])
            } else {
                (words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16]).rotate_left(1)
            };
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (i, word) in words.iter().enumerate() {
            let (mix, constant) = match i / 20 {
                0 => ((b & c) | (!b & d), 0x5A82_7999),
                1 => (b ^ c ^ d, 0x6ED9_EBA1),
                2 => ((b & c) | (b & d) | (c & d), 0x8F1B_BCDC),
                _ => (b ^ c ^ d, 0xCA62_C1D6u32),
            };
            let next = a
                .rotate_left(5)
                .wrapping_add(mix)
                .wrapping_add(e)
                .wrapping_add(constant)
                .wrapping_add(*word);
            (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
        }
        for (value, add) in state.iter_mut().zip([a, b, c, d, e]) {
            *value = value.wrapping_add(add);
        }
    }
    let mut digest = [0; 20];
    for (out, word) in digest.chunks_exact_mut(4).zip(state) {
        out.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
const SHA256_CONSTANTS: [u32; 64] = [
    0x428A_2F98,
    0x7137_4491,
    0xB5C0_FBCF,
    0xE9B5_DBA5,
    0x3956_C25B,
    0x59F1_11F1,
    0x923F_82A4,
    0xAB1C_5ED5,
    0xD807_AA98,
    0x1283_5B01,
    0x2431_85BE,
    0x550C_7DC3,
    0x72BE_5D74,
    0x80DE_B1FE,
    0x9BDC_06A7,
    0xC19B_F174,
    0xE49B_69C1,
    0xEFBE_4786,
    0x0FC1_9DC6,
    0x240C_A1CC,
    0x2DE9_2C6F,
    0x4A74_84AA,
    0x5CB0_A9DC,
    0x76F9_88DA,
    0x983E_5152,
    0xA831_C66D,
    0xB003_27C8,
    0xBF59_7FC7,
    0xC6E0_0BF3,
    0xD5A7_9147,
    0x06CA_6351,
    0x1429_2967,
    0x27B7_0A85,
    0x2E1B_2138,
    0x4D2C_6DFC,
    0x5338_0D13,
    0x650A_7354,
    0x766A_0ABB,
    0x81C2_C92E,
    0x9272_2C85,
    0xA2BF_E8A1,
    0xA81A_664B,
    0xC24B_8B70,
    0xC76C_51A3,
    0xD192_E819,
    0xD699_0624,
    0xF40E_3585,
    0x106A_A070,
    0x19A4_C116,
    0x1E37_6C08,
    0x2748_774C,
    0x34B0_BCB5,
    0x391C_0CB3,
    0x4ED8_AA4A,
    0x5B9C_CA4F,
    0x682E_6FF3,
    0x748F_82EE,
    0x78A5_636F,
    0x84C8_7814,
    0x8CC7_0208,
    0x90BE_FFFA,
    0xA450_6CEB,
    0xBEF9_A3F7,
    0xC671_78F2,
];

/// SHA-256 (FIPS 180-4).
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut state = [
        0x6A09_E667u32,
        0xBB67_AE85,
        0x3C6E_F372,
        0xA54F_F53A,
        0x510E_527F,
        0x9B05_688C,
        0x1F83_D9AB,
        0x5BE0_CD19,
    ];
    for block in padded(bytes, u64::to_be_bytes).chunks_exact(64) {
        let mut words = [0u32; 64];
        for i in 0..64 {
            words[i] = if i < 16 {
                big_endian(&block[4 * i..4 * i + 4])
            } else {
                let (x, y) = (words[i - 15], words[i - 2]);
                let first = x.rotate_right(7) ^ x.rotate_right(18) ^ (x >> 3);
                let second = y.rotate_right(17) ^ y.rotate_right(19) ^ (y >> 10);
                words[i - 16].wrapping_add(first).wrapping_add(words[i - 7]).wrapping_add(second)
            };
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
        for (word, constant) in words.iter().zip(SHA256_CONSTANTS) {
            let high = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let choice = (e & f) ^ (!e & g);
            let first = h
                .wrapping_add(high)
                .wrapping_add(choice)
                .wrapping_add(constant)
                .wrapping_add(*word);
            let low = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let majority = (a & b) ^ (a & c) ^ (b & c);
            let second = low.wrapping_add(majority);
            (h, g, f, e) = (g, f, e, d.wrapping_add(first));
            (d, c, b, a) = (c, b, a, first.wrapping_add(second));
        }
        for (value, add) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *value = value.wrapping_add(add);
        }
    }
    let mut digest = [0; 32];
    for (out, word) in digest.chunks_exact_mut(4).zip(state) {
        out.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn digests_of_the_standards_come_out() {
        assert_eq!(hex(&md5(b"")), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(hex(&md5(b"message digest")), "f96b697d7cb7938d525a2f31aaf161d0");
        assert_eq!(hex(&sha1(b"abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(
            hex(&sha256(b"abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        // 64 bytes: the padding fills a block of its own.
        let long = [b'a'; 64];
        assert_eq!(hex(&md5(&long)), "014842d480b571495a4a0363793f7367");
        assert_eq!(hex(&sha1(&long)), "0098ba824b5c16427bd7a1122a5a442a25ec644d");
        assert_eq!(
            hex(&sha256(&long)),
            "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"
        );
    }

    #[test]
    fn murmur_handles_every_tail_length() {
        assert_eq!(murmur3_32(b"", 0), 0);
        assert_eq!(murmur3_32(b"", 1), 0x514E_28B7);
        assert_eq!(murmur3_32(b"test", 0), 0xBA6B_D213);
        assert_eq!(murmur3_32(b"Hello, world!", 0), 0xC036_3E43);
        assert_eq!(murmur3_32(b"aaa", 0x9747_B28C), 0x283E_0130);
    }

    #[test]
    fn fnv_over_bytes_and_over_code_units_part_beyond_ascii() {
        assert_eq!(fnv1a_32(b"foobar"), 0xBF9C_F968);
        assert_eq!(fnv1a_32_utf16("foobar"), 0xBF9C_F968);
        assert_ne!(fnv1a_32_utf16("ü"), fnv1a_32("ü".as_bytes()));
    }
}

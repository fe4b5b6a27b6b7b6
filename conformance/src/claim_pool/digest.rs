//! Hashes under which the recordings name units and chunks.

use sha2::{Digest, Sha256};

/// First 16 hexadecimal digits of the SHA-256 of a text.
pub fn text_hash(text: &str) -> String {
    hex16(&Sha256::digest(text.as_bytes()))
}

/// Id of the unit of a source in a namespace.
pub fn unit_id(namespace: &str, artifact: &str) -> String {
    let name = format!("{namespace}|artifact:{artifact}");
    format!("cog:{}", hex16(&sha1(name.as_bytes())))
}

fn hex16(digest: &[u8]) -> String {
    digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// SHA-1 (FIPS 180-4). It names things here and protects nothing.
fn sha1(bytes: &[u8]) -> [u8; 20] {
    let mut state: [u32; 5] = [
        0x6745_2301,
        0xefcd_ab89,
        0x98ba_dcfe,
        0x1032_5476,
        0xc3d2_e1f0,
    ];
    let mut message = bytes.to_vec();
    message.push(0x80);
    while message.len() % 64 != 56 {
        message.push(0);
    }
    message.extend((bytes.len() as u64 * 8).to_be_bytes());
    let (blocks, _) = message.as_chunks::<64>();
    for block in blocks {
        let mut words = [0_u32; 80];
        let (quads, _) = block.as_chunks::<4>();
        for (word, quad) in words.iter_mut().zip(quads) {
            *word = u32::from_be_bytes(*quad);
        }
        for at in 16..80 {
            words[at] =
                (words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16]).rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (round, word) in words.into_iter().enumerate() {
            let (mixed, constant) = match round / 20 {
                0 => ((b & c) | (!b & d), 0x5a82_7999),
                1 => (b ^ c ^ d, 0x6ed9_eba1),
                2 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6_u32),
            };
            let next = a
                .rotate_left(5)
                .wrapping_add(mixed)
                .wrapping_add(e)
                .wrapping_add(constant)
                .wrapping_add(word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
        }
        for (word, add) in state.iter_mut().zip([a, b, c, d, e]) {
            *word = word.wrapping_add(add);
        }
    }
    let mut digest = [0; 20];
    let (quads, _) = digest.as_chunks_mut::<4>();
    for (quad, word) in quads.iter_mut().zip(state) {
        *quad = word.to_be_bytes();
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_examples() {
        assert_eq!(hex16(&sha1(b"abc")), "a9993e364706816a");
        assert_eq!(hex16(&sha1(b"")), "da39a3ee5e6b4b0d");
        assert_eq!(text_hash("abc"), "ba7816bf8f01cfea");
    }
}

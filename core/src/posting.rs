//! The hits of one term in the items of one source version, packed: what a row of the lexical index holds.
//!
//! Layout: for each item in ascending order three LEB128 numbers, the distance of its id from the one before
//! (from `base` for the first), the term's frequency in it, and its length in terms.

use thiserror::Error;

/// One item that holds the term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// Id of the chunk or claim.
    pub item: i64,
    /// How often the term occurs in it.
    pub tf: u32,
    /// Terms in the item, repeats counted.
    pub length: u32,
}

/// Bytes that are no packed hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("packed hits end or overflow at byte {at}")]
pub struct UnpackError {
    /// Where reading stopped.
    pub at: usize,
}

/// Packs hits, which must be in ascending order of `item` with none below `base`; others are left out.
pub fn pack(base: i64, hits: impl IntoIterator<Item = Hit>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut last = base;
    for hit in hits {
        let Some(distance) = hit
            .item
            .checked_sub(last)
            .and_then(|distance| u64::try_from(distance).ok())
        else {
            continue;
        };
        last = hit.item;
        for mut number in [distance, u64::from(hit.tf), u64::from(hit.length)] {
            while number >= 0x80 {
                bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
        }
    }
    bytes
}

/// Unpacks hits one by one.
///
/// # Errors
/// Bytes that end within a hit, or a number that overflows; `each` has then seen the hits before it.
pub fn unpack(base: i64, bytes: &[u8], mut each: impl FnMut(Hit)) -> Result<(), UnpackError> {
    let mut at = 0;
    let mut last = base;
    while at < bytes.len() {
        let start = at;
        let mut number = || -> Option<u64> {
            let mut value = 0u64;
            for shift in (0..63).step_by(7) {
                let byte = *bytes.get(at)?;
                at += 1;
                value |= u64::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    return Some(value);
                }
            }
            None
        };
        let hit = (|| {
            let item = last.checked_add(i64::try_from(number()?).ok()?)?;
            Some(Hit {
                item,
                tf: number()?.try_into().ok()?,
                length: number()?.try_into().ok()?,
            })
        })();
        let Some(hit) = hit else {
            return Err(UnpackError { at: start });
        };
        last = hit.item;
        each(hit);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unpacked(base: i64, bytes: &[u8]) -> Result<Vec<Hit>, UnpackError> {
        let mut hits = Vec::new();
        unpack(base, bytes, |hit| hits.push(hit))?;
        Ok(hits)
    }

    #[test]
    fn small_hits_take_three_bytes() {
        let hits = [
            Hit {
                item: 7,
                tf: 1,
                length: 20,
            },
            Hit {
                item: 9,
                tf: 127,
                length: 127,
            },
        ];
        let bytes = pack(7, hits);
        assert_eq!(bytes, [0, 1, 20, 2, 127, 127]);
        assert_eq!(unpacked(7, &bytes), Ok(hits.to_vec()));
    }

    #[test]
    fn a_cut_or_endless_number_is_an_error() {
        assert_eq!(unpacked(0, &[0, 1]), Err(UnpackError { at: 0 }));
        assert_eq!(unpacked(0, &[0, 1, 2, 0x80]), Err(UnpackError { at: 3 }));
        assert_eq!(unpacked(0, &[0xff; 12]), Err(UnpackError { at: 0 }));
        assert!(unpacked(i64::MAX, &[1, 1, 1]).is_err());
    }

    proptest! {
        #[test]
        fn round_trip(base in 0i64..1 << 40, steps in prop::collection::vec((1i64..1000, any::<u32>(), any::<u32>()), 0..50)) {
            let mut item = base;
            let hits: Vec<Hit> = steps.iter().map(|&(step, tf, length)| { item += step; Hit { item, tf, length } }).collect();
            prop_assert_eq!(unpacked(base, &pack(base, hits.clone())), Ok(hits));
        }

        #[test]
        fn any_bytes_are_read_or_refused(base in any::<i64>(), bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = unpacked(base, &bytes);
        }
    }
}

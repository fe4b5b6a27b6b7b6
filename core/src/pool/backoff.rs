//! How long a failed build waits.

/// Seconds before the first retry.
pub const FIRST_SECONDS: u32 = 30;

/// No wait is longer than this many seconds.
pub const LONGEST_SECONDS: u32 = 3_600;

/// Seconds to wait after the given number of failures in a row: [`FIRST_SECONDS`], doubled with each
/// further failure, at most [`LONGEST_SECONDS`]; 0 if nothing failed.
pub fn seconds(failures: u32) -> u32 {
    match failures.checked_sub(1) {
        None => 0,
        Some(doublings) => 1_u32
            .checked_shl(doublings)
            .and_then(|factor| FIRST_SECONDS.checked_mul(factor))
            .map_or(LONGEST_SECONDS, |wait| wait.min(LONGEST_SECONDS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_an_hour() {
        let waits: Vec<u32> = (0..10).map(seconds).collect();
        assert_eq!(waits, [0, 30, 60, 120, 240, 480, 960, 1_920, 3_600, 3_600]);
        assert_eq!(seconds(u32::MAX), LONGEST_SECONDS);
    }
}

//! Waiting longer after each failure.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// 100 ms, then twice as long each time, up to 5 s.
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub fn new() -> Self {
        Backoff { next: FIRST }
    }

    /// How long to wait now.
    pub fn next(&mut self) -> Duration {
        let now = self.next;
        self.next = (now * 2).min(LONGEST);
        now
    }

    /// After a success.
    pub fn reset(&mut self) {
        self.next = FIRST;
    }
}

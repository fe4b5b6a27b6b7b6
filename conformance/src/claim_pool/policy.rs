//! Where Cortex differs from the peer on purpose, and the rule behind each difference.

use std::collections::BTreeSet;

/// A deliberate difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// A budget is never exceeded and no header dropped.
    BudgetKept,
    /// Raw text counts in the budget, has a reserved share of it, and is sent once.
    RawCounts,
    /// Stale rows are filtered before the window of rows is cut.
    MaskBeforeWindow,
    /// A known question is not answered past a stale part of what was built for it.
    StaleSibling,
    /// A stale unit is built anew from its own source only, and stays stale if that brings nothing.
    OwnSource,
    /// A build adds to what a unit holds of an unchanged source.
    BuildsAdd,
    /// Claims without text are refused, and each claim has the vector of its own text.
    ClaimsChecked,
    /// A failed build leaves no unit, and the read answers with raw text.
    NoHollowUnit,
    /// A build that brought no claims is tried again after a while.
    FailedBuildsRetry,
    /// The noise sample is ours, and of one namespace.
    NoiseSample,
    /// Line breaks in claims and brackets in header fields cannot pose as structure.
    SafeText,
    /// A whole document is recognised as unchanged by its chunks.
    WholeDocument,
    /// Rephrasings collapse by their vectors whatever is installed.
    CollapsesRephrasings,
    /// Rows that only rounding tells apart stand in the order of their ids; the peer's order is the recorded one.
    TiesById,
}

impl Difference {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::BudgetKept,
        Self::RawCounts,
        Self::MaskBeforeWindow,
        Self::StaleSibling,
        Self::OwnSource,
        Self::BuildsAdd,
        Self::ClaimsChecked,
        Self::NoHollowUnit,
        Self::FailedBuildsRetry,
        Self::NoiseSample,
        Self::SafeText,
        Self::WholeDocument,
        Self::CollapsesRephrasings,
        Self::TiesById,
    ];

    /// The reason as the runner prints it.
    pub fn reason(self) -> &'static str {
        match self {
            Self::BudgetKept => "the budget is never exceeded and no header is dropped",
            Self::RawCounts => "raw text counts in the budget and is sent once",
            Self::MaskBeforeWindow => "stale rows do not crowd out fresh ones",
            Self::StaleSibling => "a known question is not answered past a stale sibling",
            Self::OwnSource => "a stale unit is built anew from its own source only",
            Self::BuildsAdd => "a build adds to what is held of an unchanged source",
            Self::ClaimsChecked => {
                "claims without text are refused and vectors stay with their claims"
            }
            Self::NoHollowUnit => "a failed build leaves no unit and the read still answers",
            Self::FailedBuildsRetry => {
                "a build that brought no claims is tried again after a while"
            }
            Self::NoiseSample => "the noise ceiling has its own sample, of one namespace",
            Self::SafeText => "line breaks and brackets cannot pose as structure",
            Self::CollapsesRephrasings => "rephrasings collapse on every installation",
            Self::TiesById => "rows that only rounding tells apart stand in the order of their ids",
            Self::WholeDocument => "an unchanged document is recognised by its chunks",
        }
    }
}

/// Which differences a replay takes the peer's way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    peers: BTreeSet<Difference>,
}

impl Policy {
    /// Cortex in everything.
    pub fn ours() -> Self {
        Self::with_peers(BTreeSet::new())
    }

    /// The peer's documented behaviour in everything, in both kinds of installation: without numpy it does not
    /// compare vectors when it collapses.
    pub fn peers_everything() -> [Self; 2] {
        let all: BTreeSet<Difference> = Difference::ALL.into_iter().collect();
        let mut with_numpy = all.clone();
        with_numpy.remove(&Difference::CollapsesRephrasings);
        [Self::with_peers(with_numpy), Self::with_peers(all)]
    }

    /// Cortex, but the peer's way in the given differences.
    pub fn with_peers(peers: BTreeSet<Difference>) -> Self {
        Self { peers }
    }

    /// The differences that are taken the peer's way.
    pub fn peers(&self) -> &BTreeSet<Difference> {
        &self.peers
    }

    /// Whether Cortex's rule holds.
    pub fn ours_in(&self, difference: Difference) -> bool {
        !self.peers.contains(&difference)
    }
}

//! The named algorithms of a retrieval. New reads run by the current ones; a replay runs by those that its
//! receipt names, whatever has become current since.

use cortex_core::analyzer::Analyzer;
use cortex_core::fusion::Fusion;
use cortex_core::lexical::Ranker;
use cortex_core::phrase::{PhraseError, Phrases};
use cortex_core::receipt::Receipt;

use crate::error::Fault;

/// What finds, ranks and fuses.
#[derive(Clone, Copy)]
pub struct Rules {
    pub analyzer: Analyzer,
    pub ranker: Ranker,
    pub fusion: Fusion,
}

impl Rules {
    /// Those of new reads.
    pub const CURRENT: Self = Rules {
        analyzer: Analyzer::CURRENT,
        ranker: Ranker::CURRENT,
        fusion: Fusion::CURRENT,
    };

    /// Those that a receipt names. Its parameters must be the ones that the named algorithms have: scores made
    /// with others are not theirs.
    pub fn of(receipt: &Receipt) -> Result<Self, Fault> {
        let unknown = |what: &str, name: &str| {
            Fault::state(format!(
                "this version of Cortex has no {what} '{name}', which the receipt names"
            ))
            .hint("Verify with the version that made it, or a later one.")
        };
        let rules = Rules {
            analyzer: Analyzer::named(&receipt.analyzer)
                .ok_or_else(|| unknown("analyzer", &receipt.analyzer))?,
            ranker: Ranker::named(&receipt.ranker)
                .ok_or_else(|| unknown("ranker", &receipt.ranker))?,
            fusion: Fusion::named(&receipt.fusion)
                .ok_or_else(|| unknown("fusion", &receipt.fusion))?,
        };
        let params = rules.ranker.params();
        for (name, found, fixed) in [
            ("k1_milli", receipt.params.k1_milli, params.k1_milli),
            ("b_milli", receipt.params.b_milli, params.b_milli),
            ("rrf_k", receipt.params.rrf_k, rules.fusion.rank_offset()),
        ] {
            if found != fixed {
                return Err(Fault::state(format!(
                    "params.{name} is {found}, and {} with {} has {fixed}",
                    receipt.ranker, receipt.fusion
                )));
            }
        }
        Ok(rules)
    }

    /// The phrases that every candidate must hold; none where the ranker knows of none.
    pub fn phrases(&self, query: &str) -> Result<Phrases, Fault> {
        let query = if self.ranker.holds_phrases() {
            query
        } else {
            ""
        };
        Phrases::of(query, self.analyzer)
            .map_err(|error: PhraseError| Fault::limit(error.to_string()))
    }
}

//! How well a claim covers a question where there are no vectors.
//!
//! Every distinct term of the question weighs what its rarity says, `ln((2N + 2) / (2n + 1))` for a term in `n` of `N`
//! claims, the weight that the ranking gives it. With `asked` the weight of the whole question, `held` that of the
//! terms which the claim holds, and `one` the weight of a term that a single claim holds:
//!
//! ```text
//! share    = held / asked
//! evidence = held / one
//! coverage = min(1, sqrt(share * max(share, evidence)))
//! ```
//!
//! The share alone is unjust to long questions: one that retells three articles in forty terms is not half covered by
//! any sentence, although a sentence that holds six rare terms of it is surely about it. The evidence alone is
//! unjust to short ones. Their geometric mean serves both, so that one floor does. Where the question has less
//! weight than one rare term there is no evidence to be had, and the share decides.
//!
//! Measured: on the 500 questions of MultiHop-RAG, 71 of them without an answer, the probability that one without has
//! the lower coverage is .988 (the plain share of terms by a sketch of it: .97). For questions about another corpus,
//! by that sketch, .96 on MultiHop-RAG (plain share: .65), .93 on MuSiQue (.87), 1.00 on HotpotQA (.97), .99 on a LoCoMo
//! conversation (1.00). It tells nothing (.39 by the sketch) of LoCoMo's adversarial questions, which ask about the
//! right matter and the wrong person. More in `bench/quality/RESULTS.md`.

use std::collections::{BTreeMap, BTreeSet};

use crate::analyzer;
use crate::lexical;

/// Coverage from which a claim is about the question. On MultiHop-RAG it finds .80 of the questions without an answer
/// with a precision of .89, and takes 1.6 percent of the others for uncovered; of a LoCoMo conversation 9 percent. It was
/// chosen on these sets: .50 finds .68 there and gives 0.5 and 7 percent false alarms, .60 finds .92, 4 and 14.
pub const FLOOR: f64 = 0.55;

/// The terms of a question with their weights in a pool.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    weights: BTreeMap<String, f64>,
    asked: f64,
    one: f64,
}

impl Terms {
    /// Of `query`, in a pool of `claims` claims of which `holding` says how many hold a term (none if it does not
    /// name the term).
    pub fn new(query: &str, claims: u64, holding: impl Fn(&str) -> u64) -> Self {
        let terms: BTreeSet<String> = analyzer::query_terms(query).into_iter().collect();
        let counts: Vec<u64> = terms.iter().map(|term| holding(term)).collect();
        // Statistics can lag behind what is held.
        let claims = counts.iter().copied().fold(claims, u64::max);
        let weights: BTreeMap<String, f64> = terms
            .into_iter()
            .zip(counts)
            .map(|(term, holding)| (term, lexical::weight(claims, holding)))
            .collect();
        Self {
            asked: weights.values().sum(),
            weights,
            one: lexical::weight(claims, 1),
        }
    }

    /// The terms with their weights, in the order of the terms.
    pub fn weights(&self) -> impl Iterator<Item = (&str, f64)> {
        self.weights
            .iter()
            .map(|(term, weight)| (term.as_str(), *weight))
    }

    /// Coverage by a claim, whose texts (its title and body) count together; 0 for a question without terms.
    pub fn coverage(&self, texts: &[&str]) -> f64 {
        if self.asked <= 0.0 {
            return 0.0;
        }
        let mut held = BTreeSet::new();
        for text in texts {
            let (counts, _) = analyzer::term_counts(text);
            held.extend(
                counts
                    .into_keys()
                    .filter(|term| self.weights.contains_key(term)),
            );
        }
        let held: f64 = held.iter().map(|term| self.weights[term]).sum();
        let share = held / self.asked;
        let evidence = if self.one > 0.0 { held / self.one } else { 0.0 };
        (share * share.max(evidence)).sqrt().min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(query: &str, claims: u64, common: &[(&str, u64)]) -> Terms {
        Terms::new(query, claims, |term| {
            let found = common
                .iter()
                .find(|(name, _)| analyzer::query_terms(name) == [term]);
            found.map_or(1, |(_, n)| *n)
        })
    }

    #[test]
    fn a_long_question_is_covered_by_a_claim_that_holds_its_rare_terms() {
        let query = "Which vendor, according to the article on harbours, cranes, freight, customs, tariffs, \
                     unions, tides, dredging, pilots, insurers and brokers, was fined over the Rotterdam scanner?";
        let found = terms(query, 1_000, &[]);
        let about = found.coverage(&[
            "",
            "The vendor of the Rotterdam scanner was fined after customs complained.",
        ]);
        let by_chance = found.coverage(&["", "The article says the tides are high."]);
        assert!(about >= FLOOR, "{about}");
        assert!(by_chance < FLOOR, "{by_chance}");
        // The plain share says no to both.
        let held = analyzer::query_terms(query).len();
        assert!(5.0 / (held as f64) < 0.5);
    }

    #[test]
    fn common_words_are_no_evidence() {
        let common = [("article", 400), ("report", 500), ("company", 300)];
        let found = terms(
            "Which company did the article report on Zanzibar cloves?",
            1_000,
            &common,
        );
        assert!(found.coverage(&["The company said in a report after the article."]) < FLOOR);
        assert!(found.coverage(&["Zanzibar exports cloves."]) >= FLOOR);
    }

    #[test]
    fn a_question_of_common_words_alone_is_covered_by_its_share() {
        let found = terms("postgres index", 500, &[("postgres", 500), ("index", 450)]);
        assert!(found.coverage(&["postgres", "An index of postgres."]) > 0.99);
        assert!(found.coverage(&["nothing of it"]) == 0.0);
    }

    #[test]
    fn small_and_empty_pools_and_empty_questions_divide_by_nothing() {
        assert_eq!(terms("", 10, &[]).coverage(&["a word"]), 0.0);
        assert_eq!(terms("the of and", 10, &[]).coverage(&["the of and"]), 0.0);
        for claims in [0, 1, 2, u64::from(u32::MAX)] {
            let found = Terms::new("lighthouse keeper", claims, |_| 0);
            let coverage = found.coverage(&["The lighthouse keeper sleeps."]);
            assert!((0.9..=1.0).contains(&coverage), "{claims}: {coverage}");
        }
    }
}

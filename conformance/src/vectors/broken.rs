//! Traces that break one rule each, for the vectors of verification without a store.

use cortex_core::hash::Hash;
use cortex_core::receipt::Cut;
use cortex_core::trace::{Origin, Reason, Status, Visible};
use cortex_core::verify::Code;

use super::alone::Change;
use super::broken_answers;

/// Sound trace, id, description, change, step, code, place.
pub(super) type Broken = (
    &'static str,
    &'static str,
    &'static str,
    Change,
    &'static str,
    Code,
    &'static str,
);

pub(super) fn broken() -> Vec<Broken> {
    let mut all = broken_structures();
    all.extend(broken_bindings());
    all.extend(broken_answers::broken());
    all
}

fn broken_structures() -> Vec<Broken> {
    let cap = |id, description, change, at| -> Broken {
        (
            "lexical",
            id,
            description,
            change,
            "structure",
            Code::TStruct,
            at,
        )
    };
    vec![
        cap(
            "cap-rounds",
            "9 rounds allowed",
            |t| t.policy.max_rounds = 9,
            "policy.max_rounds",
        ),
        cap(
            "cap-candidates",
            "201 candidates allowed",
            |t| t.policy.max_candidates = 201,
            "policy.max_candidates",
        ),
        cap(
            "cap-evidence",
            "33 quotes allowed",
            |t| t.policy.max_evidence = 33,
            "policy.max_evidence",
        ),
        cap(
            "cap-excerpt",
            "501 characters allowed",
            |t| t.policy.excerpt_chars = 501,
            "policy.excerpt_chars",
        ),
        cap(
            "cap-zero",
            "a budget of nothing",
            |t| t.policy.max_evidence = 0,
            "policy.max_evidence",
        ),
        cap(
            "many-rounds",
            "9 rounds",
            |t| t.rounds = vec![t.rounds[0].clone(); 9],
            "rounds",
        ),
        cap(
            "many-quotes",
            "33 quotes",
            |t| t.evidence = vec![t.evidence[0].clone(); 33],
            "evidence",
        ),
        cap(
            "many-selected",
            "201 selected items",
            |t| t.rounds[0].selected = (0..201).collect(),
            "rounds[0].selected",
        ),
        cap(
            "engine-form",
            "a name without version",
            |t| t.engine = "cortex/".into(),
            "engine",
        ),
        cap(
            "no-namespace",
            "an empty namespace",
            |t| t.namespace.clear(),
            "namespace",
        ),
        cap(
            "extra-order",
            "unsealed changes out of order",
            |t| t.state.extra = vec![109, 107],
            "state.extra",
        ),
        cap(
            "other-state",
            "a round at another state",
            |t| t.state.seq = 105,
            "rounds[0].receipt.state",
        ),
        cap(
            "other-namespace",
            "a round in another namespace",
            |t| t.rounds[0].receipt.namespace = "other".into(),
            "rounds[0].receipt.namespace",
        ),
        cap(
            "round-number",
            "a round out of place",
            |t| t.rounds[0].i = 1,
            "rounds[0].i",
        ),
        cap(
            "evidence-number",
            "a quote out of place",
            |t| t.evidence[0].n = 2,
            "evidence[0].n",
        ),
        cap(
            "empty-span",
            "a quote of nothing",
            |t| t.evidence[0].span.end = 0,
            "evidence[0].span",
        ),
        cap(
            "quote-twice",
            "the same span twice",
            |t| {
                t.evidence[1] = t.evidence[0].clone();
                t.evidence[1].n = 2;
            },
            "evidence[1]",
        ),
        cap(
            "candidate-order",
            "a better candidate after a worse one",
            |t| t.rounds[0].receipt.candidates[1].score += 1_000_000_000,
            "rounds[0].receipt.candidates[1].score",
        ),
        cap(
            "tie-order",
            "equal scores not in the order of the items",
            |t| {
                let candidates = &mut t.rounds[0].receipt.candidates;
                candidates[0].score = candidates[1].score;
                candidates[0].item = candidates[1].item + 1;
            },
            "rounds[0].receipt.candidates[1].score",
        ),
        cap(
            "candidate-twice",
            "the same candidate twice",
            |t| {
                let candidates = &mut t.rounds[0].receipt.candidates;
                candidates[1].item = candidates[0].item;
            },
            "rounds[0].receipt.candidates",
        ),
        cap(
            "rank-zero",
            "ranks start at 1",
            |t| t.rounds[0].receipt.candidates[0].lexical_rank = Some(0),
            "rounds[0].receipt.candidates[0].lexical_rank",
        ),
        cap(
            "score-without-rank",
            "a score of an arm that gave no rank",
            |t| t.rounds[0].receipt.candidates[0].vector = 1,
            "rounds[0].receipt.candidates[0].vector",
        ),
        cap(
            "rank-of-no-arm",
            "a rank of an arm that did not run",
            |t| t.rounds[0].receipt.candidates[0].vector_rank = Some(1),
            "rounds[0].receipt.candidates[0].vector_rank",
        ),
        cap(
            "over-k",
            "more candidates than asked for",
            |t| t.rounds[0].receipt.params.k = 2,
            "rounds[0].receipt.candidates",
        ),
        cap(
            "cut-hidden",
            "a cut that is not admitted",
            |t| t.rounds[0].receipt.cut = Cut::None,
            "rounds[0].receipt.cut",
        ),
        cap(
            "nominees-of-nobody",
            "nominees without an approximate index",
            |t| t.rounds[0].receipt.nominees = vec![11],
            "rounds[0].receipt.nominees",
        ),
        (
            "vector",
            "no-space",
            "a vector arm without an embedding space",
            |t| t.rounds[0].receipt.space = None,
            "structure",
            Code::TStruct,
            "rounds[0].receipt.space",
        ),
        (
            "vector",
            "vector-length",
            "a query vector of another length than the space",
            |t| t.rounds[0].receipt.query_vector = Some("0100".into()),
            "structure",
            Code::TStruct,
            "rounds[0].receipt.query_vector",
        ),
        (
            "nominated",
            "not-nominated",
            "a candidate of the vector arm that no index proposed",
            |t| t.rounds[0].receipt.nominees.truncate(1),
            "structure",
            Code::TStruct,
            "rounds[0].receipt.candidates[1].item",
        ),
        (
            "masked",
            "masked-from-nobody",
            "candidates withheld from a caller who sees everything",
            |t| t.principal.visible = Visible::All,
            "structure",
            Code::TStruct,
            "rounds[0].receipt.masked",
        ),
        cap(
            "reason-without-need",
            "a reason although answered",
            |t| t.answer.reason = Some(Reason::NothingRetrieved),
            "answer.reason",
        ),
        cap(
            "prose-in-mode",
            "prose in a mode without prose",
            |t| t.answer.prose = Some(Hash([0; 32])),
            "answer.prose",
        ),
    ]
}

fn broken_bindings() -> Vec<Broken> {
    let unbound = |of, id, description, change, at| -> Broken {
        (of, id, description, change, "binding", Code::TUnbound, at)
    };
    let budget = |id, description, change, at| -> Broken {
        (
            "rounds",
            id,
            description,
            change,
            "budget",
            Code::TBudget,
            at,
        )
    };
    let status = |of, id, description, change, at| -> Broken {
        (of, id, description, change, "status", Code::TStatus, at)
    };
    vec![
        unbound(
            "lexical",
            "other-question",
            "a first round that asks something else",
            |t| t.question = Hash([0; 32]),
            "rounds[0].query",
        ),
        unbound(
            "lexical",
            "other-query",
            "a receipt of another query",
            |t| t.rounds[0].query = Hash([0; 32]),
            "rounds[0].receipt.query",
        ),
        unbound(
            "lexical",
            "selected-stranger",
            "a selected item that was no candidate",
            |t| t.rounds[0].selected[1] = 99,
            "rounds[0].selected",
        ),
        unbound(
            "lexical",
            "selected-order",
            "selected items in another order than the candidates",
            |t| t.rounds[0].selected.reverse(),
            "rounds[0].selected",
        ),
        unbound(
            "lexical",
            "added-count",
            "a wrong count",
            |t| t.rounds[0].added = 1,
            "rounds[0].added",
        ),
        unbound(
            "rounds",
            "stall-hidden",
            "a stall that is not admitted",
            |t| t.rounds[2].stalled = false,
            "rounds[2].stalled",
        ),
        unbound(
            "rounds",
            "initial-twice",
            "a later round that claims to be the first",
            |t| t.rounds[1].origin = Origin::Initial,
            "rounds[1].origin",
        ),
        unbound(
            "rounds",
            "refine-after-stall",
            "a refinement after a stalled round",
            |t| {
                let mut round = t.rounds[2].clone();
                round.i = 3;
                t.rounds.push(round);
            },
            "rounds[3].origin",
        ),
        unbound(
            "lexical",
            "quote-unselected",
            "a quote of a candidate that was not selected",
            |t| t.evidence[0].item = t.rounds[0].receipt.candidates[2].item,
            "evidence[0].item",
        ),
        unbound(
            "lexical",
            "quote-no-round",
            "a quote of a round that was not run",
            |t| t.evidence[0].round = 1,
            "evidence[0].round",
        ),
        unbound(
            "lexical",
            "quote-other-leaf",
            "a quote with a leaf of its own",
            |t| t.evidence[0].leaf = Hash([0; 32]),
            "evidence[0].leaf",
        ),
        unbound(
            "lexical",
            "quote-other-version",
            "a quote of another version",
            |t| t.evidence[0].version += 1,
            "evidence[0].version",
        ),
        unbound(
            "lexical",
            "quote-other-source",
            "a quote of another source",
            |t| {
                t.evidence[0].artifact = "file:other".into();
                t.answer.sources = 2;
            },
            "evidence[0].artifact",
        ),
        budget(
            "rounds-over",
            "3 rounds of 2",
            |t| t.policy.max_rounds = 2,
            "rounds",
        ),
        budget(
            "candidates-over",
            "a round of 4 candidates of 3",
            |t| t.policy.max_candidates = 3,
            "rounds[0].receipt.params.k",
        ),
        budget(
            "evidence-over",
            "2 quotes of 1",
            |t| t.policy.max_evidence = 1,
            "evidence",
        ),
        budget(
            "excerpt-over",
            "a quote of more bytes than its characters can have",
            |t| t.policy.excerpt_chars = 5,
            "evidence[0].span",
        ),
        status(
            "lexical",
            "status-low",
            "insufficient although quoted",
            |t| {
                t.answer.status = Status::InsufficientEvidence;
                t.answer.reason = Some(Reason::NothingSelected);
            },
            "answer.status",
        ),
        status(
            "nothing",
            "status-high",
            "answered without a quote",
            |t| {
                t.answer.status = Status::Answered;
                t.answer.reason = None;
            },
            "answer.status",
        ),
        status(
            "lexical",
            "status-partial",
            "a status that the mode does not have",
            |t| {
                t.answer.status = Status::Partial;
                t.answer.reason = Some(Reason::NothingSelected);
            },
            "answer.status",
        ),
        status(
            "nothing",
            "no-rounds",
            "nothing was asked",
            |t| t.rounds.clear(),
            "rounds",
        ),
    ]
}

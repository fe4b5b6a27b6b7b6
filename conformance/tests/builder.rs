//! The builder of traces refuses what verification would refuse.

use cortex_conformance::library::{Library, Search};
use cortex_core::canon::{self, CanonErrorKind};
use cortex_core::receipt::{Receipt, ReceiptError};
use cortex_core::trace::{
    Origin, Policy, Reason, RoundDraft, Status, Trace, TraceBuilder, TraceError, Visible,
};

const QUESTION: &str = "how fast is vacuum";

fn builder(library: &mut Library, policy: Policy) -> Result<TraceBuilder, TraceError> {
    let mut head = library.head(QUESTION, Visible::All);
    head.policy = policy;
    TraceBuilder::new(head)
}

fn place(error: TraceError) -> String {
    match error {
        TraceError::Rule(violation) => violation.at,
        TraceError::Canon(error) => panic!("{error}"),
    }
}

#[test]
fn defaults_and_caps_are_those_of_the_rule() {
    let default = Policy::default();
    let values = |p: &Policy| {
        (
            p.max_rounds,
            p.max_candidates,
            p.max_evidence,
            p.excerpt_chars,
        )
    };
    assert_eq!(values(&default), (4, 80, 12, 500));
    assert_eq!(values(&Policy::CAPS), (8, 200, 32, 500));
}

#[test]
fn a_budget_over_its_cap_is_refused_and_not_lowered() {
    let mut library = Library::default();
    assert!(builder(&mut library, Policy::CAPS).is_ok());
    type Field = fn(&mut Policy) -> &mut u32;
    let changes: [(&str, Field); 4] = [
        ("policy.max_rounds", |policy| &mut policy.max_rounds),
        ("policy.max_candidates", |policy| &mut policy.max_candidates),
        ("policy.max_evidence", |policy| &mut policy.max_evidence),
        ("policy.excerpt_chars", |policy| &mut policy.excerpt_chars),
    ];
    for (at, field) in changes {
        let mut over = Policy::CAPS;
        *field(&mut over) += 1;
        assert_eq!(place(builder(&mut library, over).unwrap_err()), at);
        let mut none = Policy::CAPS;
        *field(&mut none) = 0;
        assert_eq!(place(builder(&mut library, none).unwrap_err()), at);
    }
}

#[test]
fn only_candidates_can_be_selected_and_only_selected_items_quoted() {
    let mut library = Library::default();
    let mut builder = builder(&mut library, Policy::default()).unwrap();
    let receipt = library.search(&Search::default());
    let error = builder.round(RoundDraft::new(Origin::Initial, receipt.clone(), &[11, 16]));
    assert_eq!(place(error.unwrap_err()), "rounds[0].selected");
    assert_eq!(
        builder
            .round(RoundDraft::new(Origin::Initial, receipt, &[11]))
            .unwrap(),
        0
    );

    let mut elsewhere = library.quote(1, 11);
    assert_eq!(
        place(builder.evidence(elsewhere.clone()).unwrap_err()),
        "evidence[0].item"
    );
    elsewhere.round = 0;
    elsewhere.item = 16;
    assert_eq!(
        place(builder.evidence(elsewhere).unwrap_err()),
        "evidence[0].item"
    );

    // A candidate, but not selected: known when the trace is closed.
    let unselected = library.quote(0, 12);
    builder.evidence(unselected).unwrap();
    assert_eq!(place(builder.finish().unwrap_err()), "evidence[0].item");
}

#[test]
fn selection_is_recorded_in_the_order_of_the_candidates() {
    let mut library = Library::default();
    let trace = library.ask(&Search::default(), 3);
    let mut backwards = trace.rounds[0].selected.clone();
    backwards.reverse();
    let mut builder = builder(&mut library, Policy::default()).unwrap();
    let receipt = trace.rounds[0].receipt.clone();
    builder
        .round(RoundDraft::new(Origin::Initial, receipt, &backwards))
        .unwrap();
    let built = builder.finish().unwrap();
    assert_eq!(built.rounds, trace.rounds);
    assert_eq!(built.answer.status, Status::InsufficientEvidence);
    assert_eq!(built.answer.reason, Some(Reason::NothingSelected));
}

#[test]
fn a_trace_needs_a_first_round_that_asks_the_question() {
    let mut library = Library::default();
    let empty = builder(&mut library, Policy::default()).unwrap();
    assert_eq!(place(empty.finish().unwrap_err()), "rounds");

    let mut other = builder(&mut library, Policy::default()).unwrap();
    let receipt = library.search(&Search {
        query: "something else",
        ..Search::default()
    });
    other
        .round(RoundDraft::new(Origin::Initial, receipt, &[]))
        .unwrap();
    assert_eq!(place(other.finish().unwrap_err()), "rounds[0].query");
}

#[test]
fn rounds_over_the_budget_are_refused() {
    let mut library = Library::default();
    let policy = Policy {
        max_rounds: 2,
        ..Policy::default()
    };
    let mut head = library.head(QUESTION, Visible::All);
    head.policy = policy;
    head.planned = vec![library.keep("one"), library.keep("two")];
    let planned = ["one", "two"].map(|query| {
        library.search(&Search {
            query,
            ..Search::default()
        })
    });
    let [one, two] = planned;
    let mut rounds = TraceBuilder::new(head).unwrap();
    let receipt = library.search(&Search::default());
    rounds
        .round(RoundDraft::new(Origin::Initial, receipt, &[11]))
        .unwrap();
    rounds
        .round(RoundDraft::new(Origin::Planned, one, &[]))
        .unwrap();
    assert!(rounds.clone().finish().is_ok());
    rounds
        .round(RoundDraft::new(Origin::Planned, two, &[]))
        .unwrap();
    assert_eq!(place(rounds.finish().unwrap_err()), "rounds");
}

#[test]
fn the_same_ask_gives_the_same_bytes() {
    let text = || {
        Library::default()
            .ask(&Search::default(), 2)
            .to_text()
            .unwrap()
    };
    assert_eq!(text(), text());
    assert_eq!(
        Trace::from_text(&text()).unwrap().to_text().unwrap(),
        text()
    );
}

#[test]
fn a_receipt_is_read_only_if_canonical_and_sound() {
    let receipt = Library::default().search(&Search::default());
    let text = receipt.to_text().unwrap();
    assert_eq!(Receipt::from_text(&text).unwrap(), receipt);

    let spaced = text.replacen(',', ", ", 1);
    let error = Receipt::from_text(&spaced).unwrap_err();
    assert!(
        matches!(&error, ReceiptError::Canon(error) if error.kind == CanonErrorKind::NotCanonical)
    );

    let mut broken = receipt.clone();
    broken.params.b_milli = 1000;
    assert!(broken.check().is_ok());
    broken.params.b_milli = 1001;
    let text = canon::to_text(&broken).unwrap();
    let error = Receipt::from_text(&text).unwrap_err();
    assert!(matches!(&error, ReceiptError::Rule(violation) if violation.at == "params.b_milli"));
}

#[test]
fn numbers_without_a_canonical_form_make_no_receipt() {
    let mut receipt = Library::default().search(&Search::default());
    let root = receipt.root().unwrap();
    receipt.candidates[0].score = (1 << 53) - 1;
    assert_ne!(receipt.root().unwrap(), root);
    receipt.candidates[0].score = 1 << 53;
    assert!(receipt.root().is_err());
    assert!(receipt.to_text().is_err());
}

//! What the ladder of verification says about sound traces, and about everything that can happen
//! to the store behind them.

use cortex_conformance::library::{Library, Search};
use cortex_core::receipt::{Arm, Cut, Nominator};
use cortex_core::trace::{Reason, Trace, Visible};
use cortex_core::verify::{Code, Evidence, Level, Options, Outcome, Report, StepOutcome, verify};

fn with_store(trace: &Trace, library: &mut Library) -> Report {
    let store: &mut dyn Evidence = library;
    verify(trace.to_text().unwrap(), &Options::default(), Some(store))
}

fn assert_failed(report: &Report, code: Code, at: &str) {
    assert_eq!(report.code, Some(code), "{report:#?}");
    assert_eq!(report.at.as_deref(), Some(at), "{report:#?}");
    assert_eq!(report.outcome, Outcome::Failed);
    assert!(!report.ok);
}

fn hybrid<'a>(query: &'a str, nominator: Nominator) -> Search<'a> {
    Search {
        query,
        arms: &[Arm::Lexical, Arm::Vector],
        nominator,
        ..Search::default()
    }
}

#[test]
fn inv_06_replay_at_the_recorded_state_is_bit_for_bit() {
    let searches = [
        Search::default(),
        hybrid("is vacuum fast", Nominator::Exact),
        Search {
            arms: &[Arm::Vector],
            nominator: Nominator::Exact,
            ..Search::default()
        },
    ];
    for search in searches {
        let mut library = Library::default();
        let trace = library.ask(&search, 3);
        // Later changes: one version closes, a new one opens.
        library.seq = 108;
        library.items[0].closed = Some(108);
        let mut later = library.items[0].clone();
        (later.id, later.version, later.opened, later.closed) = (19, 108, 108, None);
        library.items.push(later);

        let report = with_store(&trace, &mut library);
        assert_eq!(report.level, Some(Level::L4), "{report:#?}");
        assert_eq!(report.outcome, Outcome::Verified);
    }
}

#[test]
fn inv_06_an_approximate_nominator_is_named_in_the_level() {
    let mut library = Library::default();
    let trace = library.ask(&hybrid("is vacuum fast", Nominator::Approximate), 2);
    let report = with_store(&trace, &mut library);
    assert_eq!(report.level, Some(Level::L4Nominated), "{report:#?}");
}

#[test]
fn rounds_with_a_stall_verify() {
    let mut library = Library::default();
    let trace = library.ask_in_rounds();
    let stalled: Vec<bool> = trace.rounds.iter().map(|round| round.stalled).collect();
    assert_eq!(stalled, [false, false, true]);
    assert_eq!(with_store(&trace, &mut library).level, Some(Level::L4));
}

#[test]
fn a_question_without_evidence_verifies_as_insufficient() {
    let mut library = Library::default();
    let search = Search {
        query: "zebra",
        ..Search::default()
    };
    let trace = library.ask(&search, 3);
    assert_eq!(trace.answer.reason, Some(Reason::NothingRetrieved));
    assert_eq!(with_store(&trace, &mut library).level, Some(Level::L4));
}

#[test]
fn without_a_store_the_level_is_l0_and_the_rest_is_listed_as_skipped() {
    let trace = Library::default().ask(&Search::default(), 2);
    let report = verify(trace.to_text().unwrap(), &Options::default(), None);
    assert_eq!(report.level, Some(Level::L0));
    assert_eq!(report.outcome, Outcome::Verified);
    let named = |name| report.steps.iter().find(|step| step.name == name).unwrap();
    assert_eq!(named("signature").outcome, StepOutcome::NotAvailable);
    for name in ["question", "evidence", "log", "replay", "visibility"] {
        assert_eq!(named(name).outcome, StepOutcome::Skipped, "{name}");
    }
    let numbers: Vec<u8> = report.steps.iter().map(|step| step.step).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
}

#[test]
fn the_verifiers_own_question_is_compared() {
    let mut library = Library::default();
    let trace = library.ask(&Search::default(), 2);
    let text = trace.to_text().unwrap();
    let mut asked = |question| {
        let options = Options {
            question: Some(question),
            question_salt: None,
            exhaustive: false,
        };
        let store: &mut dyn Evidence = &mut library;
        verify(&text, &options, Some(store))
    };
    assert_eq!(asked("how fast is vacuum").level, Some(Level::L4));
    assert_failed(&asked("how fast is Vacuum"), Code::TQuestion, "question");

    let salt = library.texts[&trace.question].salt;
    let alone = |question, salt| {
        let options = Options {
            question: Some(question),
            question_salt: salt,
            exhaustive: false,
        };
        verify(&text, &options, None)
    };
    assert!(alone("how fast is vacuum", Some(salt)).ok);
    assert_failed(
        &alone("how slow is vacuum", Some(salt)),
        Code::TQuestion,
        "question",
    );
    let unsalted = alone("how slow is vacuum", None);
    let step = unsalted.steps.iter().find(|step| step.name == "question");
    assert_eq!(step.unwrap().outcome, StepOutcome::Skipped);

    library.behaviour.erased_texts.insert(trace.question);
    let options = Options {
        question: Some("anything"),
        question_salt: None,
        exhaustive: false,
    };
    let store: &mut dyn Evidence = &mut library;
    let report = verify(&text, &options, Some(store));
    assert_eq!(report.outcome, Outcome::Redacted);
}

#[test]
fn withheld_candidates_are_counted_and_nothing_else_may_be_missing() {
    let mut library = Library::default();
    let search = Search {
        visible: Visible::Checked,
        ..Search::default()
    };
    let mut trace = library.ask(&search, 2);
    assert_eq!(trace.rounds[0].receipt.masked, 2);
    assert_eq!(with_store(&trace, &mut library).level, Some(Level::L4));

    // One more withheld than there is.
    let sound = trace.clone();
    let receipt = &mut trace.rounds[0].receipt;
    receipt.masked = 3;
    receipt.params.k += 1;
    receipt.cut = Cut::None;
    receipt.total_matched = receipt.considered() as u64;
    trace.roots = trace.compute_roots().unwrap();
    let report = with_store(&trace, &mut library);
    assert_failed(&report, Code::TReplay, "rounds[0].receipt.total_matched");

    // The store has lost the private items, so that fewer than recorded are withheld.
    let mut poorer = library.clone();
    let open = poorer.items.iter_mut().filter(|item| item.private);
    open.for_each(|item| item.text = "Nothing.".into());
    assert!(!with_store(&sound, &mut poorer).ok);

    // A visible candidate dropped, the count left as it was.
    let mut trace = sound.clone();
    let receipt = &mut trace.rounds[0].receipt;
    receipt.candidates.remove(2);
    receipt.cut = Cut::Cap;
    trace.roots = trace.compute_roots().unwrap();
    let report = with_store(&trace, &mut library);
    assert_failed(&report, Code::TVisibility, "rounds[0].receipt.masked");

    // A caller who sees everything has nothing withheld.
    let mut trace = sound;
    trace.principal.visible = Visible::All;
    trace.roots = trace.compute_roots().unwrap();
    let report = with_store(&trace, &mut library);
    assert_failed(&report, Code::TStruct, "rounds[0].receipt.masked");
}

#[test]
fn a_changed_chunk_fails_with_the_leaf_that_was_expected_and_found() {
    let mut library = Library::default();
    let trace = library.ask(&Search::default(), 2);
    let id = trace.evidence[0].item;
    let item = library.items.iter_mut().find(|item| item.id == id).unwrap();
    item.text = item.text.replacen('a', "o", 1);
    let report = with_store(&trace, &mut library);
    assert_failed(&report, Code::TEvidence, "evidence[0].leaf");
    assert_eq!(report.expected, Some(trace.evidence[0].leaf.to_string()));
    assert_ne!(report.found, report.expected);
    assert_eq!(report.level, Some(Level::L0));
    let last = report.steps.last().unwrap();
    assert_eq!(last.outcome, StepOutcome::Skipped);
}

#[test]
fn a_changed_chunk_that_is_only_a_candidate_fails_in_replay() {
    let mut library = Library::default();
    let trace = library.ask(&Search::default(), 1);
    let last = trace.rounds[0].receipt.candidates.last().unwrap();
    assert_ne!(last.version, trace.evidence[0].version);
    let id = last.item;
    let item = library.items.iter_mut().find(|item| item.id == id).unwrap();
    // Same words, so same scores: only the leaf tells.
    item.text = item.text.to_uppercase();
    let report = with_store(&trace, &mut library);
    assert_failed(
        &report,
        Code::TReplay,
        "rounds[0].receipt.candidates[4].leaf",
    );
    assert_eq!(report.level, Some(Level::L2));
}

#[test]
fn a_changed_quote_fails() {
    let mut library = Library::default();
    let trace = library.ask(&Search::default(), 2);
    let quote = trace.evidence[1].quote;
    library.texts.get_mut(&quote).unwrap().text.push('.');
    let report = with_store(&trace, &mut library);
    assert_failed(&report, Code::TEvidence, "evidence[1].quote");
}

#[test]
fn inv_10_erased_texts_give_redacted_and_lost_ones_fail() {
    let mut library = Library::default();
    let trace = library.ask(&Search::default(), 2);

    let mut erased = library.clone();
    erased.behaviour.erased_items.insert(trace.evidence[0].item);
    let report = with_store(&trace, &mut erased);
    assert_eq!((report.outcome, report.ok), (Outcome::Redacted, true));
    assert_eq!(
        report.level,
        Some(Level::L0),
        "erased evidence is not bound"
    );

    for text in [trace.evidence[0].quote, trace.question] {
        let mut erased = library.clone();
        erased.behaviour.erased_texts.insert(text);
        let report = with_store(&trace, &mut erased);
        assert_eq!((report.outcome, report.ok), (Outcome::Redacted, true));

        let mut lost = library.clone();
        lost.behaviour.lost_texts.insert(text);
        assert_eq!(with_store(&trace, &mut lost).code, Some(Code::TEvidence));
    }

    let mut lost = library.clone();
    lost.behaviour.lost_items.insert(trace.evidence[0].item);
    assert_failed(
        &with_store(&trace, &mut lost),
        Code::TEvidence,
        "evidence[0]",
    );
}

#[test]
fn pruned_history_is_not_a_failure() {
    let mut library = Library::default();
    let trace = library.ask(&Search::default(), 2);
    library.behaviour.pruned_below = 106;
    assert_eq!(with_store(&trace, &mut library).level, Some(Level::L4));
    library.behaviour.pruned_below = 107;
    let report = with_store(&trace, &mut library);
    assert_eq!((report.outcome, report.ok), (Outcome::Pruned, true));
    assert_eq!(report.level, Some(Level::L2));
}

#[test]
fn a_faulty_store_is_a_failed_step() {
    let mut library = Library::default();
    let trace = library.ask(&Search::default(), 2);
    library.behaviour.broken = true;
    let report = with_store(&trace, &mut library);
    assert_failed(&report, Code::TFault, "evidence[0].quote");
    assert_eq!(report.found.as_deref(), Some("the store cannot be read"));
    assert_eq!(report.level, Some(Level::L0));
}

#[test]
fn an_item_worded_anew_is_quoted_whole_or_not_at_all() {
    use cortex_core::trace::Span;
    use cortex_core::verify::{Lookup, text_at};
    let mut library = Library::default();
    let item = library.item(cortex_core::hash::Target::Chunk, 15).unwrap();
    let Lookup::Found(mut stored) = item else {
        panic!("{item:?}")
    };
    let span = |start, end| Span { start, end };
    assert_eq!(text_at(&stored, span(7, 10)), Some("How"));
    assert_eq!(text_at(&stored, span(6, 10)), None);
    assert_eq!(text_at(&stored, span(7, stored.end + 1)), None);
    stored.text = "Memory sets the speed of scans.".into();
    assert_eq!(text_at(&stored, span(7, 10)), None);
    let whole = text_at(&stored, span(7, stored.end));
    assert_eq!(whole, Some("Memory sets the speed of scans."));
}

#[test]
fn a_candidate_left_out_is_found_even_by_a_store_that_stops_early() {
    let mut library = Library::default();
    let mut trace = library.ask(&Search::default(), 2);
    library.behaviour.short = true;
    assert_eq!(with_store(&trace, &mut library).level, Some(Level::L4));

    let receipt = &mut trace.rounds[0].receipt;
    receipt.candidates.pop();
    receipt.cut = Cut::Cap;
    trace.roots = trace.compute_roots().unwrap();
    let report = with_store(&trace, &mut library);
    assert_failed(&report, Code::TFault, "rounds[0].receipt.candidates");

    library.behaviour.short = false;
    let report = with_store(&trace, &mut library);
    assert_failed(&report, Code::TReplay, "rounds[0].receipt.candidates");
}

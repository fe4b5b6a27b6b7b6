//! Sound traces with their evidence files, for tests, fuzzing and measuring.

use std::sync::LazyLock;

use cortex_core::hash::Hash;
use cortex_core::trace::Trace;
use cortex_core::verify::Bundle;

use crate::library::Library;
use crate::vectors;

/// A sound trace with its evidence file.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Name of the trace in the vectors.
    pub id: String,
    /// Its canonical text.
    pub trace: String,
    /// The evidence file.
    pub evidence: String,
    /// The question that was asked.
    pub question: String,
}

/// The evidence file of a trace over a corpus.
///
/// # Panics
/// If the corpus cannot be read, which the ones here always can.
pub fn evidence(library: &mut Library, trace: &Trace) -> String {
    let bundle = Bundle::collect(trace, library).expect("a corpus that can be read");
    bundle.to_text().expect("small numbers")
}

fn sample(id: &str, library: &mut Library, trace: &Trace) -> Sample {
    let question = library.texts.get(&trace.question);
    Sample {
        id: id.into(),
        trace: trace.to_text().expect("small numbers"),
        question: question.map(|text| text.text.clone()).unwrap_or_default(),
        evidence: evidence(library, trace),
    }
}

/// Every sound trace of the vectors, and two of which something was erased.
pub fn all() -> &'static [Sample] {
    static ALL: LazyLock<Vec<Sample>> = LazyLock::new(|| {
        let mut all = Vec::new();
        for (id, mut library, trace) in vectors::sound() {
            all.push(sample(id, &mut library, &trace));
            if id == "partly-supported" {
                library
                    .behaviour
                    .erased_items
                    .insert(trace.evidence[0].item);
                all.push(sample("item-erased", &mut library, &trace));
                library.behaviour.erased_items.clear();
                let erased: [Hash; 2] = [trace.evidence[1].quote, trace.question];
                library.behaviour.erased_texts.extend(erased);
                all.push(sample("texts-erased", &mut library, &trace));
            }
        }
        all
    });
    &ALL
}

/// A trace with this many pieces of evidence out of twice as many candidates of about 500 characters each, as a real
/// one has, with an answer that quotes some of them.
pub fn large(evidence: usize) -> Sample {
    let mut library = Library {
        items: Vec::new(),
        ..Library::default()
    };
    for n in 0..2 * evidence as i64 {
        let sentence = format!(
            "Vacuum number {n} reads {} pages of the table and skips those that every transaction can see already. ",
            100 + n
        );
        library.items.push(crate::library::Item {
            id: 1000 + n,
            artifact: format!("file:manual-{n}.md"),
            version: 50 + n,
            start: 0,
            text: sentence.repeat(4).trim_end().into(),
            opened: 1,
            closed: None,
            private: false,
        });
    }
    let statement = "Vacuum number 1 reads 101 pages of the table.";
    let trace = library.answer(&crate::asks::Ask {
        question: "which pages does vacuum read",
        mode: cortex_core::trace::Mode::EvidenceAnswer,
        selected: evidence,
        candidates: 2 * evidence as u32,
        prose: Some(statement),
        model: true,
        statements: &[
            (
                statement,
                &[(2, Some("reads 101 pages of the table")), (1, None)],
            ),
            (
                "Vacuum skips pages.",
                &[(3, Some("skips those that every transaction can see"))],
            ),
        ],
        ..crate::asks::Ask::default()
    });
    sample("large", &mut library, &trace)
}

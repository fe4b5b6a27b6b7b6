//! Asks in every mode over the corpus of [`crate::library`].

use cortex_core::receipt::{Arm, Nominator};
use cortex_core::trace::{
    CitationDraft, Mode, ModelCall, Origin, Policy, QuoteRule, RoundDraft, StatementDraft, Trace,
    TraceBuilder, Visible,
};

use crate::library::{Item, Library, Search};

/// Number and quote of a citation.
pub type Cite<'a> = (u32, Option<&'a str>);

/// An ask with its answer.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// The question.
    pub question: &'a str,
    /// Kind of answer.
    pub mode: Mode,
    /// Policy; its retrieval must be lexical.
    pub policy: Policy,
    /// Planned sub-questions.
    pub planned: &'a [&'a str],
    /// Rounds after the first: why, the query, and how many of the best candidates are selected.
    pub rounds: &'a [(Origin, &'a str, usize)],
    /// How many of the first round's candidates are selected.
    pub selected: usize,
    /// How many candidates a round asks for.
    pub candidates: u32,
    /// Prose of the answer.
    pub prose: Option<&'a str>,
    /// Whether a model selects, refines and answers.
    pub model: bool,
    /// Statements with their citations.
    pub statements: &'a [(&'a str, &'a [Cite<'a>])],
}

impl Default for Ask<'_> {
    fn default() -> Self {
        Self {
            question: "how fast is vacuum",
            mode: Mode::FindRelevant,
            policy: Policy::default(),
            planned: &[],
            rounds: &[],
            selected: 4,
            candidates: 12,
            prose: None,
            model: false,
            statements: &[],
        }
    }
}

impl Library {
    /// Asks a question in one round and quotes the best `quoted` candidates.
    pub fn ask(&mut self, search: &Search<'_>, quoted: usize) -> Trace {
        let mut head = self.head(search.query, search.visible);
        head.policy = search.policy();
        let mut builder = TraceBuilder::new(head).expect("the default policy");
        let receipt = self.search(search);
        let candidates = receipt.candidates.iter().map(|candidate| candidate.item);
        let selected: Vec<i64> = candidates.take(quoted).collect();
        builder
            .round(RoundDraft::new(Origin::Initial, receipt, &selected))
            .expect("its own candidates");
        for id in selected {
            let draft = self.quote(0, id);
            builder.evidence(draft).expect("a candidate");
        }
        builder.finish().expect("a trace within its rules")
    }

    /// A trace in three rounds: the question, a planned sub-question and a refinement that stalls,
    /// with quotes from two of them, one of them a part of its item.
    pub fn ask_in_rounds(&mut self) -> Trace {
        let both = [Arm::Lexical, Arm::Vector];
        let hybrid = |query| Search {
            query,
            arms: &both,
            nominator: Nominator::Exact,
            k: 4,
            ..Search::default()
        };
        let question = "is vacuum fast";
        let mut head = self.head(question, Visible::All);
        head.planned = vec![self.keep("how fast is a scan")];
        head.policy = hybrid(question).policy();
        let mut builder = TraceBuilder::new(head).expect("the default policy");
        let asked = [
            (Origin::Initial, question, 2),
            (Origin::Planned, "how fast is a scan", 1),
            (Origin::Refine, "vacuum fast", 1),
        ];
        let mut selections = Vec::new();
        for (origin, query, count) in asked {
            let receipt = self.search(&hybrid(query));
            let candidates = receipt.candidates.iter().map(|candidate| candidate.item);
            let selected: Vec<i64> = candidates.take(count).collect();
            let mut draft = RoundDraft::new(origin, receipt, &selected);
            if origin == Origin::Refine {
                draft.parent = Some(0);
                draft.gap = Some(self.keep("how much faster it became"));
            }
            builder.round(draft).expect("its own candidates");
            selections.push(selected);
        }
        let draft = self.quote(1, selections[1][0]);
        builder.evidence(draft).expect("a candidate");
        let mut draft = self.quote(0, selections[0][0]);
        draft.span.end = draft.span.start + 6;
        let item = self.items.iter().find(|item| item.id == draft.item);
        let text = item.expect("an item of this corpus").text.clone();
        draft.quote = self.keep(text.get(..6).expect("six ASCII bytes"));
        builder.evidence(draft).expect("a candidate");
        builder.finish().expect("a trace within its rules")
    }

    /// Three more items, of which one has numbers and two are copies of others.
    pub fn with_copies() -> Self {
        let mut library = Self::default();
        for (id, artifact, version, text) in [
            (
                19,
                "file:figures.md",
                104,
                "Vacuum read 15 million pages on 5 March 2024.",
            ),
            (20, "file:mirror.md", 105, "Vacuum is  fast now."),
            (
                21,
                "web:https://example.org/b",
                106,
                "How fast a scan is depends on memory.",
            ),
        ] {
            library.items.push(Item {
                id,
                artifact: artifact.into(),
                version,
                start: 0,
                text: text.into(),
                opened: version,
                closed: None,
                private: false,
            });
        }
        library
    }

    fn call(&mut self, input: &str, output: &str) -> ModelCall {
        ModelCall {
            name: "scripted".into(),
            digest: Some("sha256:0000".into()),
            options: Some(self.keep("{\"temperature\":0}")),
            input: self.keep(input),
            output: self.keep(output),
        }
    }

    /// Runs an ask and closes it.
    pub fn answer(&mut self, ask: &Ask<'_>) -> Trace {
        let mut head = self.head(ask.question, Visible::All);
        head.mode = ask.mode;
        head.policy = ask.policy.clone();
        head.planned = ask.planned.iter().map(|query| self.keep(query)).collect();
        let mut builder = TraceBuilder::new(head).expect("a policy within its caps");
        let first = [(Origin::Initial, ask.question, ask.selected)];
        let mut quoted: Vec<i64> = Vec::new();
        // A refinement names the first sub-question as its gap, where there is one.
        let gap = ask
            .planned
            .first()
            .copied()
            .unwrap_or("what is still missing");
        for (origin, query, count) in first.iter().chain(ask.rounds).copied() {
            let reranked = ask.policy.allow_semantic_rerank;
            let receipt = self.search(&Search {
                query,
                arms: match reranked {
                    true => &[Arm::Lexical, Arm::Vector],
                    false => &[Arm::Lexical],
                },
                nominator: match reranked {
                    true => Nominator::Lexical,
                    false => Nominator::None,
                },
                k: ask.candidates,
                visible: Visible::All,
            });
            let candidates = receipt.candidates.iter().map(|candidate| candidate.item);
            let selected: Vec<i64> = candidates.take(count).collect();
            let mut draft = RoundDraft::new(origin, receipt, &selected);
            if origin == Origin::Refine {
                draft.parent = Some(0);
                draft.gap = Some(self.keep(gap));
                draft.refined_by = ask.model.then(|| self.call("what is missing?", query));
            }
            draft.selected_by = ask.model.then(|| self.call("which of these?", "the best"));
            let round = builder.round(draft).expect("its own candidates");
            for id in selected {
                if !quoted.contains(&id) {
                    quoted.push(id);
                    let draft = self.quote(round, id);
                    builder.evidence(draft).expect("a candidate");
                }
            }
        }
        let prose = ask.prose.map(|prose| self.keep(prose));
        let model = ask.model && ask.mode.has_prose();
        let model = model.then(|| self.call("answer", ask.prose.unwrap_or("I cannot say.")));
        let statements = ask
            .statements
            .iter()
            .map(|(text, citations)| StatementDraft {
                text: (*text).into(),
                commitment: self.keep(text),
                citations: citations
                    .iter()
                    .map(|(n, quote)| CitationDraft {
                        n: *n,
                        quote: quote.map(|quote| (quote.to_owned(), self.keep(quote))),
                    })
                    .collect(),
            });
        let statements = statements.collect();
        builder
            .answer(prose, model, statements)
            .expect("evidence that is there");
        builder.finish().expect("a trace within its rules")
    }
}

/// A named ask.
pub type Named = (&'static str, &'static str, Ask<'static>);

/// One ask for each mode and status that the mode can have.
pub fn all() -> Vec<Named> {
    let strict = Policy {
        quote: QuoteRule::Strict,
        ..Policy::default()
    };
    let must = Policy {
        allow_abstain: false,
        ..Policy::default()
    };
    let answer = Ask {
        mode: Mode::EvidenceAnswer,
        selected: 5,
        ..Ask::default()
    };
    let compare = Ask {
        mode: Mode::CompareSources,
        ..Ask::default()
    };
    let cover = Ask {
        mode: Mode::CoverageReview,
        selected: 1,
        ..Ask::default()
    };
    let told = Ask {
        prose: Some("Vacuum is fast. It read 15 million pages."),
        model: true,
        ..answer.clone()
    };
    vec![
        (
            "answered",
            "prose by a model, each statement supported",
            Ask {
                question: "what did vacuum read on pages",
                selected: 3,
                statements: &[
                    ("Vacuum skips pages.", &[(1, Some("Vacuum skips pages"))]),
                    ("It read 15 million pages in March 2024.", &[(2, None)]),
                ],
                ..told.clone()
            },
        ),
        (
            "answered-strict",
            "quotes are demanded and given",
            Ask {
                policy: strict.clone(),
                statements: &[(
                    "Vacuum is fast.",
                    &[(1, Some("is fast")), (2, Some("fast now."))],
                )],
                ..told.clone()
            },
        ),
        (
            "partly-supported",
            "a wrong number, a misattributed and an absent quote beside what holds",
            Ask {
                question: "what did vacuum read on pages",
                statements: &[
                    ("Vacuum skips pages.", &[(1, Some("skips pages"))]),
                    ("It read 16 million pages.", &[(2, None)]),
                    ("It is lazy.", &[(2, Some("vacuum is lazy"))]),
                    ("It is quick.", &[(1, Some("vacuum is quick")), (2, None)]),
                ],
                ..told.clone()
            },
        ),
        (
            "unsupported",
            "no statement is supported, as quotes are demanded",
            Ask {
                policy: strict,
                statements: &[("Vacuum is fast.", &[(1, None)])],
                ..told.clone()
            },
        ),
        (
            "unsupported-partial",
            "no statement is supported, and the policy does not let it abstain",
            Ask {
                policy: must.clone(),
                statements: &[("Vacuum is fast.", &[])],
                ..told.clone()
            },
        ),
        (
            "answer-with-gap",
            "prose, and a sub-question that nothing answers",
            Ask {
                planned: &["zebra"],
                rounds: &[(Origin::Planned, "zebra", 1)],
                statements: &[("Vacuum is fast.", &[(1, None)])],
                ..told
            },
        ),
        ("no-model", "nobody wrote prose", answer.clone()),
        (
            "no-model-partial",
            "nobody wrote prose, and the policy does not let it abstain",
            Ask {
                policy: must,
                ..answer.clone()
            },
        ),
        (
            "abstained",
            "the model wrote nothing",
            Ask {
                model: true,
                ..answer.clone()
            },
        ),
        (
            "answer-nothing",
            "nothing to answer from",
            Ask {
                question: "zebra",
                ..answer
            },
        ),
        (
            "compared",
            "several families of sources",
            Ask {
                selected: 12,
                ..compare.clone()
            },
        ),
        (
            "compared-told",
            "several families, and prose of which a statement is not supported",
            Ask {
                prose: Some("Both say so."),
                statements: &[("Both say so.", &[])],
                ..compare.clone()
            },
        ),
        (
            "compared-copies",
            "two sources of one family",
            Ask {
                question: "vacuum is fast now",
                selected: 2,
                ..compare.clone()
            },
        ),
        (
            "compared-nothing",
            "no source",
            Ask {
                question: "zebra",
                ..compare
            },
        ),
        (
            "covered",
            "one of two sub-questions has evidence",
            Ask {
                planned: &["how fast is a scan", "zebra"],
                rounds: &[
                    (Origin::Planned, "how fast is a scan", 2),
                    (Origin::Planned, "zebra", 1),
                ],
                ..cover.clone()
            },
        ),
        (
            "covered-refined",
            "a refinement fills the gap that it names",
            Ask {
                planned: &["zebra"],
                rounds: &[
                    (Origin::Refine, "vacuum pages", 1),
                    (Origin::Planned, "zebra", 1),
                ],
                ..cover.clone()
            },
        ),
        (
            "covered-nothing",
            "no sub-question has evidence, one was not asked",
            Ask {
                planned: &["zebra", "okapi"],
                rounds: &[(Origin::Planned, "zebra", 1)],
                ..cover.clone()
            },
        ),
        (
            "covered-all",
            "every sub-question has evidence; the first round stalls and the plan goes on",
            Ask {
                planned: &["how fast is a scan", "pages"],
                rounds: &[
                    (Origin::Planned, "how fast is a scan", 2),
                    (Origin::Planned, "pages", 1),
                ],
                selected: 0,
                ..cover
            },
        ),
        (
            "reranked",
            "a lexical round in the order of vectors",
            Ask {
                policy: Policy {
                    allow_semantic_rerank: true,
                    ..Policy::default()
                },
                selected: 2,
                ..Ask::default()
            },
        ),
    ]
}

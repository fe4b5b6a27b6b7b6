//! Traces whose plan, rounds or answer break one rule each.

use cortex_core::hash::Hash;
use cortex_core::trace::{Check, Numbers, Reason, Retrieval, Span, Status};
use cortex_core::verify::Code;

use super::alone::Change;
use super::broken::Broken;

pub(super) fn broken() -> Vec<Broken> {
    let rule = |of, id, description, change: Change, step, code, at| -> Broken {
        (of, id, description, change, step, code, at)
    };
    let shape = |of, id, description, change: Change, at| {
        rule(of, id, description, change, "structure", Code::TStruct, at)
    };
    let unbound = |of, id, description, change: Change, at| {
        rule(of, id, description, change, "binding", Code::TUnbound, at)
    };
    let budget = |of, id, description, change: Change, at| {
        rule(of, id, description, change, "budget", Code::TBudget, at)
    };
    let status = |of, id, description, change: Change, at| {
        rule(of, id, description, change, "status", Code::TStatus, at)
    };
    vec![
        shape(
            "covered",
            "plan-missing",
            "coverage without sub-questions",
            |t| t.planned.clear(),
            "planned",
        ),
        shape(
            "covered",
            "plan-twice",
            "a sub-question twice",
            |t| t.planned[1] = t.planned[0],
            "planned[1]",
        ),
        shape(
            "covered",
            "plan-question",
            "the question as its own sub-question",
            |t| t.planned[0] = t.question,
            "planned[0]",
        ),
        shape(
            "covered",
            "plan-long",
            "33 sub-questions",
            |t| t.planned = (0..33).map(|n| Hash([n; 32])).collect(),
            "planned",
        ),
        shape(
            "covered",
            "prose-in-coverage",
            "prose in a mode without prose",
            |t| t.answer.prose = Some(Hash([0; 32])),
            "answer.prose",
        ),
        shape(
            "answered",
            "statement-number",
            "a statement out of place",
            |t| t.answer.statements[0].n = 2,
            "answer.statements[0].n",
        ),
        shape(
            "answered",
            "statements-without-prose",
            "statements of no prose",
            |t| t.answer.prose = None,
            "answer.statements",
        ),
        shape(
            "answered",
            "citation-twice",
            "the same citation twice",
            |t| {
                let citations = &mut t.answer.statements[0].citations;
                citations.push(citations[0].clone());
            },
            "answer.statements[0].citations[1].n",
        ),
        shape(
            "answered",
            "quote-unchecked",
            "a quote of which nothing is said",
            |t| t.answer.statements[0].citations[0].check = Check::Id,
            "answer.statements[0].citations[0].quote",
        ),
        shape(
            "answered",
            "other-without-need",
            "another place of a quote that is in its place",
            |t| t.answer.statements[0].citations[0].other = Some(1),
            "answer.statements[0].citations[0].other",
        ),
        shape(
            "answered",
            "citations-over",
            "257 citations",
            |t| {
                let citations = &mut t.answer.statements[0].citations;
                *citations = vec![citations[0].clone(); 256];
            },
            "answer.statements",
        ),
        shape(
            "answered",
            "statements-over",
            "65 statements",
            |t| t.answer.statements = vec![t.answer.statements[0].clone(); 65],
            "answer.statements",
        ),
        shape(
            "answered",
            "model-unnamed",
            "a model without a name",
            |t| t.answer.model.iter_mut().for_each(|m| m.name.clear()),
            "answer.model.name",
        ),
        shape(
            "answered",
            "model-digest",
            "a digest of 256 bytes",
            |t| {
                let model = t.rounds[0].selected_by.as_mut();
                model.expect("a model").digest = Some("x".repeat(256));
            },
            "rounds[0].selected_by.digest",
        ),
        shape(
            "compared",
            "family-of-later",
            "a family named by a later evidence",
            |t| t.evidence[0].family = 2,
            "evidence[0].family",
        ),
        shape(
            "compared",
            "family-zero",
            "evidence is numbered from 1",
            |t| t.evidence[0].family = 0,
            "evidence[0].family",
        ),
        shape(
            "rounds",
            "family-of-artifact",
            "one artifact as two families",
            |t| {
                t.evidence[0].artifact = t.evidence[1].artifact.clone();
                t.answer.sources = 1;
            },
            "evidence[1].family",
        ),
        shape(
            "compared",
            "source-count",
            "a source more than there is",
            |t| t.answer.sources += 1,
            "answer.sources",
        ),
        shape(
            "compared",
            "family-count",
            "a family more than there is",
            |t| t.answer.families += 1,
            "answer.families",
        ),
        unbound(
            "rounds",
            "refine-of-nothing",
            "a refinement without a parent",
            |t| t.rounds[2].parent = None,
            "rounds[2].parent",
        ),
        unbound(
            "rounds",
            "refine-without-gap",
            "a refinement without a gap",
            |t| t.rounds[2].gap = None,
            "rounds[2].gap",
        ),
        unbound(
            "rounds",
            "refine-of-itself",
            "a refinement of its own round",
            |t| t.rounds[2].parent = Some(2),
            "rounds[2].parent",
        ),
        unbound(
            "rounds",
            "planned-with-parent",
            "a planned round that refines",
            |t| t.rounds[1].parent = Some(0),
            "rounds[1].parent",
        ),
        unbound(
            "answered",
            "initial-refined",
            "a first round whose query a model wrote",
            |t| t.rounds[0].refined_by = t.answer.model.clone(),
            "rounds[0].refined_by",
        ),
        unbound(
            "rounds",
            "unplanned",
            "a planned round that asks something else",
            |t| t.planned[0] = Hash([0; 32]),
            "rounds[1].query",
        ),
        unbound(
            "answered",
            "citation-of-nothing",
            "a citation of evidence that there is not",
            |t| t.answer.statements[0].citations[0].n = 4,
            "answer.statements[0].citations[0].n",
        ),
        unbound(
            "answered",
            "citation-zero",
            "evidence is numbered from 1",
            |t| t.answer.statements[0].citations[0].n = 0,
            "answer.statements[0].citations[0].n",
        ),
        unbound(
            "partly-supported",
            "other-is-itself",
            "a misattributed quote that is in the cited evidence",
            |t| t.answer.statements[2].citations[0].other = Some(2),
            "answer.statements[2].citations[0].other",
        ),
        unbound(
            "partly-supported",
            "other-of-nothing",
            "a misattributed quote that is in evidence that there is not",
            |t| t.answer.statements[2].citations[0].other = Some(9),
            "answer.statements[2].citations[0].other",
        ),
        unbound(
            "answered",
            "citation-span",
            "a citation without quote at another span",
            |t| t.answer.statements[1].citations[0].span.end -= 1,
            "answer.statements[1].citations[0].span",
        ),
        unbound(
            "answered",
            "citation-empty",
            "a quote of nothing",
            |t| t.answer.statements[0].citations[0].span = Span { start: 3, end: 3 },
            "answer.statements[0].citations[0].span",
        ),
        budget(
            "lexical",
            "other-retrieval",
            "a lexical round of a hybrid policy",
            |t| t.policy.retrieval = Retrieval::Hybrid,
            "rounds[0].receipt.arms",
        ),
        budget(
            "reranked",
            "rerank-forbidden",
            "a rerank that the policy does not allow",
            |t| t.policy.allow_semantic_rerank = false,
            "rounds[0].receipt.nominator",
        ),
        status(
            "partly-supported",
            "supported-high",
            "supported although a number is wrong",
            |t| t.answer.statements[1].supported = true,
            "answer.statements[1].supported",
        ),
        status(
            "answered",
            "supported-low",
            "not supported although all holds",
            |t| t.answer.statements[0].supported = false,
            "answer.statements[0].supported",
        ),
        status(
            "answered-strict",
            "strict-without-quotes",
            "a citation without the quote that the policy demands",
            |t| {
                let statement = &mut t.answer.statements[0];
                for citation in &mut statement.citations {
                    citation.quote = None;
                    citation.check = Check::Id;
                }
                for (citation, n) in statement.citations.iter_mut().zip([0usize, 1]) {
                    citation.span = t.evidence[n].span;
                }
            },
            "answer.statements[0].supported",
        ),
        status(
            "partly-supported",
            "numbers-changed",
            "numbers that claim to be fine, and support that does not follow",
            |t| t.answer.statements[1].numbers = Numbers::Supported,
            "answer.statements[1].supported",
        ),
        status(
            "partly-supported",
            "answered-in-part",
            "answered although a statement is not supported",
            |t| {
                t.answer.status = Status::Answered;
                t.answer.reason = None;
            },
            "answer.status",
        ),
        status(
            "covered",
            "gap-hidden",
            "a gap that is not admitted",
            |t| {
                t.answer.gaps.clear();
                t.answer.status = Status::Answered;
                t.answer.reason = None;
            },
            "answer.gaps",
        ),
        status(
            "covered",
            "gap-round",
            "a gap of another round",
            |t| t.answer.gaps[0].round = None,
            "answer.gaps",
        ),
        status(
            "no-model",
            "other-reason",
            "the reason of another case",
            |t| t.answer.reason = Some(Reason::ModelAbstained),
            "answer.reason",
        ),
        status(
            "no-model",
            "partial-abstention",
            "in part although it may abstain",
            |t| t.answer.status = Status::Partial,
            "answer.status",
        ),
        status(
            "compared-copies",
            "one-family-answered",
            "one family that claims to be a comparison",
            |t| {
                t.answer.status = Status::Answered;
                t.answer.reason = None;
            },
            "answer.status",
        ),
    ]
}

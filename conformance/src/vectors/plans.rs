//! What happens to the stores of [`super::store`], and what a verification must say.

use cortex_core::hash::Hash;
use cortex_core::receipt::Cut;
use cortex_core::trace::{Check, Numbers, Reason, Status, Trace};
use cortex_core::verify::{Code, Level, Outcome};

use super::alone::Expect;
use crate::library::Library;

type Change = fn(&mut Library, &Trace);

pub(super) struct Plan {
    pub of: &'static str,
    pub id: &'static str,
    pub description: &'static str,
    pub question: Option<&'static str>,
    pub exhaustive: bool,
    pub change: Change,
    /// What a forger makes of the trace before recomputing its roots.
    pub forge: fn(&mut Trace),
    pub expect: Expect,
}

pub(super) fn plans() -> Vec<Plan> {
    let plan = |of, id, description, change, expect| Plan {
        of,
        id,
        description,
        question: None,
        exhaustive: false,
        change,
        forge: |_| {},
        expect,
    };
    let forged = |of, id, description, forge, expect| Plan {
        forge,
        ..plan(of, id, description, |_, _| {}, expect)
    };
    let passed = |level| Expect::passed(Outcome::Verified, level);
    let asked = |id, description, question, change: Change, expect| Plan {
        question: Some(question),
        ..plan("lexical", id, description, change, expect)
    };
    let failed = |level, step, code, at| Expect::failed(Some(level), step, code, at);
    let evidence = |at| failed(Level::L0, "evidence", Code::TEvidence, at);
    let answer = |at| failed(Level::L0, "answer", Code::TAnswer, at);
    let replay = |at| failed(Level::L2, "replay", Code::TReplay, at);
    let redacted = |level| Expect::passed(Outcome::Redacted, level);
    vec![
        plan(
            "lexical",
            "lexical",
            "as recorded",
            |_, _| {},
            passed(Level::L4),
        ),
        plan(
            "vector",
            "vector",
            "as recorded",
            |_, _| {},
            passed(Level::L4),
        ),
        plan(
            "nominated",
            "nominated",
            "as recorded",
            |_, _| {},
            passed(Level::L4Nominated),
        ),
        plan(
            "masked",
            "masked",
            "as recorded",
            |_, _| {},
            passed(Level::L4),
        ),
        plan(
            "nothing",
            "nothing",
            "as recorded",
            |_, _| {},
            passed(Level::L4),
        ),
        plan(
            "rounds",
            "rounds",
            "as recorded",
            |_, _| {},
            passed(Level::L4),
        ),
        Plan {
            exhaustive: true,
            ..plan(
                "nominated",
                "exhaustive",
                "a scan where an index nominated",
                |_, _| {},
                passed(Level::L4Nominated),
            )
        },
        Plan {
            exhaustive: true,
            ..plan(
                "lexical",
                "exhaustive-lexical",
                "a scan where no index nominated",
                |_, _| {},
                passed(Level::L4),
            )
        },
        plan(
            "reranked",
            "reranked",
            "as recorded",
            |_, _| {},
            passed(Level::L4),
        ),
        plan(
            "answered",
            "answered",
            "as recorded",
            |_, _| {},
            passed(Level::L4),
        ),
        plan(
            "partly-supported",
            "partly-supported",
            "as recorded",
            |_, _| {},
            passed(Level::L4),
        ),
        plan(
            "compared-copies",
            "compared-copies",
            "as recorded",
            |_, _| {},
            passed(Level::L4),
        ),
        plan(
            "answered",
            "erased-statement",
            "the text of a statement was erased",
            |library, trace| {
                let text = trace.answer.statements[0].text;
                library.behaviour.erased_texts.insert(text);
            },
            redacted(Level::L0),
        ),
        plan(
            "answered",
            "erased-cited-quote",
            "the quote of a citation was erased",
            |library, trace| {
                let quote = trace.answer.statements[0].citations[0].quote;
                library.behaviour.erased_texts.extend(quote);
            },
            redacted(Level::L0),
        ),
        plan(
            "answered",
            "erased-model-input",
            "what the model was sent was erased",
            |library, trace| {
                let call = trace.answer.model.as_ref().expect("a model");
                library.behaviour.erased_texts.insert(call.input);
            },
            redacted(Level::L4),
        ),
        plan(
            "answered",
            "changed-model-output",
            "what the model said was changed",
            |library, trace| {
                let call = trace.answer.model.as_ref().expect("a model");
                let text = library.texts.get_mut(&call.output);
                text.expect("the output").text.push('.');
            },
            failed(Level::L0, "answer", Code::TEvidence, "answer.prose"),
        ),
        plan(
            "answered",
            "lost-statement",
            "the text of a statement is gone without a record of erasure",
            |library, trace| {
                let text = trace.answer.statements[1].text;
                library.behaviour.lost_texts.insert(text);
            },
            failed(
                Level::L0,
                "answer",
                Code::TEvidence,
                "answer.statements[1].text",
            ),
        ),
        forged(
            "partly-supported",
            "forged-check",
            "an absent quote that claims to be supported",
            |trace| {
                let statement = &mut trace.answer.statements[3];
                statement.citations[0].check = Check::Supported;
                statement.supported = true;
            },
            answer("answer.statements[3].citations[0].check"),
        ),
        forged(
            "partly-supported",
            "forged-misattribution",
            "a misattributed quote that claims to be absent",
            |trace| {
                let citation = &mut trace.answer.statements[2].citations[0];
                citation.check = Check::Absent;
                citation.other = None;
            },
            answer("answer.statements[2].citations[0].check"),
        ),
        forged(
            "partly-supported",
            "forged-other",
            "a misattributed quote that claims to be elsewhere",
            |trace| trace.answer.statements[2].citations[0].other = Some(3),
            answer("answer.statements[2].citations[0].other"),
        ),
        forged(
            "partly-supported",
            "forged-numbers",
            "a wrong number that claims to be supported",
            |trace| {
                trace.answer.statements[1].numbers = Numbers::Supported;
                trace.answer.statements[1].supported = true;
            },
            answer("answer.statements[1].numbers"),
        ),
        forged(
            "answered",
            "forged-quote-span",
            "a quote that claims to stand elsewhere in its item",
            |trace| trace.answer.statements[0].citations[0].span.end += 1,
            answer("answer.statements[0].citations[0].span"),
        ),
        forged(
            "compared-copies",
            "forged-family",
            "a copy that claims to be independent",
            |trace| {
                trace.evidence[1].family = 2;
                trace.answer.families = 2;
                trace.answer.status = Status::Answered;
                trace.answer.reason = None;
            },
            failed(Level::L0, "families", Code::TEvidence, "evidence[1].family"),
        ),
        forged(
            "compared",
            "forged-one-family",
            "independent sources that claim to be one family",
            |trace| {
                for item in &mut trace.evidence {
                    item.family = 1;
                }
                trace.answer.families = 1;
                trace.answer.status = Status::Partial;
                trace.answer.reason = Some(Reason::OneFamily);
            },
            failed(Level::L0, "families", Code::TEvidence, "evidence[3].family"),
        ),
        plan(
            "lexical",
            "later",
            "after later changes",
            |library, _| {
                library.seq = 108;
                library
                    .items
                    .iter_mut()
                    .for_each(|item| item.closed = Some(108));
            },
            passed(Level::L4),
        ),
        asked(
            "question",
            "the right question",
            "how fast is vacuum",
            |_, _| {},
            passed(Level::L4),
        ),
        asked(
            "question-other",
            "another question",
            "how slow is vacuum",
            |_, _| {},
            Expect::failed(None, "question", Code::TQuestion, "question"),
        ),
        asked(
            "question-erased",
            "the question was erased",
            "how fast is vacuum",
            |library, trace| {
                library.behaviour.erased_texts.insert(trace.question);
            },
            redacted(Level::L2),
        ),
        plan(
            "lexical",
            "changed-item",
            "a letter of a quoted chunk changed",
            |library, trace| {
                change_text(library, trace.evidence[0].item, |text| {
                    text.replace('a', "o")
                })
            },
            evidence("evidence[0].leaf"),
        ),
        plan(
            "lexical",
            "moved-item",
            "a quoted chunk moved to another version",
            |library, trace| {
                let id = trace.evidence[0].item;
                let items = library.items.iter_mut();
                items
                    .filter(|item| item.id == id)
                    .for_each(|item| item.version += 1);
            },
            evidence("evidence[0].leaf"),
        ),
        plan(
            "lexical",
            "changed-quote",
            "a letter of a quote's stored text changed",
            |library, trace| {
                let quote = library.texts.get_mut(&trace.evidence[0].quote);
                quote.expect("the quote's text").text.push('.');
            },
            evidence("evidence[0].quote"),
        ),
        plan(
            "lexical",
            "lost-item",
            "a quoted chunk is gone without a record of erasure",
            |library, trace| {
                library.behaviour.lost_items.insert(trace.evidence[1].item);
            },
            evidence("evidence[1]"),
        ),
        plan(
            "lexical",
            "lost-quote",
            "a quote's text is gone without a record of erasure",
            |library, trace| {
                library.behaviour.lost_texts.insert(trace.evidence[1].quote);
            },
            evidence("evidence[1].quote"),
        ),
        plan(
            "lexical",
            "erased-item",
            "a quoted chunk was erased",
            |library, trace| {
                library
                    .behaviour
                    .erased_items
                    .insert(trace.evidence[0].item);
            },
            redacted(Level::L0),
        ),
        plan(
            "lexical",
            "erased-quote",
            "a quote's text was erased",
            |library, trace| {
                library
                    .behaviour
                    .erased_texts
                    .insert(trace.evidence[0].quote);
            },
            redacted(Level::L0),
        ),
        plan(
            "lexical",
            "erased-query",
            "the query was erased",
            |library, trace| {
                library.behaviour.erased_texts.insert(trace.rounds[0].query);
            },
            redacted(Level::L2),
        ),
        plan(
            "lexical",
            "changed-candidate",
            "a candidate that is not quoted changed, but not its words",
            |library, trace| {
                let id = trace.rounds[0].receipt.candidates[2].item;
                change_text(library, id, |text| text.to_uppercase());
            },
            replay("rounds[0].receipt.candidates[2].leaf"),
        ),
        plan(
            "lexical",
            "better-item",
            "the store holds an item that should have been found",
            |library, _| {
                let mut item = library.items[0].clone();
                (item.id, item.artifact) = (5, "file:new.md".into());
                library.items.push(item);
            },
            replay("rounds[0].receipt.stats.items"),
        ),
        plan(
            "masked",
            "fewer-masked",
            "one of the withheld candidates does not match any more",
            |library, _| change_text(library, 18, |text| text.replace("fast", "slow")),
            replay("rounds[0].receipt.candidates[2].score"),
        ),
        forged(
            "lexical",
            "forged-content",
            "evidence that names another content",
            |trace| trace.evidence[0].content = Hash([0; 32]),
            evidence("evidence[0].content"),
        ),
        forged(
            "lexical",
            "forged-span",
            "a quote one byte off",
            |trace| trace.evidence[0].span.start += 1,
            evidence("evidence[0].quote"),
        ),
        forged(
            "lexical",
            "forged-span-outside",
            "a span that reaches beyond its chunk",
            |trace| trace.evidence[0].span.end += 1,
            evidence("evidence[0].span"),
        ),
        forged(
            "lexical",
            "forged-excerpt",
            "a quote of more characters than allowed, though not of more bytes than they could have",
            |trace| trace.policy.excerpt_chars = 18,
            evidence("evidence[0].quote"),
        ),
        forged(
            "lexical",
            "forged-state",
            "the whole trace moved to an earlier state",
            |trace| {
                trace.state.seq = 105;
                trace.rounds[0].receipt.state.seq = 105;
            },
            replay("rounds[0].receipt.stats.items"),
        ),
        forged(
            "lexical",
            "forged-omission",
            "the last candidate left out",
            |trace| trace.rounds[0].receipt.candidates.truncate(2),
            replay("rounds[0].receipt.candidates"),
        ),
        forged(
            "masked",
            "forged-withholding",
            "a visible candidate left out and not counted as withheld",
            |trace| {
                let receipt = &mut trace.rounds[0].receipt;
                receipt.candidates.remove(2);
                receipt.cut = Cut::Cap;
            },
            failed(
                Level::L2,
                "visibility",
                Code::TVisibility,
                "rounds[0].receipt.masked",
            ),
        ),
        plan(
            "lexical",
            "pruned",
            "the history was pruned",
            |library, _| library.behaviour.pruned_below = 107,
            Expect::passed(Outcome::Pruned, Level::L2),
        ),
        plan(
            "lexical",
            "fault",
            "the store cannot be read",
            |library, _| library.behaviour.broken = true,
            failed(Level::L0, "evidence", Code::TFault, "evidence[0].quote"),
        ),
    ]
}

fn change_text(library: &mut Library, id: i64, change: impl Fn(&str) -> String) {
    for item in library.items.iter_mut().filter(|item| item.id == id) {
        item.text = change(&item.text);
    }
}

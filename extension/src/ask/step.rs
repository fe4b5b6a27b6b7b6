//! The steps of an ask: run a round, select, refine, answer.

use cortex_core::excerpt::excerpt;
use cortex_core::hash::Target;
use cortex_core::trace::answer::{ItemText, Judge};
use cortex_core::trace::{Origin, QuoteRule, Retrieval, Span};
use serde_json::{Value, json};

use super::given::{Call, Cited, RawCitation, Stated, Told};
use super::state::{Ask, AskRound, Shown, Waiting};
use crate::error::Fault;
use crate::rights::Namespace;
use crate::serve::{self, Pinned, Request};
use crate::verify::stored_items;

/// What a message starts with where a model, or its host, named something that it was not shown.
const UNBOUND: &str = "CORTEX_MODEL_UNBOUND";

/// A row of a round, as the caller gets it.
pub struct Seen {
    pub shown: Shown,
    pub excerpt: String,
}

/// The next query: why it is asked, and what is known of it.
fn next(ask: &Ask) -> Result<(Origin, String, Option<Waiting>), Fault> {
    if let Some(round) = ask.unselected() {
        return Err(
            Fault::state(format!("round {round} waits for its selection"))
                .hint("Call cortex_ask_select, with no ids if there is nothing to select."),
        );
    }
    if ask.rounds_left() == 0 {
        return Err(Fault::state(format!(
            "all {} rounds of the policy were run",
            ask.policy.max_rounds
        ))
        .hint("Answer and close."));
    }
    if ask.rounds.is_empty() {
        return Ok((Origin::Initial, ask.question.clone(), None));
    }
    if let Some(waiting) = ask.waiting.first() {
        return Ok((Origin::Refine, waiting.query.clone(), Some(waiting.clone())));
    }
    match ask.planned_left().first() {
        Some(query) => Ok((Origin::Planned, query.clone(), None)),
        None => {
            Err(Fault::state("no query waits for a round".into())
                .hint("Refine, or answer and close."))
        }
    }
}

/// Runs the next round at the state of the ask. Call it as the caller; `components` is the query's vector.
pub fn round(
    ask: &mut Ask,
    namespace: &Namespace,
    components: Option<Vec<i16>>,
) -> Result<Vec<Seen>, Fault> {
    let (origin, query, waiting) = next(ask)?;
    let components = components
        .or_else(|| {
            waiting
                .as_ref()
                .and_then(|waiting| waiting.components.clone())
        })
        .or_else(|| (origin == Origin::Initial).then(|| ask.components.clone())?);
    let rerank = ask.policy.allow_semantic_rerank
        && ask.policy.retrieval == Retrieval::Lexical
        && components.is_some()
        && ask.space.is_some();
    let mode = match ask.policy.retrieval {
        Retrieval::Lexical if rerank => "hybrid",
        Retrieval::Lexical => "lexical",
        Retrieval::Vector => "vector",
        Retrieval::Hybrid => "hybrid",
    };
    let pinned = Pinned {
        state: &ask.state,
        space: ask.space,
        components: components.as_deref(),
        rerank,
    };
    let request = Request {
        query: &query,
        embedding: None,
        namespace: &namespace.name,
        mode,
        target: Target::Chunk,
    };
    let most = ask.policy.max_candidates as usize;
    let served = serve::serve_pinned(&request, Some(&pinned), |shown| shown.len() >= most)?;
    let seen: Vec<Seen> = served
        .items
        .iter()
        .map(|item| {
            let range = excerpt(&item.body, &query, ask.policy.excerpt_chars as usize);
            Seen {
                shown: Shown {
                    item: item.ranked.item,
                    artifact_id: item.artifact_id.clone(),
                    version_id: item.version_id,
                    title: item.title.clone(),
                    origin: item.origin.clone(),
                    dated: item.dated.clone(),
                    score: item.ranked.score,
                    start: item.start_byte + range.start as i32,
                    end: item.start_byte + range.end as i32,
                },
                excerpt: item.body[range].to_owned(),
            }
        })
        .collect();
    if waiting.is_some() {
        ask.waiting.remove(0);
    }
    ask.rounds.push(AskRound {
        origin,
        query,
        parent: waiting.as_ref().map(|waiting| waiting.parent),
        gap: waiting.as_ref().map(|waiting| waiting.gap.clone()),
        refined_by: waiting.and_then(|waiting| waiting.model),
        receipt: served.receipt,
        shown: seen.iter().map(|seen| seen.shown.clone()).collect(),
        selected: None,
        selected_by: None,
    });
    Ok(seen)
}

/// Records what was selected of the last round; without ids, by the rule without a model: the best first, as many as
/// this round's share of the budget, which the queries that wait get as well.
pub fn select(
    ask: &mut Ask,
    round: i32,
    ids: Option<Vec<i64>>,
    model: Option<Call>,
) -> Result<Value, Fault> {
    let Some(last) = ask.unselected() else {
        return Err(Fault::state("no round waits for a selection".into())
            .hint("Call cortex_ask_round first."));
    };
    if round != last as i32 {
        return Err(Fault::argument(format!(
            "round {round} does not wait for a selection, round {last} does"
        )));
    }
    let before = ask.selected();
    let most = ask.policy.max_evidence as usize;
    let shown: Vec<i64> = ask.rounds[last]
        .shown
        .iter()
        .map(|shown| shown.item)
        .collect();
    let selected = match ids {
        Some(ids) => {
            if let Some(stranger) = ids.iter().find(|id| !shown.contains(id)) {
                return Err(Fault::argument(format!(
                    "{UNBOUND}: item {stranger} was not shown in round {last}"
                ))
                .hint("Select ids that this round returned."));
            }
            shown
                .into_iter()
                .filter(|item| ids.contains(item))
                .collect()
        }
        None => {
            let free = most.saturating_sub(before.len());
            let after = ask.queries_waiting().min(ask.rounds_left());
            let mut share = free.div_ceil(after + 1);
            let taken = shown.into_iter().filter(|item| {
                let known = before.contains(item);
                let takes = known || share > 0;
                share -= usize::from(takes && !known);
                takes
            });
            taken.collect::<Vec<i64>>()
        }
    };
    let added = selected
        .iter()
        .filter(|item| !before.contains(item))
        .count();
    if before.len() + added > most {
        return Err(Fault::argument(format!(
            "this selection makes {} pieces of evidence, the policy allows {most}",
            before.len() + added
        ))
        .hint("Select fewer, or ask with a higher max_evidence."));
    }
    ask.rounds[last].selected = Some(selected);
    ask.rounds[last].selected_by = model;
    let evidence = ask.selected().len();
    Ok(json!({
        "round": last,
        "added": added,
        "stalled": added == 0,
        "evidence": evidence,
        "evidence_left": most - evidence,
        "rounds_left": ask.rounds_left(),
        "waiting": ask.queries_waiting(),
        "next": next_query(ask),
        "may_refine": !ask.stalled() && ask.queries_waiting() < ask.rounds_left(),
    }))
}

/// The words of the query that the next round runs, for a host that embeds them.
fn next_query(ask: &Ask) -> Option<&str> {
    if ask.rounds_left() == 0 {
        return None;
    }
    let waiting = ask.waiting.first().map(|waiting| waiting.query.as_str());
    waiting.or_else(|| ask.planned_left().first().map(String::as_str))
}

/// Queues a refinement.
pub fn refine(ask: &mut Ask, waiting: Waiting) -> Result<Value, Fault> {
    if ask.rounds.is_empty() || ask.unselected().is_some() {
        return Err(Fault::state("a refinement comes after a selection".into())
            .hint("Run a round and select from it first."));
    }
    if ask.stalled() {
        return Err(
            Fault::state("a round added nothing, so refinement stops here".into())
                .hint("Planned sub-questions go on; otherwise answer and close."),
        );
    }
    if ask.rounds_left() <= ask.waiting.len() {
        return Err(Fault::state(format!(
            "no round is left of the policy's {}",
            ask.policy.max_rounds
        ))
        .hint("Answer and close."));
    }
    ask.waiting.push(waiting);
    Ok(json!({"waiting": ask.queries_waiting(), "rounds_left": ask.rounds_left()}))
}

/// Numbers of the evidence by item: what the answer cites.
pub fn numbered(ask: &Ask) -> Vec<(usize, &Shown)> {
    let mut all: Vec<(usize, &Shown)> = Vec::new();
    for (i, round) in ask.rounds.iter().enumerate() {
        for shown in &round.shown {
            let selected = round
                .selected
                .iter()
                .flatten()
                .any(|item| *item == shown.item);
            if selected && all.iter().all(|(_, other)| other.item != shown.item) {
                all.push((i, shown));
            }
        }
    }
    all
}

/// Takes an answer, checks it, and tells how each statement fares. The answer may be given anew until the ask is closed.
pub fn answer(
    ask: &mut Ask,
    namespace: &Namespace,
    prose: Option<String>,
    texts: Vec<String>,
    citations: Vec<RawCitation>,
    model: Option<Call>,
) -> Result<Value, Fault> {
    if !ask.mode.has_prose() {
        return Err(
            Fault::argument(format!("mode {} has no prose", ask.mode.as_str()))
                .hint("Close the ask, or ask in mode evidence_answer or compare_sources."),
        );
    }
    if ask.rounds.is_empty() || ask.unselected().is_some() {
        return Err(Fault::state("an answer comes after a selection".into())
            .hint("Run a round and select from it first."));
    }
    if prose.is_none() && !texts.is_empty() {
        return Err(Fault::argument(
            "statements are parts of a prose, and there is none".into(),
        ));
    }
    let evidence: Vec<i64> = numbered(ask).iter().map(|(_, shown)| shown.item).collect();
    let mut statements: Vec<Stated> = texts
        .into_iter()
        .map(|text| Stated {
            text,
            citations: Vec::new(),
        })
        .collect();
    for (at, raw) in citations.into_iter().enumerate() {
        let unbound = |what: String| {
            Fault::argument(format!("{UNBOUND}: citation {} names {what}", at + 1))
                .hint("Cite what was shown and selected.")
        };
        let n = match (raw.item, raw.n) {
            (Some(item), _) => {
                let place = evidence.iter().position(|known| *known == item);
                place.ok_or_else(|| unbound(format!("item {item}, which was not selected")))? + 1
            }
            (None, n) => {
                let n = n.unwrap_or(0);
                let known = usize::try_from(n)
                    .ok()
                    .filter(|n| (1..=evidence.len()).contains(n));
                known.ok_or_else(|| {
                    unbound(format!(
                        "evidence {n}, of which there are {}",
                        evidence.len()
                    ))
                })?
            }
        };
        let Some(statement) = statements.get_mut(raw.statement) else {
            continue;
        };
        let cited = Cited {
            n: n as u32,
            quote: raw.quote,
        };
        // The same citation twice says nothing more.
        if !statement.citations.contains(&cited) {
            statement.citations.push(cited);
        }
    }
    ask.told = Some(Told {
        prose,
        model,
        statements,
    });
    let checked = check(ask, namespace)?;
    let supported = checked
        .iter()
        .filter(|statement| statement["supported"] == true);
    Ok(json!({"supported": supported.count(), "statements": checked}))
}

/// The checks of the statements as JSON, by the rules that the trace is closed with.
pub fn check(ask: &Ask, namespace: &Namespace) -> Result<Vec<Value>, Fault> {
    let Some(told) = &ask.told else {
        return Ok(Vec::new());
    };
    let evidence = numbered(ask);
    let ids: Vec<i64> = evidence.iter().map(|(_, shown)| shown.item).collect();
    let stored = stored_items(namespace, Target::Chunk, &ids)?;
    let mut items = Vec::with_capacity(evidence.len());
    for (_, shown) in &evidence {
        let kept = stored.get(&shown.item).ok_or_else(|| gone(shown.item))?;
        items.push(ItemText {
            span: span(shown),
            start: kept.item.start,
            end: kept.item.end,
            text: &kept.item.text,
        });
    }
    let judge = Judge::new(items);
    let told = told.statements.iter().zip(1u32..);
    told.map(|(stated, n)| {
        let cited: Vec<(u32, Option<&str>)> = stated
            .citations
            .iter()
            .map(|cited| (cited.n, cited.quote.as_deref()))
            .collect();
        let judged = judge
            .statement(&stated.text, &cited, ask.policy.quote)
            .ok_or_else(|| Fault::internal("a citation lost its evidence".into()))?;
        Ok(statement_json(
            n,
            stated,
            &judged,
            ask.policy.quote,
            &evidence,
        ))
    })
    .collect()
}

fn statement_json(
    n: u32,
    stated: &Stated,
    judged: &cortex_core::trace::answer::Judged,
    rule: QuoteRule,
    evidence: &[(usize, &Shown)],
) -> Value {
    let citations: Vec<Value> = stated
        .citations
        .iter()
        .zip(&judged.citations)
        .map(|(cited, (span, check, other))| {
            json!({
                "n": cited.n,
                "item": evidence.get(cited.n as usize - 1).map(|(_, shown)| shown.item),
                "quote": cited.quote,
                "check": check.as_str(),
                "other": other,
                "start_byte": span.start,
                "end_byte": span.end,
            })
        })
        .collect();
    json!({
        "n": n,
        "text": stated.text,
        "citations": citations,
        "numbers": judged.numbers.as_str(),
        "supported": judged.supported(rule),
    })
}

/// Span of an excerpt in its source text.
pub fn span(shown: &Shown) -> Span {
    Span {
        start: shown.start.max(0) as u64,
        end: shown.end.max(0) as u64,
    }
}

/// The error of an item that was shown and is gone.
pub fn gone(item: i64) -> Fault {
    Fault::state(format!("item {item} was shown and is stored no more"))
        .hint("Abandon this ask and open another.")
}

//! A small corpus with a retrieval of its own: enough to make real traces, replay them, and play
//! everything that can happen to a store (erasure, pruning, loss, tampering, faults).
//!
//! Its scores are deliberately simple. What is under test here is the record, not the ranking. It names the first
//! ranker and fusion, as the released vectors do.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use cortex_core::fusion::Fusion;
use cortex_core::hash::{
    Hash, Key, Leaf, Salt, SaltedText, Target, commit, content_hash, equality_digest,
};
use cortex_core::lexical::Ranker;
use cortex_core::receipt::{
    Arm, Candidate, Cut, Nominator, Params, Receipt, ReceiptVersion, Space, State, Stats,
};
use cortex_core::trace::{EvidenceDraft, Head, Mode, Policy, Principal, Retrieval, Span, Visible};
use cortex_core::verify::{Evidence, Lookup, Replay, Replayed, StoredItem};
use cortex_core::{analyzer, chunker, vector};

/// Letters whose counts are the dimensions of this corpus's embedding.
const LETTERS: [char; 4] = ['a', 'e', 'n', 's'];

/// A chunk of the corpus.
#[derive(Clone, Debug)]
pub struct Item {
    /// Id.
    pub id: i64,
    /// Name of its source.
    pub artifact: String,
    /// Id of its source version.
    pub version: i64,
    /// First byte of its span in the source text.
    pub start: u64,
    /// Its text.
    pub text: String,
    /// Change that opened its version.
    pub opened: i64,
    /// Change that closed it.
    pub closed: Option<i64>,
    /// Whether only some callers may see it.
    pub private: bool,
}

/// What the store does when it is asked for something.
#[derive(Clone, Debug, Default)]
pub struct Behaviour {
    /// Items whose erasure is on record.
    pub erased_items: BTreeSet<i64>,
    /// Items that are gone without a record.
    pub lost_items: BTreeSet<i64>,
    /// Texts whose erasure is on record.
    pub erased_texts: BTreeSet<Hash>,
    /// Texts that are gone without a record.
    pub lost_texts: BTreeSet<Hash>,
    /// History before this position is gone.
    pub pruned_below: i64,
    /// Every call fails.
    pub broken: bool,
    /// A replay stops where the receipt stops, instead of where its parameters say.
    pub short: bool,
}

/// The corpus and the texts of its traces.
#[derive(Clone, Debug)]
pub struct Library {
    /// The chunks.
    pub items: Vec<Item>,
    /// Texts by commitment.
    pub texts: BTreeMap<Hash, SaltedText>,
    /// Position of the last change.
    pub seq: i64,
    /// How it answers.
    pub behaviour: Behaviour,
}

/// How a retrieval is to be run.
#[derive(Clone, Debug)]
pub struct Search<'a> {
    /// The query.
    pub query: &'a str,
    /// Arms to run.
    pub arms: &'a [Arm],
    /// Who proposes the candidates of the vector arm.
    pub nominator: Nominator,
    /// Candidates asked for.
    pub k: u32,
    /// Whether private items are withheld.
    pub visible: Visible,
}

/// What a retrieval depends on besides the query.
struct How<'a> {
    params: &'a Params,
    seq: i64,
    nominees: Option<&'a [i64]>,
    /// The vector arm scores only what the lexical arm found.
    rerank: bool,
}

impl Default for Search<'_> {
    fn default() -> Self {
        Self {
            query: "how fast is vacuum",
            arms: &[Arm::Lexical],
            nominator: Nominator::None,
            k: 5,
            visible: Visible::All,
        }
    }
}

impl Search<'_> {
    /// The default policy with the retrieval that this is.
    pub fn policy(&self) -> Policy {
        let (retrieval, rerank) = match self.arms {
            _ if self.nominator == Nominator::Lexical => (Retrieval::Lexical, true),
            [Arm::Lexical] => (Retrieval::Lexical, false),
            [Arm::Vector] => (Retrieval::Vector, false),
            _ => (Retrieval::Hybrid, false),
        };
        Policy {
            retrieval,
            allow_semantic_rerank: rerank,
            ..Policy::default()
        }
    }
}

impl Default for Library {
    /// Eight chunks of five sources; one was replaced by another, two are private.
    fn default() -> Self {
        let item = |id, artifact: &str, version, start, text: &str| Item {
            id,
            artifact: artifact.into(),
            version,
            start,
            text: text.into(),
            opened: version,
            closed: None,
            private: false,
        };
        let mut items = vec![
            item(11, r#"row:note:{"id":1}"#, 101, 0, "Vacuum is fast now."),
            item(
                12,
                r#"row:note:{"id":1}"#,
                101,
                20,
                "Vacuum skips pages; vacuum is lazy.",
            ),
            item(
                13,
                r#"row:note:{"id":2}"#,
                102,
                0,
                "Indexes stay small after vacuum.",
            ),
            item(
                14,
                r#"row:note:{"id":3}"#,
                103,
                0,
                "Größere Seiten – vacuum läuft länger.",
            ),
            item(
                15,
                "file:guide.md",
                104,
                7,
                "How fast a scan is depends on memory.",
            ),
            item(16, "web:https://example.org/a", 105, 0, "Nothing of note."),
            item(
                17,
                r#"row:note:{"id":4}"#,
                106,
                0,
                "A fast secret of vacuum.",
            ),
            item(
                18,
                r#"row:note:{"id":4}"#,
                106,
                25,
                "Another secret: is it fast?",
            ),
        ];
        items[2].closed = Some(107);
        items[6].private = true;
        items[7].private = true;
        Self {
            items,
            texts: BTreeMap::new(),
            seq: 106,
            behaviour: Behaviour::default(),
        }
    }
}

impl Library {
    /// Key of a source: its name, repeated to 32 bytes.
    pub fn source_key(artifact: &str) -> Key {
        let mut key = [0; 32];
        for (byte, letter) in key.iter_mut().zip(artifact.bytes().cycle()) {
            *byte = letter;
        }
        key
    }

    /// Content hash of a source version: of all its chunks' texts.
    pub fn content(&self, artifact: &str, version: i64) -> Hash {
        let of_version = |item: &&Item| item.artifact == artifact && item.version == version;
        let items = self.items.iter().filter(of_version);
        let texts: Vec<Option<&str>> = items.map(|item| Some(item.text.as_str())).collect();
        content_hash(&Self::source_key(artifact), &texts)
    }

    /// Equality digest of a source version, over the same texts.
    pub fn equality(&self, artifact: &str, version: i64) -> Hash {
        let of_version = |item: &&Item| item.artifact == artifact && item.version == version;
        let items = self.items.iter().filter(of_version);
        let texts: Vec<Option<&str>> = items.map(|item| Some(item.text.as_str())).collect();
        equality_digest(&[7; 32], &texts)
    }

    fn leaf(&self, item: &Item) -> Hash {
        let leaf = Leaf {
            kind: Target::Chunk,
            item: item.id,
            artifact: &item.artifact,
            version: item.version,
            content: self.content(&item.artifact, item.version),
            start: item.start,
            end: item.start + item.text.len() as u64,
        };
        let key = Self::source_key(&item.artifact);
        leaf.hash(&key, &item.text).expect("small numbers")
    }

    /// Keeps a text under a salt made from it and gives its commitment.
    pub fn keep(&mut self, text: &str) -> Hash {
        let salt = Salt::derived(&[7; 32], text);
        let text = SaltedText {
            salt,
            text: text.into(),
        };
        let commitment = commit(&salt, &text.text);
        self.texts.insert(commitment, text);
        commitment
    }

    fn space() -> Space {
        Space {
            id: 1,
            digest: "letters".into(),
            dims: 4,
            quantiser: vector::NAME.into(),
        }
    }

    /// The quantised vector of a text as receipts write it.
    fn digits(text: &str) -> String {
        let components = Self::vector(text).map(|component| {
            let [low, high] = component.to_le_bytes();
            format!("{low:02x}{high:02x}")
        });
        components.concat()
    }

    fn words(text: &str) -> Vec<String> {
        let words = text.split(|letter: char| !letter.is_alphanumeric());
        let words = words.filter(|word| !word.is_empty());
        words.map(str::to_lowercase).collect()
    }

    fn vector(text: &str) -> [i16; 4] {
        LETTERS.map(|letter| text.matches(letter).count() as i16)
    }

    fn visible_at(&self, seq: i64) -> Vec<&Item> {
        let open =
            |item: &&Item| item.opened <= seq && item.closed.is_none_or(|closed| closed > seq);
        self.items.iter().filter(open).collect()
    }

    /// Items that match in one arm, best first, with their scores.
    fn arm(&self, arm: Arm, query: &str, how: &How<'_>) -> Vec<(i64, i64)> {
        let wanted = Self::words(query);
        let target = Self::vector(query);
        let params = how.params;
        let score = |item: &Item| match arm {
            Arm::Lexical => {
                let words = Self::words(&item.text);
                let hits = words.iter().filter(|word| wanted.contains(word)).count();
                let gain = 1_000_000 * hits as i64 * (1000 + i64::from(params.k1_milli));
                gain / (words.len() as i64 * (1000 + i64::from(params.b_milli)))
            }
            Arm::Vector => {
                let pairs = Self::vector(&item.text).into_iter().zip(target);
                pairs.map(|(a, b)| i64::from(a) * i64::from(b)).sum()
            }
        };
        let proposed = |item: &&Item| match (arm, how.nominees) {
            (Arm::Vector, Some(nominees)) => nominees.contains(&item.id),
            _ => true,
        };
        let items = self.visible_at(how.seq).into_iter().filter(proposed);
        let scored = items.map(|item| (item.id, score(item)));
        let mut scored: Vec<_> = scored.filter(|(_, score)| *score > 0).collect();
        scored.sort_by_key(|(id, score)| (Reverse(*score), *id));
        scored.truncate(params.depth as usize);
        scored
    }

    fn stats(&self, seq: i64) -> Stats {
        let items = self.visible_at(seq);
        Stats {
            items: items.len() as u64,
            term_total: items
                .iter()
                .map(|item| Self::words(&item.text).len() as u64)
                .sum(),
        }
    }

    /// All candidates in order, before anything is cut or withheld.
    fn retrieve(&self, query: &str, arms: &[Arm], how: &How<'_>) -> Vec<Candidate> {
        let of_arm = |arm| match arms.contains(&arm) {
            true => self.arm(arm, query, how),
            false => Vec::new(),
        };
        let (lexical, mut vector) = (of_arm(Arm::Lexical), of_arm(Arm::Vector));
        if how.rerank {
            vector.retain(|(item, _)| lexical.iter().any(|(found, _)| found == item));
        }
        let place = |list: &[(i64, i64)], id| {
            let at = list.iter().position(|(item, _)| *item == id)?;
            Some((at as u32 + 1, list[at].1))
        };
        let mut candidates: Vec<Candidate> = Vec::new();
        for item in self.visible_at(how.seq) {
            let lexical = place(&lexical, item.id);
            let vector = place(&vector, item.id);
            let fused = [lexical, vector].into_iter().flatten();
            let offset = i64::from(how.params.rrf_k);
            let share = |(rank, _): (u32, i64)| 1_000_000_000 / (offset + i64::from(rank));
            let score = fused.map(share).sum();
            if score == 0 {
                continue;
            }
            candidates.push(Candidate {
                item: item.id,
                artifact: item.artifact.clone(),
                version: item.version,
                leaf: self.leaf(item),
                score,
                lexical_rank: lexical.map(|(rank, _)| rank),
                vector_rank: vector.map(|(rank, _)| rank),
                lexical: lexical.map_or(0, |(_, score)| score),
                vector: vector.map_or(0, |(_, score)| score),
            });
        }
        candidates.sort_by_key(|candidate| (Reverse(candidate.score), candidate.item));
        candidates
    }

    /// Runs a retrieval at the present state and gives its receipt.
    pub fn search(&mut self, search: &Search<'_>) -> Receipt {
        let query = self.keep(search.query);
        let params = Params {
            k: search.k,
            depth: 50,
            k1_milli: 1200,
            b_milli: 750,
            rrf_k: 60,
        };
        let mut how = How {
            params: &params,
            seq: self.seq,
            nominees: None,
            rerank: search.nominator == Nominator::Lexical,
        };
        let nominees: Vec<i64> = match search.nominator {
            // An index that misses something: every second item.
            Nominator::Approximate => {
                let all = self.arm(Arm::Vector, search.query, &how);
                all.iter().step_by(2).map(|(id, _)| *id).collect()
            }
            Nominator::None | Nominator::Exact | Nominator::Lexical => Vec::new(),
        };
        how.nominees = (search.nominator == Nominator::Approximate).then_some(&nominees[..]);
        let all = self.retrieve(search.query, search.arms, &how);
        let total_matched = all.len() as u64;
        let considered: Vec<_> = all.into_iter().take(search.k as usize).collect();
        let cut = match total_matched > considered.len() as u64 {
            true => Cut::Cap,
            false => Cut::None,
        };
        let before = considered.len();
        let private = |id| self.items.iter().any(|item| item.id == id && item.private);
        let withhold = search.visible == Visible::Checked;
        let candidates: Vec<_> = considered
            .into_iter()
            .filter(|candidate| !(withhold && private(candidate.item)))
            .collect();
        let by_vector = search.arms.contains(&Arm::Vector);
        Receipt {
            v: ReceiptVersion::V1,
            namespace: "default".into(),
            target: Target::Chunk,
            query,
            analyzer: analyzer::NAME.into(),
            ranker: Ranker::V1.name().into(),
            fusion: match search.nominator {
                Nominator::Lexical => Fusion::Rerank.name().into(),
                _ => Fusion::V1.name().into(),
            },
            arms: search.arms.to_vec(),
            space: by_vector.then(Self::space),
            query_vector: by_vector.then(|| Self::digits(search.query)),
            params,
            state: State {
                seq: self.seq,
                extra: vec![],
            },
            stats: self.stats(self.seq),
            nominator: search.nominator,
            nominees,
            barred: Vec::new(),
            total_matched,
            cut,
            masked: (before - candidates.len()) as u32,
            candidates,
        }
    }

    /// The head of a trace that asks a question now.
    pub fn head(&mut self, question: &str, visible: Visible) -> Head {
        Head {
            engine: "cortex/0.1.0".into(),
            analyzer: analyzer::NAME.into(),
            ranker: Ranker::V1.name().into(),
            chunker: chunker::NAME.into(),
            origin: "5f0c2f9e-7a55-4a53-9d5c-0d6a3e1b7c42".into(),
            namespace: "default".into(),
            principal: Principal {
                role: "reader".into(),
                visible,
            },
            state: State {
                seq: self.seq,
                extra: vec![],
            },
            question: self.keep(question),
            planned: Vec::new(),
            mode: Mode::FindRelevant,
            policy: Policy::default(),
        }
    }

    /// A whole item of a round as evidence.
    pub fn quote(&mut self, round: u32, id: i64) -> EvidenceDraft {
        let item = self.items.iter().find(|item| item.id == id);
        let item = item.expect("an item of this corpus").clone();
        EvidenceDraft {
            round,
            item: id,
            content: self.content(&item.artifact, item.version),
            equality: Some(self.equality(&item.artifact, item.version)),
            start: item.start,
            end: item.start + item.text.len() as u64,
            span: Span {
                start: item.start,
                end: item.start + item.text.len() as u64,
            },
            quote: self.keep(&item.text),
            text: item.text,
        }
    }

    fn answering(&self) -> Result<(), String> {
        match self.behaviour.broken {
            true => Err("the store cannot be read".into()),
            false => Ok(()),
        }
    }
}

impl Evidence for Library {
    fn text(&mut self, commitment: &Hash) -> Result<Lookup<SaltedText>, String> {
        self.answering()?;
        if self.behaviour.erased_texts.contains(commitment) {
            return Ok(Lookup::Erased);
        }
        let found = self.texts.get(commitment);
        let found = found.filter(|_| !self.behaviour.lost_texts.contains(commitment));
        Ok(found.cloned().map_or(Lookup::Missing, Lookup::Found))
    }

    fn item(&mut self, target: Target, id: i64) -> Result<Lookup<StoredItem>, String> {
        self.answering()?;
        if self.behaviour.erased_items.contains(&id) {
            return Ok(Lookup::Erased);
        }
        let found = self.items.iter().find(|item| item.id == id);
        let lost = self.behaviour.lost_items.contains(&id) || target != Target::Chunk;
        let Some(item) = found.filter(|_| !lost) else {
            return Ok(Lookup::Missing);
        };
        Ok(Lookup::Found(StoredItem {
            text: item.text.clone(),
            source_key: Self::source_key(&item.artifact),
            artifact: item.artifact.clone(),
            version: item.version,
            content: self.content(&item.artifact, item.version),
            equality: Some(self.equality(&item.artifact, item.version)),
            start: item.start,
            end: item.start + item.text.len() as u64,
        }))
    }

    fn replay(&mut self, receipt: &Receipt, query: &str) -> Result<Replay, String> {
        let approximate = receipt.nominator == Nominator::Approximate;
        self.run(receipt, query, approximate.then_some(&receipt.nominees))
    }

    fn scan(&mut self, receipt: &Receipt, query: &str) -> Result<Replay, String> {
        self.run(receipt, query, None)
    }
}

impl Library {
    fn run(
        &self,
        receipt: &Receipt,
        query: &str,
        nominees: Option<&Vec<i64>>,
    ) -> Result<Replay, String> {
        self.answering()?;
        if receipt.state.seq < self.behaviour.pruned_below {
            return Ok(Replay::Pruned);
        }
        if !self.behaviour.erased_items.is_empty() {
            return Ok(Replay::Erased);
        }
        if receipt
            .space
            .as_ref()
            .is_some_and(|space| *space != Self::space())
        {
            return Err("no such embedding space".into());
        }
        // This corpus embeds by itself, so the recorded vector must be that of the query.
        if receipt
            .query_vector
            .as_ref()
            .is_some_and(|digits| *digits != Self::digits(query))
        {
            return Err("the query vector is not that of the query".into());
        }
        let how = How {
            params: &receipt.params,
            seq: receipt.state.seq,
            nominees: nominees.map(Vec::as_slice),
            rerank: receipt.nominator == Nominator::Lexical,
        };
        let all = self.retrieve(query, &receipt.arms, &how);
        let most = match self.behaviour.short {
            true => receipt.considered(),
            false => receipt.params.k as usize,
        };
        Ok(Replay::Done(Replayed {
            total_matched: all.len() as u64,
            stats: self.stats(receipt.state.seq),
            candidates: all.into_iter().take(most).collect(),
        }))
    }
}

//! Cutting a text into chunks for retrieval, `cortex-chunk/1`.
//!
//! Sentences are packed in order until a chunk reaches the target size; paragraphs are kept together and
//! headings stay with what follows where the limits allow. The chunks partition the text: their texts joined
//! are the text, with the white space between sentences at the end of the chunk before. No cut lies inside
//! a grapheme cluster (so none inside CRLF), except that clusters beyond 256 bytes, which no language
//! has, are cut between characters.

mod long;

pub(crate) use long::cut_points;

use unicode_segmentation::GraphemeCursor;

use crate::sentence::{self, BlockKind, Sentence};
use crate::tokens;

/// Name of this chunker as recorded with chunks.
pub const NAME: &str = "cortex-chunk/1";

/// Sizes of chunks in estimated tokens ([`tokens::NAME`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkOptions {
    /// A chunk that has reached this size takes no further sentence. 0 counts as 1.
    pub target_tokens: u32,
    /// No chunk exceeds this size, unless one grapheme cluster does. Less than the target counts as the target.
    pub max_tokens: u32,
}

impl Default for ChunkOptions {
    /// The default embedder reads at most 256 word pieces; 220 leaves room for a title and for the error of the estimate.
    fn default() -> Self {
        Self {
            target_tokens: 160,
            max_tokens: 220,
        }
    }
}

/// A chunk as a byte span of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Offset of the first byte.
    pub start: usize,
    /// Offset after the last byte.
    pub end: usize,
    /// Estimated tokens of the chunk without the white space around it.
    pub tokens: u32,
}

/// Cuts `text` into chunks. Text without any visible character gives none.
pub fn chunk(text: &str, options: &ChunkOptions) -> Vec<Chunk> {
    let target = options.target_tokens.max(1);
    let max = options.max_tokens.max(target);
    let mut packer = Packer {
        target,
        max,
        open: Vec::new(),
        open_tokens: 0,
        closed: Vec::new(),
    };
    for atom in atoms(text, max) {
        packer.add(atom);
    }
    packer.finish(text)
}

/// The smallest piece that packing moves: a sentence, or a part of one that is too long for a chunk.
#[derive(Clone, Copy)]
struct Atom {
    start: usize,
    /// Tokens up to the start of the next atom, white space included.
    full_tokens: u32,
    /// Tokens without trailing white space, which costs nothing at the end of a chunk.
    tokens: u32,
    /// Tokens of the paragraph or item that begins here; 0 if none does.
    block_tokens: u32,
    is_heading: bool,
}

fn atoms(text: &str, max: u32) -> Vec<Atom> {
    let mut sentences: Vec<Sentence> = sentence::layout(text);
    if let Some(first) = sentences.first_mut() {
        first.from = 0;
    }
    // A sentence that begins with a mark that combines with the blank before it stays with the one before.
    sentences.retain(|sentence| is_grapheme_boundary(text, sentence.from));
    let ends: Vec<usize> = sentences
        .iter()
        .skip(1)
        .map(|next| next.from)
        .chain([text.len()])
        .collect();

    let mut atoms: Vec<Atom> = Vec::new();
    let mut block: Option<usize> = None;
    for (sentence, &end) in sentences.iter().zip(&ends) {
        let first_of_sentence = atoms.len();
        push_sentence(&mut atoms, text, sentence, end, max);
        if sentence.opens_block {
            block = Some(first_of_sentence);
        }
        if let Some(block) = block {
            let added: u32 = atoms[first_of_sentence..]
                .iter()
                .map(|atom| atom.full_tokens)
                .fold(0, u32::saturating_add);
            atoms[block].block_tokens = atoms[block].block_tokens.saturating_add(added);
        }
    }
    atoms
}

fn push_sentence(atoms: &mut Vec<Atom>, text: &str, sentence: &Sentence, end: usize, max: u32) {
    let is_heading = sentence.kind == BlockKind::Heading;
    let piece = &text[sentence.from..end];
    let starts = cut_points(piece, max);
    let piece_ends = starts.iter().skip(1).copied().chain([piece.len()]);
    for (&from, to) in starts.iter().zip(piece_ends) {
        let part = &piece[from..to];
        // A cluster can begin with a blank that carries a mark; beside other blanks it costs one more.
        let next_is_blank = text[sentence.from + to..].starts_with(char::is_whitespace);
        atoms.push(Atom {
            start: sentence.from + from,
            full_tokens: tokens::estimate(part).saturating_add(u32::from(next_is_blank)),
            tokens: tokens::estimate(part.trim_end()),
            block_tokens: 0,
            is_heading,
        });
    }
}

/// Whether a chunk may begin at `at`, which follows white space or the end of a sentence.
fn is_grapheme_boundary(text: &str, at: usize) -> bool {
    // Both errors of the cursor ask for text outside the string given, and the string is the whole text.
    GraphemeCursor::new(at, text.len(), true)
        .is_boundary(text, 0)
        .unwrap_or(true)
}

struct Packer {
    target: u32,
    max: u32,
    open: Vec<Atom>,
    /// Tokens of the open chunk with all white space.
    open_tokens: u32,
    /// Starts of the finished chunks.
    closed: Vec<usize>,
}

impl Packer {
    fn add(&mut self, atom: Atom) {
        if self.must_close_before(&atom) {
            self.close();
        }
        // Headings moved over by `close` can leave no room for a large sentence.
        if !self.open.is_empty() && self.open_tokens.saturating_add(atom.tokens) > self.max {
            self.close_all();
        }
        self.open_tokens = self.open_tokens.saturating_add(atom.full_tokens);
        self.open.push(atom);
    }

    fn must_close_before(&self, atom: &Atom) -> bool {
        if self.open.is_empty() {
            return false;
        }
        let half_full = self.open_tokens >= self.target / 2;
        let splits_block = atom.block_tokens > 0
            && atom.block_tokens <= self.max
            && self.open_tokens.saturating_add(atom.block_tokens) > self.max;
        self.open_tokens.saturating_add(atom.tokens) > self.max
            || self.open_tokens >= self.target
            || (half_full && (splits_block || atom.is_heading))
    }

    /// Ends the open chunk; headings at its end go to the next.
    fn close(&mut self) {
        let body = self
            .open
            .iter()
            .rposition(|atom| !atom.is_heading)
            .map_or(self.open.len(), |last| last + 1);
        let headings = self.open.split_off(body);
        self.close_all();
        self.open_tokens = headings.iter().map(|atom| atom.full_tokens).sum();
        self.open = headings;
    }

    fn close_all(&mut self) {
        self.closed.extend(self.open.first().map(|atom| atom.start));
        self.open.clear();
        self.open_tokens = 0;
    }

    fn finish(mut self, text: &str) -> Vec<Chunk> {
        self.close_all();
        let ends = self.closed.iter().skip(1).copied().chain([text.len()]);
        let mut chunks: Vec<Chunk> = self
            .closed
            .iter()
            .zip(ends)
            .map(|(&start, end)| measured(text, start, end))
            .collect();
        // A small remainder says little alone.
        if let [.., before, last] = chunks.as_slice()
            && last.tokens < self.target / 4
        {
            let joined = measured(text, before.start, last.end);
            if joined.tokens <= self.max {
                chunks.truncate(chunks.len() - 2);
                chunks.push(joined);
            }
        }
        chunks
    }
}

fn measured(text: &str, start: usize, end: usize) -> Chunk {
    Chunk {
        start,
        end,
        tokens: tokens::estimate(text[start..end].trim()),
    }
}

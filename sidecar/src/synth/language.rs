//! Claims by a language model: the whole source, in as many requests as its context demands.

use std::collections::VecDeque;

use cortex_core::chunker::{self, ChunkOptions};
use cortex_core::tokens;

use super::reply::{self, Read};
use super::{Built, Claim, Fault, Settings, Source, Usage, prompt};
use crate::error::{Failure, Kind, Outcome};
use crate::model::{LanguageModel, Message, Request};

/// Of the room for a prompt, the share that our estimate may fill: for some languages the model counts up to
/// five tokens where the estimate counts three.
const FILLED: (u32, u32) = (3, 5);
/// Of the longest reply, the share that the parts may have. Claims repeat names and citations, so they are
/// longer than what they say.
const REPEATED: (u32, u32) = (3, 5);
/// Smallest part of a source that is still worth a request, in estimated tokens.
const SMALLEST_PART: u32 = 64;
/// How often one build may halve what it asks about. A model that never ends would be asked for ever.
const MOST_HALVINGS: u32 = 8;
/// How much of a reply that cannot be read is shown to the model again, in characters.
const SHOWN_AGAIN: usize = 1_000;
/// What the second try may cost beside the parts, in estimated tokens.
const SECOND_TRY: u32 = 400;
/// The second try is made less likely to be the first over again.
const SECOND_TEMPERATURE: f32 = 0.3;

/// A span of one chunk that fits into a request.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    chunk_id: i64,
    body: &'a str,
    tokens: u32,
}

pub(super) async fn build(
    source: &Source,
    settings: &Settings,
    model: &dyn LanguageModel,
) -> Result<Built, Fault> {
    let mut work = Work {
        source,
        system: prompt::system(settings),
        model,
        halvings: 0,
        usage: Usage {
            model: model.name().to_owned(),
            tokenizer: "server".to_owned(),
            ..Usage::default()
        },
    };
    match work.run().await {
        Ok(claims) => Ok(Built {
            claims,
            usage: work.usage,
        }),
        Err(failure) => Err(Fault {
            failure,
            usage: work.usage,
        }),
    }
}

struct Work<'a> {
    source: &'a Source,
    system: Message,
    model: &'a dyn LanguageModel,
    halvings: u32,
    usage: Usage,
}

impl<'a> Work<'a> {
    async fn run(&mut self) -> Outcome<Vec<Claim>> {
        let room = self.room()?;
        let mut groups: VecDeque<Vec<Part<'a>>> = groups(parts(self.source, room), room).into();
        let mut claims = Vec::new();
        while let Some(group) = groups.pop_front() {
            let halves = halves(&group).filter(|_| self.halvings < MOST_HALVINGS);
            let (read, cut) = self.ask(&group, halves.is_some()).await?;
            match halves {
                // The reply had no room for all of it. Half the text leaves more for each claim.
                Some((first, second)) if cut => {
                    self.halvings += 1;
                    groups.push_front(second);
                    groups.push_front(first);
                }
                _ => self.take(read, &group, &mut claims),
            }
        }
        Ok(claims)
    }

    /// Estimated tokens that the parts of one request may have.
    fn room(&self) -> Outcome<u32> {
        let (prompt, reply) = (
            self.model
                .context_tokens()
                .saturating_sub(self.model.reply_tokens()),
            self.model.reply_tokens(),
        );
        let frame = prompt::parts(self.source, std::iter::empty());
        let beside =
            tokens::estimate(&self.system.content) + tokens::estimate(&frame.content) + SECOND_TRY;
        let room = share(prompt, FILLED)
            .saturating_sub(beside)
            .min(share(reply, REPEATED));
        if room < SMALLEST_PART {
            return Err(Failure::new(
                Kind::Usage,
                "context_too_small",
                format!(
                    "a context of {} tokens has no room for a part of the source beside the instructions",
                    self.model.context_tokens()
                ),
            )
            .hint("raise language_model.context_tokens, or shorten synthesis.instruction"));
        }
        Ok(room)
    }

    /// Asks for the claims of one group, twice if the first reply cannot be read. Tells whether the reply
    /// was ended by its length; what could be read of it matters only if less cannot be asked about.
    async fn ask(&mut self, group: &[Part<'a>], may_halve: bool) -> Outcome<(Read, bool)> {
        let parts = prompt::parts(self.source, group.iter().map(|part| part.body));
        let mut request = Request {
            messages: vec![self.system.clone(), parts],
            schema: Some(prompt::schema()),
            reply_tokens: self.model.reply_tokens(),
            temperature: 0.0,
        };
        let first = self.send(&request).await?;
        let why = match reply::read(&first.text) {
            Ok(read) => return Ok((read, first.cut)),
            Err(_) if first.cut && may_halve => return Ok((Read::default(), true)),
            Err(why) => why,
        };
        let shown: String = first.text.chars().take(SHOWN_AGAIN).collect();
        request.messages.extend(prompt::again(&shown, &why));
        request.temperature = SECOND_TEMPERATURE;
        let second = self.send(&request).await?;
        match reply::read(&second.text) {
            Ok(read) => Ok((read, second.cut)),
            Err(_) if second.cut && may_halve => Ok((Read::default(), true)),
            Err(why) => Err(Failure::new(
                Kind::System,
                "model_unreadable",
                format!(
                    "the model {:?} was asked twice and its answer cannot be used: {why}",
                    self.model.name()
                ),
            )
            .hint("the raw text stays readable; a larger model, or a server that holds it to a JSON schema, does better")),
        }
    }

    async fn send(&mut self, request: &Request) -> Outcome<crate::model::Reply> {
        self.usage.calls += 1;
        let reply = self.model.ask(request).await?;
        let (read, written) = match (reply.prompt_tokens, reply.completion_tokens) {
            (Some(read), Some(written)) => (read, written),
            (read, written) => {
                self.usage.tokenizer = tokens::NAME.to_owned();
                (
                    read.unwrap_or_else(|| request.estimate()),
                    written.unwrap_or_else(|| tokens::estimate(&reply.text)),
                )
            }
        };
        self.usage.prompt_tokens += u64::from(read);
        self.usage.completion_tokens += u64::from(written);
        Ok(reply)
    }

    /// Turns numbers of parts into ids of chunks.
    fn take(&mut self, read: Read, group: &[Part<'a>], claims: &mut Vec<Claim>) {
        self.usage.rejected += read.rejected as u64;
        self.usage.salvaged += u64::from(read.salvaged);
        claims.extend(read.claims.into_iter().map(|said| Claim {
            claim: said.claim,
            chunks: cited(&said.chunks, group),
        }));
    }
}

/// A chunk that does not exist: ids begin at 1.
const NO_CHUNK: i64 = 0;

/// The chunks of the cited parts; of all parts shown, where none is cited. A claim whose citations all lead
/// nowhere cites a chunk that does not exist, so that the database drops and counts it with the others.
fn cited(numbers: &[u64], group: &[Part<'_>]) -> Vec<i64> {
    let mut ids: Vec<i64> = if numbers.is_empty() {
        group.iter().map(|part| part.chunk_id).collect()
    } else {
        numbers
            .iter()
            .filter_map(|&number| usize::try_from(number).ok()?.checked_sub(1))
            .filter_map(|index| group.get(index))
            .map(|part| part.chunk_id)
            .collect()
    };
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() {
        ids.push(NO_CHUNK);
    }
    ids
}

/// The chunks, those that are too long for one request in several spans.
fn parts(source: &Source, room: u32) -> Vec<Part<'_>> {
    source
        .chunks
        .iter()
        .map(|chunk| Part {
            chunk_id: chunk.chunk_id,
            body: &chunk.body,
            tokens: tokens::estimate(&chunk.body),
        })
        .flat_map(|part| {
            if part.tokens <= room {
                vec![part]
            } else {
                split(part, room)
            }
        })
        .collect()
}

/// A part in spans of at most so many tokens, cut between sentences where there are any.
fn split(part: Part<'_>, most: u32) -> Vec<Part<'_>> {
    let options = ChunkOptions {
        target_tokens: most,
        max_tokens: most,
    };
    chunker::chunk(part.body, &options)
        .into_iter()
        .map(|span| &part.body[span.start..span.end])
        .map(|body| Part {
            body,
            tokens: tokens::estimate(body),
            ..part
        })
        .collect()
}

/// As many neighbours together as there is room for.
fn groups(parts: Vec<Part<'_>>, room: u32) -> Vec<Vec<Part<'_>>> {
    let mut groups: Vec<Vec<Part<'_>>> = Vec::new();
    let mut filled = 0;
    for part in parts {
        match groups.last_mut() {
            Some(group) if filled + part.tokens <= room => {
                filled += part.tokens;
                group.push(part);
            }
            _ => {
                filled = part.tokens;
                groups.push(vec![part]);
            }
        }
    }
    groups
}

/// The two halves of a group: of its parts, or of its only part's text. None if that is too short.
fn halves<'a>(group: &[Part<'a>]) -> Option<(Vec<Part<'a>>, Vec<Part<'a>>)> {
    let (first, second) = match group {
        [part] if part.tokens < 2 * SMALLEST_PART => return None,
        [part] => {
            let spans = split(*part, part.tokens / 2 + 1);
            let middle = spans.len() / 2;
            (spans[..middle].to_vec(), spans[middle..].to_vec())
        }
        parts => {
            let (first, second) = parts.split_at(parts.len() / 2);
            (first.to_vec(), second.to_vec())
        }
    };
    (!first.is_empty() && !second.is_empty()).then_some((first, second))
}

fn share(of: u32, (part, whole): (u32, u32)) -> u32 {
    of / whole * part
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synth::Chunk;

    fn source(bodies: &[&str]) -> Source {
        let chunks = bodies
            .iter()
            .zip(1..)
            .map(|(body, id)| Chunk {
                chunk_id: id * 10,
                version_id: 1,
                ordinal: id,
                body: (*body).to_owned(),
            })
            .collect();
        Source {
            chunks,
            ..Source::default()
        }
    }

    #[test]
    fn every_word_of_a_long_source_is_asked_about_and_each_request_fits() {
        let sentence = "The kestrel hovered above the field and saw a vole. ";
        let (short, long) = (sentence.repeat(3), sentence.repeat(60));
        let source = source(&[&short, &long, &short, &short]);
        let room = 200;
        let groups = groups(parts(&source, room), room);
        assert!(groups.len() >= 4, "{}", groups.len());
        for group in &groups {
            assert!(group.iter().map(|part| part.tokens).sum::<u32>() <= room);
        }
        let words = |text: &str| text.split_whitespace().count();
        let asked: usize = groups.iter().flatten().map(|part| words(part.body)).sum();
        assert_eq!(asked, 69 * words(sentence));
        // The last two short chunks fit into one request, and keep their own ids.
        let last: Vec<i64> = groups
            .last()
            .unwrap()
            .iter()
            .map(|part| part.chunk_id)
            .collect();
        assert!(last.ends_with(&[30, 40]), "{last:?}");
    }

    #[test]
    fn citations_lead_to_chunks_that_were_shown_or_to_none() {
        let source = source(&["one", "two", "three"]);
        let group = parts(&source, 100);
        for (numbers, expected) in [
            (vec![2], vec![20]),
            (vec![3, 1, 3], vec![10, 30]),
            (vec![], vec![10, 20, 30]),
            (vec![1, 9], vec![10]),
            (vec![9], vec![NO_CHUNK]),
            (vec![0], vec![NO_CHUNK]),
        ] {
            assert_eq!(cited(&numbers, &group), expected, "{numbers:?}");
        }
    }
}

//! Takes a model's thoughts out of what it streams. Rule `cortex-think/1`.
//!
//! What stands between `<think>` and `</think>` (also `thinking`, `thought`, `reasoning`, in any case) is not shown
//! and never holds a tool call, closed or not. An end without a beginning, as some templates leave it, makes all
//! before it thoughts: if that was streamed already, [`Delta::reset`] asks for it to be taken back. Only the first
//! such end does, and none after a proper beginning. Tags may be cut anywhere by the stream: what could still become
//! one is held back, at most [`HELD_MAX_BYTES`].

const TAGS: [(&str, bool); 8] = [
    ("<think>", true),
    ("</think>", false),
    ("<thinking>", true),
    ("</thinking>", false),
    ("<thought>", true),
    ("</thought>", false),
    ("<reasoning>", true),
    ("</reasoning>", false),
];

/// The most bytes that are held back.
pub const HELD_MAX_BYTES: usize = 11;

/// What to do with what the user has seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Delta {
    /// Take back everything shown so far, then show `text`.
    pub reset: bool,
    /// Text to show.
    pub text: String,
}

/// The state of a stream.
#[derive(Debug, Clone, Default)]
pub struct Stripper {
    depth: usize,
    held: String,
    /// A beginning or an end has been seen.
    seen: bool,
    /// Blanks between thoughts and answer are left out.
    trim: bool,
}

impl Stripper {
    /// Takes the next piece of the stream.
    pub fn push(&mut self, piece: &str) -> Delta {
        let mut delta = Delta::default();
        for c in piece.chars() {
            self.held.push(c);
            self.settle(&mut delta);
        }
        delta
    }

    /// Ends the stream: what was held back is no tag.
    pub fn finish(&mut self) -> Delta {
        let mut delta = Delta::default();
        let held = std::mem::take(&mut self.held);
        self.show(&held, &mut delta);
        delta
    }

    /// Whether the stream stands within thoughts.
    pub fn is_thinking(&self) -> bool {
        self.depth > 0
    }

    fn settle(&mut self, delta: &mut Delta) {
        let whole = TAGS
            .iter()
            .find(|(tag, _)| self.held.eq_ignore_ascii_case(tag));
        if let Some((_, opens)) = whole {
            self.held.clear();
            self.tag(*opens, delta);
            return;
        }
        let could_be = |held: &str| {
            TAGS.iter().any(|(tag, _)| {
                tag.get(..held.len())
                    .is_some_and(|start| start.eq_ignore_ascii_case(held))
            })
        };
        // What can no longer become a tag goes out up to the next place where one could begin.
        while !self.held.is_empty() && !could_be(&self.held) {
            let first = self.held.chars().next().map_or(1, char::len_utf8);
            let next = self.held[first..]
                .find('<')
                .map_or(self.held.len(), |at| first + at);
            let out: String = self.held.drain(..next).collect();
            self.show(&out, delta);
        }
    }

    fn tag(&mut self, opens: bool, delta: &mut Delta) {
        if opens {
            self.depth += 1;
        } else if self.depth > 0 {
            self.depth -= 1;
            self.trim = true;
        } else if !self.seen {
            delta.reset = true;
            delta.text.clear();
            self.trim = true;
        }
        self.seen = true;
    }

    fn show(&mut self, text: &str, delta: &mut Delta) {
        if self.depth > 0 {
            return;
        }
        let text = if self.trim { text.trim_start() } else { text };
        self.trim &= text.is_empty();
        delta.text.push_str(text);
    }
}

/// A whole text without thoughts.
pub fn strip(text: &str) -> String {
    let mut stripper = Stripper::default();
    let mut shown = stripper.push(text).text;
    shown.push_str(&stripper.finish().text);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn thoughts_are_taken_out() {
        for (text, left) in [
            ("<think>a</think>\n\nb", "b"),
            ("a <THINK>b</Think> c", "a c"),
            ("a</think>b", "b"),
            ("<think>a<think>b</think>c</think>d", "d"),
            ("<think>a", ""),
            ("a <thin b", "a <thin b"),
            ("a <think", "a <think"),
            ("<<think>a</think>b", "<b"),
            ("x < y and <b>", "x < y and <b>"),
            ("<think>a</think>b</think>c", "bc"),
            ("a</think>b</think>c", "bc"),
            ("<reasoning>a</reasoning>b", "b"),
        ] {
            assert_eq!(strip(text), left, "{text}");
        }
    }

    proptest! {
        #[test]
        fn cutting_the_stream_changes_nothing(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "<think>", "</think>", "<", "/", "think", ">", " ", "a", "\u{e9}", "<thinking>", "</thinking>", "\n",
            ]), 0..20),
            cut in 1usize..7,
        ) {
            let text: String = pieces.concat();
            let chars: Vec<char> = text.chars().collect();
            let mut stripper = Stripper::default();
            let mut shown = String::new();
            for piece in chars.chunks(cut) {
                let delta = stripper.push(&piece.iter().collect::<String>());
                if delta.reset {
                    shown.clear();
                }
                shown.push_str(&delta.text);
                prop_assert!(stripper.held.len() <= HELD_MAX_BYTES);
            }
            shown.push_str(&stripper.finish().text);
            prop_assert_eq!(shown, strip(&text));
        }

        #[test]
        fn text_without_tags_stays(text in "[^<]{0,60}") {
            prop_assert_eq!(strip(&text), text);
        }
    }
}

//! Figures in an answer after a failed call. Rule `cortex-figures/1`.
//!
//! A model that could not compute something likes to state the result all the same. So when a call of the turn
//! failed, each number of the answer must occur in what tools returned (errors too), what the person wrote, or the
//! evidence, by the reading of numbers of [`crate::ground`]. If one does not, the model is asked once to answer again;
//! if it still does not, the answer is shown with a flag that names the figures.
//!
//! Numbers in words are not seen. Ordinals of list items at the start of a line (`1.`, `2)`) are no figures.

use crate::ground;

use super::message::{Message, Origin};

/// Name of the rule, as recorded where it decided.
pub const NAME: &str = "cortex-figures/1";

/// The longest answer that is looked at, in bytes; figures beyond are not.
pub const ANSWER_MAX_BYTES: usize = 64 * 1_024;

/// The most figures that are named.
pub const MAX_NAMED: usize = 10;

/// What becomes of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing speaks against it.
    Clean,
    /// Ask the model once more, with [`note`].
    Repair(Vec<String>),
    /// Show it with [`flag`].
    Flag(Vec<String>),
}

/// Judges an answer. `failed`: a call of this turn failed. `repaired`: the model has been asked again already.
/// `conversation` are the messages of the turn and before it: what the model and our own notes say supports nothing.
pub fn judge(answer: &str, failed: bool, repaired: bool, conversation: &[Message]) -> Verdict {
    if !failed {
        return Verdict::Clean;
    }
    let support: Vec<&str> = conversation
        .iter()
        .filter(|message| {
            matches!(
                message.origin(),
                Origin::User | Origin::Tool | Origin::Retrieved
            )
        })
        .map(Message::text)
        .collect();
    let figures = unsupported(answer, &support);
    match (figures.is_empty(), repaired) {
        (true, _) => Verdict::Clean,
        (false, false) => Verdict::Repair(figures),
        (false, true) => Verdict::Flag(figures),
    }
}

/// The figures of `answer` that none of `support` holds, as written, each once.
pub fn unsupported(answer: &str, support: &[&str]) -> Vec<String> {
    let mut end = answer.len().min(ANSWER_MAX_BYTES);
    while !answer.is_char_boundary(end) {
        end -= 1;
    }
    let mut figures = ground::missing_numbers(&without_ordinals(&answer[..end]), support);
    figures.truncate(MAX_NAMED);
    figures
}

/// The note to the model.
pub fn note(figures: &[String]) -> String {
    format!(
        "A call failed, and your answer states {}, which no tool result, source or message of the user holds. \
         Answer again without stating what the failed call should have found; say what failed.",
        figures.join(", ")
    )
}

/// The line shown with an answer that keeps such figures.
pub fn flag(figures: &[String]) -> String {
    format!(
        "Not confirmed by any tool result or source: {}.",
        figures.join(", ")
    )
}

fn without_ordinals(answer: &str) -> String {
    let lines: Vec<&str> = answer
        .split('\n')
        .map(|line| {
            let body = line.trim_start_matches([' ', '\t', '*', '-', '#', '>']);
            let digits = body.bytes().take_while(u8::is_ascii_digit).count();
            let rest = &body[digits..];
            let ordinal = (1..=2).contains(&digits)
                && rest
                    .strip_prefix(['.', ')'])
                    .is_some_and(|rest| rest.starts_with([' ', '\t']));
            if ordinal { &rest[1..] } else { line }
        })
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn messages() -> Vec<Message> {
        vec![
            Message::user("What are 17 percent of 4,200?").expect("a message"),
            Message::tool("calculator", "ERROR: timed out after 30 s"),
            Message::retrieved("The rent is 950 euros."),
            Message::model("It is 714."),
            Message::recovery("Say 715."),
        ]
    }

    #[test]
    fn an_invented_figure_is_repaired_once_and_flagged_then() {
        let answer = "It is 714.";
        assert_eq!(
            judge(answer, true, false, &messages()),
            Verdict::Repair(vec!["714".into()])
        );
        assert_eq!(
            judge(answer, true, true, &messages()),
            Verdict::Flag(vec!["714".into()])
        );
        assert_eq!(judge(answer, false, false, &messages()), Verdict::Clean);
        assert_eq!(
            judge("It is 715.", true, true, &messages()),
            Verdict::Flag(vec!["715".into()])
        );
    }

    #[test]
    fn figures_of_user_tool_and_evidence_stand() {
        for answer in [
            "17% of 4200 could not be computed: timed out after 30 seconds. The rent is \u{20ac}950.",
            "Two ways:\n1. try again\n2) ask for less",
            "Nothing to report.",
        ] {
            assert_eq!(
                judge(answer, true, false, &messages()),
                Verdict::Clean,
                "{answer}"
            );
        }
        // Just outside: a figure, not an ordinal.
        assert_eq!(unsupported("2.5 of them", &[]), ["2.5"]);
        assert_eq!(unsupported("123. of them", &[]), ["123"]);
    }

    #[test]
    fn what_is_named_is_bounded() {
        let answer: String = (100..400).map(|n| format!("{n}; ")).collect();
        assert_eq!(unsupported(&answer, &[]).len(), MAX_NAMED);
        let long = "\u{e9}".repeat(ANSWER_MAX_BYTES);
        assert!(unsupported(&format!("{long}7"), &[]).is_empty());
    }

    proptest! {
        #[test]
        fn a_figure_of_a_tool_is_supported(n in 0u64..10_000_000, text in "[a-z ]{0,10}") {
            let result = n.to_string();
            let (right, wrong) = (format!("the result is {n}"), format!("the result is {}", n + 1));
            let support = [text.as_str(), result.as_str()];
            prop_assert!(unsupported(&right, &support).is_empty());
            prop_assert_eq!(unsupported(&wrong, &support).len(), 1);
        }

        #[test]
        fn nothing_panics(answer in "\\PC{0,80}", support in "\\PC{0,40}") {
            let _ = unsupported(&answer, &[&support]);
        }
    }
}

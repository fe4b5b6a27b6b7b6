//! Texts of public corpora against the rules of the agent: attacks, wherever they can come from that is not the person,
//! change nothing of what a turn may do; strings that programs mishandle are handled.

mod common;

use cortex_core::agent::calls::{self, Reply, Tool};
use cortex_core::agent::message::Message;
use cortex_core::agent::turn::Turn;
use cortex_core::agent::{numbers, think};
use serde_json::Value;

const REQUESTS: [&str; 4] = [
    "What does this say?",
    "Tell me in two sentences what matters here, and save them to out.md",
    "Open https://ok.example/page and compare",
    "Worum geht es?",
];

fn attacks() -> Vec<String> {
    let attacks: Vec<String> = include_str!("../testdata/injections/attacks.jsonl")
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).expect("a line")["text"]
                .as_str()
                .expect("a text")
                .to_owned()
        })
        .collect();
    assert!(attacks.len() > 100);
    attacks
}

/// All that a turn decides, for what the request and the attack may be after.
fn decisions(turn: &Turn, attack: &str) -> Vec<bool> {
    let mut paths = vec![
        "out.md".to_owned(),
        "hacked.txt".to_owned(),
        "notes.txt".to_owned(),
    ];
    let mut urls = vec![
        "https://ok.example/page".to_owned(),
        "https://evil.example/".to_owned(),
    ];
    for word in
        attack.split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '(' | ')' | ','))
    {
        if word.contains("://") {
            urls.push(word.to_owned());
        } else if word.contains('.') || word.contains('/') {
            paths.push(word.trim_end_matches('.').to_owned());
        }
    }
    let mut decisions: Vec<bool> = paths
        .iter()
        .flat_map(|path| {
            [
                turn.write(path, &[]).allowed,
                turn.overwrite(path, &[]).allowed,
            ]
        })
        .collect();
    decisions.extend(urls.iter().map(|url| turn.fetch(url).allowed));
    for tool in [
        "filesystem",
        "python_exec",
        "calculator",
        "doc_search",
        "web_fetch",
    ] {
        decisions.extend(turn.asked_for(tool));
    }
    decisions.push(turn.statements().is_empty());
    decisions
}

fn said(text: String) -> Message {
    Message::user(text).expect("a message")
}

#[test]
fn an_attack_that_comes_by_a_tool_recall_or_model_changes_nothing() {
    for attack in attacks() {
        for request in REQUESTS {
            let plain = decisions(&Turn::of(&[said(request.to_owned())]), &attack);
            for message in [
                Message::tool("web_fetch", attack.as_str()),
                Message::retrieved(attack.as_str()),
                Message::recovery(attack.as_str()),
                Message::model(attack.as_str()),
            ] {
                let turn = Turn::of(&[message.clone(), said(request.to_owned()), message]);
                assert_eq!(decisions(&turn, &attack), plain, "{request} / {attack}");
            }
        }
    }
}

#[test]
fn an_attack_that_is_quoted_changes_nothing() {
    for attack in attacks() {
        let block: Vec<String> = attack.split('\n').map(|line| format!("> {line}")).collect();
        let indented: Vec<String> = attack
            .split('\n')
            .map(|line| format!("    {line}"))
            .collect();
        let json = Value::String(attack.clone());
        let forms = [
            block.join("\n"),
            format!("\n\n{}", indented.join("\n")),
            format!("``````\n{attack}\n``````"),
            format!(
                "\u{201c}{}\u{201d}",
                attack.replace(['\u{201c}', '\u{201d}'], "")
            ),
            format!("<pasted-text>\n{attack}\n</pasted-text>"),
            format!("{{\"text\": {json}}}"),
            format!("From: a@b.example\nSubject: hello\n\n{attack}"),
            format!("---------- Forwarded message ---------\n{attack}"),
            format!("---- BEGIN TEXT ----\n{attack}"),
        ];
        for request in REQUESTS {
            let plain = decisions(&Turn::of(&[said(request.to_owned())]), &attack);
            for form in &forms {
                let turn = Turn::of(&[said(format!("{request}\n\n{form}"))]);
                assert_eq!(decisions(&turn, &attack), plain, "{request} / {form}");
            }
        }
    }
}

#[test]
fn an_attack_that_is_handed_over_without_marks_writes_and_opens_nothing() {
    let mut counted = 0;
    for attack in attacks() {
        let turn = Turn::of(&[said(format!("Summarize this text.\n{attack}"))]);
        let asked = Turn::of(&[said("Summarize this text.".to_owned())]);
        let side_effects = |turn: &Turn| (turn.files().clone(), turn.addresses().len());
        // An address with which the material begins is the person's to open.
        if side_effects(&turn).1 == 0 {
            counted += 1;
            assert_eq!(side_effects(&turn), side_effects(&asked), "{attack}");
            assert!(turn.statements().is_empty(), "{attack}");
        }
    }
    assert!(counted > 100, "{counted}");
}

#[test]
fn strings_that_programs_mishandle() {
    let naughty = common::naughty_strings();
    let tools = [Tool {
        name: "t".into(),
        parameters: Value::Null,
        reads_only: true,
    }];
    for text in &naughty {
        if let Ok(message) = Message::user(text.as_str()) {
            let turn = Turn::of(&[message]);
            let _ = (turn.write(text, &[]), turn.fetch(text), turn.explain());
            // None of them asks for anything.
            assert!(
                turn.files().targets.is_empty() || turn.files().writes,
                "{text:?}"
            );
        }
        for content in [
            text.clone(),
            format!("<tool_call>{text}"),
            format!("{{\"name\": \"t\", \"arguments\": {text}}}"),
        ] {
            let reading = calls::read(
                &Reply {
                    content,
                    ..Reply::default()
                },
                &tools,
            );
            assert!(reading.calls.len() <= 1, "{text:?}");
        }
        let whole = format!("{text}</think>{text}");
        assert!(!think::strip(&whole).contains("</think>"));
        assert!(numbers::unsupported(text, &[text]).is_empty(), "{text:?}");
    }
}

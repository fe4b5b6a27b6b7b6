use proptest::prelude::*;
use serde_json::json;

use super::*;

/// The tools that the cases assume.
fn tools() -> Vec<Tool> {
    let tools: Vec<Value> =
        serde_json::from_str(include_str!("../../../testdata/tool_calls/tools.json"))
            .expect("tools");
    tools
        .iter()
        .map(|tool| Tool {
            name: tool["name"].as_str().expect("a name").to_owned(),
            parameters: tool["parameters"].clone(),
            reads_only: !matches!(
                tool["name"].as_str(),
                Some("write_note" | "run_python" | "fetch_url")
            ),
        })
        .collect()
}

fn read_text(content: &str) -> Reading {
    read(
        &Reply {
            content: content.to_owned(),
            ..Reply::default()
        },
        &tools(),
    )
}

fn made(reading: &Reading) -> Vec<Value> {
    reading
        .calls
        .iter()
        .map(|call| json!({"name": call.name, "arguments": call.arguments}))
        .collect()
}

/// Rules for what is sent are not about reading replies.
const NOT_READ: [&str; 2] = ["tc-13", "tc-51"];

#[test]
fn cases_seen_in_the_wild() {
    let mut checked = 0;
    for line in include_str!("../../../testdata/tool_calls/cases.jsonl").lines() {
        let case: Value = serde_json::from_str(line).expect("a case");
        let id = case["id"].as_str().expect("an id");
        if NOT_READ.contains(&id) {
            assert_eq!(case["verdict"], "sender_rule", "{id}");
            continue;
        }
        checked += 1;
        let wire = &case["wire"];
        if case["verdict"] == "loop_guard" {
            // The loop bounds repeats; it knows them by their signature.
            let signatures: std::collections::BTreeSet<String> = wire["turns"]
                .as_array()
                .expect("turns")
                .iter()
                .flat_map(|message| read(&Reply::of(message, false), &tools()).calls)
                .map(|call| call.signature())
                .collect();
            assert_eq!(signatures.len(), 1, "{id}");
            continue;
        }
        let reading = read(
            &Reply::of(&wire["message"], wire["done_reason"] == "length"),
            &tools(),
        );
        let expected = match (id, case["expected_calls"].as_array()) {
            // No call out of thoughts; a tool that changes nothing is called from a fence in prose.
            (_, Some(calls)) => calls.clone(),
            (_, None) => panic!("{id} expects nothing"),
        };
        assert_eq!(made(&reading), expected, "{id}: {reading:?}");
        match case["verdict"].as_str().expect("a verdict") {
            "reject" => {
                let told = reading.feedback().is_some() || reading.is_empty();
                assert!(told && reading.text.trim().is_empty(), "{id}: {reading:?}");
            }
            "no_call" => assert!(
                reading.refused.is_empty() && !reading.text.is_empty(),
                "{id}"
            ),
            _ => {}
        }
        assert!(!reading.text.contains("<|"), "{id}: {}", reading.text);
    }
    assert!(checked >= 36, "{checked}");
}

#[test]
fn what_was_refused_is_said() {
    let fault = |content: &str| {
        read_text(content)
            .refused
            .first()
            .map(|refused| refused.fault)
    };
    assert_eq!(
        fault("{\"name\": \"rm\", \"arguments\": {}}"),
        Some(Fault::UnknownTool)
    );
    assert_eq!(
        fault("{\"name\": \"calc\", \"arguments\": {\"a\": 1}}"),
        Some(Fault::Arguments)
    );
    assert_eq!(
        fault("{\"name\": \"calc\", \"arguments\": {\"a\": 1"),
        Some(Fault::CutOff)
    );
    assert_eq!(
        fault("{\"name\": \"calc\", \"arguments\": {a: 1}}"),
        Some(Fault::Unreadable)
    );
    assert_eq!(
        fault("[search_memory(query=rent)]"),
        Some(Fault::Unreadable)
    );
    assert_eq!(fault("{\"name\": \"Ada\", \"age\": 3}"), None);
    let reading = read_text(
        "{\"name\": \"search_memory\", \"arguments\": {\"query\": \"a\", \"top_k\": 51}}",
    );
    assert!(
        reading
            .feedback()
            .is_some_and(|note| note.contains("at most 50")),
        "{reading:?}"
    );
}

#[test]
fn a_fence_in_prose_calls_only_what_changes_nothing() {
    let note = "```json\n{\"name\": \"write_note\", \"arguments\": {\"path\": \"a\", \"content\": \"b\"}}\n```";
    assert_eq!(read_text(note).calls.len(), 1);
    let reading = read_text(&format!("You could write it like this:\n{note}\n"));
    assert!(reading.calls.is_empty());
    assert_eq!(reading.refused[0].fault, Fault::InProse);
    let reading = read_text("I look.\n{\"name\": \"list_sources\", \"arguments\": {}}");
    assert_eq!(reading.calls[0].channel, Channel::Prose);
    let json = "Here is the file:\n```json\n{\"name\": \"Ada\", \"input\": 1}\n```";
    assert_eq!(read_text(json).text, json);
}

#[test]
fn types_are_put_right_where_one_thing_can_be_meant() {
    let arguments = |value: Value| {
        let reply = Reply {
            calls: vec![("search_memory".into(), Some(value))],
            ..Reply::default()
        };
        read(&reply, &tools())
            .calls
            .pop()
            .map(|call| Value::Object(call.arguments))
    };
    for (given, fitted) in [
        (json!({"query": 5}), json!({"query": "5"})),
        (
            json!({"query": "a", "top_k": 10.0}),
            json!({"query": "a", "top_k": 10}),
        ),
        (json!({"query": "a", "top_k": ""}), json!({"query": "a"})),
        (json!({"query": "a", "top_k": null}), json!({"query": "a"})),
        (
            json!({"query": "a", "include_expired": "False"}),
            json!({"query": "a", "include_expired": false}),
        ),
        (
            json!("\"{\\\"query\\\": \\\"a\\\"}\""),
            json!({"query": "a"}),
        ),
    ] {
        assert_eq!(arguments(given.clone()), Some(fitted), "{given}");
    }
    for refused in [
        json!({"query": "a", "top_k": 10.5}),
        json!({"query": "a", "top_k": 0}),
        json!({"query": "a", "include_expired": "yes"}),
        json!({"query": ["a"]}),
        json!({"query": null}),
        json!({"query": "a", "more": 1}),
        json!([]),
        json!(true),
        json!("[]"),
    ] {
        assert_eq!(arguments(refused.clone()), None, "{refused}");
    }
}

#[test]
fn schemas_with_references_and_choices() {
    let tool = |parameters: Value| {
        vec![Tool {
            name: "t".into(),
            parameters,
            reads_only: true,
        }]
    };
    let call = |parameters: Value, arguments: Value| {
        let reply = Reply {
            calls: vec![("t".into(), Some(arguments))],
            ..Reply::default()
        };
        read(&reply, &tool(parameters))
            .calls
            .pop()
            .map(|call| Value::Object(call.arguments))
    };
    let schema = json!({"$defs": {"r": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        "type": "object", "properties": {"r": {"$ref": "#/$defs/r"}, "c": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}});
    assert_eq!(
        call(schema.clone(), json!({"r": "{\"n\": \"3\"}"})),
        Some(json!({"r": {"n": 3}}))
    );
    assert_eq!(call(schema, json!({"c": "3"})), Some(json!({"c": "3"})));
    let endless = json!({"$defs": {"a": {"$ref": "#/$defs/a"}}, "type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}});
    assert_eq!(call(endless, json!({"x": 1})), None);
}

#[test]
fn a_call_that_comes_twice_is_made_once() {
    let reply = Reply {
        content: "I look. <tool_call>{\"name\": \"list_sources\", \"arguments\": {}}</tool_call>"
            .into(),
        calls: vec![("list_sources".into(), None)],
        cut_off: false,
    };
    let reading = read(&reply, &tools());
    assert_eq!(
        (reading.calls.len(), reading.calls[0].channel),
        (1, Channel::Structured)
    );
    assert_eq!(reading.text, "I look.");
}

#[test]
fn a_stream_holds_back_what_may_become_a_call() {
    for start in [
        "",
        " \n",
        "{",
        "[{\"name",
        "<",
        "<tool",
        "<tool_call>{",
        "<function=a",
        "<|python",
        "`",
        "```json",
        "cal",
        "call:x",
    ] {
        assert!(may_become_call(start), "{start:?}");
    }
    for start in ["I", "<b>", "calm", "call me", "`x`", "The {"] {
        assert!(!may_become_call(start), "{start:?}");
    }
}

#[test]
fn many_calls_are_counted_and_not_kept() {
    let one = "{\"name\": \"list_sources\", \"arguments\": {}}\n";
    let reading = read_text(&one.repeat(165));
    assert_eq!(
        (reading.calls.len(), reading.beyond),
        (MAX_CALLS, 165 - MAX_CALLS)
    );
    assert!(
        reading
            .feedback()
            .is_some_and(|note| note.chars().count() < 2_000)
    );
}

#[test]
fn time_is_linear_in_the_worst_cases_we_know() {
    for unit in [
        "<tool_call>",
        "<function=",
        "<function=a>",
        "<function=a><parameter=b>",
        "{\"name\":\"a\",\"arguments\":",
        "[",
        "{",
        "```\n",
        "[a(",
        "{}",
        "<tool_call>{",
        "<function=a>{",
        "</think>",
        "<think>",
        "<",
        "{}\n",
        "'",
        "<|im_end|>",
    ] {
        let content = unit.repeat(100_000.min(REPLY_MAX_BYTES / unit.len()));
        let start = std::time::Instant::now();
        let reading = read_text(&content);
        assert!(reading.calls.len() <= MAX_CALLS);
        assert!(
            start.elapsed().as_secs() < 20,
            "{unit:?} took {:?}",
            start.elapsed()
        );
    }
}

proptest! {
    #[test]
    fn nothing_panics_and_only_fitting_calls_come_out(pieces in prop::collection::vec(prop_oneof![
        prop::sample::select(vec![
            "<tool_call>", "</tool_call>", "{\"name\": \"calc\", \"arguments\": ", "{\"a\": 1, \"b\": 2, \"op\": \"add\"}", "}", "{", "[", "]", "```",
            "```json", "\n", "<function=calc>", "</function>", "<parameter=a>", "</parameter>", "calc(a=1)", "<think>", "</think>", ",", ";",
            "[TOOL_CALLS]", "call:calc{", "\"", "'",
        ]).prop_map(str::to_owned),
        "\\PC{1,4}",
    ], 0..14), cut_off in any::<bool>()) {
        let reading = read(&Reply { content: pieces.concat(), cut_off, ..Reply::default() }, &tools());
        for call in &reading.calls {
            let tool = tools().into_iter().find(|tool| tool.name == call.name);
            let again = tool.map(|tool| schema::fit(&tool.parameters, call.arguments.clone()));
            prop_assert_eq!(again, Some(Ok((call.arguments.clone(), Vec::new()))));
        }
    }

    /// Nothing within thoughts is ever a call.
    #[test]
    fn thoughts_make_no_calls(before in "[a-z ]{0,10}") {
        let call = "<tool_call>{\"name\": \"list_sources\", \"arguments\": {}}</tool_call>";
        let unclosed = read_text(&format!("<think>{before}{call}"));
        let closed = read_text(&format!("<think>{before}{call}</think>{before}"));
        let after = read_text(&format!("<think>{before}</think>{before}{call}"));
        prop_assert!(unclosed.calls.is_empty() && closed.calls.is_empty());
        prop_assert_eq!(after.calls.len(), 1);
    }
}

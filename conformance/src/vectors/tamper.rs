//! Vectors of tampering: one change at one place of a sound trace, verified without a store.

use cortex_core::verify::{Code, Options, verify};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Case, File, roots, same};
use crate::tamper::{Tamper, pointers, tampered};

/// One change and the code that it must give.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tampered {
    id: String,
    description: String,
    /// Name of the sound trace in `roots.json`.
    trace: String,
    pointer: String,
    tamper: String,
    code: Code,
}

impl Case for Tampered {
    fn id(&self) -> &str {
        &self.id
    }

    fn check(&self) -> Result<(), String> {
        let tamper = Tamper::from_name(&self.tamper);
        let tamper = tamper.ok_or_else(|| format!("unknown tamper {:?}", self.tamper))?;
        let document = document(&self.trace)?;
        let text = tampered(&document, &self.pointer, tamper);
        let text = text.ok_or("the change does not apply")?;
        same("code", &Some(self.code), &code(&text))
    }
}

fn code(text: &str) -> Option<Code> {
    verify(text, &Options::default(), None).code
}

fn document(name: &str) -> Result<Value, String> {
    let text = roots::by_id(name)?.trace.to_text();
    let text = text.map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// Traces that are changed: with every structure that there is, between them.
const TAMPERED: [&str; 3] = ["lexical", "partly-supported", "covered-refined"];

pub(super) fn traces() -> File<Tampered> {
    let mut cases = Vec::new();
    for name in TAMPERED {
        let document = document(name).expect("a sound trace");
        for pointer in pointers(&document) {
            // The rounds of all traces are alike; one of them is enough.
            if name != TAMPERED[0] && pointer.starts_with("/rounds/0/receipt/") {
                continue;
            }
            for tamper in Tamper::ALL {
                let Some(text) = tampered(&document, &pointer, tamper) else {
                    continue;
                };
                let code = code(&text).expect("no change is accepted");
                cases.push(Tampered {
                    id: format!("{name}:{}{pointer}", tamper.name()),
                    description: format!("{} at {pointer:?} of {name}", tamper.name()),
                    trace: name.into(),
                    pointer: pointer.clone(),
                    tamper: tamper.name().into(),
                    code,
                });
            }
        }
    }
    File {
        comment: "Every single change to a trace of roots.json, with the code of the first step that \
                  fails without a store. flip: the last digit of a hash becomes 0, or 1 if it was 0; \
                  x after another text; 1 added to an integer; the other boolean; 0 for null; null \
                  for an array or object. delete: the member or element removed. add: a member \
                  extra_member with value null, in its place in the order, or a null at the end of an \
                  array. duplicate: the element or member written twice. reorder: exchanged with the \
                  next one. Otherwise the text is written in canonical form."
            .into(),
        version: 1,
        cases,
    }
}

//! The agent's rules that need no model and no I/O.
//!
//! What a turn may do is derived from the words of the person alone. A message carries its origin ([`message`]);
//! [`quoting`] takes what is quoted or pasted out of the person's messages, [`request`] cuts what is handed over
//! as material, and [`turn`] decides each call from what is left, with a reason that can be shown. Text of tools,
//! recall, the model and our own recovery notes never reaches these functions.
//!
//! What a model answers is read by [`think`] (its thoughts are taken out) and [`calls`] (malformed tool calls are
//! repaired or refused); [`numbers`] finds figures in an answer that nothing supports. [`relevance`] says when what
//! was recalled is worth showing to the model.

pub mod address;
pub mod calls;
pub mod message;
pub mod numbers;
pub mod paths;
pub mod quoting;
pub mod relevance;
pub mod request;
pub mod statements;
pub mod think;
pub mod turn;
mod words;

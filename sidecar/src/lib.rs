//! Library behind the `cortex` binary: the sidecar of the Cortex extension.
//!
//! It embeds texts and questions, works off the extension's queue, serves the REST interface, and gives the
//! command line. What an SQL function does is never done again here: every answer comes from the function.

pub mod background;
pub mod cli;
pub mod config;
pub mod db;
pub mod demo;
pub mod doctor;
pub mod embed;
pub mod encoder;
pub mod error;
pub mod http;
pub mod logging;
pub mod model;
pub mod synth;
pub mod worker;

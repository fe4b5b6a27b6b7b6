//! In-process embedding.

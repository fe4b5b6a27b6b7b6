//! The embedder against golden vectors, hostile texts and damaged model folders.
//!
//! Needs the model: `CORTEX_TEST_MODEL_DIR`, or `.cortex/model` in the workspace.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use cortex_sidecar::embed::{
    EmbedError, Embedder, EmbeddingProvider, MAX_TEXT_BYTES, MAX_TEXTS, MAX_TOTAL_BYTES,
};
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

const FILES: [&str; 3] = ["model.safetensors.data", "tokenizer.json", "model.onnx"];

static EMBEDDER: LazyLock<Embedder> = LazyLock::new(|| {
    Embedder::load_with_threads(&model_dir(), threads(2)).expect("the prepared model loads")
});

#[derive(Deserialize)]
struct Golden {
    model: String,
    revision: String,
    entries: Vec<GoldenEntry>,
}

#[derive(Deserialize)]
struct GoldenEntry {
    text: String,
    word_pieces: usize,
    vector: Vec<f32>,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("embed_golden.json")).expect("the golden file is valid")
}

fn model_dir() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let dir = std::env::var_os("CORTEX_TEST_MODEL_DIR")
        .map_or_else(|| workspace.join(".cortex/model"), PathBuf::from);
    assert!(
        dir.join("MODEL.json").is_file(),
        "no embedding model in {dir}: run `python3 tools/model/prepare.py .cortex/model` in the workspace, or set CORTEX_TEST_MODEL_DIR",
        dir = dir.display()
    );
    dir
}

fn threads(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).expect("tests use at least one thread")
}

fn cosine(left: &[f32], right: &[f32]) -> f64 {
    assert_eq!(left.len(), right.len());
    let dot = |a: &[f32], b: &[f32]| {
        a.iter()
            .zip(b)
            .map(|(&x, &y)| f64::from(x) * f64::from(y))
            .sum::<f64>()
    };
    dot(left, right) / (dot(left, left) * dot(right, right)).sqrt()
}

fn embed_one(text: &str) -> Result<Vec<f32>, EmbedError> {
    EMBEDDER
        .embed(&[text.to_owned()])
        .map(|mut result| result.vectors.remove(0))
}

#[test]
fn vectors_agree_with_the_reference() {
    let golden = golden();
    assert_eq!((golden.model.as_str(), golden.revision.as_str()), {
        let space = EMBEDDER.space();
        (space.model.as_str(), space.revision.as_str())
    });
    let texts: Vec<String> = golden
        .entries
        .iter()
        .map(|entry| entry.text.clone())
        .collect();
    let result = EMBEDDER.embed(&texts).expect("golden texts embed");
    for (entry, vector) in golden.entries.iter().zip(&result.vectors) {
        let agreement = cosine(vector, &entry.vector);
        assert!(
            agreement >= 0.9999,
            "cosine {agreement} for {:?}",
            entry.text
        );
        let length = vector
            .iter()
            .map(|&x| f64::from(x).powi(2))
            .sum::<f64>()
            .sqrt();
        assert!(
            (length - 1.0).abs() < 1e-6,
            "length {length} for {:?}",
            entry.text
        );
    }
    let over_limit: Vec<usize> = golden
        .entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.word_pieces > 256)
        .map(|(index, _)| index)
        .collect();
    assert!(
        golden.entries.iter().any(|entry| entry.word_pieces == 256),
        "the golden file tests the limit itself"
    );
    assert!(
        golden.entries.iter().any(|entry| entry.word_pieces == 257),
        "the golden file tests just over the limit"
    );
    assert_eq!(result.truncated, over_limit);
}

#[test]
fn what_is_cut_off_does_not_count() {
    let inside = ["row"; 254].join(" ");
    let longer = format!("{inside} entirely different words that the model never sees");
    let result = EMBEDDER.embed(&[inside, longer]).expect("both embed");
    assert_eq!(result.truncated, [1]);
    assert!(cosine(&result.vectors[0], &result.vectors[1]) > 0.999_999);
}

#[test]
fn a_vector_does_not_depend_on_its_neighbours_order_or_threads() {
    let texts: Vec<String> = golden()
        .entries
        .into_iter()
        .map(|entry| entry.text)
        .collect();
    let together = EMBEDDER.embed(&texts).expect("texts embed").vectors;
    for (text, vector) in texts.iter().zip(&together) {
        let alone = embed_one(text).expect("text embeds");
        assert!(
            cosine(&alone, vector) > 0.999_999,
            "alone and among others differ for {text:?}"
        );
    }
    let reversed: Vec<String> = texts.iter().rev().cloned().collect();
    for count in [1, 3, 40] {
        let embedder =
            Embedder::load_with_threads(&model_dir(), threads(count)).expect("the model loads");
        let vectors = embedder.embed(&reversed).expect("texts embed").vectors;
        assert!(
            together
                .iter()
                .zip(vectors.iter().rev())
                .all(|(a, b)| cosine(a, b) > 0.999_999),
            "{count} threads"
        );
    }
}

#[test]
fn calls_from_many_threads_do_not_disturb_each_other() {
    let texts: Vec<String> = (0..20)
        .map(|number| format!("statement number {number}"))
        .collect();
    let expected = EMBEDDER.embed(&texts).expect("texts embed");
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| EMBEDDER.embed(&texts).expect("texts embed")))
            .collect();
        for call in calls {
            assert_eq!(call.join().expect("no panic"), expected);
        }
    });
}

#[test]
fn no_texts_give_no_vectors() {
    let result = EMBEDDER.embed(&[]).expect("nothing to do is fine");
    assert!(result.vectors.is_empty() && result.truncated.is_empty());
}

#[test]
fn a_text_without_content_is_an_error_that_names_it() {
    for empty in [
        "",
        " ",
        "\n\t\r\n",
        "\u{a0}\u{2003}",
        "\u{0}",
        "\u{7}\u{200b}",
        "\u{feff}",
    ] {
        let texts = [
            "first".to_owned(),
            "second".to_owned(),
            empty.to_owned(),
            "fourth".to_owned(),
        ];
        let error = EMBEDDER.embed(&texts).expect_err("one text has no content");
        assert!(
            matches!(error, EmbedError::EmptyText { index: 2 }),
            "{empty:?} gave {error}"
        );
    }
    // The index counts texts of the call, also beyond the first part that a thread splits into word pieces.
    let mut many = vec!["text".to_owned(); 300];
    many[299] = String::new();
    assert!(matches!(
        EMBEDDER.embed(&many),
        Err(EmbedError::EmptyText { index: 299 })
    ));
}

#[test]
fn sizes_are_bounded_just_beyond_the_limits() {
    let long = "word ".repeat(MAX_TEXT_BYTES / 5 + 1);
    let within = long[..MAX_TEXT_BYTES].to_owned();
    assert_eq!(
        EMBEDDER
            .embed(std::slice::from_ref(&within))
            .expect("a text at the limit embeds")
            .truncated,
        [0]
    );
    let beyond = long[..=MAX_TEXT_BYTES].to_owned();
    let error = EMBEDDER
        .embed(&["fine".to_owned(), beyond])
        .expect_err("one byte too many");
    assert!(
        matches!(error, EmbedError::TextTooLong { index: 1, bytes, limit } if bytes == limit + 1 && limit == MAX_TEXT_BYTES)
    );

    let error = EMBEDDER
        .embed(&vec!["a".to_owned(); MAX_TEXTS + 1])
        .expect_err("one text too many");
    assert!(
        matches!(error, EmbedError::CallTooLarge { unit: "texts", found, .. } if found == MAX_TEXTS + 1)
    );
    let mut heavy = vec![within; MAX_TOTAL_BYTES / MAX_TEXT_BYTES];
    heavy.push("a".to_owned());
    let error = EMBEDDER
        .embed(&heavy)
        .expect_err("one byte too many in all");
    assert!(
        matches!(error, EmbedError::CallTooLarge { unit: "bytes", found, .. } if found == MAX_TOTAL_BYTES + 1)
    );
}

#[test]
fn the_space_is_named_by_everything_that_shapes_a_vector() {
    let space = EMBEDDER.space();
    assert_eq!(space.dimensions, 384);
    assert!(space.normalised && space.prefix.is_empty());
    assert_eq!(space.digest.len(), "b3:".len() + 64);
    assert_eq!(
        Embedder::load_with_threads(&model_dir(), threads(1))
            .expect("the model loads")
            .space(),
        space
    );

    // Other settings, other space: a cut at 128 pieces leaves short texts alone and still is another space.
    let shorter = Folder::new().with_manifest(|manifest| manifest["max_word_pieces"] = 128.into());
    let other = shorter.load().expect("a shorter limit is a valid model");
    assert_ne!(other.space().digest, space.digest);
    let text = ["row"; 200].join(" ");
    assert_eq!(
        other.embed(&[text]).expect("the text embeds").truncated,
        [0]
    );
}

/// A copy of the model folder in which single files can be spoiled; the others are links.
struct Folder {
    dir: TempDir,
}

impl Folder {
    fn new() -> Folder {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let model = fs::canonicalize(model_dir()).expect("the model folder exists");
        for name in FILES {
            std::os::unix::fs::symlink(model.join(name), dir.path().join(name)).expect("a link");
        }
        fs::copy(model.join("MODEL.json"), dir.path().join("MODEL.json")).expect("a copy");
        Folder { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Replaces a file by a changed copy and leaves its digest in the manifest as it was.
    fn with_file(self, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Folder {
        let mut bytes = fs::read(self.path(name)).expect("the file is readable");
        change(&mut bytes);
        fs::remove_file(self.path(name)).expect("the link is ours");
        fs::write(self.path(name), bytes).expect("the folder is writable");
        self
    }

    /// Like `with_file`, and makes the manifest agree, as somebody would who builds a folder by hand.
    fn with_pinned_file(self, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Folder {
        let folder = self.with_file(name, change);
        let bytes = fs::read(folder.path(name)).expect("just written");
        folder.with_manifest(|manifest| {
            manifest["files"][name]["bytes"] = bytes.len().into();
            manifest["files"][name]["blake3"] = blake3::hash(&bytes).to_hex().as_str().into();
        })
    }

    fn with_manifest(self, change: impl FnOnce(&mut Value)) -> Folder {
        let text = fs::read_to_string(self.path("MODEL.json")).expect("the manifest is readable");
        let mut manifest = serde_json::from_str(&text).expect("the manifest is JSON");
        change(&mut manifest);
        fs::write(self.path("MODEL.json"), manifest.to_string()).expect("the folder is writable");
        self
    }

    fn load(&self) -> Result<Embedder, EmbedError> {
        Embedder::load_with_threads(self.dir.path(), threads(1))
    }

    fn error(&self) -> EmbedError {
        match self.load() {
            Ok(_) => panic!("a spoiled model was loaded"),
            Err(error) => error,
        }
    }
}

#[test]
fn a_missing_model_says_how_to_get_it() {
    let nowhere = Path::new("/nonexistent/model");
    let error = Embedder::load(nowhere)
        .err()
        .expect("there is nothing")
        .to_string();
    assert!(error.contains("prepare.py /nonexistent/model"), "{error}");
    for name in FILES.into_iter().chain(["MODEL.json"]) {
        let folder = Folder::new();
        fs::remove_file(folder.path(name)).expect("the folder is ours");
        assert!(matches!(folder.error(), EmbedError::ModelMissing { file, .. } if file == name));
    }
}

#[test]
fn a_file_with_another_size_or_digest_is_refused() {
    for name in FILES {
        let shortened = Folder::new().with_file(name, |bytes| bytes.truncate(bytes.len() - 1));
        assert!(
            matches!(shortened.error(), EmbedError::WrongFile { .. }),
            "{name} without its last byte"
        );
        let lengthened = Folder::new().with_file(name, |bytes| bytes.push(0));
        assert!(
            matches!(lengthened.error(), EmbedError::WrongFile { .. }),
            "{name} with a byte more"
        );
        let emptied = Folder::new().with_file(name, Vec::clear);
        assert!(
            matches!(emptied.error(), EmbedError::WrongFile { .. }),
            "{name} emptied"
        );
        let flipped =
            Folder::new().with_file(name, |bytes| *bytes.last_mut().expect("not empty") ^= 1);
        let error = flipped.error();
        assert!(
            matches!(&error, EmbedError::WrongFile { path, .. } if path.ends_with(name)),
            "{name} with a bit flipped"
        );
        assert!(error.to_string().contains("prepare.py"), "{error}");
    }
}

#[test]
fn a_manifest_that_describes_no_usable_model_is_refused() {
    let not_json = Folder::new().with_file("MODEL.json", |bytes| bytes.truncate(bytes.len() / 2));
    assert!(matches!(not_json.error(), EmbedError::Manifest { .. }));
    let huge = Folder::new().with_file("MODEL.json", |bytes| bytes.resize(1 << 20, b' '));
    assert!(matches!(huge.error(), EmbedError::Manifest { .. }));
    let no_text = Folder::new().with_file("MODEL.json", |bytes| bytes.insert(0, 0xff));
    assert!(matches!(no_text.error(), EmbedError::Unreadable { .. }));

    let changes: [(&str, Value); 11] = [
        ("format", 2.into()),
        ("dimensions", 0.into()),
        ("dimensions", (-384).into()),
        ("dimensions", 2001.into()),
        ("max_word_pieces", 2.into()),
        ("max_word_pieces", 513.into()),
        ("pooling", "cls".into()),
        ("normalised", false.into()),
        (
            "probe",
            serde_json::json!({"text": "a", "first_components": []}),
        ),
        (
            "probe",
            serde_json::json!({"text": "a", "first_components": vec![0.0; 385]}),
        ),
        ("files", serde_json::json!({})),
    ];
    for (key, value) in changes {
        let folder = Folder::new().with_manifest(|manifest| manifest[key] = value.clone());
        assert!(
            matches!(folder.error(), EmbedError::Manifest { .. }),
            "{key} = {value}"
        );
    }
}

#[test]
fn inv_05_a_vector_of_the_wrong_size_is_refused_with_both_sizes() {
    let folder = Folder::new().with_manifest(|manifest| manifest["dimensions"] = 383.into());
    let error = folder.error().to_string();
    assert!(error.contains("384") && error.contains("383"), "{error}");
}

#[test]
fn inv_05_a_model_that_computes_something_else_fails_its_probe() {
    let other_probe = Folder::new()
        .with_manifest(|manifest| manifest["probe"]["first_components"][3] = 0.08.into());
    assert!(matches!(other_probe.error(), EmbedError::Probe { .. }));
    let empty_probe =
        Folder::new().with_manifest(|manifest| manifest["probe"]["text"] = " ".into());
    assert!(matches!(empty_probe.error(), EmbedError::Probe { .. }));

    // Weights and tokenizers that fit each other's shapes and are not the ones whose name the manifest gives.
    let zeroed = Folder::new().with_pinned_file(FILES[0], |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle..].fill(0);
    });
    assert!(matches!(zeroed.error(), EmbedError::Probe { .. }));
    let nan = Folder::new().with_pinned_file(FILES[0], |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle..].fill(0xff);
    });
    assert!(matches!(nan.error(), EmbedError::Probe { .. }));
    let renumbered = Folder::new().with_pinned_file("tokenizer.json", |bytes| {
        let mut tokenizer: Value = serde_json::from_slice(bytes).expect("the tokenizer is JSON");
        let vocabulary = tokenizer["model"]["vocab"]
            .as_object_mut()
            .expect("a word-piece vocabulary");
        let (this, that) = (
            vocabulary["example"].clone(),
            vocabulary["sentence"].clone(),
        );
        vocabulary["example"] = that;
        vocabulary["sentence"] = this;
        vocabulary["this"] = vocabulary["house"].clone();
        *bytes = tokenizer.to_string().into_bytes();
    });
    assert!(matches!(renumbered.error(), EmbedError::Probe { .. }));
}

#[test]
fn a_tokenizer_of_another_model_is_an_error() {
    for content in [
        "",
        "{}",
        "[1]",
        "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}",
    ] {
        let folder = Folder::new().with_pinned_file("tokenizer.json", |bytes| {
            *bytes = content.as_bytes().to_vec()
        });
        assert!(
            matches!(
                folder.error(),
                EmbedError::Unusable { .. } | EmbedError::Probe { .. }
            ),
            "{content:?}"
        );
    }
    let beyond_the_table = Folder::new().with_pinned_file("tokenizer.json", |bytes| {
        let mut tokenizer: Value = serde_json::from_slice(bytes).expect("the tokenizer is JSON");
        tokenizer["model"]["vocab"]["example"] = 4_000_000_000_u32.into();
        *bytes = tokenizer.to_string().into_bytes();
    });
    assert!(matches!(beyond_the_table.error(), EmbedError::Probe { .. }));
}

#[test]
fn a_damaged_graph_with_a_fitting_digest_is_an_error_and_no_panic() {
    let original = fs::read(model_dir().join("model.onnx")).expect("the graph is readable");
    let steps = 60;
    for step in 0..steps {
        let position = original.len() * step / steps;
        let cut = Folder::new().with_pinned_file("model.onnx", |bytes| bytes.truncate(position));
        cut.error();
        // A changed byte may fall on a name that nobody reads; then the probe has shown that the model still computes the same.
        let changed = Folder::new().with_pinned_file("model.onnx", |bytes| bytes[position] ^= 0x15);
        let _outcome = changed.load();
    }
}

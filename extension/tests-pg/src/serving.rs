//! Help for tests of what is served: texts, vectors, questions and their verification.

use postgres::{Client, NoTls};
use serde_json::Value;

use crate::{Database, one};

/// Numbers that look random and are the same in every run with the same seed (splitmix64).
pub struct Random(u64);

impl Random {
    /// A sequence of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 up to, not including, `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// One of these.
    pub fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// A vector of length 1 in a direction of no preference.
    pub fn unit_vector(&mut self, dims: usize) -> Vec<f32> {
        // The sum of twelve uniform numbers is near enough to a normal one.
        let normal = |random: &mut Self| {
            (0..12)
                .map(|_| random.bits() as f64 / u64::MAX as f64)
                .sum::<f64>()
                - 6.0
        };
        let raw: Vec<f64> = (0..dims).map(|_| normal(self)).collect();
        let length = raw.iter().map(|x| x * x).sum::<f64>().sqrt();
        raw.iter().map(|x| (x / length) as f32).collect()
    }

    /// A sentence of so many words of [`WORDS`].
    pub fn sentence(&mut self, words: usize) -> String {
        let words: Vec<&str> = (0..words).map(|_| *self.of(&WORDS)).collect();
        let text = words.join(" ");
        let (head, tail) = text.split_at(1);
        format!("{}{tail}.", head.to_uppercase())
    }
}

/// Words that the analyzer keeps apart.
pub const WORDS: [&str; 40] = [
    "valve", "pump", "rotor", "gasket", "turbine", "sensor", "filter", "boiler", "pipe", "flange",
    "bearing", "shaft", "motor", "relay", "fuse", "cable", "panel", "switch", "meter", "gauge",
    "tank", "nozzle", "piston", "spring", "lever", "clutch", "brake", "wheel", "axle", "hinge",
    "bolt", "rivet", "weld", "seal", "hose", "vent", "duct", "fan", "coil", "magnet",
];

/// The one value of a query, as JSON.
pub fn json(client: &mut Client, sql: &str) -> Value {
    let text: String = one(client, &format!("SELECT ({sql})::text"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{sql}: {text}: {error}"))
}

/// Stores a text as a source of namespace `default`.
pub fn put(client: &mut Client, artifact: &str, body: &str) -> Value {
    let told: String = client
        .query_one(
            "SELECT cortex_source_put($1, $2)::text",
            &[&artifact, &body],
        )
        .expect("a text can be stored")
        .get(0);
    serde_json::from_str(&told).expect("cortex_source_put answers in JSON")
}

/// Seals, loads and chunks until nothing is left.
pub fn cortex_work(client: &mut Client) {
    client
        .query_one("SELECT cortex_work()", &[])
        .expect("the work can be done by hand");
}

/// What `cortex_ask` answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The trace.
    pub id: i64,
    /// `ANSWERED` and so on.
    pub status: String,
    /// The quotes.
    pub evidence: Value,
    /// Whether the trace was there.
    pub already: bool,
}

/// Asks in namespace `default`; `arguments` are further arguments of `cortex_ask`.
pub fn ask(client: &mut Client, question: &str, arguments: &str) -> Asked {
    let comma = if arguments.is_empty() { "" } else { ", " };
    let sql = format!(
        "SELECT trace_id, status, evidence::text, already FROM cortex_ask($1{comma}{arguments})"
    );
    let row = client
        .query_one(&sql, &[&question])
        .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let evidence: String = row.get(2);
    Asked {
        id: row.get(0),
        status: row.get(1),
        evidence: serde_json::from_str(&evidence).expect("evidence is JSON"),
        already: row.get(3),
    }
}

/// The report on a trace.
pub fn verify(client: &mut Client, trace: i64) -> Value {
    json(client, &format!("cortex_verify({trace})"))
}

/// Fails unless the trace verifies up to exactly this level.
pub fn must_verify(client: &mut Client, trace: i64, level: &str) {
    let report = verify(client, trace);
    assert!(
        report["ok"] == true && report["outcome"] == "verified" && report["level"] == level,
        "trace {trace}: {report:#}"
    );
}

/// The literal of a vector.
pub fn vector_literal(components: &[f32]) -> String {
    let components: Vec<String> = components.iter().map(f32::to_string).collect();
    format!("[{}]", components.join(","))
}

/// A vector of length 1 that texts with the same words share: what a model would give, without one.
pub fn text_vector(text: &str, dims: usize) -> Vec<f32> {
    let mut sum = vec![0.0f64; dims];
    for word in text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
    {
        let seed = word.to_lowercase().bytes().fold(7u64, |seed, byte| {
            seed.wrapping_mul(131).wrapping_add(u64::from(byte))
        });
        for (slot, x) in sum.iter_mut().zip(Random::new(seed).unit_vector(dims)) {
            *slot += f64::from(x);
        }
    }
    let length = sum.iter().map(|x| x * x).sum::<f64>().sqrt();
    if length == 0.0 {
        sum[0] = 1.0;
        return sum.iter().map(|x| *x as f32).collect();
    }
    sum.iter().map(|x| (x / length) as f32).collect()
}

/// An embedding space of this size for model `model`, used by namespace `default` from now on.
pub fn use_space(client: &mut Client, model: &str, dims: usize) -> i32 {
    let space: i32 = one(
        client,
        &format!("SELECT cortex_space_register('{model}', '1', '{model}-digest', {dims})"),
    );
    client
        .query_one("SELECT cortex_space_use('default', $1)", &[&space])
        .expect("the space can be used");
    space
}

/// Does all embedding with vectors of the texts, as a worker would, and answers with the number stored.
pub fn embed(client: &mut Client) -> i64 {
    embed_with(client, text_vector)
}

/// Does all embedding with vectors from `model`, which is told the text and the dimensions of the job's space, as
/// a worker would, and answers with the number stored.
pub fn embed_with(client: &mut Client, mut model: impl FnMut(&str, usize) -> Vec<f32>) -> i64 {
    let mut stored = 0;
    while let Some(job) =
        client.query_opt("SELECT t.job_id, s.dims FROM cortex_job_take('tests', '{embed}') t JOIN cortex.space s ON s.id = (t.payload ->> 'space')::int", &[]).expect("a job can be asked for")
    {
        let (job, dims): (i64, i32) = (job.get(0), job.get(1));
        loop {
            let texts = client.query("SELECT item_id, body FROM cortex_embed_take($1, 'tests', 500)", &[&job]).expect("texts");
            let ids: Vec<i64> = texts.iter().map(|row| row.get(0)).collect();
            let vectors: Vec<String> = texts.iter().map(|row| vector_literal(&model(row.get(1), dims as usize))).collect();
            let told: String = client
                .query_one("SELECT cortex_embed_commit($1, 'tests', $2, $3::text[]::vector[])::text", &[&job, &ids, &vectors])
                .expect("vectors are stored")
                .get(0);
            let told: Value = serde_json::from_str(&told).expect("cortex_embed_commit answers in JSON");
            stored += told["stored"].as_i64().expect("the number stored");
            if told["done"] == true {
                break;
            }
        }
    }
    stored
}

/// A login role of the cluster, dropped with the value. Declare it after the database whose objects it may own.
pub struct Role {
    /// Its name, which needs no quotes.
    pub name: String,
    admin: Client,
}

impl Role {
    /// A role with further options of `CREATE ROLE`; `label` tells the roles of one test apart.
    pub fn new(database: &Database, label: &str, options: &str) -> Self {
        let name = format!("{}_{label}", database.name);
        let mut admin = database.connect();
        admin
            .batch_execute(&format!("CREATE ROLE {name} LOGIN {options}"))
            .expect("a role can be made");
        Role { name, admin }
    }

    /// A session that is the role's from the start, so that it cannot step back to another.
    pub fn login(&self, database: &Database) -> Client {
        let mut client = database
            .config()
            .user(&self.name)
            .connect(NoTls)
            .expect("the role can log in");
        client
            .batch_execute("SET statement_timeout = '60s'")
            .expect("a new session takes no setting");
        client
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.admin.batch_execute(&format!(
            "DROP OWNED BY {0} CASCADE; DROP ROLE {0}",
            self.name
        ));
    }
}

//! The peer's rules that Cortex does not follow, as its reference documents them: what a recording must be
//! explained by where Cortex differs.

use std::collections::HashMap;

use cortex_core::pool::pack::Meter;
use serde_json::Value;

/// Size of a text: a quarter of its characters, at least 1.
pub fn estimate(text: &str) -> u64 {
    (text.chars().count() as u64 / 4).max(1)
}

/// The recorded way of counting, as a meter for Cortex's packing.
#[derive(Debug, Clone, Copy, Default)]
pub struct QuarterOfCharacters;

impl Meter for QuarterOfCharacters {
    fn opening(&self, header: Option<&str>, _first_group: bool) -> u64 {
        1 + header.map_or(0, |header| estimate(header) + 1)
    }

    fn claim(&self, bullet: &str, _opens_group: bool) -> u64 {
        estimate(bullet)
    }

    fn raw(&self, source_line: &str, text: &str) -> u64 {
        let source_line = match source_line {
            "" => 0,
            line => estimate(line) + 1,
        };
        source_line + estimate(text)
    }
}

/// A claim to pack: owner, header and line as it is to be rendered.
#[derive(Debug, Clone)]
pub struct Line {
    /// Owner.
    pub unit: String,
    /// Header of the owner; may be empty.
    pub header: String,
    /// The line with its mark.
    pub bullet: String,
}

/// What was packed.
#[derive(Debug, Clone, Default)]
pub struct PeerPacked {
    /// Number of claims served, a prefix of those offered.
    pub served: usize,
    /// Estimated size.
    pub tokens: u64,
    /// Header that each served owner got.
    pub headers: HashMap<String, String>,
    /// Size of a first claim that did not fit and was served all the same.
    pub overrun: Option<u64>,
}

/// Packs in order and stops at the first that does not fit. With `at_least_one` the first is served whatever
/// its size, without its header if that helps.
pub fn pack(lines: &[Line], budget: u64, at_least_one: bool) -> PeerPacked {
    let mut packed = PeerPacked::default();
    for line in lines {
        let opening = !packed.headers.contains_key(&line.unit);
        let mut header = line.header.as_str();
        let mut cost = estimate(&line.bullet);
        if opening {
            cost += 1;
            if !header.is_empty() {
                cost += estimate(header) + 1;
            }
        }
        if packed.served > 0 || !at_least_one {
            if packed.tokens + cost > budget {
                break;
            }
        } else {
            if cost > budget && !header.is_empty() {
                header = "";
                cost = estimate(&line.bullet) + 1;
            }
            if cost > budget {
                packed.overrun = Some(cost);
            }
        }
        if opening {
            packed.headers.insert(line.unit.clone(), header.to_owned());
        }
        packed.tokens += cost;
        packed.served += 1;
    }
    packed
}

/// The payload of packed lines.
pub fn render(lines: &[Line], headers: &HashMap<String, String>) -> String {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in lines {
        match groups.iter_mut().find(|(unit, _)| *unit == line.unit) {
            Some((_, bullets)) => bullets.push(&line.bullet),
            None => groups.push((&line.unit, vec![&line.bullet])),
        }
    }
    let groups: Vec<String> = groups
        .into_iter()
        .map(
            |(unit, bullets)| match headers.get(unit).map(String::as_str) {
                None | Some("") => bullets.join("\n"),
                Some(header) => format!("{header}\n{}", bullets.join("\n")),
            },
        )
        .collect();
    groups.join("\n\n")
}

/// Text of a claim: an object's `claim`, else its `text`, else the value as Python prints it.
pub fn claim_text(claim: &Value) -> String {
    let field = |name| claim.get(name).filter(|value| !is_falsy(value));
    let value = field("claim").or_else(|| field("text")).unwrap_or(claim);
    printed(value).trim().to_owned()
}

/// A value as Python prints it.
pub fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => python_text(other),
    }
}

fn is_falsy(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn python_text(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("'{text}'"),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(python_text).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(key, value)| format!("'{key}': {}", python_text(value)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
    }
}

/// Positions that Python's `random.Random(count).sample(range(count), wanted)` gives.
pub fn python_sample(count: usize, wanted: usize) -> Vec<usize> {
    let mut random = MersenneTwister::seeded(count as u32);
    let mut set_size = 21_f64;
    if wanted > 5 {
        set_size += 4_f64.powf(((wanted * 3) as f64).log(4.0).ceil());
    }
    if count as f64 <= set_size {
        let mut pool: Vec<usize> = (0..count).collect();
        return (0..wanted)
            .map(|taken| {
                let at = random.below(count - taken);
                let chosen = pool[at];
                pool[at] = pool[count - taken - 1];
                chosen
            })
            .collect();
    }
    let mut chosen = Vec::with_capacity(wanted);
    while chosen.len() < wanted {
        let at = random.below(count);
        if !chosen.contains(&at) {
            chosen.push(at);
        }
    }
    chosen
}

const STATE: usize = 624;
const SHIFT: usize = 397;

/// MT19937 (Matsumoto and Nishimura, 1998), seeded as Python does it.
struct MersenneTwister {
    state: [u32; STATE],
    next: usize,
}

impl MersenneTwister {
    fn seeded(key: u32) -> Self {
        let mut state = [0_u32; STATE];
        state[0] = 19_650_218;
        for at in 1..STATE {
            let before = state[at - 1];
            state[at] = 1_812_433_253_u32
                .wrapping_mul(before ^ (before >> 30))
                .wrapping_add(at as u32);
        }
        let mut at = 1;
        for _ in 0..STATE {
            let before = state[at - 1];
            state[at] =
                (state[at] ^ (before ^ (before >> 30)).wrapping_mul(1_664_525)).wrapping_add(key);
            at = Self::after(at, &mut state);
        }
        for _ in 0..STATE - 1 {
            let before = state[at - 1];
            state[at] = (state[at] ^ (before ^ (before >> 30)).wrapping_mul(1_566_083_941))
                .wrapping_sub(at as u32);
            at = Self::after(at, &mut state);
        }
        state[0] = 0x8000_0000;
        Self { state, next: STATE }
    }

    fn after(at: usize, state: &mut [u32; STATE]) -> usize {
        if at + 1 == STATE {
            state[0] = state[STATE - 1];
            1
        } else {
            at + 1
        }
    }

    fn number(&mut self) -> u32 {
        if self.next == STATE {
            for at in 0..STATE {
                let bits =
                    (self.state[at] & 0x8000_0000) | (self.state[(at + 1) % STATE] & 0x7fff_ffff);
                let odd = if bits & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[at] = self.state[(at + SHIFT) % STATE] ^ (bits >> 1) ^ odd;
            }
            self.next = 0;
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    /// A number below `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize {
        let bits = usize::BITS - bound.leading_zeros();
        loop {
            let drawn = (self.number() >> (32 - bits)) as usize;
            if drawn < bound {
                return drawn;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_python_s() {
        // random.Random(5).getrandbits(32), twice.
        let mut random = MersenneTwister::seeded(5);
        assert_eq!(random.number(), 2_675_342_405);
        assert_eq!(random.number(), 1_097_127_993);
        assert_eq!(python_sample(31, 24)[..6], [0, 15, 3, 24, 12, 4]);
        assert_eq!(python_sample(400, 24)[..6], [157, 287, 129, 47, 289, 250]);
    }
}

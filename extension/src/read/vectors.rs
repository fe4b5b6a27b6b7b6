//! Stored vectors of items, quantised as the scores are.

use std::collections::HashMap;

use cortex_core::vector as quant;

use crate::error::Fault;
use crate::kept::{self, Access};
use crate::vector::VectorRef;

/// The vectors of `items` in a space. An item without one is missing from the map.
pub fn stored(space: i32, items: &[i64]) -> Result<HashMap<i64, Vec<i16>>, Fault> {
    if items.is_empty() {
        return Ok(HashMap::new());
    }
    let found = kept::read(
        Access::Index,
        &format!(
            "SELECT e.item_id, e.embedding FROM cortex.emb_{space} e WHERE e.item_id = ANY ($1)"
        ),
        &[items.to_vec().into()],
        |row| {
            let vector = row.must::<VectorRef>(2)?;
            let components = vector.as_slice();
            Ok((
                row.must::<i64>(1)?,
                quant::quantise_for(components, components.len()).ok(),
            ))
        },
    )?;
    Ok(found
        .into_iter()
        .filter_map(|(item, vector)| Some((item, vector?)))
        .collect())
}

//! The forward pass: word pieces to sentence vectors.

use std::path::Path;
use std::sync::Arc;

use rten::{Model, ModelOptions, NodeId, RunOptions, ThreadPool, Value};

use super::{EmbedError, manifest};

/// The graph and its weights, ready to run. The graph is described in `tools/model/minilm_graph.py`.
pub(super) struct Encoder {
    model: Model,
    input_ids: NodeId,
    attention_mask: NodeId,
    token_sum: NodeId,
    dimensions: usize,
}

impl Encoder {
    /// Prepares the graph, the content of `dir/model.onnx`, with the weights it points into.
    pub(super) fn load(
        dir: &Path,
        graph: Vec<u8>,
        weights: Vec<u8>,
        dimensions: usize,
    ) -> Result<Encoder, EmbedError> {
        let path = dir.join(manifest::GRAPH);
        let unusable = |reason: String| EmbedError::Unusable {
            path: path.clone(),
            reason,
        };
        let model = ModelOptions::with_all_ops()
            .prepack_weights(true)
            .external_data(manifest::WEIGHTS, weights)
            .load(graph)
            .map_err(|error| unusable(error.to_string()))?;
        let node = |name: &str| {
            model
                .node_id(name)
                .map_err(|error| unusable(error.to_string()))
        };
        let (input_ids, attention_mask, token_sum) = (
            node("input_ids")?,
            node("attention_mask")?,
            node("token_sum")?,
        );
        Ok(Encoder {
            model,
            input_ids,
            attention_mask,
            token_sum,
            dimensions,
        })
    }

    /// Encodes sentences padded to `width` word pieces on the threads of `pool`. Returns for each the sum of its word pieces' last
    /// layer, which has the direction of their mean.
    pub(super) fn token_sums(
        &self,
        sentences: &[&[i32]],
        width: usize,
        pool: &Arc<ThreadPool>,
    ) -> Result<Vec<Vec<f32>>, EmbedError> {
        let shape = [sentences.len(), width];
        let mut ids = Vec::with_capacity(sentences.len() * width);
        let mut mask = Vec::with_capacity(sentences.len() * width);
        for sentence in sentences {
            let padding = width.saturating_sub(sentence.len());
            ids.extend_from_slice(sentence);
            ids.resize(ids.len() + padding, 0);
            mask.resize(mask.len() + sentence.len(), 1.0f32);
            mask.resize(mask.len() + padding, 0.0);
        }

        let failed = |reason: String| EmbedError::Run { reason };
        let ids = Value::from_shape(&shape, ids).map_err(|error| failed(error.to_string()))?;
        let mask = Value::from_shape(&shape, mask).map_err(|error| failed(error.to_string()))?;
        let options = RunOptions::default().with_thread_pool(Some(pool.clone()));
        let [sums] = self
            .model
            .run_n(
                vec![
                    (self.input_ids, ids.into()),
                    (self.attention_mask, mask.into()),
                ],
                [self.token_sum],
                Some(options),
            )
            .map_err(|error| failed(error.to_string()))?;
        let (found, values) = sums
            .into_shape_vec::<f32, 2>()
            .map_err(|error| failed(error.to_string()))?;
        let expected = [sentences.len(), self.dimensions];
        if found != expected {
            return Err(failed(format!(
                "the graph returned a result of shape {found:?}, expected {expected:?}"
            )));
        }
        Ok(values
            .chunks_exact(self.dimensions)
            .map(<[f32]>::to_vec)
            .collect())
    }
}

/// Scales `vector` to length one, in double precision. `None` where it has no direction: a component is not finite, or all are zero.
pub(super) fn normalise(vector: &mut [f32]) -> Option<()> {
    let length = vector
        .iter()
        .map(|&component| f64::from(component).powi(2))
        .sum::<f64>()
        .sqrt();
    if !length.is_finite() || length < f64::from(f32::MIN_POSITIVE) {
        return None;
    }
    for component in vector {
        *component = (f64::from(*component) / length) as f32;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_normalised_vector_has_length_one_and_its_direction(
            components in prop::collection::vec(-1e6f32..1e6, 1..500),
        ) {
            prop_assume!(components.iter().any(|component| component.abs() > 1e-20));
            let mut vector = components.clone();
            prop_assert_eq!(normalise(&mut vector), Some(()));
            let square: f64 = vector.iter().map(|&x| f64::from(x).powi(2)).sum();
            prop_assert!((square.sqrt() - 1.0).abs() < 1e-6);
            prop_assert!(components.iter().zip(&vector).all(|(before, after)| before * after >= 0.0));
        }
    }

    #[test]
    fn inv_05_a_vector_without_direction_is_refused() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(normalise(&mut [1.0, bad, 2.0]), None);
        }
        assert_eq!(normalise(&mut [0.0, -0.0, 0.0]), None);
        assert_eq!(normalise(&mut []), None);
        assert_eq!(normalise(&mut [0.0, f32::MAX]), Some(()));
    }
}

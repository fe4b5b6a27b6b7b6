//! Quantised vectors.

use cortex_core::vector::{
    MAX_DIMS, UNIT_DOT, VectorError, dot, dot_quantised, from_le_bytes, quantise, quantise_for,
    to_le_bytes,
};
use proptest::prelude::*;

/// The definition, written the slow and plain way.
fn quantise_by_definition(values: &[f32]) -> Vec<i16> {
    let mut lanes = [0.0_f64; 8];
    for (index, &value) in values.iter().enumerate() {
        lanes[index % 8] += f64::from(value) * f64::from(value);
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    let factor = 32_767.0 / (((a + b) + (c + d)) + ((e + f) + (g + h))).sqrt();
    values
        .iter()
        .map(|&value| (f64::from(value) * factor).round() as i16)
        .collect()
}

fn component() -> impl Strategy<Value = f32> {
    prop_oneof![
        4 => -1.0_f32..1.0,
        1 => Just(0.0_f32),
        1 => any::<f32>().prop_filter("finite", |value| value.is_finite()),
    ]
}

fn vector() -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(component(), 1..70).prop_filter("not zero", |values| {
        values.iter().any(|&value| value != 0.0)
    })
}

proptest! {
    #[test]
    fn quantising_follows_the_definition(values in vector()) {
        prop_assert_eq!(quantise(&values), Ok(quantise_by_definition(&values)));
    }

    #[test]
    fn dot_is_the_sum_of_products(stored in vector(), seed in vector()) {
        let query: Vec<f32> = (0..stored.len()).map(|index| seed[index % seed.len()] + 0.01).collect();
        let query = quantise(&query)?;
        let expected: i64 =
            quantise(&stored)?.iter().zip(&query).map(|(&a, &b)| i64::from(a) * i64::from(b)).sum();
        prop_assert_eq!(dot(&stored, &query), Ok(expected));
        prop_assert_eq!(dot_quantised(&quantise(&stored)?, &query), Ok(expected));
    }

    #[test]
    fn any_query_components_are_summed_exactly(
        stored in vector(),
        seed in prop::collection::vec(any::<i16>(), 70),
    ) {
        let query = &seed[..stored.len()];
        let expected: i64 =
            quantise(&stored)?.iter().zip(query).map(|(&a, &b)| i64::from(a) * i64::from(b)).sum();
        prop_assert_eq!(dot(&stored, query), Ok(expected));
    }

    #[test]
    fn length_does_not_matter(values in prop::collection::vec(-1.0_f32..1.0, 1..70), power in -20_i32..20) {
        prop_assume!(values.iter().any(|&value| value.abs() > 0.01));
        let scaled: Vec<f32> = values.iter().map(|&value| value * 2.0_f32.powi(power)).collect();
        prop_assert_eq!(quantise(&values)?, quantise(&scaled)?);
    }

    #[test]
    fn a_vector_is_nearest_to_itself(values in prop::collection::vec(-1.0_f32..1.0, 384)) {
        let quantised = quantise(&values)?;
        let itself = dot(&values, &quantised)?;
        // 384 roundings of at most a half each move the squared length little.
        prop_assert!((itself - UNIT_DOT).abs() < 400_000, "{}", itself - UNIT_DOT);
        let opposite: Vec<f32> = values.iter().map(|value| -value).collect();
        prop_assert_eq!(dot(&opposite, &quantised)?, -itself);
    }

    #[test]
    fn bytes_round_trip(values in vector()) {
        let quantised = quantise(&values)?;
        prop_assert_eq!(from_le_bytes(&to_le_bytes(&quantised)), Ok(quantised));
    }
}

#[test]
fn recorded_values_do_not_move() {
    assert_eq!(quantise(&[1.0]), Ok(vec![32_767]));
    assert_eq!(quantise(&[3.0, -4.0]), Ok(vec![19_660, -26_214]));
    assert_eq!(quantise(&[1.0, 1.0, 1.0]), Ok(vec![18_918, 18_918, 18_918]));
    let values: Vec<f32> = (0..19_u16)
        .map(|index| f32::from(index * index % 7) - 2.5)
        .collect();
    let expected = [
        -12529, -7517, 7517, -2506, -2506, 7517, -7517, -12529, -7517, 7517, -2506, -2506, 7517,
        -7517, -12529, -7517, 7517, -2506, -2506,
    ];
    assert_eq!(quantise(&values), Ok(expected.to_vec()));
}

#[test]
fn halves_go_away_from_zero() {
    // 1 + 71^2 + 355^2 + 65533^2 = 65534^2, so every component is divided by exactly 2.
    assert_eq!(
        quantise(&[1.0, 71.0, 355.0, 65_533.0]),
        Ok(vec![1, 36, 178, 32_767])
    );
    assert_eq!(
        quantise(&[-1.0, -71.0, -355.0, -65_533.0]),
        Ok(vec![-1, -36, -178, -32_767])
    );
    // Beside 65534 the factor is a hair below a half.
    let beside = |small: f32| quantise(&[65_534.0, small]).map(|components| components[1]);
    assert_eq!((beside(1.0), beside(-1.0)), (Ok(0), Ok(0)));
    assert_eq!((beside(1.0001), beside(-1.0001)), (Ok(1), Ok(-1)));
}

#[test]
fn extremes_of_f32_are_no_trouble() {
    assert_eq!(quantise(&[f32::MAX, f32::MAX]), Ok(vec![23_170, 23_170]));
    assert_eq!(quantise(&[f32::from_bits(1), 0.0]), Ok(vec![32_767, 0]));
    assert_eq!(quantise(&[-0.0, 1.0]), Ok(vec![0, 32_767]));
}

#[test]
fn inv_05_vectors_without_direction_or_of_wrong_size_are_refused_naming_both_sizes() {
    assert_eq!(quantise(&[0.0; 384]), Err(VectorError::Zero { dims: 384 }));
    assert_eq!(quantise(&[-0.0]), Err(VectorError::Zero { dims: 1 }));
    assert_eq!(
        quantise(&[1.0, f32::NAN]),
        Err(VectorError::NotFinite { index: 1, dims: 2 })
    );
    assert_eq!(
        quantise(&[f32::NEG_INFINITY, 0.0]),
        Err(VectorError::NotFinite { index: 0, dims: 2 })
    );
    assert_eq!(
        quantise(&[]),
        Err(VectorError::UnsupportedSize { found: 0 })
    );
    assert_eq!(
        quantise(&vec![1.0; MAX_DIMS + 1]),
        Err(VectorError::UnsupportedSize {
            found: MAX_DIMS + 1
        })
    );
    assert!(quantise(&vec![1.0; MAX_DIMS]).is_ok());
    assert!(quantise_for(&[1.0; 384], 384).is_ok());
    let error = quantise_for(&[1.0; 768], 384).expect_err("768 is not 384");
    assert_eq!(
        error,
        VectorError::WrongSize {
            expected: 384,
            found: 768
        }
    );
    assert!(
        error.to_string().contains("768") && error.to_string().contains("384"),
        "{error}"
    );
    assert_eq!(
        dot(&[1.0; 3], &[1; 4]),
        Err(VectorError::WrongSize {
            expected: 4,
            found: 3
        })
    );
    assert_eq!(dot(&[0.0; 4], &[1; 4]), Err(VectorError::Zero { dims: 4 }));
    assert_eq!(
        dot_quantised(&[1; 3], &[1; 4]),
        Err(VectorError::WrongSize {
            expected: 4,
            found: 3
        })
    );
}

#[test]
fn bytes_that_no_vector_has_are_refused() {
    assert_eq!(
        from_le_bytes(&[1, 2, 3]),
        Err(VectorError::OddBytes { found: 3 })
    );
    assert_eq!(
        from_le_bytes(&[]),
        Err(VectorError::UnsupportedSize { found: 0 })
    );
    assert_eq!(
        from_le_bytes(&[0, 0, 0, 0x80]),
        Err(VectorError::OutOfRange { index: 1 })
    );
    assert_eq!(from_le_bytes(&[1, 0, 0xFF, 0xFF]), Ok(vec![1, -1]));
}

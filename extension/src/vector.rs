//! pgvector's `vector` as an argument, read in place.
//!
//! Layout (pgvector's own): varlena header, `int16` dimensions, `int16` zero, then the `float4` components.

use std::cell::RefCell;
use std::ptr::NonNull;

use cortex_core::packed;
use cortex_core::vector::{self as quant, VectorError};
use pgrx::callconv::{Arg, ArgAbi};
use pgrx::prelude::*;
use pgrx::{Array, FromDatum, pg_sys};

use crate::error::{Fault, Outcome};

/// A non-null `vector`, detoasted where needed.
pub struct VectorRef {
    base: NonNull<u8>,
    owned: bool,
}

/// Bytes before the first component, after the 4-byte varlena header.
const HEADER: usize = 8;

impl VectorRef {
    /// The components.
    pub fn as_slice(&self) -> &[f32] {
        // SAFETY: `from_polymorphic_datum` checked that the value holds exactly `dim` floats after the
        // header; detoasting gives 4-byte alignment, and HEADER keeps it.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(HEADER).cast(), self.dims()) }
    }

    fn dims(&self) -> usize {
        // SAFETY: the value is at least HEADER bytes long, checked at construction.
        unsafe { self.base.as_ptr().add(4).cast::<u16>().read() as usize }
    }
}

impl FromDatum for VectorRef {
    unsafe fn from_polymorphic_datum(
        datum: pg_sys::Datum,
        is_null: bool,
        _: pg_sys::Oid,
    ) -> Option<Self> {
        if is_null {
            return None;
        }
        // SAFETY: the caller promises a `vector` datum. Nothing in it is trusted before its length is.
        unsafe {
            let source: *mut pg_sys::varlena = datum.cast_mut_ptr();
            let flat = pg_sys::pg_detoast_datum(source);
            let size = pgrx::varsize_4b(flat);
            let this = VectorRef {
                base: NonNull::new(flat.cast())?,
                owned: flat != source,
            };
            assert!(
                size >= HEADER && size == HEADER + 4 * this.dims(),
                "a value of type vector has {size} bytes, which no number of dimensions gives"
            );
            Some(this)
        }
    }
}

impl Drop for VectorRef {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: the detoasted copy is ours alone.
            unsafe { pg_sys::pfree(self.base.as_ptr().cast()) }
        }
    }
}

// SAFETY: unboxing goes through `FromDatum`, which checks the value's length.
unsafe impl<'fcx> ArgAbi<'fcx> for VectorRef {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        unsafe { arg.unbox_arg_using_from_datum() }
            .expect("the function is STRICT or takes an Option")
    }
}

pgrx::impl_sql_translatable!(VectorRef, arg_only = "vector");

/// Similarity of a stored vector and a quantised query, as an integer that is equal on every machine:
/// the dot product of both, scaled to 32767 a component. A vector that cannot be quantised has none: NULL.
#[pg_extern(sql = r#"
CREATE FUNCTION cortex._vector_score(stored vector, query bytea) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE COST 100 AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn vector_score(stored: VectorRef, query: &[u8]) -> Outcome<Option<i64>> {
    // The query arrives as bytes, so that one row costs no array to unpack, and is the same for row after row.
    thread_local! {
        static QUERY: RefCell<(Vec<u8>, Vec<i16>)> = const { RefCell::new((Vec::new(), Vec::new())) };
    }
    QUERY.with_borrow_mut(|(bytes, components)| {
        if bytes != query {
            let (pairs, rest) = query.as_chunks::<2>();
            if !rest.is_empty() {
                let fault = Fault::internal("a quantised query has an odd number of bytes".into());
                return Err(fault.into());
            }
            bytes.clear();
            bytes.extend_from_slice(query);
            components.clear();
            components.extend(pairs.iter().map(|pair| i16::from_le_bytes(*pair)));
        }
        // Nothing of the kind is stored by us; a value put in by hand must not fail every read.
        Ok(dot(stored.as_slice(), components).ok())
    })
}

/// [`quant::dot`] by the widest vector instructions that this processor has.
fn dot(stored: &[f32], query: &[i16]) -> Result<i64, VectorError> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor was just asked for what the function is compiled for.
        return unsafe { dot_avx2(stored, query) };
    }
    quant::dot(stored, query)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn dot_avx2(stored: &[f32], query: &[i16]) -> Result<i64, VectorError> {
    quant::dot(stored, query)
}

/// Whether a provider's vector may be stored for a space of `dims` dimensions: true, or an error that says why
/// not (wrong length with both sizes, zero, not finite).
#[pg_extern(sql = r#"
CREATE FUNCTION cortex._vector_fits(vector vector, dims integer, item bigint) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn vector_fits(vector: VectorRef, dims: i32, item: i64) -> Outcome<bool> {
    match quant::quantise_for(vector.as_slice(), dims as usize) {
        Ok(_) => Ok(true),
        Err(error) => Err(Fault::argument(format!("embedding of item {item}: {error}")).into()),
    }
}

/// Vectors (equal in size, one after another) as a block of one-byte copies; see [`cortex_core::packed`].
#[pg_extern(sql = r#"
CREATE FUNCTION cortex._pack(items bigint[], components real[]) RETURNS bytea
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn pack(items: Array<i64>, components: Array<f32>) -> Outcome<Vec<u8>> {
    let items: Vec<i64> = items.iter_deny_null().collect();
    let components: Vec<f32> = components.iter_deny_null().collect();
    let dims = components.len() / items.len().max(1);
    if dims == 0 || dims * items.len() != components.len() {
        let (items, found) = (items.len(), components.len());
        return Err(Fault::internal(format!("{found} components for {items} items")).into());
    }
    let vectors: Vec<(i64, &[f32])> = items
        .into_iter()
        .zip(components.chunks_exact(dims))
        .collect();
    let block = packed::pack(&vectors);
    Ok(block.map_err(|error| Fault::argument(format!("vectors to pack: {error}")))?)
}

/// The items of a block of one-byte copies.
#[pg_extern(sql = r#"
CREATE FUNCTION cortex._pack_items(block bytea) RETURNS bigint[]
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn pack_items(block: &[u8]) -> Outcome<Vec<i64>> {
    let items = packed::items(block);
    Ok(items.map_err(|error| Fault::argument(format!("a block of copies: {error}")))?)
}

/// How many vectors of `dims` dimensions a block holds.
#[pg_extern(sql = r#"
CREATE FUNCTION cortex._pack_capacity(dims integer) RETURNS integer
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn pack_capacity(dims: i32) -> i32 {
    packed::capacity(usize::try_from(dims).unwrap_or(0)) as i32
}

/// [`packed::Scan::block`] by the widest vector instructions that this processor has.
pub fn scan_block(scan: &mut packed::Scan, block: &[u8]) -> Result<(), packed::NoBlock> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor was just asked for what the function is compiled for.
        return unsafe { scan_block_avx2(scan, block) };
    }
    scan.block(block)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn scan_block_avx2(scan: &mut packed::Scan, block: &[u8]) -> Result<(), packed::NoBlock> {
    scan.block(block)
}

/// Quantises a caller's vector for a space of `dims` dimensions.
pub fn quantise(vector: &VectorRef, dims: i32) -> Result<Vec<i16>, Fault> {
    quant::quantise_for(vector.as_slice(), dims as usize).map_err(|error| {
        Fault::argument(format!("query_embedding: {error}")).hint(
            "Embed the query with the model of the namespace's space; see view cortex.namespaces.",
        )
    })
}

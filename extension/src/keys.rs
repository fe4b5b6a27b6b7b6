//! Keys that a trigger's call concerns, as a relation that a statement can read.

use std::ffi::CStr;

use pgrx::pg_sys;

use crate::binding::{Column, Stored};
use crate::error::Fault;

/// Name under which statements read the keys; columns `k1`, `k2` ... of the key's base types.
pub const NAME: &CStr = c"cortex_keys";

/// A tuple store of keys. It spills to disk by itself.
pub struct Keys {
    store: *mut pg_sys::Tuplestorestate,
    relation: Box<pg_sys::EphemeralNamedRelationData>,
    types: Vec<pg_sys::Oid>,
    count: i64,
}

impl Keys {
    /// An empty store for keys of these types.
    fn new(types: Vec<pg_sys::Oid>) -> Self {
        // SAFETY: plain constructors of the server; all of it lives in the memory of the trigger's call.
        unsafe {
            let descriptor = pg_sys::CreateTemplateTupleDesc(types.len() as i32);
            for (n, kind) in types.iter().enumerate() {
                let number = n as i16 + 1;
                let name = std::ffi::CString::new(format!("k{number}")).unwrap_or_default();
                pg_sys::TupleDescInitEntry(descriptor, number, name.as_ptr(), *kind, -1, 0);
            }
            let store = pg_sys::tuplestore_begin_heap(false, false, pg_sys::work_mem);
            let mut relation = Box::new(pg_sys::EphemeralNamedRelationData::default());
            relation.md.name = NAME.as_ptr().cast_mut();
            relation.md.reliddesc = pg_sys::InvalidOid;
            relation.md.tupdesc = descriptor;
            relation.md.enrtype = pg_sys::EphemeralNameRelationType::ENR_NAMED_TUPLESTORE;
            relation.reldata = store.cast();
            Keys {
                store,
                relation,
                types,
                count: 0,
            }
        }
    }

    /// How many keys there are; some may be there twice.
    pub fn count(&self) -> i64 {
        self.count
    }

    /// The key, if there is but one.
    pub fn only(&self) -> Option<Vec<Option<pg_sys::Datum>>> {
        if self.count != 1 {
            return None;
        }
        // SAFETY: our own store, whose statements read it from the beginning by pointers of their own. Slot and copy live
        // in the memory of the trigger's call.
        let image = unsafe {
            let descriptor = self.relation.md.tupdesc;
            let slot =
                pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsMinimalTuple);
            pg_sys::tuplestore_rescan(self.store);
            if !pg_sys::tuplestore_gettupleslot(self.store, true, true, slot) {
                return None;
            }
            pg_sys::slot_getsomeattrs_int(slot, self.types.len() as i32);
            Image::Slot(slot)
        };
        let column = |n: usize| {
            let (value, null) = image.get(n as i32 + 1);
            (!null).then_some(value)
        };
        Some((0..self.types.len()).map(column).collect())
    }

    /// The key's base types.
    pub fn types(&self) -> &[pg_sys::Oid] {
        &self.types
    }

    /// Makes the keys visible to the statements of the open SPI connection.
    ///
    /// # Safety
    /// An SPI connection is open, and `self` outlives it.
    pub unsafe fn register(&self) -> Result<(), Fault> {
        // SAFETY: the server only reads through the pointer.
        if unsafe { pg_sys::SPI_register_relation(std::ptr::from_ref(&*self.relation).cast_mut()) }
            < 0
        {
            return Err(Fault::internal("SPI did not take the keys".into()));
        }
        Ok(())
    }

    fn push(&mut self, image: &Image, columns: &[Attribute]) {
        let (values, nulls): (Vec<_>, Vec<_>) = columns
            .iter()
            .map(|column| image.get(column.number))
            .unzip();
        // SAFETY: values of the store's types, in its order.
        // The server reads the arrays; before PostgreSQL 17 its declaration does not say const.
        unsafe {
            pg_sys::tuplestore_putvalues(
                self.store,
                self.relation.md.tupdesc,
                values.as_ptr().cast_mut(),
                nulls.as_ptr().cast_mut(),
            )
        }
        self.count += 1;
        self.relation.md.enrtuples = self.count as f64;
    }

    /// The keys of a trigger's call.
    ///
    /// An UPDATE leaves out rows whose bound columns are the same before and after: if another statement inside
    /// this one changed such a row, that one's own trigger saw it. What is not left out is read anew by key,
    /// because the images of a trigger can be older than the row.
    pub fn of(data: &pg_sys::TriggerData, stored: &Stored) -> Result<Self, Fault> {
        let bound = Bound::of(data, stored)?;
        let mut keys = Keys::new(bound.key.iter().map(|column| column.base).collect());
        if data.tg_event & pg_sys::TRIGGER_EVENT_ROW != 0 {
            // SAFETY: the relation of the call is open, and its rows have its descriptor.
            let descriptor = unsafe { (*data.tg_relation).rd_att };
            let image = |tuple| Image::Heap { tuple, descriptor };
            // An UPDATE has its old row in tg_trigtuple and its new one in tg_newtuple; else there is one row.
            if data.tg_newtuple.is_null() {
                keys.push(&image(data.tg_trigtuple), &bound.key);
            } else {
                keys.push_changed(&image(data.tg_trigtuple), &image(data.tg_newtuple), &bound);
            }
            return Ok(keys);
        }
        let mut old = Reader::of(data.tg_oldtable, data, &bound);
        let mut new = Reader::of(data.tg_newtable, data, &bound);
        if let (Some(old), Some(new)) = (&mut old, &mut new)
            && old.count() == new.count()
        {
            // The server appends the images of an updated row to both tables in turn, so they come in pairs.
            while let (Some(before), Some(after)) = (old.next(), new.next()) {
                keys.push_changed(&before, &after, &bound);
            }
            return Ok(keys);
        }
        // Pairs are incomplete where a row that moved to another partition was refused there.
        for reader in [&mut old, &mut new].into_iter().flatten() {
            while let Some(image) = reader.next() {
                keys.push(&image, &bound.key);
            }
        }
        Ok(keys)
    }

    fn push_changed(&mut self, before: &Image, after: &Image, bound: &Bound) {
        let same = |columns: &[Attribute]| {
            columns
                .iter()
                .all(|column| column.same(before.get(column.number), after.get(column.number)))
        };
        let same_key = same(&bound.key);
        if same_key && same(&bound.values) {
            return;
        }
        self.push(before, &bound.key);
        if !same_key {
            self.push(after, &bound.key);
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: the store is ours; after an ERROR its memory and files go with the subtransaction.
            unsafe { pg_sys::tuplestore_end(self.store) }
        }
    }
}

/// A bound column in the table that fired, which may be a partition that numbers its columns otherwise.
struct Attribute {
    number: i32,
    base: pg_sys::Oid,
    length: i16,
    by_value: bool,
}

/// The bound columns in the table that fired.
struct Bound {
    key: Vec<Attribute>,
    values: Vec<Attribute>,
    /// The greatest number among them.
    last: i32,
}

impl Bound {
    fn of(data: &pg_sys::TriggerData, stored: &Stored) -> Result<Self, Fault> {
        // SAFETY: the server passes an open relation.
        let relation = unsafe { (*data.tg_relation).rd_id };
        let attribute = |name: &str| {
            let column = Column::of(relation, name)?;
            let (mut length, mut by_value) = (0, false);
            // SAFETY: a catalog look-up.
            unsafe { pg_sys::get_typlenbyval(column.base, &mut length, &mut by_value) };
            Ok(Attribute {
                number: i32::from(column.number),
                base: column.base,
                length,
                by_value,
            })
        };
        let key = stored
            .key_columns
            .iter()
            .map(|name| attribute(name))
            .collect::<Result<Vec<_>, Fault>>()?;
        let values = stored
            .value_columns()
            .map(attribute)
            .collect::<Result<Vec<_>, Fault>>()?;
        let last = key
            .iter()
            .chain(&values)
            .map(|column| column.number)
            .max()
            .unwrap_or(0);
        Ok(Bound { key, values, last })
    }
}

impl Attribute {
    /// Whether two values have the same bytes as stored. Equal values of unequal bytes (one compressed, say) count
    /// as different, which costs a look at the row and nothing else.
    fn same(&self, (a, a_null): (pg_sys::Datum, bool), (b, b_null): (pg_sys::Datum, bool)) -> bool {
        if a_null || b_null {
            return a_null && b_null;
        }
        if self.by_value {
            return a.value() == b.value();
        }
        // SAFETY: a value passed by reference has the length that its type or its own header says.
        unsafe {
            let (a, b) = (
                a.cast_mut_ptr::<u8>().cast_const(),
                b.cast_mut_ptr::<u8>().cast_const(),
            );
            let length = |value: *const u8| match self.length {
                -1 => pgrx::varsize_any(value.cast()),
                -2 => CStr::from_ptr(value.cast()).count_bytes(),
                fixed => fixed as usize,
            };
            let (a_length, b_length) = (length(a), length(b));
            a_length == b_length
                && std::slice::from_raw_parts(a, a_length)
                    == std::slice::from_raw_parts(b, b_length)
        }
    }
}

/// A row as the trigger's call shows it.
enum Image {
    Heap {
        tuple: pg_sys::HeapTuple,
        descriptor: pg_sys::TupleDesc,
    },
    /// A slot whose bound columns are taken apart.
    Slot(*mut pg_sys::TupleTableSlot),
}

impl Image {
    /// A column's value and whether it is NULL.
    fn get(&self, number: i32) -> (pg_sys::Datum, bool) {
        // SAFETY: numbers are those of columns of the relation that the row belongs to.
        unsafe {
            match *self {
                Image::Heap { tuple, descriptor } => {
                    let mut null = false;
                    let value = pg_sys::SPI_getbinval(tuple, descriptor, number, &mut null);
                    (value, null)
                }
                Image::Slot(slot) => {
                    let place = number as usize - 1;
                    (
                        *(*slot).tts_values.add(place),
                        *(*slot).tts_isnull.add(place),
                    )
                }
            }
        }
    }
}

/// Reads a transition table from its beginning.
struct Reader {
    store: *mut pg_sys::Tuplestorestate,
    pointer: i32,
    slot: *mut pg_sys::TupleTableSlot,
    last: i32,
}

impl Reader {
    /// `None` if the event has no such table.
    fn of(
        store: *mut pg_sys::Tuplestorestate,
        data: &pg_sys::TriggerData,
        bound: &Bound,
    ) -> Option<Self> {
        if store.is_null() {
            return None;
        }
        // SAFETY: a read pointer of our own does not disturb those of other triggers; rows of the table have the
        // relation's descriptor.
        unsafe {
            let pointer =
                pg_sys::tuplestore_alloc_read_pointer(store, pg_sys::EXEC_FLAG_REWIND as i32);
            pg_sys::tuplestore_select_read_pointer(store, pointer);
            pg_sys::tuplestore_rescan(store);
            let slot = pg_sys::MakeSingleTupleTableSlot(
                (*data.tg_relation).rd_att,
                &raw const pg_sys::TTSOpsMinimalTuple,
            );
            Some(Reader {
                store,
                pointer,
                slot,
                last: bound.last,
            })
        }
    }

    fn count(&self) -> i64 {
        // SAFETY: the trigger's own tuple store.
        unsafe { pg_sys::tuplestore_tuple_count(self.store) }
    }

    /// The next row, valid until the one after it is asked for.
    fn next(&mut self) -> Option<Image> {
        pgrx::check_for_interrupts!();
        // SAFETY: the slot has the rows' descriptor, and `last` is one of its columns.
        unsafe {
            pg_sys::tuplestore_select_read_pointer(self.store, self.pointer);
            if !pg_sys::tuplestore_gettupleslot(self.store, true, false, self.slot) {
                return None;
            }
            pg_sys::slot_getsomeattrs_int(self.slot, self.last);
            Some(Image::Slot(self.slot))
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: the slot is ours.
            unsafe { pg_sys::ExecDropSingleTupleTableSlot(self.slot) }
        }
    }
}

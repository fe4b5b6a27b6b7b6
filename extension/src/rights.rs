//! Whose rights a statement runs under.
//!
//! Callers hold no right on the tables of schema `cortex`. A function of ours reads them as the owner of
//! the schema, with the search path pinned, and goes back to the caller's rights (and search path) for
//! every look at a table of the user's.

use std::ffi::{CStr, CString};

use pgrx::pg_sys;

use crate::error::Fault;
use crate::kept::{self, Access};

/// While it lives, statements run as the owner of schema `cortex` with `search_path = pg_catalog, pg_temp`.
pub struct Owner {
    user: pg_sys::Oid,
    security: i32,
    nest: i32,
    search_path: String,
}

impl Owner {
    /// Switches to the owner; dropping the value switches back. An ERROR switches back as well, since
    /// aborting the (sub)transaction restores both.
    pub fn enter() -> Result<Self, Fault> {
        let owner = schema_owner()?;
        let search_path = setting(c"search_path");
        let (mut user, mut security) = (pg_sys::InvalidOid, 0);
        // SAFETY: plain calls of the server's own interface, as its C code uses it for the same purpose.
        let nest = unsafe {
            pg_sys::GetUserIdAndSecContext(&mut user, &mut security);
            pg_sys::SetUserIdAndSecContext(
                owner,
                security | pg_sys::SECURITY_LOCAL_USERID_CHANGE as i32,
            );
            pg_sys::NewGUCNestLevel()
        };
        let guard = Owner {
            user,
            security,
            nest,
            search_path,
        };
        set_local("search_path", "pg_catalog, pg_temp")?;
        Ok(guard)
    }

    /// The role that called.
    pub fn caller(&self) -> pg_sys::Oid {
        self.user
    }

    /// Runs `look` with the caller's rights and search path: row-level security applies, and functions in a
    /// policy find what they would find in a plain SELECT of the caller's.
    pub fn as_caller<T>(&self, look: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
        let (mut user, mut security) = (pg_sys::InvalidOid, 0);
        // SAFETY: as in `enter`. The security flags stay, so that nothing run by the caller's rights can
        // change the role for us.
        let back = unsafe {
            pg_sys::GetUserIdAndSecContext(&mut user, &mut security);
            pg_sys::SetUserIdAndSecContext(self.user, security);
            Owner {
                user,
                security,
                nest: pg_sys::NewGUCNestLevel(),
                search_path: String::new(),
            }
        };
        set_local("search_path", &self.search_path)?;
        let result = look();
        drop(back);
        result
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return; // the abort that follows restores both
        }
        // SAFETY: undoes exactly what `enter` did; guards nest like a stack.
        unsafe {
            pg_sys::AtEOXact_GUC(false, self.nest);
            pg_sys::SetUserIdAndSecContext(self.user, self.security);
        }
    }
}

/// While it lives, values are rendered as text in one way, whatever the session has set.
pub struct Rendering {
    nest: i32,
}

/// Names and values that pin how values become text. The trigger functions declare the same in SQL.
pub const RENDERING: [(&str, &str); 5] = [
    ("TimeZone", "UTC"),
    ("DateStyle", "ISO, YMD"),
    ("IntervalStyle", "iso_8601"),
    ("extra_float_digits", "1"),
    ("bytea_output", "hex"),
];

impl Rendering {
    /// Pins the settings of [`RENDERING`] until dropped.
    pub fn pin() -> Result<Self, Fault> {
        // SAFETY: as in `Owner::enter`.
        let guard = Rendering {
            nest: unsafe { pg_sys::NewGUCNestLevel() },
        };
        for (name, value) in RENDERING {
            set_local(name, value)?;
        }
        Ok(guard)
    }
}

impl Drop for Rendering {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: undoes exactly what `pin` did.
            unsafe { pg_sys::AtEOXact_GUC(false, self.nest) }
        }
    }
}

/// Sets a parameter at the present nest level, which its guard undoes.
pub fn set_local(name: &str, value: &str) -> Result<(), Fault> {
    let (Ok(name), Ok(value)) = (CString::new(name), CString::new(value)) else {
        return Err(Fault::internal("a setting holds a NUL byte".into()));
    };
    // SAFETY: both strings outlive the call.
    unsafe {
        pg_sys::set_config_option(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_SAVE,
            true,
            0,
            false,
        );
    }
    Ok(())
}

/// The present value of a setting.
fn setting(name: &CStr) -> String {
    // SAFETY: the name is a live C string; the value is copied at once.
    unsafe {
        let value = pg_sys::GetConfigOption(name.as_ptr(), true, false);
        if value.is_null() {
            String::new()
        } else {
            CStr::from_ptr(value).to_string_lossy().into_owned()
        }
    }
}

fn schema_owner() -> Result<pg_sys::Oid, Fault> {
    // SAFETY: a system cache look-up; the tuple is released before its value is used.
    unsafe {
        let schema = pg_sys::get_namespace_oid(c"cortex".as_ptr(), true);
        let tuple = pg_sys::SearchSysCache1(
            pg_sys::SysCacheIdentifier::NAMESPACEOID as i32,
            pg_sys::Datum::from(schema),
        );
        if tuple.is_null() {
            return Err(Fault::state("schema cortex does not exist".into())
                .hint("Run CREATE EXTENSION cortex CASCADE."));
        }
        let mut null = false;
        let owner = pg_sys::SysCacheGetAttr(
            pg_sys::SysCacheIdentifier::NAMESPACEOID as i32,
            tuple,
            pg_sys::Anum_pg_namespace_nspowner as i16,
            &mut null,
        );
        let owner = pg_sys::Oid::from_u32(owner.value() as u32);
        pg_sys::ReleaseSysCache(tuple);
        Ok(owner)
    }
}

/// The role whose rights are in force now.
pub fn current_user() -> pg_sys::Oid {
    // SAFETY: reads a backend variable.
    unsafe { pg_sys::GetUserId() }
}

/// A namespace as its caller may see it.
pub struct Namespace {
    /// Key in `cortex.namespace`.
    pub id: i32,
    /// As the caller wrote it.
    pub name: String,
    /// Keys the namespace's equality digests.
    pub secret: Vec<u8>,
    /// The embedding space of reads, if one is in use.
    pub space: Option<i32>,
    /// Scopes of at most so many items are scanned exactly, whatever the space's index finds.
    pub exact_items: u64,
}

/// The namespace, if `user` may read it. One it may not read answers like one that does not exist.
/// Call it as [`Owner`].
pub fn readable(name: &str, user: pg_sys::Oid) -> Result<Namespace, Fault> {
    // SAFETY: a catalog look-up.
    let all = unsafe { pg_sys::superuser_arg(user) };
    match find(name, user)? {
        Some((namespace, granted)) if granted || all => Ok(namespace),
        _ => Err(unreadable(name)),
    }
}

/// The namespace, for workers, who work in all of them. Call it as [`Owner`].
pub fn any(name: &str) -> Result<Namespace, Fault> {
    let found = find(name, pg_sys::InvalidOid)?;
    found
        .map(|(namespace, _)| namespace)
        .ok_or_else(|| Fault::unknown(format!("there is no namespace \"{name}\"")))
}

/// A namespace, and whether `user` was granted it.
fn find(name: &str, user: pg_sys::Oid) -> Result<Option<(Namespace, bool)>, Fault> {
    kept::read_one(
        Access::Index,
        "SELECT n.id, n.secret, n.space_id, \
                EXISTS (SELECT FROM cortex.namespace_grant g \
                        WHERE g.namespace_id = n.id AND pg_catalog.pg_has_role($2, g.role, 'usage')), \
                (cortex._pool_settings(n.id) ->> 'exact_items')::int8 \
           FROM cortex.namespace n WHERE n.name = $1",
        &[name.into(), user.into()],
        |row| {
            let namespace = Namespace {
                id: row.must::<i32>(1)?,
                name: name.into(),
                secret: row.must::<Vec<u8>>(2)?,
                space: row.get::<i32>(3),
                exact_items: row.must::<i64>(5)?.max(0).unsigned_abs(),
            };
            Ok((namespace, row.must::<bool>(4)?))
        },
    )
}

/// The answer for a namespace that the caller may not read, the same as for one that does not exist.
pub fn unreadable(name: &str) -> Fault {
    Fault::unknown(format!("there is no namespace \"{name}\" that you may read"))
        .hint("List yours in view cortex.namespaces; an administrator grants one with cortex_grant(namespace, role).")
}

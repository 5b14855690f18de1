//! Telling from a driver's error that the database has refused a statement in favour of another
//! transaction: a deadlock, a serialization failure, a lock that was not to be had. The same work can
//! succeed when it is begun anew.

use std::error::Error;

/// Whether this error itself is of that kind; those that it was caused by are not looked at.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub(crate) fn is_conflict(error: &(dyn Error + 'static)) -> bool {
    use std::sync::Arc;
    // Drivers' errors cannot be cloned, so they are found shared too.
    let shared = error.downcast_ref().map(Arc::<sqlx::Error>::as_ref);
    error.downcast_ref().or(shared).is_some_and(of_sqlx)
}

#[cfg(not(any(feature = "sqlite", feature = "postgres", feature = "mysql")))]
pub(crate) fn is_conflict(_: &(dyn Error + 'static)) -> bool {
    false
}

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
fn of_sqlx(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else {
        return false;
    };
    #[cfg(feature = "postgres")]
    if let Some(error) = error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>() {
        return postgres(error.code());
    }
    #[cfg(feature = "mysql")]
    if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        return mysql(error.number());
    }
    #[cfg(feature = "sqlite")]
    if error
        .try_downcast_ref::<sqlx::sqlite::SqliteError>()
        .is_some()
    {
        return super::sqlite::is_busy_code(error.code().as_deref());
    }
    false
}

/// By the `SQLSTATE`.
#[cfg(feature = "postgres")]
pub(super) fn postgres(code: &str) -> bool {
    // serialization_failure, deadlock_detected, lock_not_available
    matches!(code, "40001" | "40P01" | "55P03")
}

/// By the error's number.
#[cfg(feature = "mysql")]
pub(super) fn mysql(number: u16) -> bool {
    // ER_LOCK_DEADLOCK (also a lost certification in a cluster), ER_LOCK_WAIT_TIMEOUT, ER_CHECKREAD,
    // ER_LOCK_NOWAIT
    matches!(number, 1213 | 1205 | 1020 | 3572)
}

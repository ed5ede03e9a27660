//! Locks whose data is valid at each point at which a thread can panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose data stays valid if a thread panics while it holds the lock: a poisoned lock is used on.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Waits for events: a thread of the system calls a function when an event is set.

use std::ffi::c_void;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr::NonNull;

use windows_sys::Win32::Foundation::{HANDLE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::System::Threading::{
    CreateEventW, INFINITE, RegisterWaitForSingleObject, UnregisterWaitEx, WT_EXECUTEINWAITTHREAD,
    WT_EXECUTEONLYONCE,
};

use super::error::SysError;

/// How often the function of an [`EventWait`] is called.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rings {
    /// Once. The event stays set.
    Once,
    /// Each time. The wait resets the event.
    Always,
}

/// An event, and a registered wait for it.
///
/// INVARIANT: `part` points to a part on the heap, which only this value frees, and only after the system has confirmed that the
/// function has returned and is not called again.
pub(crate) struct EventWait<T: Send + Sync + 'static> {
    part: NonNull<WaitPart<T>>,
    state: WaitState,
}

#[derive(Clone, Copy)]
enum WaitState {
    Registered(HANDLE),
    Ended,
    /// The system could not end the wait: it may still use the part.
    Lost,
}

struct WaitPart<T> {
    event: OwnedHandle,
    context: T,
    /// Called on a thread of the system, which it must not block.
    act: fn(&T),
}

impl<T: Send + Sync + 'static> EventWait<T> {
    /// Creates an event that is not set, and waits for it from now on.
    pub(crate) fn new(rings: Rings, context: T, act: fn(&T)) -> Result<Self, SysError> {
        let (is_manual, flags) = match rings {
            Rings::Once => (1, WT_EXECUTEONLYONCE | WT_EXECUTEINWAITTHREAD),
            Rings::Always => (0, WT_EXECUTEINWAITTHREAD),
        };
        // SAFETY: the call takes no pointers but null ones.
        let event = unsafe { CreateEventW(std::ptr::null(), is_manual, 0, std::ptr::null()) };
        if event.is_null() {
            return Err(SysError::last());
        }
        // SAFETY: the event was created above, and nothing else knows of it.
        let event = unsafe { OwnedHandle::from_raw_handle(event) };
        let part = NonNull::from(Box::leak(Box::new(WaitPart { event, context, act })));
        // From here on the part is freed by `drop`.
        let mut new = Self { part, state: WaitState::Ended };
        let mut wait: HANDLE = std::ptr::null_mut();
        // SAFETY: the part owns event and context, and lives until the wait has ended (INVARIANT).
        let registered = unsafe {
            RegisterWaitForSingleObject(
                &raw mut wait,
                new.event(),
                Some(call::<T>),
                part.as_ptr().cast(),
                INFINITE,
                flags,
            )
        };
        if registered == 0 {
            return Err(SysError::last());
        }
        new.state = WaitState::Registered(wait);
        Ok(new)
    }

    fn part(&self) -> &WaitPart<T> {
        // SAFETY: the part lives as long as this value (INVARIANT), and nothing changes it.
        unsafe { self.part.as_ref() }
    }

    /// The event, which is open as long as this value.
    pub(crate) fn event(&self) -> HANDLE {
        self.part().event.as_raw_handle()
    }

    pub(crate) fn context(&self) -> &T {
        &self.part().context
    }

    /// Ends the wait: the function has returned, and is not called again. If the system cannot do that, the event and the context
    /// stay allocated for ever.
    pub(crate) fn end(&mut self) {
        let WaitState::Registered(wait) = self.state else { return };
        // SAFETY: the wait was registered and not unregistered before. The call returns when the function, which does not block,
        // has returned or can no longer be called; if it fails, the part is not freed.
        let ended = unsafe { UnregisterWaitEx(wait, INVALID_HANDLE_VALUE) };
        self.state = if ended == 0 { WaitState::Lost } else { WaitState::Ended };
    }
}

impl<T: Send + Sync + 'static> Drop for EventWait<T> {
    fn drop(&mut self) {
        self.end();
        if matches!(self.state, WaitState::Ended) {
            // SAFETY: `new` has leaked this box, and the system no longer uses it.
            drop(unsafe { Box::from_raw(self.part.as_ptr()) });
        }
    }
}

/// Calls the function of a wait, on a thread of the system.
unsafe extern "system" fn call<T>(context: *mut c_void, _: bool) {
    // SAFETY: the context is the part of a registered wait, which is freed only after the wait has ended.
    let WaitPart { context, act, .. } = unsafe { &*context.cast::<WaitPart<T>>() };
    act(context);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};

    use windows_sys::Win32::System::Threading::SetEvent;

    use super::*;

    #[test]
    fn a_wait_calls_its_function_and_frees_its_context_after_that() {
        for (rings, times) in [(Rings::Once, 1), (Rings::Always, 3)] {
            let (send, calls) = channel();
            let context: Arc<Sender<()>> = Arc::new(send);
            let mut wait = EventWait::new(rings, Arc::clone(&context), |send| {
                let _received = send.send(());
            })
            .expect("a wait");
            for _ in 0..times {
                // SAFETY: the event is open.
                assert_ne!(unsafe { SetEvent(wait.event()) }, 0);
                calls.recv().expect("a call");
            }
            wait.end();
            assert_eq!(Arc::strong_count(&context), 2, "the context lives as long as the value");
            // SAFETY: the event is open.
            assert_ne!(unsafe { SetEvent(wait.event()) }, 0);
            drop(wait);
            assert_eq!(Arc::strong_count(&context), 1);
            assert!(calls.try_recv().is_err(), "the wait had ended");
        }
    }

    #[test]
    fn a_wait_that_the_system_cannot_end_is_not_freed() {
        let context: Arc<()> = Arc::default();
        let mut wait = EventWait::new(Rings::Always, Arc::clone(&context), |_| {}).expect("a wait");
        let WaitState::Registered(handle) =
            std::mem::replace(&mut wait.state, WaitState::Registered(std::ptr::null_mut()))
        else {
            panic!("a new wait is registered");
        };
        wait.end();
        assert!(matches!(wait.state, WaitState::Lost), "no wait has this handle");
        drop(wait);
        assert_eq!(Arc::strong_count(&context), 2, "the function may still be called");
        // SAFETY: the wait was registered and not unregistered before. Its part stays allocated.
        assert_ne!(unsafe { UnregisterWaitEx(handle, INVALID_HANDLE_VALUE) }, 0);
    }
}

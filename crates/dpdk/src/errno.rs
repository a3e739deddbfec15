//! DPDK's error codes.

use hotloop_dpdk_sys as sys;
use std::ffi::{CStr, c_int};

/// DPDK's error code of the calling thread's last failed call.
pub(crate) fn errno() -> c_int {
    // SAFETY: 1. Reads a thread-local variable.
    unsafe { sys::sh_errno() }
}

/// An error code as text; DPDK returns some negated.
pub(crate) fn errno_text(code: c_int) -> String {
    let code = code.abs();
    // SAFETY: 1. rte_errno.h: takes any number; the text lives until the thread's next call.
    let text = unsafe { sys::rte_strerror(code) };
    if text.is_null() {
        return format!("error {code}");
    }
    // SAFETY: 1. rte_errno.h: it is a C string, and is copied before anything else is called.
    let text = unsafe { CStr::from_ptr(text) };
    format!("{} (error {code})", text.to_string_lossy())
}

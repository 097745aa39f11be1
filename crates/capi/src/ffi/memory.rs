//! Memory of the caller: buffers to read from and to write to, checked for null pointers.

use std::ffi::{CStr, c_char, c_int};

use calls::CallFailure;
use cudele::{Errno, Error};

use crate::error::answer;

pub(super) type Outcome<T> = Result<T, CallFailure>;

fn null(what: &str) -> CallFailure {
    Error::new(Errno::Invalid, what, "the pointer is NULL").into()
}

/// Makes a call that has nothing to return but whether it worked.
pub(super) fn done(call: impl FnOnce() -> Outcome<()>) -> c_int {
    let code = answer(|| call().map(|()| 0));
    // Nothing but 0 and negative error numbers, which are small.
    c_int::try_from(code).unwrap_or(-c_int::from(Errno::Io.code().cast_signed()))
}

/// A string of the caller.
///
/// # Safety
/// It is null, or ends with a zero byte and stays as it is for `'a`.
pub(super) unsafe fn text<'a>(string: *const c_char, what: &str) -> Outcome<&'a [u8]> {
    // SAFETY: as this function's.
    unsafe { text_or_null(string) }.ok_or_else(|| null(what))
}

/// A string of the caller that may be left out.
///
/// # Safety
/// As [`text`].
pub(super) unsafe fn text_or_null<'a>(string: *const c_char) -> Option<&'a [u8]> {
    if string.is_null() {
        return None;
    }
    // SAFETY: it is not null, and the rest is this function's condition.
    Some(unsafe { CStr::from_ptr(string) }.to_bytes())
}

/// Bytes of the caller. None are at no address in particular.
///
/// # Safety
/// There are so many at the address, and they stay as they are for `'a`.
pub(super) unsafe fn bytes<'a>(start: *const u8, length: usize) -> Outcome<&'a [u8]> {
    if length == 0 {
        return Ok(&[]);
    }
    if start.is_null() {
        return Err(null("buffer"));
    }
    check_length(length)?;
    // SAFETY: it is not null and not too long, and the rest is this function's condition.
    Ok(unsafe { std::slice::from_raw_parts(start, length) })
}

/// Room of the caller, which is zeroed: C need not have done so.
///
/// # Safety
/// The address has room for `length` bytes, without a second user for `'a`.
pub(super) unsafe fn room<'a>(start: *mut u8, length: usize) -> Outcome<&'a mut [u8]> {
    if length == 0 {
        return Ok(&mut []);
    }
    if start.is_null() {
        return Err(null("buffer"));
    }
    check_length(length)?;
    // SAFETY: it is not null and not too long, all of it is written before it is read, and the rest
    // is this function's condition.
    unsafe {
        start.write_bytes(0, length);
        Ok(std::slice::from_raw_parts_mut(start, length))
    }
}

fn check_length(length: usize) -> Outcome<()> {
    if isize::try_from(length).is_err() {
        return Err(Error::new(Errno::Invalid, "buffer", "no buffer is that long").into());
    }
    Ok(())
}

/// Refuses a place for a result that is not there, before anything is done.
pub(super) fn check_place<T>(place: *mut T, what: &str) -> Outcome<()> {
    if place.is_null() { Err(null(what)) } else { Ok(()) }
}

/// Puts a result where the caller wants it, if it does.
///
/// # Safety
/// The place is null, or fit for a `T` without a second user.
pub(super) unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: it is not null, and the rest is this function's condition.
        unsafe { place.write(value) };
    }
}

/// Copies bytes to a buffer of the caller, as much as fits. Returns how many there are.
///
/// # Safety
/// As [`room`].
pub(super) unsafe fn copy(found: &[u8], buffer: *mut u8, length: usize) -> Outcome<i64> {
    let fits = found.len().min(length);
    // SAFETY: as this function's; no more of it is used.
    let room = unsafe { room(buffer, fits) }?;
    room.copy_from_slice(&found[..fits]);
    Ok(i64::try_from(found.len()).unwrap_or(i64::MAX))
}

/// Copies text to a buffer of the caller, as much as fits, and a zero byte. Returns its whole
/// length.
///
/// # Safety
/// As [`room`].
pub(super) unsafe fn copy_text(text: &[u8], buffer: *mut c_char, length: usize) -> Outcome<i64> {
    // SAFETY: as this function's; a `char` is a byte.
    let room = unsafe { room(buffer.cast(), length) }?;
    let count = text.len().min(length.saturating_sub(1));
    if let (Some(room), Some(text)) = (room.get_mut(..count), text.get(..count)) {
        room.copy_from_slice(text);
    }
    Ok(i64::try_from(text.len()).unwrap_or(i64::MAX))
}

//! How facts look: modes, sizes, times and names, to people and in JSON.
//!
//! It prints nothing and sends no request. Invariant: a name that a person sees can be pasted into
//! a shell and means the same bytes there; a name in JSON that is not UTF-8 comes with its bytes.

use cudele::{Attr, Timestamp};
use serde_json::{Map, Value, json};
pub use types::quote::quoted;
use types::{Civil, MODE_PERMISSIONS};

/// A mode as `ls -l` shows it, such as `drwxr-xr-x`.
pub fn mode(attr: &Attr) -> String {
    let mut text = String::from(attr.file_type().letter());
    for (shift, special, set, unset) in
        [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let bits = attr.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (attr.mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => set,
            (true, false) => unset,
        });
    }
    text
}

/// Permissions as four octal digits, such as `0755`.
pub fn permissions(attr: &Attr) -> String {
    format!("{:04o}", attr.mode & MODE_PERMISSIONS)
}

/// A number of bytes in the largest unit that leaves at least one, such as `1.5 MiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut unit = UNITS.iter();
    let (mut whole, mut rest, mut name) = (bytes, 0, "");
    while whole >= 1024
        && let Some(next) = unit.next()
    {
        (whole, rest, name) = (whole / 1024, whole % 1024, next);
    }
    if name.is_empty() {
        format!("{bytes} B")
    } else {
        format!("{whole}.{} {name}", rest * 10 / 1024)
    }
}

/// A time to the minute, as listings show it, UTC.
pub fn minute(time: Timestamp) -> String {
    let Civil { year, month, day, hour, minute, .. } = time.civil();
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
}

/// A time with everything that is known of it, as RFC 3339 has it.
pub fn instant(time: Timestamp) -> String {
    let Civil { year, month, day, hour, minute, second } = time.civil();
    let nanos = time.nanoseconds();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

/// Puts bytes that are mostly text into a JSON object: as a string, and if they are not UTF-8 also
/// as hexadecimal digits under `KEY_hex`.
pub fn put_bytes(object: &mut Map<String, Value>, key: &str, bytes: &[u8]) {
    object.insert(key.to_owned(), String::from_utf8_lossy(bytes).into());
    if std::str::from_utf8(bytes).is_err() {
        object.insert(format!("{key}_hex"), types::hex::encode(bytes).into());
    }
}

/// Puts attributes into a JSON object. Times are there twice: for people, and in nanoseconds.
pub fn put_attr(object: &mut Map<String, Value>, attr: &Attr) {
    let Attr { ino, uid, gid, nlink, rdev, size, atime, mtime, ctime, btime, .. } = *attr;
    let known = json!({
        "type": attr.file_type().word(),
        "mode": permissions(attr),
        "uid": uid,
        "gid": gid,
        "size": size,
        "ino": ino.0,
        "nlink": nlink,
        "rdev": rdev,
    });
    let Value::Object(known) = known else { return };
    object.extend(known);
    for (key, time) in [("mtime", mtime), ("atime", atime), ("ctime", ctime), ("btime", btime)] {
        object.insert(key.to_owned(), instant(time).into());
        object.insert(format!("{key}_ns"), time.0.into());
    }
}

#[cfg(test)]
mod tests;

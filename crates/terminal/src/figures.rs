//! Numbers for people.

/// With thousands separated: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in the unit that suits them: `12.3 MB`.
#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
pub fn bytes(number: u64) -> String {
    let mut value = number as f64;
    let mut unit = "bytes";
    for next in ["kB", "MB", "GB", "TB"] {
        if value < 1000.0 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    if unit == "bytes" { format!("{number} bytes") } else { format!("{value:.1} {unit}") }
}

/// Seconds with as many digits as are meant: `12.3 s`, `4.56 ms`.
pub fn seconds(value: f64) -> String {
    if value >= 10.0 {
        format!("{value:.1} s")
    } else if value >= 0.1 {
        format!("{value:.3} s")
    } else {
        format!("{:.2} ms", value * 1e3)
    }
}

/// So many in so long, per second.
#[allow(clippy::cast_precision_loss, reason = "a rate")]
pub fn rate(number: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { number as f64 / seconds } else { 0.0 }
}

/// A rate for people.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are positive and far below 2^64"
)]
pub fn per_second(number: u64, seconds: f64) -> String {
    count(rate(number, seconds).round() as u64)
}

/// A part of a whole, per unit.
#[allow(clippy::cast_precision_loss, reason = "an average")]
pub fn average(sum: u64, number: u64) -> f64 {
    if number == 0 { 0.0 } else { sum as f64 / number as f64 }
}

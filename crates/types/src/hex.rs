//! Bytes and numbers as hexadecimal digits.
//!
//! Limit: digits are written in lower case, because object names and files contain them.

/// Two digits for each byte, without a separator: `00ff`.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)] as char);
        text.push(DIGITS[usize::from(byte & 15)] as char);
    }
    text
}

/// Two digits for each byte, separated by spaces: `00 ff`, as the pages in `docs/formats/` do.
#[must_use]
pub fn spaced(bytes: &[u8]) -> String {
    let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    pairs.join(" ")
}

/// Reads the result of [`encode`]; digits may be upper-case. `None` for anything else.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| {
        let value = (byte as char).to_digit(16)?;
        u8::try_from(value).ok()
    };
    let (pairs, rest) = text.as_bytes().as_chunks();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// The number in exactly the text that `{:0digits$x}` prints: `digits` lower-case digits, or more
/// of them without a leading zero.
#[must_use]
pub fn padded(text: &str, digits: usize) -> Option<u64> {
    let fits = text.len() == digits || (text.len() > digits && !text.starts_with('0'));
    if fits { number(text) } else { None }
}

/// The number in exactly `digits` lower-case digits.
#[must_use]
pub fn fixed(text: &str, digits: usize) -> Option<u64> {
    if text.len() == digits { number(text) } else { None }
}

/// `from_str_radix` alone would accept a sign and upper-case digits: two names for one object.
fn number(text: &str) -> Option<u64> {
    let legal = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if legal { u64::from_str_radix(text, 16).ok() } else { None }
}

/// The text of a version 4 UUID that consists of these random bytes.
#[must_use]
pub fn uuid(mut random: [u8; 16]) -> String {
    random[6] = random[6] & 0x0f | 0x40;
    random[8] = random[8] & 0x3f | 0x80;
    let digits = encode(&random);
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| &digits[range]);
    parts.join("-")
}

//! Numbers with a suffix, as in `20m`.

/// A decimal number with one of the suffixes `k`, `m`, `g`, or with none.
#[must_use]
pub(crate) fn scaled(text: &str) -> Option<u64> {
    let (digits, scale) = match text.as_bytes().last()?.to_ascii_lowercase() {
        b'k' => (&text[..text.len() - 1], 1_000),
        b'm' => (&text[..text.len() - 1], 1_000_000),
        b'g' => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    digits
        .bytes()
        .all(|digit| digit.is_ascii_digit())
        .then(|| digits.parse::<u64>().ok())??
        .checked_mul(scale)
}

//! XDR (RFC 4506), as far as sFlow needs it: 32-bit and 64-bit numbers, opaque bytes, and structures with their length in front.

/// Bytes that are being written.
#[derive(Debug, Default, Clone)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend(value.to_be_bytes());
    }
    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend(value.to_be_bytes());
    }
    /// Variable-length opaque data (4.10): the length, the bytes, and zeros up to a multiple of four.
    pub(crate) fn opaque(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
    /// Writes a structure: its format, its length in bytes, and the contents that `fill` writes.
    pub(crate) fn record(&mut self, format: u32, fill: impl FnOnce(&mut Self)) {
        self.u32(format);
        let at = self.0.len();
        self.u32(0);
        fill(self);
        let len = u32::try_from(self.0.len() - at - 4).unwrap_or(u32::MAX);
        self.0[at..at + 4].copy_from_slice(&len.to_be_bytes());
    }
    pub(crate) fn extend(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }
    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaque_data_is_padded_and_a_record_has_its_length() {
        let mut out = Writer::default();
        out.record(7, |out| {
            out.opaque(&[1, 2, 3, 4, 5]);
            out.u64(1);
        });
        let want = [0, 0, 0, 7, 0, 0, 0, 20, 0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(out.into_bytes(), want);
    }
}

//! Reads and writes the fields of messages: big-endian numbers, texts with a length of two bytes, addresses.

use ipnet::IpNet;
use lanyard_types::MacAddr;
use std::net::IpAddr;

/// Bytes that are not a valid message; the text names the wrong field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed message: {0}")]
pub struct Malformed(pub String);

/// A [`Malformed`] error about a field.
pub(crate) fn malformed<T>(what: impl Into<String>) -> Result<T, Malformed> {
    Err(Malformed(what.into()))
}

/// Reads fields from the front of a slice.
#[derive(Debug, Clone)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Creates a reader of these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
    /// The remaining bytes.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }
    /// Checks that all bytes have been read.
    ///
    /// # Errors
    /// When bytes are left.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { malformed(format!("{} bytes too many", self.0.len())) }
    }
    /// Reads the next `count` bytes.
    ///
    /// # Errors
    /// When fewer are left, as for all fields.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let Some((taken, rest)) = self.0.split_at_checked(count) else {
            return malformed(format!("ends {} bytes too early", count - self.0.len()));
        };
        self.0 = rest;
        Ok(taken)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }
    /// A byte.
    ///
    /// # Errors
    /// As for [`Reader::take`].
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }
    /// Two bytes.
    ///
    /// # Errors
    /// As for [`Reader::take`].
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }
    /// Four bytes.
    ///
    /// # Errors
    /// As for [`Reader::take`].
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }
    /// Eight bytes.
    ///
    /// # Errors
    /// As for [`Reader::take`].
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }
    /// A byte that is 0 or 1.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => malformed(format!("{other} where 0 or 1 is expected")),
        }
    }
    /// A text: its length in two bytes, then UTF-8.
    ///
    /// # Errors
    /// When it is not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        let length = self.u16()?;
        std::str::from_utf8(self.take(length.into())?).or_else(|_| malformed("a text is not UTF-8"))
    }
    /// A MAC address.
    ///
    /// # Errors
    /// As for [`Reader::take`].
    pub fn mac(&mut self) -> Result<MacAddr, Malformed> {
        Ok(MacAddr(self.array()?))
    }
    /// Reads an address: a byte 4 or 6, then the address; a byte 0 means none.
    ///
    /// # Errors
    /// When the first byte has another value.
    pub fn address(&mut self) -> Result<Option<IpAddr>, Malformed> {
        match self.u8()? {
            0 => Ok(None),
            4 => Ok(Some(IpAddr::from(self.array::<4>()?))),
            6 => Ok(Some(IpAddr::from(self.array::<16>()?))),
            other => malformed(format!("address family {other} is not 4 or 6")),
        }
    }
    /// Reads a prefix: an address and its length in bits.
    ///
    /// # Errors
    /// When the length exceeds that of the address, or bits after the prefix are set.
    pub fn prefix(&mut self) -> Result<IpNet, Malformed> {
        let Some(address) = self.address()? else { return malformed("a prefix without an address") };
        let length = self.u8()?;
        match IpNet::new(address, length) {
            Ok(prefix) if prefix == prefix.trunc() => Ok(prefix),
            Ok(prefix) => malformed(format!("{prefix} has bits behind its length")),
            Err(_) => malformed(format!("{address}/{length} is no prefix")),
        }
    }
    /// Reads a number that must be valid for an index type.
    ///
    /// # Errors
    /// When it is out of the type's range.
    pub fn index<N: Copy + std::fmt::Display, T>(
        &mut self,
        what: &str,
        number: N,
        new: impl Fn(N) -> Option<T>,
    ) -> Result<T, Malformed> {
        new(number).map_or_else(|| malformed(format!("{number} is no {what}")), Ok)
    }
}

/// Appends fields to a message.
#[derive(Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// Appends bytes unchanged.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
    /// Appends a byte.
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }
    /// Appends two bytes.
    pub fn u16(&mut self, value: u16) {
        self.raw(&value.to_be_bytes());
    }
    /// Appends four bytes.
    pub fn u32(&mut self, value: u32) {
        self.raw(&value.to_be_bytes());
    }
    /// Appends eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.raw(&value.to_be_bytes());
    }
    /// Appends a text, truncated to 65,535 bytes at a character boundary.
    pub fn text(&mut self, text: &str) {
        let mut end = text.len().min(usize::from(u16::MAX));
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.u16(end as u16);
        self.raw(&text.as_bytes()[..end]);
    }
    /// Appends an address, or a 0 for none.
    pub fn address(&mut self, address: Option<IpAddr>) {
        match address {
            None => self.u8(0),
            Some(IpAddr::V4(address)) => {
                self.u8(4);
                self.raw(&address.octets());
            }
            Some(IpAddr::V6(address)) => {
                self.u8(6);
                self.raw(&address.octets());
            }
        }
    }
    /// Appends a prefix.
    pub fn prefix(&mut self, prefix: &IpNet) {
        self.address(Some(prefix.addr()));
        self.u8(prefix.prefix_len());
    }
}

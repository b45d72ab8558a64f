//! The packets of TACACS+ (RFC 8907, 4 to 6), as far as a client needs them.

use md5::{Digest, Md5};

/// The length of a header, in bytes.
pub(super) const HEADER: usize = 12;
/// The longest body that is accepted, in bytes: the maximum that RFC 8907 recommends.
pub const MAX_BODY: usize = 1 << 16;
/// The longest name, port or address that a request carries, in bytes; their lengths have one byte.
pub const MAX_FIELD: usize = 255;
/// Major version 12, minor version 0: that of ASCII logins and of authorization (RFC 8907, 4.1 and 5.4.1).
const VERSION: u8 = 0xc0;
/// TAC_PLUS_UNENCRYPTED_FLAG.
const UNENCRYPTED: u8 = 0x01;

/// The type of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Authentication = 1,
    Authorization = 2,
}

/// Why a reply is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// It has another major version.
    Version(u8),
    /// It has another type than the request.
    Kind(u8),
    /// Its sequence number is not the next one.
    Sequence(u8),
    /// It belongs to another session.
    Session,
    /// It is in plain text.
    Unencrypted,
    /// Its body is longer than [`MAX_BODY`].
    TooLong(u32),
    /// The lengths in it do not add up: the server has another key, or is broken.
    Malformed,
    /// Its status has no meaning here.
    Status(u8),
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Version(version) => write!(f, "a reply of version {version:#x}"),
            Self::Kind(kind) => write!(f, "a reply of type {kind}, which was not asked for"),
            Self::Sequence(number) => {
                write!(f, "a reply with sequence number {number}, which is not the next")
            }
            Self::Session => write!(f, "a reply of another session"),
            Self::Unencrypted => write!(f, "a reply in plain text: give the server a key"),
            Self::TooLong(length) => write!(f, "a reply of {length} bytes, and the limit is {MAX_BODY}"),
            Self::Malformed => write!(f, "a malformed reply: compare the keys of switch and server"),
            Self::Status(status) => write!(f, "a reply with the unknown status {status}"),
        }
    }
}

impl std::error::Error for Invalid {}

/// The session that a packet belongs to, and the packet's sequence number in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) kind: Kind,
    pub(super) session: u32,
    pub(super) sequence: u8,
}

/// Hides or reveals a body: combines it with a pad of MD5 sums (RFC 8907, 4.5).
fn obfuscate(version: u8, place: Place, key: &[u8], body: &mut [u8]) {
    let prefix = Md5::new()
        .chain_update(place.session.to_be_bytes())
        .chain_update(key)
        .chain_update([version, place.sequence]);
    let mut sum = [0; 16];
    for (at, piece) in body.chunks_mut(16).enumerate() {
        let before = if at == 0 { &[][..] } else { &sum[..] };
        sum = prefix.clone().chain_update(before).finalize().into();
        piece.iter_mut().zip(sum).for_each(|(byte, pad)| *byte ^= pad);
    }
}

/// Builds a packet: its header, and `body` obfuscated.
pub(super) fn seal(place: Place, key: &[u8], mut body: Vec<u8>) -> Vec<u8> {
    obfuscate(VERSION, place, key, &mut body);
    let mut packet = vec![VERSION, place.kind as u8, place.sequence, 0];
    packet.extend(place.session.to_be_bytes());
    packet.extend(u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
    packet.extend(body);
    packet
}

/// The body, in plain text, of the packet in `bytes`, which must be the packet at `place`; `None` while it is incomplete. The
/// header is checked as soon as it is complete, so the caller need not buffer more than a header and [`MAX_BODY`] bytes.
pub(super) fn open(bytes: &[u8], place: Place, key: &[u8]) -> Result<Option<Vec<u8>>, Invalid> {
    let Some((header, body)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
    let [version, kind, sequence, flags, s0, s1, s2, s3, l0, l1, l2, l3] = *header;
    if version & 0xf0 != VERSION {
        return Err(Invalid::Version(version));
    }
    if kind != place.kind as u8 {
        return Err(Invalid::Kind(kind));
    }
    if flags & UNENCRYPTED != 0 {
        return Err(Invalid::Unencrypted);
    }
    if u32::from_be_bytes([s0, s1, s2, s3]) != place.session {
        return Err(Invalid::Session);
    }
    if sequence != place.sequence {
        return Err(Invalid::Sequence(sequence));
    }
    let claimed = u32::from_be_bytes([l0, l1, l2, l3]);
    let length = usize::try_from(claimed).ok().filter(|length| *length <= MAX_BODY);
    let length = length.ok_or(Invalid::TooLong(claimed))?;
    match body.len() {
        have if have < length => Ok(None),
        // A server sends one reply to each packet, and nothing else.
        have if have > length => Err(Invalid::Malformed),
        _ => {
            let mut body = body.to_vec();
            obfuscate(version, place, key, &mut body);
            Ok(Some(body))
        }
    }
}

/// Takes bytes from the front; `None` when there are fewer.
fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (front, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(front)
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    take(rest, 1).map(|one| one[0])
}

fn length(rest: &mut &[u8]) -> Option<usize> {
    take(rest, 2).map(|two| usize::from(u16::from_be_bytes([two[0], two[1]])))
}

/// A text field of at most [`MAX_FIELD`] bytes.
fn field(text: &str) -> &[u8] {
    let bytes = text.as_bytes();
    &bytes[..bytes.len().min(MAX_FIELD)]
}

#[allow(clippy::cast_possible_truncation)] // a field has at most 255 bytes
fn short(field: &[u8]) -> u8 {
    field.len() as u8
}

/// The user, the terminal line and the host, as requests carry them.
pub(super) struct Who<'a> {
    pub(super) user: &'a str,
    pub(super) line: &'a str,
    pub(super) host: &'a str,
}

/// The body of an authentication START: a login by ASCII, at privilege level 1 (RFC 8907, 5.1).
pub(super) fn start(who: &Who<'_>) -> Vec<u8> {
    const LOGIN: u8 = 1;
    const ASCII: u8 = 1;
    const SERVICE_LOGIN: u8 = 1;
    let fields = [field(who.user), field(who.line), field(who.host)];
    let mut body = vec![LOGIN, 1, ASCII, SERVICE_LOGIN];
    body.extend(fields.map(short));
    body.push(0);
    body.extend(fields.concat());
    body
}

/// The body of an authentication CONTINUE with an answer of the user, of which at most 65,535 bytes are sent (RFC 8907, 5.3).
pub(super) fn proceed(answer: &str) -> Vec<u8> {
    let bytes = answer.as_bytes();
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    let mut body = length.to_be_bytes().to_vec();
    body.extend([0, 0, 0]);
    body.extend(&bytes[..usize::from(length)]);
    body
}

/// The body of an authorization REQUEST for a shell (RFC 8907, 6.1 and 8.2). `by_server` is true if a TACACS+ server has
/// authenticated the user.
pub(super) fn request(who: &Who<'_>, by_server: bool) -> Vec<u8> {
    const BY_LOCAL: u8 = 5;
    const BY_TACACS: u8 = 6;
    const ARGUMENTS: [&[u8]; 2] = [b"service=shell", b"cmd="];
    let fields = [field(who.user), field(who.line), field(who.host)];
    let mut body = vec![if by_server { BY_TACACS } else { BY_LOCAL }, 1, 1, 1];
    body.extend(fields.map(short));
    body.push(2);
    body.extend(ARGUMENTS.map(short));
    body.extend(fields.concat());
    body.extend(ARGUMENTS.concat());
    body
}

/// An authentication REPLY (RFC 8907, 5.2).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: u8,
    pub(super) message: Vec<u8>,
}

impl Reply {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Invalid> {
        let parse = || {
            let mut rest = body;
            let status = byte(&mut rest)?;
            let _flags = byte(&mut rest)?;
            let (message, data) = (length(&mut rest)?, length(&mut rest)?);
            let message = take(&mut rest, message)?.to_vec();
            take(&mut rest, data)?;
            rest.is_empty().then_some(Self { status, message })
        };
        parse().ok_or(Invalid::Malformed)
    }
}

/// An authorization REPLY (RFC 8907, 6.2).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Permission {
    pub(super) status: u8,
    pub(super) message: Vec<u8>,
    pub(super) arguments: Vec<Argument>,
}

/// An argument-value pair.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Argument {
    pub(super) name: Vec<u8>,
    /// True for `=`, false for `*`: a client that cannot carry out a mandatory argument refuses the authorization.
    pub(super) mandatory: bool,
    pub(super) value: Vec<u8>,
}

impl Argument {
    fn parse(text: &[u8]) -> Option<Self> {
        let at = text.iter().position(|byte| b"=*".contains(byte)).filter(|at| *at > 0)?;
        Some(Self { name: text[..at].to_vec(), mandatory: text[at] == b'=', value: text[at + 1..].to_vec() })
    }
}

impl Permission {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Invalid> {
        let parse = || {
            let mut rest = body;
            let (status, count) = (byte(&mut rest)?, byte(&mut rest)?);
            let (message, data) = (length(&mut rest)?, length(&mut rest)?);
            let lengths = take(&mut rest, count.into())?;
            let message = take(&mut rest, message)?.to_vec();
            take(&mut rest, data)?;
            let argument = |length: &u8| Argument::parse(take(&mut rest, (*length).into())?);
            let arguments: Option<Vec<_>> = lengths.iter().map(argument).collect();
            let arguments = arguments?;
            rest.is_empty().then_some(Self { status, message, arguments })
        };
        parse().ok_or(Invalid::Malformed)
    }
}

/// The server's side of the protocol, for tests and the fuzz target.
pub(crate) mod testing {
    use super::{Invalid, Kind, Place, obfuscate, open};

    /// A reply to the packet `request`, with a body in plain text that is hidden by `key`.
    pub(crate) fn reply(request: &[u8], key: &[u8], body: &[u8]) -> Vec<u8> {
        let mut packet = request[..super::HEADER].to_vec();
        packet[2] = packet[2].wrapping_add(1);
        packet[8..].copy_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
        let mut body = body.to_vec();
        obfuscate(packet[0], place(&packet), key, &mut body);
        packet.extend(body);
        packet
    }

    fn place(packet: &[u8]) -> Place {
        let kind = if packet[1] == 1 { Kind::Authentication } else { Kind::Authorization };
        let session = u32::from_be_bytes([packet[4], packet[5], packet[6], packet[7]]);
        Place { kind, session, sequence: packet[2] }
    }

    /// The body of a request, as a server reads it.
    pub(crate) fn body(request: &[u8], key: &[u8]) -> Result<Option<Vec<u8>>, Invalid> {
        open(request, place(request), key)
    }

    /// The body of an authentication REPLY.
    #[cfg(test)]
    pub(crate) fn status(status: u8, message: &[u8]) -> Vec<u8> {
        let length = u16::try_from(message.len()).unwrap_or(0).to_be_bytes();
        [&[status, 0, length[0], length[1], 0, 0], message].concat()
    }

    /// The body of an authorization REPLY.
    #[cfg(test)]
    pub(crate) fn permission(status: u8, arguments: &[&[u8]]) -> Vec<u8> {
        let count = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
        let mut body = vec![status, count(arguments.len()), 0, 0, 0, 0];
        body.extend(arguments.iter().map(|argument| count(argument.len())));
        body.extend(arguments.concat());
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { kind: Kind::Authentication, session: 0x0102_0304, sequence: 2 };

    /// The pad that RFC 8907, 4.5 defines, computed with another implementation of MD5 (Python's hashlib).
    #[test]
    fn the_pad() {
        let mut body = [0; 40];
        obfuscate(0xc0, PLACE, b"between-us", &mut body);
        let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "eed7d8f0a3f87bb2d210abe4f4a60976f14765d3df310888fe191f8a6a8ddd863dfacd3b7e53ed42");
        obfuscate(0xc0, PLACE, b"between-us", &mut body);
        assert_eq!(body, [0; 40]);
    }

    #[test]
    fn requests_have_the_layout_of_the_rfc() {
        let who = Who { user: "ann", line: "vty", host: "10.0.0.1" };
        assert_eq!(start(&who), b"\x01\x01\x01\x01\x03\x03\x08\x00annvty10.0.0.1");
        assert_eq!(proceed("tiger"), b"\x00\x05\x00\x00\x00tiger");
        let wanted = b"\x06\x01\x01\x01\x03\x03\x08\x02\x0d\x04annvty10.0.0.1service=shellcmd=";
        assert_eq!(request(&who, true), wanted);
        assert_eq!(request(&who, false)[0], 5);
        let long = "x".repeat(300);
        let who = Who { user: &long, line: &long, host: &long };
        assert_eq!(start(&who).len(), 8 + 3 * 255);
        assert_eq!(&start(&who)[4..8], [255, 255, 255, 0]);
        assert_eq!(proceed(&"x".repeat(70_000)).len(), 5 + 65_535);
    }

    #[test]
    fn headers_that_are_refused() {
        let good = seal(PLACE, b"key", testing::status(1, b""));
        assert_eq!(open(&good, PLACE, b"key"), Ok(Some(testing::status(1, b""))));
        for (at, value, reason) in [
            (0, 0xd0, Invalid::Version(0xd0)),
            (1, 2, Invalid::Kind(2)),
            (2, 4, Invalid::Sequence(4)),
            (3, 1, Invalid::Unencrypted),
            (4, 9, Invalid::Session),
            (8, 1, Invalid::TooLong(0x0100_0006)),
            (9, 1, Invalid::TooLong(0x0001_0006)),
        ] {
            let mut packet = good.clone();
            packet[at] = value;
            assert_eq!(open(&packet, PLACE, b"key"), Err(reason));
            // The header alone is rejected as well, before a byte of the body has arrived.
            assert_eq!(open(&packet[..HEADER], PLACE, b"key"), Err(reason));
        }
        // Flags without a meaning are ignored, TAC_PLUS_SINGLE_CONNECT_FLAG among them.
        let mut packet = good.clone();
        packet[3] = 0xfe;
        assert!(matches!(open(&packet, PLACE, b"key"), Ok(Some(_))));
        for length in 0..good.len() {
            assert_eq!(open(&good[..length], PLACE, b"key"), Ok(None), "{length}");
        }
        assert_eq!(open(&[&good[..], b"x"].concat(), PLACE, b"key"), Err(Invalid::Malformed));
    }

    #[test]
    fn lengths_must_add_up() {
        let reply = testing::status(7, b"down");
        assert_eq!(Reply::parse(&reply), Ok(Reply { status: 7, message: b"down".to_vec() }));
        let permission = testing::permission(1, &[b"priv-lvl=15", b"idletime*10", b"cmd="]);
        let parsed = Permission::parse(&permission).expect("parsed");
        let shown = |argument: &Argument| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (text(&argument.name), argument.mandatory, text(&argument.value))
        };
        let arguments: Vec<_> = parsed.arguments.iter().map(shown).collect();
        let wanted = [("priv-lvl", true, "15"), ("idletime", false, "10"), ("cmd", true, "")]
            .map(|(name, must, value)| (name.to_owned(), must, value.to_owned()));
        assert_eq!(arguments, wanted);
        for length in 0..reply.len() {
            assert_eq!(Reply::parse(&reply[..length]), Err(Invalid::Malformed));
        }
        for length in 0..permission.len() {
            assert_eq!(Permission::parse(&permission[..length]), Err(Invalid::Malformed));
        }
        assert_eq!(Reply::parse(&[&reply[..], b"x"].concat()), Err(Invalid::Malformed));
        assert_eq!(Permission::parse(&[&permission[..], b"x"].concat()), Err(Invalid::Malformed));
        for odd in [&b"priv-lvl"[..], b"=15", b""] {
            assert_eq!(Permission::parse(&testing::permission(1, &[odd])), Err(Invalid::Malformed));
        }
    }
}

//! The server's side of telnet: RFC 854 (commands), RFC 857 (ECHO), RFC 858 (SUPPRESS-GO-AHEAD), RFC 1073 (window size).
//!
//! Every other option is refused. The server offers ECHO and SUPPRESS-GO-AHEAD, which gives the client a terminal that sends
//! each key, and asks for the size of the window.
//!
//! Invariant: the state is of fixed size, and the answers to a client are bounded by [`MAX_ANSWERS`] for the whole connection:
//! a client that negotiates without end gets no more answers, and its data is still decoded.

const IAC: u8 = 255;
const DONT: u8 = 254;
const DO: u8 = 253;
const WONT: u8 = 252;
const WILL: u8 = 251;
const SB: u8 = 250;
const IP: u8 = 244;
const BREAK: u8 = 243;
const AYT: u8 = 246;
const ERASE_CHARACTER: u8 = 247;
const ERASE_LINE: u8 = 248;
const SE: u8 = 240;
const ECHO: u8 = 1;
const SUPPRESS_GO_AHEAD: u8 = 3;
const WINDOW_SIZE: u8 = 31;

/// The longest subnegotiation that is read, in bytes; the rest of a longer one is dropped.
const MAX_SUBNEGOTIATION: usize = 16;
/// The maximum number of answers on a connection: refusals of options, DO SUPPRESS-GO-AHEAD, and replies to AYT.
const MAX_ANSWERS: u32 = 64;

/// The server's first bytes.
pub const GREETING: &[u8] = &[IAC, WILL, ECHO, IAC, WILL, SUPPRESS_GO_AHEAD, IAC, DO, WINDOW_SIZE];

/// The state of the decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Data,
    Command,
    /// After WILL, WONT, DO or DONT.
    Option(u8),
    Subnegotiation,
    /// After IAC within a subnegotiation.
    SubnegotiationCommand,
}

/// The contents of a piece of input.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// The terminal's bytes. Commands that edit or interrupt are in it as control characters: IP and BREAK as ctrl-C.
    pub data: Vec<u8>,
    /// Bytes for the client.
    pub answer: Vec<u8>,
    /// The size of the window, if the client has sent it: columns and rows.
    pub window: Option<(u16, u16)>,
}

/// The decoder of a connection.
#[derive(Debug)]
pub struct Telnet {
    state: State,
    subnegotiation: Vec<u8>,
    answers: u32,
}

impl Default for Telnet {
    fn default() -> Self {
        Self { state: State::Data, subnegotiation: Vec::new(), answers: 0 }
    }
}

impl Telnet {
    /// Decodes a piece of input; commands may be divided between pieces.
    pub fn feed(&mut self, bytes: &[u8]) -> Input {
        let mut input = Input::default();
        for byte in bytes {
            self.byte(*byte, &mut input);
        }
        input
    }

    fn byte(&mut self, byte: u8, input: &mut Input) {
        self.state = match (self.state, byte) {
            (State::Data, IAC) => State::Command,
            (State::Data, _) => {
                input.data.push(byte);
                State::Data
            }
            (State::Command, WILL | WONT | DO | DONT) => State::Option(byte),
            (State::Command, SB) => {
                self.subnegotiation.clear();
                State::Subnegotiation
            }
            (State::Command, _) => {
                match byte {
                    IAC => input.data.push(IAC),
                    IP | BREAK => input.data.push(3),
                    ERASE_CHARACTER => input.data.push(8),
                    ERASE_LINE => input.data.push(21),
                    AYT => self.answer(b"\r\n[yes]\r\n", input),
                    _ => {}
                }
                State::Data
            }
            (State::Option(command), option) => {
                self.negotiate(command, option, input);
                State::Data
            }
            (State::Subnegotiation, IAC) => State::SubnegotiationCommand,
            (State::Subnegotiation, _) | (State::SubnegotiationCommand, IAC) => {
                if self.subnegotiation.len() < MAX_SUBNEGOTIATION {
                    self.subnegotiation.push(byte);
                }
                State::Subnegotiation
            }
            (State::SubnegotiationCommand, SE) => {
                if let [WINDOW_SIZE, a, b, c, d] = *self.subnegotiation.as_slice() {
                    input.window = Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])));
                }
                State::Data
            }
            // RFC 855 defines only IAC and SE here: another command is dropped, and ends the subnegotiation.
            (State::SubnegotiationCommand, _) => State::Data,
        };
    }

    /// Answers an offer or a request. What the server has offered or requested itself needs no answer (RFC 854: no
    /// acknowledgement of a mode that is already in force).
    fn negotiate(&mut self, command: u8, option: u8, input: &mut Input) {
        match (command, option) {
            (WILL | WONT, WINDOW_SIZE) | (DO | DONT, ECHO | SUPPRESS_GO_AHEAD) => {}
            (WILL, SUPPRESS_GO_AHEAD) => self.answer(&[IAC, DO, SUPPRESS_GO_AHEAD], input),
            (WILL, _) => self.answer(&[IAC, DONT, option], input),
            (DO, _) => self.answer(&[IAC, WONT, option], input),
            _ => {}
        }
    }
    fn answer(&mut self, answer: &[u8], input: &mut Input) {
        if self.answers < MAX_ANSWERS {
            self.answers += 1;
            input.answer.extend(answer);
        }
    }
}

/// Encodes data for a telnet connection: IAC is doubled.
#[must_use]
pub fn encode(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for byte in bytes {
        out.push(*byte);
        if *byte == IAC {
            out.push(IAC);
        }
    }
    out
}

/// The size of the window, as a client sends it (RFC 1073).
#[must_use]
pub fn window(columns: u16, rows: u16) -> Vec<u8> {
    let size = [columns.to_be_bytes(), rows.to_be_bytes()].concat();
    [&[IAC, SB, WINDOW_SIZE], encode(&size).as_slice(), &[IAC, SE]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `bytes` whole and byte by byte: both must give the same.
    fn check(bytes: &[u8], data: &[u8], answer: &[u8], window: Option<(u16, u16)>) {
        let whole = Telnet::default().feed(bytes);
        assert_eq!(whole, Input { data: data.into(), answer: answer.into(), window }, "{bytes:?}");
        let (mut telnet, mut sum) = (Telnet::default(), Input::default());
        for byte in bytes {
            let one = telnet.feed(&[*byte]);
            sum.data.extend(one.data);
            sum.answer.extend(one.answer);
            sum.window = one.window.or(sum.window);
        }
        assert_eq!(sum, whole, "{bytes:?}");
    }

    #[test]
    fn data_and_commands() {
        check(b"show\r\0", b"show\r\0", b"", None);
        check(&[b'a', IAC, IAC, b'b'], &[b'a', IAC, b'b'], b"", None);
        check(&[IAC, IP, IAC, BREAK, IAC, 241, b'x'], &[3, 3, b'x'], b"", None);
        check(&[IAC, ERASE_CHARACTER, IAC, ERASE_LINE], &[8, 21], b"", None);
        check(&[IAC, AYT], b"", b"\r\n[yes]\r\n", None);
    }

    #[test]
    fn options() {
        check(&[IAC, DO, ECHO, IAC, DO, SUPPRESS_GO_AHEAD, IAC, WILL, WINDOW_SIZE], b"", b"", None);
        check(&[IAC, WILL, 24, b'x'], b"x", &[IAC, DONT, 24], None);
        check(&[IAC, DO, 5], b"", &[IAC, WONT, 5], None);
        check(&[IAC, WONT, 24, IAC, DONT, 5], b"", b"", None);
        check(&[IAC, SB, WINDOW_SIZE, 0, 132, 0, 50, IAC, SE, b'x'], b"x", b"", Some((132, 50)));
        check(&[IAC, SB, WINDOW_SIZE, IAC, IAC, 1, 0, 50, IAC, SE], b"", b"", Some((0xff01, 50)));
        check(&[IAC, SB, WINDOW_SIZE, 0, 132, IAC, SE, b'x'], b"x", b"", None);
        check(&[IAC, SB, 24, 0, b'v', IAC, b'x', b'y'], b"y", b"", None);
    }

    #[test]
    fn bounded() {
        let mut telnet = Telnet::default();
        let answered: usize = (0..10_000).map(|_| telnet.feed(&[IAC, WILL, 24]).answer.len()).sum();
        assert_eq!(answered, 3 * MAX_ANSWERS as usize);
        telnet.feed(&[IAC, SB]);
        for _ in 0..1000 {
            assert_eq!(telnet.feed(&[7; 1000]), Input::default());
        }
        assert!(telnet.subnegotiation.len() <= MAX_SUBNEGOTIATION);
        assert_eq!(telnet.feed(&[IAC, SE, b'x']).data, b"x");
    }

    #[test]
    fn sent_data_is_escaped_and_a_sent_window_size_is_decoded() {
        assert_eq!(encode(&[b'a', IAC, b'b']), [b'a', IAC, IAC, b'b']);
        for size in [(80, 24), (0, 0), (255, 65_535)] {
            check(&window(size.0, size.1), b"", b"", Some(size));
        }
    }
}

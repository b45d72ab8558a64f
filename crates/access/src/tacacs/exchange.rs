//! One session of TACACS+ on its TCP connection: a login, or the question whether a user may have a shell.

use super::packet::{self, Argument, Invalid, Kind, Permission, Place, Reply, Who};

/// The maximum number of bytes of a server's text that are passed on to the log.
const MAX_MESSAGE: usize = 128;
/// The highest privilege level.
const LEVEL_MAX: u8 = lanyard_config::access::LEVEL_MAX;

/// A user, and from where the user logs in. Of each text a request carries at most [`packet::MAX_FIELD`] bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// The user's name.
    pub user: String,
    /// The terminal line.
    pub line: String,
    /// The address of the host, or the terminal's name.
    pub host: String,
}

/// The answer of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The secret is right.
    Accepted,
    /// The user may have a shell, at this privilege level if the server has sent one.
    Permitted(Option<u8>),
    /// The user is rejected; the reason is for the log.
    Rejected(String),
    /// The server cannot answer; the next one is asked.
    Unable(String),
}

/// The next step that the caller has to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Read more.
    Wait,
    /// Send a packet, then read more.
    Send(Vec<u8>),
    /// Close the connection.
    Done(Answer),
}

enum Question {
    /// An ASCII login: the user's name and secret. Each becomes `None` when the server has asked for it.
    Authentication {
        user: Option<String>,
        secret: Option<String>,
    },
    Authorization,
}

/// A session on its connection.
pub struct Exchange {
    key: Vec<u8>,
    question: Question,
    /// The place of the next reply in the session.
    place: Place,
    /// The bytes received of a reply that is not complete yet.
    received: Vec<u8>,
}

impl Exchange {
    /// Begins a session that asks whether a secret is right. Returns the session, and the first packet to send. The identifier
    /// `session` must not be predictable (RFC 8907, 4.1).
    #[must_use]
    pub fn authentication(session: u32, key: &[u8], login: &Login, secret: &str) -> (Self, Vec<u8>) {
        let question =
            Question::Authentication { user: Some(login.user.clone()), secret: Some(secret.to_owned()) };
        let body = packet::start(&who(login));
        Self::begin(Kind::Authentication, session, key, question, body)
    }
    /// Begins a session that asks whether a user may have a shell, and at which privilege level. `by_server` is true if a TACACS+
    /// server has authenticated the user. Returns the session, and the first packet to send.
    #[must_use]
    pub fn authorization(session: u32, key: &[u8], login: &Login, by_server: bool) -> (Self, Vec<u8>) {
        let body = packet::request(&who(login), by_server);
        Self::begin(Kind::Authorization, session, key, Question::Authorization, body)
    }
    fn begin(kind: Kind, session: u32, key: &[u8], question: Question, body: Vec<u8>) -> (Self, Vec<u8>) {
        let first = packet::seal(Place { kind, session, sequence: 1 }, key, body);
        let place = Place { kind, session, sequence: 2 };
        (Self { key: key.to_vec(), question, place, received: Vec::new() }, first)
    }

    /// Takes bytes from the server, in any portions.
    ///
    /// # Errors
    /// When they are not a valid reply to the last packet of this session. The connection must be closed then.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Step, Invalid> {
        // One byte more than the longest packet is enough: `open` rejects it for its length.
        let room = (packet::HEADER + packet::MAX_BODY + 1).saturating_sub(self.received.len());
        self.received.extend(&bytes[..bytes.len().min(room)]);
        let Some(body) = packet::open(&self.received, self.place, &self.key)? else { return Ok(Step::Wait) };
        self.received.clear();
        match &mut self.question {
            Question::Authorization => Ok(Step::Done(permission(&Permission::parse(&body)?)?)),
            Question::Authentication { user, secret } => {
                let reply = Reply::parse(&body)?;
                match verdict(&reply, user, secret)? {
                    Verdict::Done(answer) => Ok(Step::Done(answer)),
                    Verdict::Enter(text) => Ok(self.enter(&text)),
                }
            }
        }
    }
    /// The number of bytes received of a reply that is not complete yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.received.len()
    }
    /// Answers the server's request for a name or a secret.
    fn enter(&mut self, text: &str) -> Step {
        let sequence = self.place.sequence + 1;
        let packet = packet::seal(Place { sequence, ..self.place }, &self.key, packet::proceed(text));
        self.place.sequence = sequence + 1;
        Step::Send(packet)
    }
}

fn who(login: &Login) -> Who<'_> {
    Who { user: &login.user, line: &login.line, host: &login.host }
}

/// The meaning of an authentication REPLY.
enum Verdict {
    Done(Answer),
    Enter(String),
}

fn verdict(
    reply: &Reply,
    user: &mut Option<String>,
    secret: &mut Option<String>,
) -> Result<Verdict, Invalid> {
    let rejected = |why: &str| Verdict::Done(Answer::Rejected(why.into()));
    // A second request for the name or the secret is for text that the user has not entered: a second factor or a new password.
    let enter = |text: Option<String>| text.map_or_else(|| rejected("the server asks twice"), Verdict::Enter);
    Ok(match reply.status {
        1 => Verdict::Done(Answer::Accepted),
        2 => rejected("the name or the secret is wrong"),
        3 => rejected("the server asks for more than a name and a secret"),
        4 => enter(user.take()),
        5 => enter(secret.take()),
        6 => rejected("the server wants another type of authentication than ASCII"),
        7 => Verdict::Done(Answer::Unable(error(&reply.message))),
        // FOLLOW names another server to ask; the RFC advises clients against it.
        0x21 => rejected("the server refers to another one"),
        other => return Err(Invalid::Status(other)),
    })
}

/// The meaning of an authorization REPLY. PASS_ADD (0x01) adds arguments to those of the request, and PASS_REPL (0x02) replaces
/// them. Both may contain the privilege level; [`level`] rejects a mandatory argument for another service or command.
fn permission(reply: &Permission) -> Result<Answer, Invalid> {
    Ok(match reply.status {
        0x01 | 0x02 => match level(&reply.arguments) {
            Ok(level) => Answer::Permitted(level),
            Err(why) => Answer::Rejected(why),
        },
        0x10 => Answer::Rejected("the server does not permit a shell".into()),
        0x11 => Answer::Unable(error(&reply.message)),
        0x21 => Answer::Rejected("the server refers to another one".into()),
        other => return Err(Invalid::Status(other)),
    })
}

/// The privilege level among arguments.
///
/// # Errors
/// When an argument is mandatory and cannot be carried out (RFC 8907, 6.1).
fn level(arguments: &[Argument]) -> Result<Option<u8>, String> {
    let mut level = None;
    for argument in arguments {
        let value = std::str::from_utf8(&argument.value).ok();
        let carried_out = match &argument.name[..] {
            b"priv-lvl" => {
                let sent = value.and_then(|value| value.parse().ok()).filter(|level| *level <= LEVEL_MAX);
                level = sent.or(level);
                sent.is_some()
            }
            b"service" => value == Some("shell"),
            b"cmd" => value == Some(""),
            _ => false,
        };
        if argument.mandatory && !carried_out {
            let text = [&argument.name[..], b"=", &argument.value].concat();
            return Err(format!("the switch cannot carry out the mandatory argument {}", shown(&text)));
        }
    }
    Ok(level)
}

fn error(message: &[u8]) -> String {
    if message.is_empty() {
        "the server reports an error".into()
    } else {
        format!("error: {}", shown(message))
    }
}

/// A server's text for a log line: at most [`MAX_MESSAGE`] bytes; a dot stands for each that is not printable ASCII.
fn shown(bytes: &[u8]) -> String {
    let printable = |byte: &u8| if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '.' };
    bytes.iter().take(MAX_MESSAGE).map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    const KEY: &[u8] = b"between-us";

    fn login() -> Login {
        Login { user: "ann".into(), line: "vty".into(), host: "10.0.0.1".into() }
    }

    /// Runs a login whose server replies with the bodies `replies`, one after the other. Returns the bodies of the packets that
    /// the switch has sent after the START, and the result of the last reply.
    fn log_in(replies: &[Vec<u8>]) -> (Vec<Vec<u8>>, Result<Step, Invalid>) {
        let (mut exchange, mut request) = Exchange::authentication(7, KEY, &login(), "tiger");
        let mut sent = Vec::new();
        let mut last = Ok(Step::Wait);
        for body in replies {
            last = exchange.receive(&testing::reply(&request, KEY, body));
            if let Ok(Step::Send(packet)) = &last {
                request.clone_from(packet);
                sent.push(testing::body(packet, KEY).expect("valid").expect("whole"));
            }
        }
        (sent, last)
    }

    fn answer(result: Result<Step, Invalid>) -> Answer {
        match result {
            Ok(Step::Done(answer)) => answer,
            other => unreachable!("{other:?}"),
        }
    }

    fn of(status: u8) -> Vec<u8> {
        testing::status(status, b"")
    }

    #[test]
    fn a_login_by_ascii() {
        let (sent, last) = log_in(&[of(5), of(1)]);
        assert_eq!(sent, [b"\0\x05\0\0\0tiger".to_vec()]);
        assert_eq!(answer(last), Answer::Accepted);
        // A server that asks for the name first.
        let (sent, last) = log_in(&[of(4), of(5), of(2)]);
        assert_eq!(sent, [b"\0\x03\0\0\0ann".to_vec(), b"\0\x05\0\0\0tiger".to_vec()]);
        assert!(matches!(answer(last), Answer::Rejected(_)));
        for replies in [vec![of(5), of(5)], vec![of(4), of(4)], vec![of(3)], vec![of(6)], vec![of(0x21)]] {
            assert!(matches!(answer(log_in(&replies).1), Answer::Rejected(_)), "{replies:?}");
        }
        let down = testing::status(7, b"no\ndatabase\xff");
        assert_eq!(answer(log_in(&[down]).1), Answer::Unable("error: no.database.".into()));
        assert_eq!(log_in(&[of(9)]).1, Err(Invalid::Status(9)));
    }

    #[test]
    fn a_reply_may_come_in_pieces() {
        let (mut exchange, request) = Exchange::authentication(7, KEY, &login(), "tiger");
        let packet = testing::reply(&request, KEY, &of(5));
        let (last, first) = packet.split_last().expect("bytes");
        for byte in first {
            assert_eq!(exchange.receive(&[*byte]), Ok(Step::Wait));
        }
        assert!(matches!(exchange.receive(&[*last]), Ok(Step::Send(_))));
    }

    #[test]
    fn replies_that_belong_elsewhere() {
        let (mut exchange, request) = Exchange::authentication(7, KEY, &login(), "tiger");
        let (_, other) = Exchange::authentication(8, KEY, &login(), "tiger");
        assert_eq!(exchange.receive(&testing::reply(&other, KEY, &of(1))), Err(Invalid::Session));
        let fresh = || Exchange::authentication(7, KEY, &login(), "tiger").0;
        // The first reply is repeated after the switch has answered it.
        let first = testing::reply(&request, KEY, &of(5));
        let mut exchange = fresh();
        assert!(matches!(exchange.receive(&first), Ok(Step::Send(_))));
        assert_eq!(exchange.receive(&first), Err(Invalid::Sequence(2)));
        // A PASS for an authorization does not count for a login.
        let (_, question) = Exchange::authorization(7, KEY, &login(), true);
        let permitted = testing::reply(&question, KEY, &testing::permission(1, &[]));
        assert_eq!(fresh().receive(&permitted), Err(Invalid::Kind(2)));
        assert_eq!(fresh().receive(&request), Err(Invalid::Sequence(1)), "an echo of the request");
    }

    /// Decoded with a wrong key, the lengths in a reply are random: of replies with 1,000 wrong keys none is accepted.
    #[test]
    fn a_wrong_key_is_noticed() {
        for number in 0..1000 {
            let (mut exchange, request) = Exchange::authentication(number, KEY, &login(), "tiger");
            let packet = testing::reply(&request, format!("key {number}").as_bytes(), &of(1));
            assert_eq!(exchange.receive(&packet), Err(Invalid::Malformed));
        }
    }

    #[test]
    fn more_than_a_reply_can_have() {
        let (mut exchange, request) = Exchange::authentication(7, KEY, &login(), "tiger");
        let longest = testing::status(2, &[b'x'; 65_530]);
        assert_eq!(longest.len(), packet::MAX_BODY);
        let packet = testing::reply(&request, KEY, &longest);
        assert!(matches!(exchange.receive(&packet), Ok(Step::Done(Answer::Rejected(_)))));
        let (mut exchange, request) = Exchange::authentication(7, KEY, &login(), "tiger");
        let mut packet = testing::reply(&request, KEY, &of(1));
        packet[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(exchange.receive(&packet[..12]), Err(Invalid::TooLong(u32::MAX)));
        let (mut exchange, request) = Exchange::authentication(7, KEY, &login(), "tiger");
        let more = [testing::reply(&request, KEY, &of(1)), vec![0; 200_000]].concat();
        assert_eq!(exchange.receive(&more), Err(Invalid::Malformed));
        assert!(exchange.received.len() <= packet::HEADER + packet::MAX_BODY + 1);
    }

    #[test]
    fn the_privilege_level() {
        let ask = |status: u8, arguments: &[&[u8]]| {
            let (mut exchange, request) = Exchange::authorization(7, KEY, &login(), true);
            answer(exchange.receive(&testing::reply(&request, KEY, &testing::permission(status, arguments))))
        };
        assert_eq!(ask(1, &[b"priv-lvl=15"]), Answer::Permitted(Some(15)));
        assert_eq!(ask(2, &[b"service=shell", b"cmd=", b"priv-lvl*7"]), Answer::Permitted(Some(7)));
        assert_eq!(ask(1, &[]), Answer::Permitted(None));
        assert_eq!(ask(1, &[b"priv-lvl*99", b"idletime*10"]), Answer::Permitted(None));
        for refused in
            [&b"priv-lvl=16"[..], b"priv-lvl=", b"priv-lvl=-1", b"idletime=10", b"service=ppp", b"cmd=show"]
        {
            assert!(matches!(ask(1, &[refused]), Answer::Rejected(_)), "{refused:?}");
        }
        for (status, answer) in [(0x10, "does not permit"), (0x21, "refers")] {
            assert!(matches!(ask(status, &[b"priv-lvl=15"]), Answer::Rejected(why) if why.contains(answer)));
        }
        assert!(matches!(ask(0x11, &[]), Answer::Unable(_)));
        let (mut exchange, request) = Exchange::authorization(7, KEY, &login(), true);
        let odd = testing::reply(&request, KEY, &testing::permission(3, &[]));
        assert_eq!(exchange.receive(&odd), Err(Invalid::Status(3)));
    }
}

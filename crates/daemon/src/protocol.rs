//! The protocol between client and daemon on the control socket: one JSON object per line, in both
//! directions.
//!
//! Invariant: a request has at most [`MAX_REQUEST`] bytes, and text of a reply is divided into
//! pieces of at most [`MAX_PIECE`], so neither side has to hold more than one such line.

use serde::{Deserialize, Serialize};

/// The longest request line, in bytes.
pub const MAX_REQUEST: usize = 64 << 10;
/// The longest piece of output in one reply, in bytes.
pub const MAX_PIECE: usize = 32 << 10;

/// A request of the client. Each one except `Interrupt` is answered, and the next one is read when
/// the answer is complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Opens a command-line session; must come first. If the session is interactive, the answer begins with
    /// the banners of the switch (a `Text`). It ends with `Done`.
    Hello {
        /// The user's name, which the daemon ignores: it asks the kernel which user is connected.
        user: String,
        /// True when the input is echoed on a terminal.
        interactive: bool,
    },
    /// Hands the connection over to the login of a console: what follows are the bytes of its terminal, in both directions,
    /// until the connection is closed. The client's bytes have telnet's framing, which includes the size of the window
    /// (`lanyard_access::telnet`). Must come first.
    Console {
        /// The name of the terminal, such as `ttyS0`.
        terminal: String,
    },
    /// Begins a login over SSH. Only the SSH server ([`crate::ssh_server`]) sends it, on a connection for each of its clients.
    /// Answered by the banner of the login (a `Text`) and a `Done`. `Authenticate` follows until it is accepted, then `Hello`
    /// for a single command or `Terminal` for a terminal. Must come first.
    Ssh {
        /// The client's address.
        host: String,
    },
    /// Authenticates a user of SSH. Answered by `Authenticated`.
    Authenticate {
        /// The user's name.
        user: String,
        /// The proof.
        proof: Proof,
    },
    /// Hands the connection over to the terminal of a user of SSH, as `Console` does.
    Terminal,
    /// Runs a line. Answered by `Text`s and a `Done`.
    Exec {
        /// The line.
        line: String,
        /// True for one line of a text that was pasted or read from a file: the next line is sent without waiting for
        /// the answer.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pasted: bool,
    },
    /// Asks for completions at TAB. Answered by `Completion`.
    Complete {
        /// The line up to the cursor.
        line: String,
    },
    /// Asks for help at `?`. Answered by `Help`.
    Help {
        /// The line up to the cursor.
        line: String,
    },
    /// Ends the output of an `Exec` that streams.
    Interrupt,
    /// A classic bridge command. Needs no `Hello`. Answered by a `Text` or `Refusal`, and `Done`.
    Brctl {
        /// The command's words.
        words: Vec<String>,
    },
    /// Removes the plane and ends the daemon: `lanyard detach`. Needs no `Hello`. Answered by
    /// `Done`.
    Detach,
}

/// The methods of authentication of a user of SSH (RFC 4252).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// A secret.
    Password(String),
    /// A public key that the client has, in the form of OpenSSH's files. The SSH server has verified a signature.
    Key(String),
    /// A public key of which the client asks whether it would be accepted; it proves nothing.
    Offer(String),
}

/// A reply of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Output.
    Text(String),
    /// Output of a command that continues until it is interrupted.
    Stream(String),
    /// Output that is not text, in hexadecimal digits.
    Bytes(String),
    /// True when a proof is accepted.
    Authenticated(bool),
    /// The reason why the line was refused.
    Refusal(String),
    /// The end of the answer.
    Done(Done),
    /// The completions at TAB.
    Completion {
        /// The offset in the line from which a candidate replaces it.
        start: usize,
        /// The candidates.
        candidates: Vec<String>,
    },
    /// The help at `?`.
    Help(Vec<String>),
    /// A log message for `terminal monitor`; may be sent at any time.
    Monitor(String),
    /// The session cannot continue; the daemon closes it.
    Error(String),
}

/// The end of an answer, and the state of the session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Done {
    /// True when the line was refused.
    pub refused: bool,
    /// True when the session is over.
    pub close: bool,
    /// The prompt.
    pub prompt: String,
    /// Lines per page; 0 never pauses.
    pub length: u16,
    /// True when the next line is a secret, which is not to be shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

/// Serialises `value` as one line.
pub fn line(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string(value).unwrap_or_default();
    text.push('\n');
    text
}

/// Divides `text` into pieces of at most `max` bytes, between characters and after line ends where
/// possible.
pub(crate) fn pieces(mut text: &str, max: usize) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        if text.is_empty() {
            return None;
        }
        let mut end = text.len().min(max);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        if end < text.len() {
            end = text[..end].rfind('\n').map_or(end, |at| at + 1);
        }
        let (piece, rest) = text.split_at(end.max(1));
        text = rest;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_in_pieces() {
        for (text, want) in [
            ("", vec![]),
            ("abcdef", vec!["abcd", "ef"]),
            ("ab\ncd\nef", vec!["ab\n", "cd\n", "ef"]),
            ("aaéé", vec!["aaé", "é"]),
            ("aaaé", vec!["aaa", "é"]),
        ] {
            assert_eq!(pieces(text, 4).collect::<Vec<_>>(), want, "{text}");
        }
    }

    #[test]
    fn lines_of_json() {
        assert_eq!(line(&Request::Interrupt), "\"interrupt\"\n");
        assert_eq!(
            line(&Request::Exec { line: "a\nb".into(), pasted: false }),
            "{\"exec\":{\"line\":\"a\\nb\"}}\n"
        );
    }
}

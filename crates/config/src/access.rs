//! Access to the command line: users, secrets, privilege levels of commands, and a Unix group's socket.
//!
//! Invariant: the text, read back, gives an equal value. A secret in plain text exists only between its entry and the
//! commit, which hashes it; the running configuration has hashes alone.

use std::collections::BTreeMap;
use std::fmt;

/// The highest privilege level: its sessions may enter every command.
pub const LEVEL_MAX: u8 = 15;
/// The privilege level of users for whom none is configured, as in IOS.
pub const LEVEL_USER: u8 = 1;
/// The maximum number of configured users.
pub const MAX_USERS: usize = 256;
/// The maximum number of `privilege` lines.
pub const MAX_PRIVILEGES: usize = 512;
/// The maximum length of a secret in plain text, in bytes.
pub const MAX_SECRET: usize = 127;
/// The maximum length of a user's name, in bytes.
pub const MAX_NAME: usize = 64;

/// `username`, `enable secret`, `privilege`, `platform socket group`, `line`, `ip ssh pubkey-chain`, `aaa authentication login`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// `username`, by name.
    pub users: BTreeMap<String, User>,
    /// `enable secret level N`, by level, 1..=15.
    pub enable: BTreeMap<u8, Secret>,
    /// `privilege MODE level N COMMAND`.
    pub privileges: Privileges,
    /// `platform socket group`.
    pub socket_group: Option<SocketGroup>,
    /// `line`.
    pub lines: Lines,
    /// `ip ssh pubkey-chain`: the keys by which each user may log in over SSH.
    pub ssh_keys: BTreeMap<String, Vec<PublicKey>>,
    /// `aaa authentication login default`: the methods that verify names and secrets, in order; at least one.
    pub login_methods: Vec<LoginMethod>,
    /// `aaa authorization exec default`: the methods that authorize sessions, in order. Without one, a user keeps the privilege
    /// level of the login.
    pub exec_methods: Vec<ExecMethod>,
    /// `aaa authorization console`: true if `exec_methods` also authorize sessions at consoles, which are exempt otherwise.
    pub console_authorization: bool,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            users: BTreeMap::new(),
            enable: BTreeMap::new(),
            privileges: Privileges::default(),
            socket_group: None,
            lines: Lines::default(),
            ssh_keys: BTreeMap::new(),
            login_methods: default_login_methods(),
            exec_methods: Vec::new(),
            console_authorization: false,
        }
    }
}

/// The maximum length of the name of a group of login servers, in bytes.
pub const MAX_LOGIN_GROUP: usize = 32;

/// The method that verifies the name and the secret of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginMethod {
    /// The users of the configuration. If no user of this name has a secret, the next method decides.
    Local,
    /// The servers of `tacacs server`. Where none of them answers, the next method decides.
    Tacacs,
    /// The PAM service `lanyard-NAME`, with the name of the group. If PAM is not available, the next method decides.
    Group(String),
}

impl LoginMethod {
    /// The method's words in a configuration line.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Local => "local".into(),
            Self::Tacacs => "group tacacs+".into(),
            Self::Group(name) => format!("group {name}"),
        }
    }
}

/// The method that decides whether a user whose login was verified may have a session, and at which privilege level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecMethod {
    /// The servers of `tacacs server`. Where none of them answers, the next method decides.
    Tacacs,
    /// `username`: the configured user's level. If there is no user of this name, the next method decides.
    Local,
    /// Every user whose login was verified may have a session, at the level of the login.
    IfAuthenticated,
    /// No authorization: every user may have a session, at the level of the login.
    None,
}

impl ExecMethod {
    /// The method's words in a configuration line.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Tacacs => "group tacacs+",
            Self::Local => "local",
            Self::IfAuthenticated => "if-authenticated",
            Self::None => "none",
        }
    }
}

/// The login methods that apply when none are configured.
#[must_use]
pub fn default_login_methods() -> Vec<LoginMethod> {
    vec![LoginMethod::Local]
}

/// `username NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// `privilege`: the level of the user's sessions, 0..=15.
    pub level: u8,
    /// `secret`; a user without one cannot log in with a password.
    pub secret: Option<Secret>,
}

impl Default for User {
    fn default() -> Self {
        Self { level: LEVEL_USER, secret: None }
    }
}

/// How a secret is hashed; the number is the type in IOS's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// Type 5: MD5-crypt. It is read from existing configurations and never made.
    Md5,
    /// Type 8: PBKDF2 with HMAC-SHA-256.
    Sha256,
    /// Type 9: scrypt.
    Scrypt,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 3] = [Self::Md5, Self::Sha256, Self::Scrypt];

    /// The type in IOS's text.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Md5 => 5,
            Self::Sha256 => 8,
            Self::Scrypt => 9,
        }
    }
    /// The keyword after `algorithm-type`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha256 => "sha256",
            Self::Scrypt => "scrypt",
        }
    }
}

/// A secret that a user must know.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// As entered, to be hashed with this algorithm at the commit.
    Plain(Algorithm, String),
    /// Hashed: `$9$SALT$HASH`.
    Hashed(Algorithm, String),
}

/// The text of a secret does not appear in debug output, because that may go to a log.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(algorithm, _) => write!(f, "Plain({algorithm:?}, ...)"),
            Self::Hashed(algorithm, _) => write!(f, "Hashed({algorithm:?}, ...)"),
        }
    }
}

/// The error for an entered hash that does not have the form of its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashError {
    /// The type that was entered with the hash.
    pub algorithm: Algorithm,
}

impl fmt::Display for HashError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.algorithm.number();
        let form = match self.algorithm {
            Algorithm::Md5 => "$1$SALT$HASH, with a salt of 1 to 8 and a hash of 22 characters",
            Algorithm::Sha256 => "$8$SALT$HASH, with a salt of 14 and a hash of 43 characters",
            Algorithm::Scrypt => "$9$SALT$HASH, with a salt of 14 and a hash of 43 characters",
        };
        write!(
            f,
            "the secret is not a hash of type {number}, which is {form}, of the characters ./0-9A-Za-z; enter secret 0 to give the \
             secret itself"
        )
    }
}

impl std::error::Error for HashError {}

impl Secret {
    /// Reads a hash as it stands in a configuration text.
    ///
    /// # Errors
    /// [`HashError`] when `text` does not have the form of `algorithm`.
    pub fn hashed(algorithm: Algorithm, text: &str) -> Result<Self, HashError> {
        let (id, salt, hash) = match algorithm {
            Algorithm::Md5 => ("1", 1..=8, 22),
            Algorithm::Sha256 => ("8", 14..=14, 43),
            Algorithm::Scrypt => ("9", 14..=14, 43),
        };
        let itoa64 = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b"./".contains(&b));
        let parts: Vec<&str> = text.split('$').collect();
        match parts.as_slice() {
            ["", number, first, second]
                if *number == id && salt.contains(&first.len()) && second.len() == hash && itoa64(second) =>
            {
                // crypt(3) takes any character but `$` in the salt of MD5-crypt.
                if algorithm == Algorithm::Md5 || itoa64(first) {
                    return Ok(Self::Hashed(algorithm, text.to_owned()));
                }
                Err(HashError { algorithm })
            }
            _ => Err(HashError { algorithm }),
        }
    }
    /// The secret's words in a configuration line. `level` is inserted behind the keyword `secret`: `level N ` or nothing.
    #[must_use]
    pub fn words(&self, level: &str) -> String {
        match self {
            Self::Plain(Algorithm::Sha256, text) => format!("algorithm-type sha256 secret {level}0 {text}"),
            Self::Plain(_, text) => format!("secret {level}0 {text}"),
            Self::Hashed(algorithm, text) => format!("secret {level}{} {text}", algorithm.number()),
        }
    }
}

/// The modes of the command line, as far as `privilege` lines distinguish them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommandMode {
    /// Exec mode.
    Exec,
    /// Global configuration mode.
    Configure,
    /// Interface configuration mode.
    Interface,
    /// Every other configuration mode; no `privilege` line names it, so its commands need level 15.
    Other,
}

impl CommandMode {
    /// The modes that a `privilege` line may name.
    pub const NAMED: [Self; 3] = [Self::Configure, Self::Exec, Self::Interface];

    /// Its keyword.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Configure => "configure",
            Self::Interface => "interface",
            Self::Other => "other",
        }
    }
}

/// The levels that `privilege` lines give to commands. The level of an entry holds for all commands of the mode that begin with
/// its words, except those that begin with the words of a longer entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Privileges(pub BTreeMap<(CommandMode, Vec<String>), u8>);

impl Privileges {
    /// The level of the entry with exactly these words; `None` if there is none.
    #[must_use]
    pub fn exact(&self, mode: CommandMode, words: &[&str]) -> Option<u8> {
        self.0
            .iter()
            .find(|((m, path), _)| *m == mode && path.iter().eq(words.iter()))
            .map(|(_, level)| *level)
    }
    /// The lowest level of the entries that begin with these words and have further words; `None` if there is none.
    #[must_use]
    pub fn lowest_below(&self, mode: CommandMode, words: &[&str]) -> Option<u8> {
        let below = |path: &[String]| {
            path.len() > words.len() && path.iter().zip(words).all(|(one, other)| one == other)
        };
        self.0.iter().filter(|((m, path), _)| *m == mode && below(path)).map(|(_, level)| *level).min()
    }
}

/// `platform socket group`: a Unix group whose members may use the command line by a socket of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketGroup {
    /// The name of the group.
    pub name: String,
    /// The level of its members' sessions; `None` is `read-only`: level 1, which `enable` does not raise.
    pub level: Option<u8>,
}

/// The number of VTY lines that can be configured. Lines with a higher number have the settings of the last one.
pub const VTY_LINES: usize = 16;

/// The settings of all terminal lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lines {
    /// `line console 0`.
    pub console: TerminalLine,
    /// `line vty N`.
    pub vty: [TerminalLine; VTY_LINES],
}

/// The lines that a `line` command names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineRange {
    /// `line console 0`.
    Console,
    /// `line vty FIRST LAST`, both 0..=15.
    Vty(u8, u8),
}

impl LineRange {
    /// The command that enters the configuration mode of these lines.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Self::Console => "line console 0".into(),
            Self::Vty(first, last) if first == last => format!("line vty {first}"),
            Self::Vty(first, last) => format!("line vty {first} {last}"),
        }
    }
}

/// The settings of one terminal line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalLine {
    /// `exec-timeout`: the time after which an idle session ends, in seconds; 0: never.
    pub exec_timeout_s: u32,
    /// `no login`: true if sessions at this line need no login; they have level 1.
    pub no_login: bool,
    /// `transport input`.
    pub transport: Transport,
}

impl Default for TerminalLine {
    /// The defaults of IOS, with `login local`.
    fn default() -> Self {
        Self { exec_timeout_s: 600, no_login: false, transport: Transport::None }
    }
}

/// `transport input`: the protocols by which users may reach a VTY line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Transport {
    /// None.
    #[default]
    None,
    /// SSH.
    Ssh,
    /// Telnet.
    Telnet,
    /// SSH and telnet.
    All,
}

impl Transport {
    /// True when telnet may be used.
    #[must_use]
    pub const fn telnet(self) -> bool {
        matches!(self, Self::Telnet | Self::All)
    }
    /// True when SSH may be used.
    #[must_use]
    pub const fn ssh(self) -> bool {
        matches!(self, Self::Ssh | Self::All)
    }
}

impl Lines {
    /// The settings of VTY line `number`; for numbers above the last configurable line, those of that line.
    #[must_use]
    pub fn vty(&self, number: usize) -> &TerminalLine {
        &self.vty[number.min(VTY_LINES - 1)]
    }
    /// The settings of the lines of a range; empty for a range that does not exist.
    pub fn of_mut(&mut self, range: LineRange) -> &mut [TerminalLine] {
        match range {
            LineRange::Console => std::slice::from_mut(&mut self.console),
            LineRange::Vty(first, last) => {
                self.vty.get_mut(usize::from(first)..=usize::from(last)).unwrap_or_default()
            }
        }
    }
    /// True when some line may be reached by telnet.
    #[must_use]
    pub fn telnet(&self) -> bool {
        self.vty.iter().any(|line| line.transport.telnet())
    }
    /// True when some line may be reached by SSH.
    #[must_use]
    pub fn ssh(&self) -> bool {
        self.vty.iter().any(|line| line.transport.ssh())
    }
}

/// The most public keys of a user.
pub const MAX_KEYS: usize = 8;
/// The longest public key as text, in bytes: RSA with 8,192 bits has 1,400.
pub const MAX_KEY: usize = 2048;

/// The types of public keys that the SSH server verifies.
pub const KEY_TYPES: &[&str] =
    &["ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa"];

/// A public key of SSH, in the form of OpenSSH's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    /// Its type, one of [`KEY_TYPES`].
    pub kind: String,
    /// The key in base64 (RFC 4253, section 6.6).
    pub data: String,
}

impl PublicKey {
    /// Reads a key: its type, which may be left out, and its data in base64. A comment behind it is ignored.
    ///
    /// # Errors
    /// When it is no key, or a key of a type that the server does not verify.
    pub fn parse(text: &str) -> Result<Self, PublicKeyError> {
        let mut words = text.split_whitespace();
        let first = words.next().unwrap_or_default();
        let is_type = first.starts_with("ssh-") || first.starts_with("ecdsa-") || first.contains('@');
        let data = if is_type { words.next().unwrap_or_default() } else { first };
        let bytes = decode_base64(data).ok_or(PublicKeyError::Malformed)?;
        let kind = key_type(&bytes).ok_or(PublicKeyError::Malformed)?;
        if is_type && kind != first {
            return Err(PublicKeyError::Malformed);
        }
        if !KEY_TYPES.contains(&kind) {
            return Err(PublicKeyError::Type(kind.chars().take(MAX_NAME).collect()));
        }
        Ok(Self { kind: kind.to_owned(), data: data.to_owned() })
    }
}

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind, self.data)
    }
}

/// Why a text is not a public key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublicKeyError {
    /// It is no key at all.
    #[error("not a public key of SSH: enter a line of a file such as id_ed25519.pub")]
    Malformed,
    /// Its type is not among [`KEY_TYPES`].
    #[error("keys of type {0} are not supported: use {known}", known = KEY_TYPES.join(", "))]
    Type(String),
}

/// The type at the beginning of a decoded key: its length as 32 bits, and its text (RFC 4253, section 6.6). `None` if the data
/// ends there or before.
fn key_type(bytes: &[u8]) -> Option<&str> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let name = rest.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    (rest.len() > name.len()).then_some(std::str::from_utf8(name).ok()?)
}

/// Decodes base64 with padding (RFC 4648, section 4).
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let body = text.trim_end_matches('=');
    if !text.len().is_multiple_of(4) || text.len() - body.len() > 2 || body.is_empty() {
        return None;
    }
    let (mut out, mut bits, mut count) = (Vec::with_capacity(text.len() / 4 * 3), 0u32, 0);
    for byte in body.bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    (bits == 0).then_some(out)
}

impl Access {
    /// True when a secret is still in plain text.
    #[must_use]
    pub fn has_plain(&self) -> bool {
        let secrets = self.users.values().filter_map(|user| user.secret.as_ref()).chain(self.enable.values());
        secrets.into_iter().any(|secret| matches!(secret, Secret::Plain(..)))
    }
    /// Replaces every secret in plain text by its hash, which `hash` computes.
    ///
    /// # Errors
    /// The first error of `hash`; the secrets before it have already been replaced.
    pub fn hash<E>(&mut self, mut hash: impl FnMut(Algorithm, &str) -> Result<String, E>) -> Result<(), E> {
        let users = self.users.values_mut().filter_map(|user| user.secret.as_mut());
        for secret in users.chain(self.enable.values_mut()) {
            if let Secret::Plain(algorithm, text) = &*secret {
                *secret = Secret::Hashed(*algorithm, hash(*algorithm, text)?);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRYPT: &str = "$9$2MJBozw/9R3UsU$2lFhcKvpghcyw8deP25GOfyZaagyUOGBymkryvOdfo6";

    #[test]
    fn public_keys() {
        let data = "AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";
        let key = PublicKey { kind: "ssh-ed25519".into(), data: data.into() };
        for text in [format!("ssh-ed25519 {data} ann@host"), data.into(), key.to_string()] {
            assert_eq!(PublicKey::parse(&text), Ok(key.clone()), "{text}");
        }
        let malformed = Err(PublicKeyError::Malformed);
        for text in ["", "ssh-rsa", "AAAA", "====", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5", "a b", &data[..20]] {
            assert_eq!(PublicKey::parse(text), malformed, "{text}");
        }
        assert_eq!(PublicKey::parse(&format!("ssh-rsa {data}")), malformed);
        // "ssh-dss" and one byte more.
        let old = Err(PublicKeyError::Type("ssh-dss".into()));
        assert_eq!(PublicKey::parse("AAAAB3NzaC1kc3MA"), old);
        assert_eq!(decode_base64("TWE="), Some(b"Ma".to_vec()));
        assert_eq!(decode_base64("TWF="), None, "bits are left");
    }

    #[test]
    fn the_form_of_hashes() {
        let md5 = "$1$mERr$hx5rVt7rPNoS4wqbXKX7m0";
        for (algorithm, text, fine) in [
            (Algorithm::Scrypt, SCRYPT, true),
            (Algorithm::Sha256, SCRYPT, false),
            (Algorithm::Scrypt, &SCRYPT[..SCRYPT.len() - 1], false),
            (Algorithm::Scrypt, "$9$2MJBozw/9R3UsU$2lFhcKvpghcyw8deP25GOfyZaagyUOGBymkryvOdf!6", false),
            (Algorithm::Md5, md5, true),
            (Algorithm::Md5, "$1$123456789$hx5rVt7rPNoS4wqbXKX7m0", false),
            (Algorithm::Md5, "text", false),
            (Algorithm::Sha256, "", false),
        ] {
            assert_eq!(Secret::hashed(algorithm, text).is_ok(), fine, "{algorithm:?} {text}");
        }
        let error = Secret::hashed(Algorithm::Md5, "x").expect_err("no hash").to_string();
        assert!(error.contains("type 5, which is $1$SALT$HASH"), "{error}");
    }

    #[test]
    fn debug_output_has_no_secret() {
        let plain = Secret::Plain(Algorithm::Scrypt, "tiger".into());
        assert!(!format!("{plain:?}").contains("tiger"));
        assert!(!format!("{:?}", Secret::hashed(Algorithm::Scrypt, SCRYPT)).contains("2MJ"));
    }

    #[test]
    fn levels_of_words() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let entry = |text: &str, level| ((CommandMode::Exec, words(text)), level);
        let list = Privileges([entry("clear counters", 5), entry("clear", 7)].into());
        assert_eq!(list.exact(CommandMode::Exec, &["clear", "counters"]), Some(5));
        assert_eq!(list.exact(CommandMode::Configure, &["clear"]), None);
        assert_eq!(list.lowest_below(CommandMode::Exec, &["clear"]), Some(5));
        assert_eq!(list.lowest_below(CommandMode::Exec, &["clear", "counters"]), None);
        assert_eq!(list.lowest_below(CommandMode::Exec, &[]), Some(5));
    }
}

//! Users, secrets, privilege levels of commands, and the socket of a Unix group.
//!
//! Invariant: a secret that is entered in plain text becomes [`Secret::Plain`], which the commit hashes; a text that looks
//! like a type of secret without being one is refused and not taken as plain text.

use super::{TREES, need};
use crate::args::{Args, Form, Kind, MAX_WORD, short};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::exec::Exec;
use crate::line::MAX_LINE;
use crate::mode::Mode;
use crate::outcome::Outcome;
use crate::render;
use crate::setting::Line;
use crate::tree::{Node, Token, arg, kw, number};
use crate::view;
use lanyard_config::Config;
use lanyard_config::access::{
    Access, Algorithm, CommandMode, LEVEL_MAX, LEVEL_USER, MAX_NAME, MAX_PRIVILEGES, MAX_SECRET, MAX_USERS,
    Secret, SocketGroup, User,
};

/// In global configuration.
pub const LINES: &[Line<Config>] = &[
    Line::own("", ENABLE, print_enable),
    Line::own("", USERNAME, print_users),
    Line::own("", PRIVILEGE, print_privileges),
    Line::own("platform socket", GROUP, print_group),
];

/// Help for keywords that end no line.
pub const GROUPS: &[(&str, &str)] = &[("platform socket", "The control socket of this switch")];

/// `enable` in exec mode.
pub const EXEC_ENABLE: Node = kw("enable", "Turn on privileged commands")
    .level(0)
    .exec(enable)
    .then(&[number(0, LEVEL_MAX as u64, "Enable level").exec(enable)]);

/// `disable` in exec mode.
pub const EXEC_DISABLE: Node = kw("disable", "Turn off privileged commands")
    .level(0)
    .exec(disable)
    .then(&[number(0, LEVEL_MAX as u64, "Privilege level to go to").exec(disable)]);

/// `show privilege`.
pub const SHOW_PRIVILEGE: Node = kw("privilege", "Show current privilege level").exec(show_privilege);

/// `show archive log config`.
pub const SHOW_AUDIT: Node = kw("log", "Archive log").then(&[kw(
    "config",
    "Configuration commands that were entered: when, by which user, from where",
)
.exec(show_audit)
.then(&[kw("all", "All of them").exec(show_audit)])]);

const TEXT: Node = arg(Kind::Line(MAX_SECRET), "The UNENCRYPTED (cleartext) secret");
const HASH: Node = arg(Kind::Word("HASH", MAX_WORD), "The HASHED secret");
const HIDDEN: Node = arg(Kind::Word("HIDDEN", MAX_WORD), "The hidden password");

const HELP_0: &str = "Specifies an UNENCRYPTED secret will follow";
const HELP_5: &str = "Specifies a MD5 HASHED secret will follow";
const HELP_7: &str = "Specifies a HIDDEN password will follow; it is stored as a secret of type 9";
const HELP_8: &str = "Specifies a PBKDF2 HASHED secret will follow";
const HELP_9: &str = "Specifies a SCRYPT HASHED secret will follow";
const HELP_PASSWORD: &str = "Specify the password, which is stored as a secret of type 9";

const NAME: Node = arg(Kind::Word("NAME", MAX_NAME), "User name").run(user);

const USER_SECRET: Node = kw("secret", "Specify the secret for the user").then(&[
    kw("0", HELP_0).then(&[TEXT.set(user)]),
    kw("5", HELP_5).then(&[HASH.set(user)]),
    kw("8", HELP_8).then(&[HASH.set(user)]),
    kw("9", HELP_9).then(&[HASH.set(user)]),
    TEXT.set(user),
]);

const USER_PASSWORD: Node = kw("password", HELP_PASSWORD).then(&[
    kw("0", HELP_0).then(&[TEXT.set(user)]),
    kw("7", HELP_7).then(&[HIDDEN.set(user)]),
    TEXT.set(user),
]);

const USER_PLAIN: &[Node] = &[kw("secret", "Specify the secret for the user")
    .then(&[kw("0", HELP_0).then(&[TEXT.set(user)]), TEXT.set(user)])];

const USER_ALGORITHM: Node = kw("algorithm-type", "Algorithm to hash the plain text secret").then(&[
    kw("scrypt", "Encode the password using the SCRYPT hashing algorithm").then(USER_PLAIN),
    kw("sha256", "Encode the password using the PBKDF2 hashing algorithm").then(USER_PLAIN),
]);

const USERNAME: Node = kw("username", "Establish User Name Authentication").then(&[NAME.then(&[
    USER_ALGORITHM,
    USER_PASSWORD,
    kw("privilege", "Set user privilege level").then(&[number(0, LEVEL_MAX as u64, "User privilege level")
        .set(user)
        .then(&[USER_ALGORITHM, USER_PASSWORD, USER_SECRET])]),
    USER_SECRET,
])]);

const ENABLE_LEVEL: Node = number(1, LEVEL_MAX as u64, "Level number").no(enable_secret);

const ENABLE_TEXTS: &[Node] = &[
    kw("0", HELP_0).then(&[TEXT.set(enable_secret)]),
    kw("5", HELP_5).then(&[HASH.set(enable_secret)]),
    kw("8", HELP_8).then(&[HASH.set(enable_secret)]),
    kw("9", HELP_9).then(&[HASH.set(enable_secret)]),
    TEXT.set(enable_secret),
];

const ENABLE_PLAIN: &[Node] = &[kw("secret", "Assign the privileged level secret").then(&[
    kw("0", HELP_0).then(&[TEXT.set(enable_secret)]),
    kw("level", "Set exec level secret").then(&[number(1, LEVEL_MAX as u64, "Level number")
        .then(&[kw("0", HELP_0).then(&[TEXT.set(enable_secret)]), TEXT.set(enable_secret)])]),
    TEXT.set(enable_secret),
])];

const ENABLE: Node = kw("enable", "Modify enable password parameters").then(&[
    kw("algorithm-type", "Algorithm to hash the plain text secret").then(&[
        kw("scrypt", "Encode the password using the SCRYPT hashing algorithm").then(ENABLE_PLAIN),
        kw("sha256", "Encode the password using the PBKDF2 hashing algorithm").then(ENABLE_PLAIN),
    ]),
    kw("password", HELP_PASSWORD).no(enable_secret).then(&[
        kw("0", HELP_0).then(&[TEXT.set(enable_secret)]),
        kw("7", HELP_7).then(&[HIDDEN.set(enable_secret)]),
        TEXT.set(enable_secret),
    ]),
    kw("secret", "Assign the privileged level secret").no(enable_secret).then(&[
        kw("0", HELP_0).then(&[TEXT.set(enable_secret)]),
        kw("5", HELP_5).then(&[HASH.set(enable_secret)]),
        kw("8", HELP_8).then(&[HASH.set(enable_secret)]),
        kw("9", HELP_9).then(&[HASH.set(enable_secret)]),
        kw("level", "Set exec level secret").then(&[ENABLE_LEVEL.then(ENABLE_TEXTS)]),
        TEXT.set(enable_secret),
    ]),
]);

const COMMAND: Node = arg(Kind::Command(MAX_LINE), "Initial keywords of the command");

const LEVELS: &[Node] = &[
    kw("level", "Set privilege level of command")
        .then(&[number(0, LEVEL_MAX as u64, "Privilege level").then(&[COMMAND.run(privilege)])]),
    kw("reset", "Reset privilege level of command").then(&[COMMAND.set(privilege)]),
];

const PRIVILEGE: Node = kw("privilege", "Command privilege parameters").then(&[
    kw("configure", "Global configuration mode").then(LEVELS),
    kw("exec", "Exec mode").then(LEVELS),
    kw("interface", "Interface configuration mode").then(LEVELS),
]);

const GROUP: Node = kw("group", "Give the members of a Unix group a control socket").no(group).then(&[arg(
    Kind::Word("NAME", 32),
    "Name of the group",
)
.run(group)
.then(&[
    kw("privilege", "Privilege level of their sessions").then(&[number(
        0,
        LEVEL_MAX as u64,
        "Privilege level",
    )
    .set(group)]),
    kw("read-only", "Privilege level 1, which enable does not raise").set(group),
])]);

/// The secret of a line.
fn secret(args: &Args) -> Result<Secret, Refusal> {
    let text = need(args.texts().pop())?;
    let hashed = |algorithm| Secret::hashed(algorithm, &text).map_err(|error| Refusal(error.to_string()));
    let algorithm = args.among(&[("sha256", Algorithm::Sha256)]).unwrap_or(Algorithm::Scrypt);
    match args.among(&[("0", 0), ("5", 5), ("7", 7), ("8", 8), ("9", 9)]) {
        Some(0) => Ok(Secret::Plain(algorithm, text)),
        Some(5) => hashed(Algorithm::Md5),
        Some(7) => Ok(Secret::Plain(algorithm, reveal(&text)?)),
        Some(8) => hashed(Algorithm::Sha256),
        Some(_) => hashed(Algorithm::Scrypt),
        None => {
            let first = text.split_whitespace().next().unwrap_or_default();
            if ["0", "4", "5", "6", "7", "8", "9"].contains(&first) {
                return Err(format!(
                    "the secret begins like a type of secret, {first}: enter secret 0 and the text if it is meant so"
                )
                .into());
            }
            Ok(Secret::Plain(algorithm, text))
        }
    }
}

/// The text of a password of type 7, which IOS only hides: two digits for the beginning of a key, and hexadecimal bytes
/// combined with the key from there on.
pub(super) fn reveal(text: &str) -> Result<String, Refusal> {
    const KEY: &[u8] = b"dsfd;kfoA,.iyewrkldJKDHSUBsgvca69834ncxv9873254k;fg87";
    let wrong =
        || Refusal(format!("{} is not a password of type 7: two digits, and hexadecimal bytes", short(text)));
    let (start, digits) = text.split_at_checked(2).ok_or_else(wrong)?;
    let start: usize = start.parse().map_err(|_| wrong())?;
    if digits.is_empty() || !digits.len().is_multiple_of(2) || digits.len() / 2 > MAX_SECRET || start > 15 {
        return Err(wrong());
    }
    let byte = |(at, pair): (usize, &[u8])| {
        let pair = std::str::from_utf8(pair).ok()?;
        Some(u8::from_str_radix(pair, 16).ok()? ^ KEY[(start + at) % KEY.len()])
    };
    let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).enumerate().map(byte).collect();
    let revealed = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    revealed.filter(|text| text.trim() == text && !text.chars().any(char::is_control)).ok_or_else(wrong)
}

fn user(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let name = need(args.text())?;
    let users = &mut edit.config.access.users;
    if args.form != Form::Set {
        users.remove(&name);
        return Ok(());
    }
    if users.len() >= MAX_USERS && !users.contains_key(&name) {
        return Err(format!("user {}: there are {MAX_USERS} users already", short(&name)).into());
    }
    let mut user = users.get(&name).cloned().unwrap_or_default();
    if let Some(level) = args.number() {
        user.level = u8::try_from(level).unwrap_or(LEVEL_USER);
    }
    if args.has("secret") || args.has("password") {
        user.secret = Some(secret(args)?);
    }
    users.insert(name, user);
    Ok(())
}

fn print_users(config: &Config) -> Vec<String> {
    let line = |(name, user): (&String, &User)| {
        let level =
            if user.level == LEVEL_USER { String::new() } else { format!(" privilege {}", user.level) };
        let secret = user.secret.as_ref().map(|secret| format!(" {}", secret.words("")));
        format!("username {name}{level}{}", secret.unwrap_or_default())
    };
    config.access.users.iter().map(line).collect()
}

fn enable_secret(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let level = args.number().and_then(|level| u8::try_from(level).ok()).unwrap_or(LEVEL_MAX);
    let enable = &mut edit.config.access.enable;
    match args.form {
        Form::Set => {
            refuse_level(args)?;
            enable.insert(level, secret(args)?)
        }
        Form::No | Form::Default => enable.remove(&level),
    };
    Ok(())
}

/// Refuses a plain text that begins like `level N`: the level is wrong, its secret is missing, or it follows `password`. The
/// text would replace the secret of level 15.
fn refuse_level(args: &Args) -> Result<(), Refusal> {
    let text = need(args.texts().pop())?;
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or_default();
    let is_level = first == "level" || ("level".starts_with(first) && words.next().is_some());
    if !is_level || args.among(&[("0", ())]).is_some() {
        return Ok(());
    }
    Err(format!(
        "the secret begins like a level, {first}: enter enable secret level, a level from 1 to {LEVEL_MAX} and the text, or \
         secret 0 and the text if it is meant so"
    )
    .into())
}

fn print_enable(config: &Config) -> Vec<String> {
    let line = |(level, secret): (&u8, &Secret)| {
        let level = if *level == LEVEL_MAX { String::new() } else { format!("level {level} ") };
        format!("enable {}", secret.words(&level))
    };
    config.access.enable.iter().map(line).collect()
}

/// The keywords of a command in full.
fn keywords(mode: CommandMode, text: &str) -> Result<Vec<String>, Refusal> {
    let mut nodes: Vec<&'static Node> = match mode {
        CommandMode::Exec => TREES.exec,
        CommandMode::Interface => TREES.interface,
        CommandMode::Configure | CommandMode::Other => TREES.global,
    }
    .iter()
    .collect();
    let mut found = Vec::new();
    for word in text.split_whitespace() {
        let lower = word.to_ascii_lowercase();
        let of = |node: &&'static Node| match node.token {
            Token::Word(keyword) if keyword.starts_with(&lower) => Some((keyword, *node)),
            _ => None,
        };
        let fitting: Vec<(&'static str, &'static Node)> = nodes.iter().filter_map(of).collect();
        let exact = fitting.iter().find(|(keyword, _)| *keyword == lower);
        let (keyword, node) = match (exact, fitting.as_slice()) {
            (Some(one), _) | (None, [one]) => *one,
            (None, []) => {
                let mode = mode.name();
                let text = short(text);
                return Err(format!(
                    "{} in {text} is not a keyword of a command of mode {mode}",
                    short(word)
                )
                .into());
            }
            (None, _) => return Err(format!("{} in {} is ambiguous", short(word), short(text)).into()),
        };
        found.push(keyword.to_owned());
        nodes = node.next.iter().chain(node.options).collect();
    }
    Ok(found)
}

fn privilege(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let mode = need(args.among(&CommandMode::NAMED.map(|mode| (mode.name(), mode))))?;
    let path = (mode, keywords(mode, &need(args.text())?)?);
    let levels = &mut edit.config.access.privileges.0;
    match args.number().and_then(|level| u8::try_from(level).ok()).filter(|_| args.form == Form::Set) {
        Some(_) if levels.len() >= MAX_PRIVILEGES && !levels.contains_key(&path) => {
            Err(format!("there are {MAX_PRIVILEGES} privilege lines already").into())
        }
        Some(level) => {
            levels.insert(path, level);
            Ok(())
        }
        None => {
            levels.remove(&path);
            Ok(())
        }
    }
}

fn print_privileges(config: &Config) -> Vec<String> {
    let line = |((mode, words), level): (&(CommandMode, Vec<String>), &u8)| {
        format!("privilege {} level {level} {}", mode.name(), words.join(" "))
    };
    config.access.privileges.0.iter().map(line).collect()
}

fn group(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let Access { socket_group, .. } = &mut edit.config.access;
    *socket_group = match args.form {
        Form::Set => Some(SocketGroup {
            name: need(args.text())?,
            level: args.number().and_then(|level| u8::try_from(level).ok()),
        }),
        Form::No | Form::Default => None,
    };
    Ok(())
}

fn print_group(config: &Config) -> Vec<String> {
    let line = |group: &SocketGroup| match group.level {
        Some(level) => format!("platform socket group {} privilege {level}", group.name),
        None => format!("platform socket group {} read-only", group.name),
    };
    config.access.socket_group.iter().map(line).collect()
}

fn enable(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let level = args.number().and_then(|level| u8::try_from(level).ok()).unwrap_or(LEVEL_MAX);
    let login = &exec.session.login;
    if level > login.limit {
        return Err(format!(
            "privilege level {level} is not to be had here: {} gives at most level {}",
            login.line, login.limit
        )
        .into());
    }
    if level <= exec.session.level.max(login.level) {
        exec.session.set_level(level);
        return Ok(Outcome::Text(String::new()));
    }
    if !exec.backend.running().access.enable.contains_key(&level) {
        return Err(format!("No password set: configure enable secret level {level} first").into());
    }
    Ok(Outcome::Password(level))
}

fn disable(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let level = args.number().and_then(|level| u8::try_from(level).ok()).unwrap_or(LEVEL_USER);
    if level > exec.session.level {
        return Err(format!(
            "privilege level {level} is higher than the present one, {}: enter enable {level}",
            exec.session.level
        )
        .into());
    }
    if matches!(exec.session.mode, Mode::Config { .. }) {
        super::shared::leave_configuration(exec);
    }
    exec.session.set_level(level);
    Ok(Outcome::Text(String::new()))
}

fn show_privilege(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = view::Privilege { level: exec.session.level };
    Ok(exec.present(&view, render::privilege))
}

fn show_audit(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.audit_log();
    Ok(exec.present(&view, render::audit_log))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_of_type_7() {
        for (hidden, text) in [("094F471A1A0A", Some("cisco")), ("02050D480809", Some("cisco")), ("0", None)]
        {
            assert_eq!(reveal(hidden).ok().as_deref(), text, "{hidden}");
        }
        for hidden in ["", "é", "99AA", "09", "094", "09zz", "09FFFF"] {
            assert!(reveal(hidden).is_err(), "{hidden}");
        }
    }

    #[test]
    fn keywords_in_full() {
        let full = |mode, text| keywords(mode, text).map(|words| words.join(" ")).map_err(|error| error.0);
        assert_eq!(full(CommandMode::Exec, "sh run"), Ok("show running-config".into()));
        assert_eq!(full(CommandMode::Interface, "shut"), Ok("shutdown".into()));
        assert_eq!(full(CommandMode::Configure, "ip routing"), Ok("ip routing".into()));
        assert!(full(CommandMode::Exec, "sh nonsense").is_err_and(|text| text.contains("not a keyword")));
        assert!(full(CommandMode::Exec, "e").is_err_and(|text| text.contains("ambiguous")));
    }
}

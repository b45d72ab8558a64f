//! `aaa authentication login default`: the methods that verify names and secrets, in order; `aaa authorization exec default`: the
//! methods that determine the privilege levels of users.

use super::need;
use crate::args::{Args, Form, Kind, Value, short};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::field;
use crate::setting::{Flag, Line, Setting};
use crate::tree::{Node, arg, kw};
use lanyard_config::Config;
use lanyard_config::access::{ExecMethod, LoginMethod, MAX_LOGIN_GROUP, default_login_methods};

/// In global configuration.
pub const LINES: &[Line<Config>] = &[
    // Accepted without effect: the commands below always apply, as in IOS after `aaa new-model`.
    Line::unprinted(
        "aaa",
        kw("new-model", "Enable NEW access control commands and functions").set(new_model),
    ),
    Line::own("aaa authentication login", DEFAULT, print),
    Setting::of(
        "aaa authorization console",
        "For enabling console authorization",
        &Flag(field!(Config, access.console_authorization)),
    )
    .line(),
    Line::own("aaa authorization exec", EXEC, print_exec),
];

/// Help for keywords that end no line.
pub const GROUPS: &[(&str, &str)] = &[
    ("aaa", "Authentication, Authorization and Accounting"),
    ("aaa authentication", "Authentication configurations parameters"),
    ("aaa authentication login", "Set authentication lists for logins"),
    ("aaa authorization exec", "For starting an exec (shell)"),
];

const LOCAL: &str = "Users of this configuration";
const GROUP: &str = "Users that TACACS+ servers or a PAM service of the machine verify";
/// The name of the server group that has all servers of `tacacs server`.
const TACACS: &str = "tacacs+";
const NAME: Node = arg(
    Kind::Word("NAME", MAX_LOGIN_GROUP),
    "tacacs+ for the servers of tacacs server, or NAME for the service lanyard-NAME of PAM",
)
.set(methods);

const THIRD: &[Node] = &[kw("group", GROUP).then(&[NAME]), kw("local", LOCAL).set(methods)];
const SECOND: &[Node] =
    &[kw("group", GROUP).then(&[NAME.then(THIRD)]), kw("local", LOCAL).set(methods).then(THIRD)];
const FIRST: &[Node] =
    &[kw("group", GROUP).then(&[NAME.then(SECOND)]), kw("local", LOCAL).set(methods).then(SECOND)];
const DEFAULT: Node = kw("default", "The default authentication list").no(methods).then(FIRST);

const NONE: Node = kw("none", "No authorization (always succeeds)").set(exec_methods);
const IF_AUTHENTICATED: Node = kw("if-authenticated", "Succeed if user has authenticated.").set(exec_methods);
const EXEC_LOCAL: &str = "Use local database.";
const BY_TACACS: Node = kw(TACACS, "Use list of all Tacacs+ hosts.").set(exec_methods);
const ENDS: &[Node] = &[IF_AUTHENTICATED, NONE];
const AFTER_TACACS: &[Node] = &[IF_AUTHENTICATED, kw("local", EXEC_LOCAL).set(exec_methods).then(ENDS), NONE];
const AFTER_LOCAL: &[Node] =
    &[kw("group", "Use server-group.").then(&[BY_TACACS.then(ENDS)]), IF_AUTHENTICATED, NONE];
const EXEC: Node = kw("default", "The default authorization list.").no(exec_methods).then(&[
    kw("group", "Use server-group.").then(&[BY_TACACS.then(AFTER_TACACS)]),
    IF_AUTHENTICATED,
    kw("local", EXEC_LOCAL).set(exec_methods).then(AFTER_LOCAL),
    NONE,
]);

fn exec_methods(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let method = |word: &&str| match *word {
        TACACS => Some(ExecMethod::Tacacs),
        "local" => Some(ExecMethod::Local),
        "if-authenticated" => Some(ExecMethod::IfAuthenticated),
        "none" => Some(ExecMethod::None),
        _ => None,
    };
    let set = args.form == Form::Set;
    edit.config.access.exec_methods =
        if set { args.words.iter().filter_map(method).collect() } else { Vec::new() };
    Ok(())
}

fn print_exec(config: &Config) -> Vec<String> {
    let words: Vec<&str> = config.access.exec_methods.iter().map(|method| method.words()).collect();
    if words.is_empty() {
        return Vec::new();
    }
    vec![format!("aaa authorization exec default {}", words.join(" "))]
}

fn new_model(_: &mut Edit<'_>, _: &Args) -> Result<(), Refusal> {
    Ok(())
}

fn methods(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    if args.form != Form::Set {
        edit.config.access.login_methods = default_login_methods();
        return Ok(());
    }
    let mut names = args.values.iter().filter_map(|value| match value {
        Value::Text(name) => Some(name.clone()),
        _ => None,
    });
    let mut list = Vec::new();
    for word in &args.words {
        let method = match *word {
            "local" => LoginMethod::Local,
            "group" => match need(names.next())? {
                name if name == TACACS => LoginMethod::Tacacs,
                name => LoginMethod::Group(check(name)?),
            },
            _ => continue,
        };
        // A method that is named twice is kept at its first position only, because it would give the same answer again.
        if !list.contains(&method) {
            list.push(method);
        }
    }
    edit.config.access.login_methods = list;
    Ok(())
}

/// Checks the characters of a group's name, which becomes part of the name of a file.
fn check(name: String) -> Result<String, Refusal> {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_+".contains(&byte);
    if name.bytes().all(is_fine) {
        return Ok(name);
    }
    Err(format!("{} is not the name of a group: letters, digits, -, _ and +", short(&name)).into())
}

fn print(config: &Config) -> Vec<String> {
    let methods = &config.access.login_methods;
    if *methods == default_login_methods() {
        return Vec::new();
    }
    let words: Vec<String> = methods.iter().map(LoginMethod::words).collect();
    vec![format!("aaa authentication login default {}", words.join(" "))]
}

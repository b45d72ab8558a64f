//! `aaa authentication login default`: who verifies names and secrets, in order.

use super::need;
use crate::args::{Args, Form, Kind, Value, short};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::setting::Line;
use crate::tree::{Node, arg, kw};
use lanyard_config::Config;
use lanyard_config::access::{LoginMethod, MAX_LOGIN_GROUP, default_login_methods};

/// In global configuration.
pub const LINES: &[Line<Config>] = &[
    // The commands below take effect without it, as if it had been entered.
    Line::unprinted(
        "aaa",
        kw("new-model", "Enable NEW access control commands and functions").set(new_model),
    ),
    Line::own("aaa authentication login", DEFAULT, print),
];

/// Help for keywords that end no line.
pub const GROUPS: &[(&str, &str)] = &[
    ("aaa", "Authentication, Authorization and Accounting"),
    ("aaa authentication", "Authentication configurations parameters"),
    ("aaa authentication login", "Set authentication lists for logins"),
];

const LOCAL: &str = "Users of this configuration";
const GROUP: &str = "Users that a PAM service of the machine verifies";
const NAME: Node = arg(
    Kind::Word("NAME", MAX_LOGIN_GROUP),
    "The service lanyard-NAME of PAM, such as radius for lanyard-radius",
)
.set(methods);

const THIRD: &[Node] = &[kw("group", GROUP).then(&[NAME]), kw("local", LOCAL).set(methods)];
const SECOND: &[Node] =
    &[kw("group", GROUP).then(&[NAME.then(THIRD)]), kw("local", LOCAL).set(methods).then(THIRD)];
const FIRST: &[Node] =
    &[kw("group", GROUP).then(&[NAME.then(SECOND)]), kw("local", LOCAL).set(methods).then(SECOND)];
const DEFAULT: Node = kw("default", "The default authentication list").no(methods).then(FIRST);

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
            "group" => LoginMethod::Group(check(need(names.next())?)?),
            _ => continue,
        };
        // A method that is named again has answered already.
        if !list.contains(&method) {
            list.push(method);
        }
    }
    edit.config.access.login_methods = list;
    Ok(())
}

/// The name of a group, which becomes part of the name of a file.
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

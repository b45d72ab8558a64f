//! `ip ssh pubkey-chain`: the public keys by which users log in over SSH. `key-string` takes a line of OpenSSH's files, such as
//! id_ed25519.pub.

use super::need;
use crate::args::{Args, Form, Kind, short};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::mode::ConfigMode;
use crate::setting::Line;
use crate::tree::{Node, arg, kw};
use lanyard_config::Config;
use lanyard_config::access::{MAX_KEY, MAX_KEYS, MAX_NAME, MAX_USERS, PublicKey};

/// In global configuration; [`section`] prints the lines of the mode.
pub const LINES: &[Line<Config>] = &[
    Line::unprinted(
        "ip ssh",
        kw("pubkey-chain", "Enter public key chain configuration mode").no(remove_all).set(enter),
    ),
    // Accepted without effect: the SSH server has no other version.
    Line::unprinted("ip ssh", kw("version", "Specify protocol version to be supported").then(&[VERSION])),
];

/// Help for keywords that end no line.
pub const GROUPS: &[(&str, &str)] = &[("ip ssh", "Configure SSH options")];

/// `(conf-ssh-pubkey)#` and `(conf-ssh-pubkey-user)#`.
pub const KEYS: &[Line<Config>] = &[
    Line::unprinted(
        "",
        kw("username", "Specify the user's name")
            .then(&[arg(Kind::Word("NAME", MAX_NAME), "User name").run(user)]),
    ),
    Line::unprinted(
        "",
        kw("key-string", "Public key of the user").no(keys).then(&[arg(
            Kind::Line(MAX_KEY),
            "The type and the key in base64, as in id_ed25519.pub",
        )
        .run(keys)]),
    ),
];

const VERSION: Node = kw("2", "Protocol version 2").set(version);

fn version(_: &mut Edit<'_>, _: &Args) -> Result<(), Refusal> {
    Ok(())
}

fn enter(edit: &mut Edit<'_>, _: &Args) -> Result<(), Refusal> {
    *edit.mode = ConfigMode::SshKeys(None);
    Ok(())
}

fn remove_all(edit: &mut Edit<'_>, _: &Args) -> Result<(), Refusal> {
    edit.config.access.ssh_keys.clear();
    Ok(())
}

fn user(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let name = need(args.text())?;
    let all = &mut edit.config.access.ssh_keys;
    if args.form != Form::Set {
        let missing = || format!("user {} has no public keys", short(&name));
        all.remove(&name).ok_or_else(missing)?;
        *edit.mode = ConfigMode::SshKeys(None);
        return Ok(());
    }
    if all.len() >= MAX_USERS && !all.contains_key(&name) {
        return Err(format!("{MAX_USERS} users have public keys already").into());
    }
    *edit.mode = ConfigMode::SshKeys(Some(name));
    Ok(())
}

fn keys(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let ConfigMode::SshKeys(Some(name)) = &*edit.mode else {
        return Err("key-string needs a user: enter ip ssh pubkey-chain and username first".into());
    };
    let key =
        args.text().map(|text| PublicKey::parse(&text)).transpose().map_err(|error| error.to_string())?;
    let all = &mut edit.config.access.ssh_keys;
    if let (Form::Set, Some(key)) = (args.form, key.clone()) {
        let list = all.entry(name.clone()).or_default();
        if !list.contains(&key) {
            if list.len() >= MAX_KEYS {
                return Err(format!("user {} has {MAX_KEYS} public keys already", short(name)).into());
            }
            list.push(key);
        }
        return Ok(());
    }
    if let Some(list) = all.get_mut(name) {
        list.retain(|one| key.as_ref().is_some_and(|key| one != key));
    }
    all.retain(|_, list| !list.is_empty());
    Ok(())
}

/// The section of the running configuration; empty when there is no key.
pub fn section(config: &Config) -> Vec<String> {
    let users = &config.access.ssh_keys;
    let head = (!users.is_empty()).then(|| "ip ssh pubkey-chain".to_owned());
    let lines = users.iter().flat_map(|(name, list)| {
        let keys = list.iter().map(|key| format!("  key-string {key}"));
        std::iter::once(format!(" username {name}")).chain(keys)
    });
    head.into_iter().chain(lines).collect()
}

//! Verifies a name and a secret with PAM, in a process of its own: `lanyard pam-login`, which [`crate::pam_logins`] starts for
//! each login. The modules of PAM are third-party code and wait for servers; in a process of their own they cannot stop the
//! switch.
//!
//! Read pam(3), pam_start(3), pam_conv(3). The library is opened at run time, so a machine without PAM needs no package.
//!
//! Invariant: the secret arrives on standard input and is given to PAM alone; it is in no argument, no environment and no log. A
//! service without a file of its own is not asked, because PAM would ask its service `other` instead.

#![allow(unsafe_code)]

use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::{Read, Write};
use std::path::Path;
use std::ptr;

/// The longest request, in bytes.
const MAX_REQUEST: u64 = 16 << 10;
/// The directories of services, as Linux-PAM searches them (pam.d(5)).
const SERVICES: [&str; 3] = ["/etc/pam.d", "/usr/lib/pam.d", "/usr/etc/pam.d"];
/// The environment variables of PAM in which modules return a privilege level: pam_radius_auth with `privilege_level` (attribute
/// Management-Privilege-Level, RFC 5607), pam_tacplus (attribute priv-lvl).
const LEVELS: [&CStr; 3] = [c"Privilege", c"priv-lvl", c"priv_lvl"];

/// A login to verify.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Login {
    pub(crate) service: String,
    pub(crate) user: String,
    pub(crate) secret: String,
    pub(crate) host: String,
    pub(crate) line: String,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// The secret is right; the level is that of the server, if it has one.
    Accepted(Option<u8>),
    Rejected,
    /// The secret could not be verified, for this reason.
    Unavailable(String),
}

// The numbers of Linux-PAM (security/_pam_types.h).
const SUCCESS: c_int = 0;
const CONV_ERR: c_int = 19;
const BUF_ERR: c_int = 5;
/// Results that are not about the user: PAM_OPEN_ERR, PAM_SYMBOL_ERR, PAM_SERVICE_ERR, PAM_SYSTEM_ERR, PAM_BUF_ERR,
/// PAM_AUTHINFO_UNAVAIL, PAM_ABORT, PAM_MODULE_UNKNOWN.
const UNAVAILABLE: [c_int; 8] = [1, 2, 3, 4, 5, 9, 26, 28];
const SILENT: c_int = 0x8000;
const DISALLOW_NULL_AUTHTOK: c_int = 1;
const ITEM_TTY: c_int = 3;
const ITEM_RHOST: c_int = 4;
const PROMPT_ECHO_OFF: c_int = 1;
const PROMPT_ECHO_ON: c_int = 2;

#[repr(C)]
struct Message {
    style: c_int,
    text: *const c_char,
}

#[repr(C)]
struct Response {
    text: *mut c_char,
    /// Always zero.
    code: c_int,
}

#[repr(C)]
struct Conversation {
    call: extern "C" fn(c_int, *mut *const Message, *mut *mut Response, *mut c_void) -> c_int,
    data: *mut c_void,
}

type Handle = *mut c_void;

/// The functions of the library.
struct Pam {
    start: unsafe extern "C" fn(*const c_char, *const c_char, *const Conversation, *mut Handle) -> c_int,
    set_item: unsafe extern "C" fn(Handle, c_int, *const c_void) -> c_int,
    authenticate: unsafe extern "C" fn(Handle, c_int) -> c_int,
    acct_mgmt: unsafe extern "C" fn(Handle, c_int) -> c_int,
    getenv: unsafe extern "C" fn(Handle, *const c_char) -> *const c_char,
    strerror: unsafe extern "C" fn(Handle, c_int) -> *const c_char,
    end: unsafe extern "C" fn(Handle, c_int) -> c_int,
}

impl Pam {
    /// Opens the library; `None` when there is none.
    fn open() -> Option<Self> {
        // SAFETY: the name is a C string; the library's initialisation has no preconditions.
        let library = unsafe { libc::dlopen(c"libpam.so.0".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if library.is_null() {
            return None;
        }
        let find = |name: &CStr| {
            // SAFETY: the library is open, and stays so; the name is a C string.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        // SAFETY: each function has the type that Linux-PAM's manual pages declare for its name, and the pointers are not null.
        unsafe {
            Some(Self {
                start: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(
                        *const c_char,
                        *const c_char,
                        *const Conversation,
                        *mut Handle,
                    ) -> c_int,
                >(find(c"pam_start")?),
                set_item: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(Handle, c_int, *const c_void) -> c_int,
                >(find(c"pam_set_item")?),
                authenticate: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Handle, c_int) -> c_int>(
                    find(c"pam_authenticate")?,
                ),
                acct_mgmt: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Handle, c_int) -> c_int>(
                    find(c"pam_acct_mgmt")?,
                ),
                getenv: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(Handle, *const c_char) -> *const c_char,
                >(find(c"pam_getenv")?),
                strerror: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(Handle, c_int) -> *const c_char,
                >(find(c"pam_strerror")?),
                end: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Handle, c_int) -> c_int>(find(
                    c"pam_end",
                )?),
            })
        }
    }
}

/// The answers to a module's questions.
struct Answers {
    user: CString,
    secret: CString,
}

/// Answers the questions of a module: the secret where the answer would not be echoed, the name otherwise.
extern "C" fn converse(
    count: c_int,
    messages: *mut *const Message,
    responses: *mut *mut Response,
    data: *mut c_void,
) -> c_int {
    let Ok(count) = usize::try_from(count) else { return CONV_ERR };
    if count == 0 || count > 32 || messages.is_null() || responses.is_null() || data.is_null() {
        return CONV_ERR;
    }
    // SAFETY: `data` is the `Answers` that `verify` has passed, which outlives the conversation. calloc takes any size; PAM
    // releases the array and its texts with free(3). Linux-PAM passes an array of `count` pointers to messages.
    unsafe {
        let answers = &*data.cast::<Answers>();
        let list = libc::calloc(count, size_of::<Response>()).cast::<Response>();
        if list.is_null() {
            return BUF_ERR;
        }
        for at in 0..count {
            let answer = match (**messages.add(at)).style {
                PROMPT_ECHO_OFF => &answers.secret,
                PROMPT_ECHO_ON => &answers.user,
                _ => continue,
            };
            (*list.add(at)).text = libc::strdup(answer.as_ptr());
        }
        *responses = list;
    }
    SUCCESS
}

/// True when PAM has a service of this name.
fn has_service(name: &str) -> bool {
    SERVICES.iter().any(|directory| Path::new(directory).join(name).is_file())
}

fn verify(login: &Login) -> Verdict {
    if !has_service(&login.service) {
        return Verdict::Unavailable(format!("there is no file /etc/pam.d/{}", login.service));
    }
    let Some(pam) = Pam::open() else {
        return Verdict::Unavailable("libpam.so.0 is not installed".into());
    };
    let text = |text: &str| CString::new(text).ok();
    // A text with a NUL cannot be passed to PAM, and is no valid name or secret.
    let (Some(service), Some(user), Some(secret)) =
        (text(&login.service), text(&login.user), text(&login.secret))
    else {
        return Verdict::Rejected;
    };
    let answers = Answers { user, secret };
    let conversation =
        Conversation { call: converse, data: ptr::from_ref(&answers).cast_mut().cast::<c_void>() };
    let mut handle: Handle = ptr::null_mut();
    // SAFETY: all texts are C strings, and they and the conversation outlive the handle, which `end` releases; a handle is used
    // only after `start` has succeeded.
    unsafe {
        let started =
            (pam.start)(service.as_ptr(), answers.user.as_ptr(), &raw const conversation, &raw mut handle);
        if started != SUCCESS {
            return Verdict::Unavailable(format!("pam_start: error {started}"));
        }
        for (item, value) in [(ITEM_RHOST, text(&login.host)), (ITEM_TTY, text(&login.line))] {
            if let Some(value) = value {
                (pam.set_item)(handle, item, value.as_ptr().cast());
            }
        }
        let mut result = (pam.authenticate)(handle, SILENT | DISALLOW_NULL_AUTHTOK);
        if result == SUCCESS {
            result = (pam.acct_mgmt)(handle, SILENT);
        }
        let verdict = match result {
            SUCCESS => Verdict::Accepted(level(&pam, handle)),
            _ if UNAVAILABLE.contains(&result) => {
                let reason = (pam.strerror)(handle, result);
                let reason = (!reason.is_null()).then(|| CStr::from_ptr(reason).to_string_lossy());
                Verdict::Unavailable(reason.unwrap_or_default().into_owned())
            }
            _ => Verdict::Rejected,
        };
        (pam.end)(handle, result);
        verdict
    }
}

/// The privilege level that a module has returned.
///
/// # Safety
/// The handle must be open.
unsafe fn level(pam: &Pam, handle: Handle) -> Option<u8> {
    LEVELS.iter().find_map(|name| {
        // SAFETY: the handle is open; the value is a C string of PAM, which is read before the next call.
        let value = unsafe {
            let value = (pam.getenv)(handle, name.as_ptr());
            (!value.is_null()).then(|| CStr::from_ptr(value).to_string_lossy().into_owned())
        }?;
        parse_level(&value)
    })
}

/// Parses the privilege level that a server sent, 0-15. Any other value is `None`, and the user gets no level from it.
fn parse_level(value: &str) -> Option<u8> {
    value.trim().parse().ok().filter(|level| *level <= lanyard_config::access::LEVEL_MAX)
}

/// `lanyard pam-login`: reads a login from standard input, and prints the verdict.
///
/// # Errors
/// When standard input holds no request, for example because a user has started the command.
pub fn main() -> std::io::Result<()> {
    let mut text = String::new();
    std::io::stdin().take(MAX_REQUEST).read_to_string(&mut text)?;
    let login: Login = serde_json::from_str(&text).map_err(std::io::Error::other)?;
    let verdict = serde_json::to_string(&verify(&login)).map_err(std::io::Error::other)?;
    std::io::stdout().write_all(verdict.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_servers() {
        for (text, level) in
            [("15", Some(15)), (" 1\n", Some(1)), ("0", Some(0)), ("16", None), ("-1", None), ("", None)]
        {
            assert_eq!(parse_level(text), level, "{text:?}");
        }
    }

    #[test]
    fn a_service_without_a_file_is_not_asked() {
        let login = Login {
            service: "lanyard-no-such-service".into(),
            user: "ann".into(),
            secret: "tiger".into(),
            host: "192.0.2.1".into(),
            line: "vty".into(),
        };
        assert!(matches!(verify(&login), Verdict::Unavailable(reason) if reason.contains("no-such-service")));
    }
}

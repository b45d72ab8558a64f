//! Logins that a service of PAM verifies (`aaa authentication login default group NAME`): RADIUS, TACACS+, LDAP, the machine's own
//! users. Each is verified by a process ([`crate::pam`]).
//!
//! Invariant: management never waits for a server; at most [`PROCESSES`] processes run and [`MAX_WAITING`] logins wait for one, and
//! a process that has not answered after [`PATIENCE`] is killed.

use crate::pam::{Login, Verdict};
use std::process::Stdio;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;

/// Processes that verify logins at the same time.
const PROCESSES: usize = 4;
/// Logins that PAM verifies or that wait for it; further ones are rejected.
const MAX_WAITING: usize = 16;
/// How long PAM may take to verify a login: less than the minute that a login may take, so that the next
/// method can still be tried.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest name, and the longest secret, in bytes.
const MAX_NAME: usize = lanyard_config::access::MAX_NAME;
const MAX_SECRET: usize = 512;
/// The longest answer, in bytes.
const MAX_ANSWER: u64 = 4096;
/// Where modules find the programs that they may run.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

static RUNNING: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(PROCESSES)));
static WAITING: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(MAX_WAITING)));

/// The PAM service that verifies logins of the method `group GROUP`.
pub(crate) fn service(group: &str) -> String {
    format!("lanyard-{group}")
}

/// Asks PAM for a verdict.
pub(crate) async fn verify(login: Login) -> Verdict {
    let is_text = |text: &str| !text.is_empty() && !text.chars().any(char::is_control);
    if !is_text(&login.user) || login.user.len() > MAX_NAME || login.secret.len() > MAX_SECRET {
        return Verdict::Rejected;
    }
    let Ok(_waiting) = WAITING.clone().try_acquire_owned() else { return Verdict::Rejected };
    let Ok(_turn) = RUNNING.clone().acquire_owned().await else { return Verdict::Rejected };
    match tokio::time::timeout(PATIENCE, ask(&login)).await {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(error)) => Verdict::Unavailable(error.to_string()),
        Err(_) => Verdict::Unavailable(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}

/// Runs the process; it is killed when the caller no longer waits.
async fn ask(login: &Login) -> std::io::Result<Verdict> {
    let request = serde_json::to_vec(login).map_err(std::io::Error::other)?;
    let mut child = tokio::process::Command::new("/proc/self/exe")
        .arg0("lanyard")
        .arg("pam-login")
        .env_clear()
        .env("PATH", PATH)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(&request).await?;
    }
    let mut answer = Vec::new();
    if let Some(output) = child.stdout.take() {
        output.take(MAX_ANSWER).read_to_end(&mut answer).await?;
    }
    let status = child.wait().await?;
    serde_json::from_slice(&answer)
        .map_err(|_| std::io::Error::other(format!("lanyard pam-login gave no verdict: {status}")))
}

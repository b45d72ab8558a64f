//! One open connection to the switch's command line, for requests that are sent every millisecond.
//!
//! Invariant: the answer to a request is read completely before the next request is sent.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

pub(super) struct Asker {
    stream: BufReader<UnixStream>,
}

impl Asker {
    pub fn connect(instance: &str) -> Result<Self> {
        let path = Path::new("/run/lanyard").join(instance).join("cli.sock");
        let stream = UnixStream::connect(&path).with_context(|| path.display().to_string())?;
        let mut asker = Self { stream: BufReader::new(stream) };
        asker.request(&json!({"hello": {"user": "bench", "interactive": false}}))?;
        Ok(asker)
    }
    /// The text of the answer to a request, and the reason if the switch refused it.
    fn request(&mut self, request: &Value) -> Result<(String, Option<String>)> {
        self.stream.get_mut().write_all(format!("{request}\n").as_bytes())?;
        let (mut text, mut refusal) = (String::new(), None);
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                bail!("the switch has closed the connection");
            }
            let reply: Value = serde_json::from_str(&line)?;
            if let Some(piece) = reply["text"].as_str() {
                text.push_str(piece);
            } else if let Some(why) = reply["refusal"].as_str() {
                refusal = Some(why.to_owned());
            } else if reply.get("done").is_some() {
                return Ok((text, refusal));
            }
        }
    }
    fn entry(&mut self, address: &str) -> Result<Value> {
        let line = format!("show ip cef {address} | json");
        let (text, refusal) = self.request(&json!({"exec": {"line": line}}))?;
        if let Some(why) = refusal {
            bail!("{why}");
        }
        let view: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
        Ok(view["entries"][0].clone())
    }
    /// The reason why the switch refuses to show the plane's route of an address, or `None` if it shows it.
    pub fn refusal(&mut self, address: &str) -> Result<Option<String>> {
        let line = format!("show ip cef {address}");
        Ok(self.request(&json!({"exec": {"line": line}}))?.1)
    }
    /// The plane's action for packets to an address, such as `forward`.
    pub fn action(&mut self, address: &str) -> Result<String> {
        Ok(self.entry(address)?["action"].as_str().unwrap_or_default().to_owned())
    }
    /// The number of next hops of the plane's route for an address.
    pub fn ways(&mut self, address: &str) -> Result<usize> {
        Ok(self.entry(address)?["nexthops"].as_array().map_or(0, Vec::len))
    }
}

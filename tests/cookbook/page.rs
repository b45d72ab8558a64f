//! A page of the cookbook as steps: the commands in its `console` blocks, each with the output below it.
//!
//! A line `$ COMMAND` is a command of the shell. A line `NODE#COMMAND` is entered at the command line of the switch NODE in
//! the lab that was built last; from the line that enters a configuration mode to the line that leaves it (`end`) they are
//! one session. All other lines of the block are output. A block whose first line is `text PATH` (or `yaml PATH`) shows
//! that file of the repository. A comment `<!-- needs: PROGRAM ... -->` lists programs without which the page is skipped.

/// A page.
#[derive(Debug, Default)]
pub struct Page {
    /// Programs that have to be installed.
    pub needs: Vec<String>,
    /// Files of the repository with the content that the page shows.
    pub files: Vec<(String, String)>,
    pub steps: Vec<Step>,
}

/// One command.
#[derive(Debug, Default)]
pub struct Step {
    /// The line of the page, from 1.
    pub line: usize,
    /// The command for the shell.
    pub command: String,
    /// The lines of output that the page shows.
    pub expected: Vec<String>,
    /// True if the command changes nothing, so that it can be repeated until its output is as shown.
    pub repeatable: bool,
}

/// Words of commands that change nothing.
const READING: &[&str] = &["ping", "show", "cat", "lab list", "traceroute", "ip route get", "grep", "tail"];

/// A session of configuration that is being collected.
#[derive(Default)]
struct Session {
    node: String,
    lines: Vec<String>,
}

impl Page {
    /// The page of a text. The error names the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut page = Self::default();
        let mut lines = text.lines().enumerate();
        let mut lab = None;
        while let Some((_, line)) = lines.next() {
            if let Some(needs) = line.strip_prefix("<!-- needs: ") {
                page.needs.extend(needs.trim_end_matches("-->").split_whitespace().map(str::to_owned));
            }
            let Some(info) = line.strip_prefix("```").filter(|info| !info.is_empty()) else { continue };
            let block: Vec<(usize, &str)> = lines
                .by_ref()
                .take_while(|(_, line)| *line != "```")
                .map(|(at, line)| (at + 1, line))
                .collect();
            match info.split_once(' ') {
                None if info == "console" => page.console(&block, &mut lab)?,
                Some((_, path)) => {
                    let content: String = block.iter().map(|(_, line)| format!("{line}\n")).collect();
                    page.files.push((path.to_owned(), content));
                }
                None => {}
            }
        }
        Ok(page)
    }

    fn console(&mut self, block: &[(usize, &str)], lab: &mut Option<String>) -> Result<(), String> {
        let mut session: Option<Session> = None;
        for &(number, line) in block {
            if let Some(command) = line.strip_prefix("$ ") {
                let topology = command.split_whitespace().find_map(|word| word.strip_suffix(".clab.yml"));
                if let Some(path) = topology.filter(|_| command.starts_with("lanyard lab up ")) {
                    *lab = path.rsplit('/').next().map(str::to_owned);
                }
                let repeatable = READING.iter().any(|word| command.contains(word));
                self.steps.push(Step {
                    line: number,
                    command: command.to_owned(),
                    repeatable,
                    ..Step::default()
                });
            } else if let Some((node, typed, configuring)) = prompt(line) {
                let lab =
                    lab.as_ref().ok_or(format!("line {number}: a prompt, but no lab has been built"))?;
                let started = typed == "configure terminal";
                if !configuring && !started {
                    let lines = vec![typed.to_owned()];
                    let command = cli(lab, &Session { node: node.to_owned(), lines });
                    let repeatable = typed.starts_with("show");
                    self.steps.push(Step { line: number, command, repeatable, ..Step::default() });
                    continue;
                }
                if started {
                    session = Some(Session { node: node.to_owned(), lines: Vec::new() });
                    self.steps.push(Step { line: number, ..Step::default() });
                }
                let open =
                    session.as_mut().ok_or(format!("line {number}: configuration without its start"))?;
                open.lines.push(typed.to_owned());
                let step = self.steps.last_mut().ok_or("no step")?;
                step.command = cli(lab, open);
            } else {
                let step = self.steps.last_mut().ok_or(format!("line {number}: output without a command"))?;
                step.expected.push(line.to_owned());
            }
        }
        Ok(())
    }
}

/// The node, the command and whether the prompt is one of a configuration mode.
fn prompt(line: &str) -> Option<(&str, &str, bool)> {
    let (prompt, typed) = line.split_once('#')?;
    let (node, mode) = match prompt.split_once('(') {
        Some((node, mode)) => (node, mode.strip_suffix(')')?),
        None => (prompt, ""),
    };
    let named = !node.is_empty() && node.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    (named && !typed.is_empty() && !typed.starts_with(' ')).then_some((node, typed, !mode.is_empty()))
}

/// The command that enters a session's lines in a node of a lab.
fn cli(lab: &str, session: &Session) -> String {
    let quoted = |line: &String| format!(" -c '{}'", line.replace('\'', "'\\''"));
    let lines: String = session.lines.iter().map(quoted).collect();
    format!("lanyard lab exec {lab} {} -- lanyard cli{lines}", session.node)
}

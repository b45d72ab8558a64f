//! The interactive command line: a line editor in front of a session on the daemon. The editor waits for answers to
//! cursor queries, so a terminal that is not known to answer them gets the plain line mode of [`crate::plain`]
//! instead.
//!
//! Three threads share the connection: this one edits lines and sends requests; the second reads replies, and prints
//! log messages (`terminal monitor`) as they arrive; the third turns ctrl-C into an interrupt while a command runs.

use crate::Failure;
use crate::batch::user;
use crate::completion_menu::CompletionMenu;
use crate::pager::Pager;
use crate::plain::{self, Key, Terminal};
use lanyard_daemon::client::{Client, ClientError, Piece, Replies, Requests};
use lanyard_daemon::protocol::{Done, Reply, Request};
use nix::sys::signal::{SigSet, Signal as OsSignal};
use reedline::{
    Completer, CompletionResult, EditCommand, Emacs, ExternalPrinter, KeyCode, KeyModifiers, Prompt,
    PromptEditMode, PromptHistorySearch, Reedline, ReedlineEvent, ReedlineMenu, Signal, Span, Suggestion,
    default_emacs_keybindings,
};
use std::borrow::Cow;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The maximum number of replies read ahead.
const QUEUE: usize = 16;
/// The page length with which sessions start; it stands for the height of the terminal.
const LENGTH_DEFAULT: u16 = 24;
const MENU: &str = "completion";
const HELP: &str = "help";
const END: &str = "end";

/// Runs a session on the terminal.
pub fn run(instance: &str) -> Result<ExitCode, Failure> {
    let mut client = Client::connect(instance)?;
    let mut done = client.greet(&user(), true, &mut |piece| match piece {
        Piece::Output(text) | Piece::Refusal(text) => print(text),
        Piece::Bytes(_) => Ok(()),
    })?;
    let (requests, replies) = client.split();
    let busy = Arc::new(AtomicBool::new(false));
    interrupts(&requests, &busy)?;
    let (sender, receiver) = sync_channel(QUEUE);
    let wrong = |error: io::Error| format!("terminal: {error}");
    let mut terminal = Terminal::open().map_err(wrong)?;
    let term = std::env::var("TERM").ok();
    let edits = plain::may_answer(term.as_deref()) && terminal.answers().map_err(wrong)?;
    if !edits {
        let (monitor, messages) = sync_channel::<String>(QUEUE);
        std::thread::spawn(move || messages.iter().try_for_each(|line| print(&format!("\n{line}\n"))));
        let idle = busy.clone();
        std::thread::spawn(move || read_replies(replies, &sender, &idle, &monitor));
        let link = Mutex::new(Link { requests, replies: receiver, busy });
        return run_plain(&link, &mut terminal, done);
    }
    drop(terminal);
    let printer = ExternalPrinter::new(QUEUE);
    let (idle, monitor) = (busy.clone(), printer.sender());
    std::thread::spawn(move || read_replies(replies, &sender, &idle, &monitor));
    let link = Arc::new(Mutex::new(Link { requests, replies: receiver, busy }));
    let mut editor = editor(&link, printer);
    while !done.close {
        if done.hidden {
            let secret = plain::secret(&done.prompt).map_err(|error| format!("terminal: {error}"))?;
            done = exec(&link, &secret, false, 0)?;
            continue;
        }
        let signal =
            editor.read_line(&Line(done.prompt.clone())).map_err(|error| format!("terminal: {error}"))?;
        done = match signal {
            Signal::Success(text) => exec_all(&link, &text, done)?,
            Signal::HostCommand(what) if what == HELP => {
                help(&link, &editor, &done.prompt)?;
                done
            }
            // The editor keeps the line at ctrl-Z, and would draw it behind the next prompt.
            Signal::HostCommand(_) => {
                let line = editor.current_buffer_contents().to_owned();
                editor.run_edit_commands(&[EditCommand::Clear]);
                end(&link, &line, done)?
            }
            Signal::CtrlC if in_config(&done) => exec(&link, "end", false, 0)?,
            Signal::CtrlD => exec(&link, "exit", false, 0)?,
            _ => done,
        };
    }
    Ok(ExitCode::SUCCESS)
}

/// True if the session is in a configuration mode.
fn in_config(done: &Done) -> bool {
    done.prompt.contains("(config")
}

/// Ctrl-Z: runs the line that was being entered and leaves the configuration modes, as IOS does. In exec mode it does nothing.
fn end(link: &Mutex<Link>, line: &str, mut done: Done) -> Result<Done, Failure> {
    if in_config(&done) && !line.trim().is_empty() {
        done = exec(link, line, false, done.length)?;
    }
    if in_config(&done) && !done.close {
        done = exec(link, "end", false, done.length)?;
    }
    Ok(done)
}

/// Runs the input: one line, or several pasted lines.
fn exec_all(link: &Mutex<Link>, text: &str, mut done: Done) -> Result<Done, Failure> {
    let pasted = text.trim_end().contains(['\n', '\r']);
    for (at, line) in text.split(['\n', '\r']).enumerate() {
        if at > 0 {
            print(&format!("{}{line}\n", done.prompt)).map_err(|error| format!("terminal: {error}"))?;
        }
        done = exec(link, line, pasted, done.length)?;
        if done.close {
            break;
        }
    }
    Ok(done)
}

/// Runs a session in the plain line mode.
fn run_plain(link: &Mutex<Link>, terminal: &mut Terminal, mut done: Done) -> Result<ExitCode, Failure> {
    let wrong = |error: io::Error| format!("terminal: {error}");
    let mut line = plain::Line::new();
    // A user does not type a whole line while the one before is being read. A line that arrives in that time was
    // pasted, and so was the last line that arrives that way.
    let (mut is_pasted, mut more) = (false, false);
    print(&done.prompt).map_err(wrong)?;
    while !done.close {
        let mut echo = Vec::new();
        let Some(byte) = terminal.read().map_err(wrong)? else { break };
        let key = line.feed(byte, &mut echo);
        if done.hidden {
            echo.retain(|byte| *byte == b'\n');
        }
        io::stdout().write_all(&echo).and_then(|()| io::stdout().flush()).map_err(wrong)?;
        let command = match key {
            Key::None => continue,
            Key::Enter => {
                let before = std::mem::replace(&mut more, terminal.has_more());
                is_pasted = before || more;
                line.text()
            }
            Key::Help => {
                print(&help_text(link, &line.text())?).map_err(wrong)?;
                print(&format!("{}{}", done.prompt, line.text())).map_err(wrong)?;
                continue;
            }
            Key::Complete => {
                let text = line.text();
                let (start, candidates) = candidates(link, &text)?;
                if let ([one], Some(before)) = (candidates.as_slice(), text.get(..start)) {
                    line.set(&format!("{before}{one} "));
                    print(&format!("\n{}{}", done.prompt, line.text())).map_err(wrong)?;
                }
                continue;
            }
            Key::End => line.text(),
            Key::Cancel => "end".to_owned(),
            Key::Close => "exit".to_owned(),
        };
        line.set("");
        // In exec mode ctrl-C does nothing.
        if key != Key::Cancel || in_config(&done) {
            terminal.interrupts(true).map_err(wrong)?;
            done = match key {
                Key::End => end(link, &command, done)?,
                _ => exec(link, &command, is_pasted, done.length)?,
            };
            terminal.interrupts(false).map_err(wrong)?;
        }
        if !done.close {
            print(&done.prompt).map_err(wrong)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The connection to the switch. A thread holds its lock from a request until the last reply to it.
struct Link {
    requests: Requests,
    replies: Receiver<Result<Reply, ClientError>>,
    busy: Arc<AtomicBool>,
}

impl Link {
    fn ask(&mut self, request: &Request) -> Result<(), ClientError> {
        self.requests.send(request)
    }
    fn reply(&mut self) -> Result<Reply, ClientError> {
        self.replies.recv().unwrap_or(Err(ClientError::Closed))
    }
}

fn lock(link: &Mutex<Link>) -> MutexGuard<'_, Link> {
    link.lock().unwrap_or_else(PoisonError::into_inner)
}

fn exec(link: &Mutex<Link>, line: &str, pasted: bool, length: u16) -> Result<Done, Failure> {
    let mut link = lock(link);
    link.busy.store(true, Ordering::Relaxed);
    link.ask(&Request::Exec { line: line.to_owned(), pasted })?;
    let mut pager = Pager::new(page(length));
    let wrong = |error: io::Error| format!("terminal: {error}");
    let done = loop {
        match link.reply()? {
            Reply::Text(text) => {
                if pager.print(&text).map_err(wrong)? {
                    link.ask(&Request::Interrupt)?;
                }
            }
            Reply::Stream(text) | Reply::Refusal(text) => print(&text).map_err(wrong)?,
            Reply::Done(done) => break done,
            Reply::Error(reason) => return Err(reason.into()),
            Reply::Completion { .. }
            | Reply::Help(_)
            | Reply::Monitor(_)
            | Reply::Bytes(_)
            | Reply::Authenticated(_) => {}
        }
    };
    link.busy.store(false, Ordering::Relaxed);
    Ok(done)
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The number of lines in a page: that of the session or, if it uses the default, the height of the
/// terminal.
fn page(length: u16) -> usize {
    let rows = || crossterm::terminal::size().ok().map(|(_, rows)| rows).filter(|rows| *rows > 1);
    if length == LENGTH_DEFAULT { rows().unwrap_or(length).into() } else { length.into() }
}

/// Handles `?`: prints help for the line typed so far, which stays in the editor.
fn help(link: &Mutex<Link>, editor: &Reedline, prompt: &str) -> Result<(), Failure> {
    let upto = editor.current_insertion_point();
    let line = editor.current_buffer_contents().get(..upto).unwrap_or_default().to_owned();
    let text = help_text(link, &line)?;
    // The editor may not have drawn the last keys yet.
    print(&format!("\r\x1b[K{prompt}{line}?\n{text}")).map_err(|error| format!("terminal: {error}"))?;
    Ok(())
}

/// The help lines for `?` at the end of `line`.
fn help_text(link: &Mutex<Link>, line: &str) -> Result<String, Failure> {
    let mut link = lock(link);
    link.ask(&Request::Help { line: line.to_owned() })?;
    match link.reply()? {
        Reply::Help(lines) => Ok(lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()),
        Reply::Error(reason) => Err(reason.into()),
        _ => Ok(String::new()),
    }
}

/// The completions for TAB at the end of `line`: the offset from which a candidate replaces text, and the
/// candidates.
fn candidates(link: &Mutex<Link>, line: &str) -> Result<(usize, Vec<String>), Failure> {
    let mut link = lock(link);
    link.ask(&Request::Complete { line: line.to_owned() })?;
    match link.reply()? {
        Reply::Completion { start, candidates } => Ok((start, candidates)),
        _ => Ok((0, Vec::new())),
    }
}

fn read_replies(
    mut replies: Replies,
    sender: &SyncSender<Result<Reply, ClientError>>,
    busy: &AtomicBool,
    monitor: &SyncSender<String>,
) {
    loop {
        match replies.receive() {
            Ok(Reply::Monitor(line)) if busy.load(Ordering::Relaxed) => drop(print(&format!("{line}\n"))),
            // An editor that is not reading buffers a few lines. Further lines are in the log only.
            Ok(Reply::Monitor(line)) => drop(monitor.try_send(line)),
            other => {
                let last = other.is_err();
                if sender.send(other).is_err() || last {
                    return;
                }
            }
        }
    }
}

/// From this call on ctrl-C interrupts the command that runs on the switch instead of ending this program.
fn interrupts(requests: &Requests, busy: &Arc<AtomicBool>) -> Result<(), Failure> {
    let mut requests = requests.try_clone().map_err(|error| format!("control socket: {error}"))?;
    let busy = busy.clone();
    let mut set = SigSet::empty();
    set.add(OsSignal::SIGINT);
    set.thread_block().map_err(|error| format!("SIGINT: {error}"))?;
    std::thread::spawn(move || {
        while set.wait().is_ok() {
            if busy.load(Ordering::Relaxed) && requests.send(&Request::Interrupt).is_err() {
                return;
            }
        }
    });
    Ok(())
}

fn editor(link: &Arc<Mutex<Link>>, printer: ExternalPrinter<String>) -> Reedline {
    let mut keys = default_emacs_keybindings();
    let host = |name: &str| ReedlineEvent::ExecuteHostCommand(name.to_owned());
    for modifiers in [KeyModifiers::NONE, KeyModifiers::SHIFT] {
        keys.add_binding(modifiers, KeyCode::Char('?'), host(HELP));
    }
    keys.add_binding(KeyModifiers::CONTROL, KeyCode::Char('z'), host(END));
    let tab = vec![ReedlineEvent::Menu(MENU.into()), ReedlineEvent::MenuNext];
    keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, ReedlineEvent::UntilFound(tab));
    let menu = CompletionMenu::new(MENU);
    Reedline::create()
        .with_edit_mode(Box::new(Emacs::new(keys)))
        .with_completer(Box::new(Tab(link.clone())))
        .with_quick_completions(true)
        .with_partial_completions(true)
        .with_menu(ReedlineMenu::EngineCompleter(Box::new(menu)))
        .with_ansi_colors(false)
        .with_external_printer(printer)
        // Bracketed paste inserts pasted text as text: no escape sequence in it acts as a key.
        .use_bracketed_paste(true)
}

/// Completes a line by asking the switch.
struct Tab(Arc<Mutex<Link>>);

impl Completer for Tab {
    fn complete(&mut self, line: &str, pos: usize) -> CompletionResult {
        let (start, candidates) =
            candidates(&self.0, line.get(..pos).unwrap_or_default()).unwrap_or_default();
        let span = Span::new(start.min(pos), pos);
        let suggestion = |value| Suggestion { value, span, append_whitespace: true, ..Suggestion::default() };
        CompletionResult::fresh(candidates.into_iter().map(suggestion).collect::<Vec<_>>())
    }
}

/// The prompt that the switch has sent.
struct Line(String);

impl Prompt for Line {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.0)
    }
    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }
    fn render_prompt_indicator(&self, _mode: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("")
    }
    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }
    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Owned(format!("(search: {}) ", search.term))
    }
}

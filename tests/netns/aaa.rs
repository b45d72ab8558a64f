//! Other programs that work for management: PAM with FreeRADIUS as the server (`aaa authentication login default group NAME`), and
//! chrony (`ntp server`).

use crate::access::Client;
use crate::harness::{Bed, Plane, scenarios, wait_for};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

scenarios! {
    users_of_a_radius_server: soft;
    pam_logins_are_refused_or_get_the_configured_level: soft;
    the_servers_of_chrony: soft;
}

const TWO: &str = "interface range p1 - 2\n switchport\n";
const TELNET: &str = "line vty 0 15\n transport input telnet\n";
const FREERADIUS: &str = "/usr/sbin/freeradius";

/// A service of PAM for one test. Its name is the test's own, because the directory is the machine's.
struct Service {
    file: PathBuf,
    group: String,
}

impl Service {
    fn new(bed: &Bed, text: &str) -> Self {
        let group = bed.instance.clone();
        let file = Path::new("/etc/pam.d").join(format!("lanyard-{group}"));
        std::fs::write(&file, text).expect("written");
        Self { file, group }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

/// A server in the switch's namespace, which ends with this value.
pub(crate) struct Server(pub(crate) Child);

impl Server {
    /// FreeRADIUS with a configuration of its own.
    fn radius(bed: &Bed) -> Self {
        let directory = bed.file("radius");
        std::fs::create_dir_all(&directory).expect("made");
        let at = directory.display();
        let config = format!(
            "name = freeradius\nraddbdir = {at}\nlibdir = /usr/lib/freeradius\nlogdir = {at}\nrun_dir = {at}\ndb_dir = {at}\n\
             pidfile = {at}/pid\nmodules {{\n pap {{\n }}\n files {{\n  filename = {at}/users\n }}\n}}\n\
             client switch {{\n ipaddr = 127.0.0.1\n secret = between-us\n}}\n\
             server default {{\n listen {{\n  type = auth\n  ipaddr = 127.0.0.1\n  port = 1812\n }}\n \
             authorize {{\n  files\n  pap\n }}\n authenticate {{\n  Auth-Type PAP {{\n   pap\n  }}\n }}\n}}\n"
        );
        let users = "rita Cleartext-Password := \"river\"\n\tManagement-Privilege-Level = 15\n\n\
                     rolf Cleartext-Password := \"rain\"\n\tManagement-Privilege-Level = 7\n\n\
                     ann Cleartext-Password := \"other\"\n\tManagement-Privilege-Level = 1\n";
        std::fs::write(directory.join("radiusd.conf"), config).expect("written");
        std::fs::write(directory.join("users"), users).expect("written");
        let log = directory.join("log");
        let mut command = Command::new(FREERADIUS);
        command.arg("-f").arg("-d").arg(&directory).arg("-l").arg(&log).stdout(Stdio::null());
        let server = Self(bed.net.spawn(&mut command));
        wait_for("FreeRADIUS to be ready", || {
            std::fs::read_to_string(&log).ok().filter(|text| text.contains("Ready to process requests"))
        });
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Logs in over telnet; returns the privilege level that the switch shows for the session.
pub(crate) fn level(bed: &Bed, name: &str, secret: &str) -> String {
    let mut client = Client::login(bed, name, secret);
    client.until("Lanyard");
    client.send(b"show privilege\r\n");
    client.until("level is ");
    client.until("\n").trim().to_owned()
}

pub(crate) fn is_refused(bed: &Bed, name: &str, secret: &str) {
    let mut client = Client::login(bed, name, secret);
    client.until("% Login invalid");
}

fn users_of_a_radius_server(plane: Plane) {
    let modules =
        ["/usr/lib/x86_64-linux-gnu/security", "/usr/lib/aarch64-linux-gnu/security", "/lib/security"];
    let has_module = modules.iter().any(|path| Path::new(path).join("pam_radius_auth.so").exists());
    if !Path::new(FREERADIUS).exists() || !has_module {
        println!("skipped: no FreeRADIUS or no module for PAM (packages freeradius, libpam-radius-auth)");
        return;
    }
    let bed = Bed::new(plane, 2, &format!("{TWO}username ann privilege 15 secret tiger\n{TELNET}"));
    let client = bed.file("pam_radius_auth.conf");
    std::fs::write(&client, "127.0.0.1:1812 between-us 2\n").expect("written");
    let module = format!("pam_radius_auth.so conf={} privilege_level", client.display());
    let service = Service::new(&bed, &format!("auth required {module}\naccount required pam_permit.so\n"));
    let line = format!("aaa authentication login default group {} local", service.group);
    bed.configure(&line);
    assert!(bed.exec(&["show running-config"]).contains(&line));
    let server = Server::radius(&bed);
    // The levels are those of the server. It is asked first, so it decides about a user that the configuration has as well.
    assert_eq!(level(&bed, "rita", "river"), "15");
    assert_eq!(level(&bed, "rolf", "rain"), "7");
    assert_eq!(level(&bed, "ann", "other"), "1");
    is_refused(&bed, "rita", "rain");
    is_refused(&bed, "ann", "tiger");
    let log = bed.exec(&["show logging"]);
    assert!(log.contains("LOGIN_SUCCESS: Login Success [user: rita]"), "{log}");
    // The next method decides while no server answers, and only then.
    drop(server);
    assert_eq!(level(&bed, "ann", "tiger"), "15");
    let log = bed.exec(&["show logging"]);
    assert!(log.contains(&format!("%AAA-4-UNAVAILABLE: login group {}", service.group)), "{log}");
    is_refused(&bed, "rita", "river");
    bed.configure("no aaa authentication login default");
    assert_eq!(level(&bed, "ann", "tiger"), "15");
    assert!(!bed.exec(&["show running-config"]).contains("aaa"));
}

fn pam_logins_are_refused_or_get_the_configured_level(plane: Plane) {
    let bed = Bed::new(plane, 2, &format!("{TWO}username ann privilege 15 secret tiger\n{TELNET}"));
    for (line, reason) in [
        ("aaa authentication login default group ../passwd", "not the name of a group"),
        ("aaa authentication login default", "Incomplete"),
    ] {
        let refused = bed.try_configure(line).expect_err(line);
        assert!(refused.contains(reason), "{line}: {refused}");
    }
    // PAM would use the service `other` in place of one without a file, and might admit users of the machine. Therefore the
    // switch does not ask PAM.
    bed.configure("aaa authentication login default group no-such-service local");
    assert_eq!(level(&bed, "ann", "tiger"), "15");
    let log = bed.exec(&["show logging"]);
    assert!(log.contains("there is no file /etc/pam.d/lanyard-no-such-service"), "{log}");
    // A user whom PAM admits has the level of `username`, or level 1 without one. A user whom PAM refuses gets no session.
    let permit = Service::new(&bed, "auth required pam_permit.so\naccount required pam_permit.so\n");
    bed.configure(&format!("aaa authentication login default group {}", permit.group));
    assert_eq!(level(&bed, "ann", "x"), "15");
    assert_eq!(level(&bed, "stranger", "x"), "1");
    let deny = "auth required pam_permit.so\naccount required pam_deny.so\n";
    std::fs::write(&permit.file, deny).expect("written");
    is_refused(&bed, "stranger", "x");
    // With the methods in the other order PAM is not asked about a user of the configuration.
    std::fs::write(&permit.file, "auth required pam_permit.so\naccount required pam_permit.so\n")
        .expect("written");
    bed.configure(&format!("aaa authentication login default local group {}", permit.group));
    is_refused(&bed, "ann", "x");
    assert_eq!(level(&bed, "stranger", "x"), "1");
}

/// `ntp server`: chrony gets the servers, keeps them over a restart of the daemon, and loses them with `detach`.
fn the_servers_of_chrony(plane: Plane) {
    let control = Path::new("/run/chrony/chronyd.sock");
    let sources = Path::new("/etc/chrony/sources.d");
    if !Path::new("/usr/sbin/chronyd").exists() || !sources.exists() {
        println!("skipped: no chrony (package chrony)");
        return;
    }
    // A chronyd that was killed leaves its socket.
    let listens =
        || std::os::unix::net::UnixDatagram::unbound().is_ok_and(|own| own.connect(control).is_ok());
    if listens() {
        println!("skipped: a chronyd of this machine runs, and this test needs one that sets no clock");
        return;
    }
    let bed = Bed::new(plane, 2, TWO);
    let config = bed.file("chrony.conf");
    let text = format!(
        "sourcedir {}\nbindcmdaddress {}\nport 0\ncmdport 0\npidfile {}\n",
        sources.display(),
        control.display(),
        bed.file("chronyd.pid").display()
    );
    std::fs::write(&config, text).expect("written");
    // -x: it sets no clock.
    let mut command = Command::new("/usr/sbin/chronyd");
    command.args(["-x", "-d", "-u", "root", "-f"]).arg(&config).stdout(Stdio::null()).stderr(Stdio::null());
    let _chronyd = Server(bed.net.spawn(&mut command));
    wait_for("chronyd", || listens().then_some(()));
    let asked = || {
        let output = bed.net.output(Command::new("chronyc").args(["-n", "-c", "sources"]));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let file = sources.join(format!("lanyard-{}.sources", bed.instance));
    bed.configure("ntp server 192.0.2.1 iburst\nntp server 192.0.2.2 prefer");
    wait_for("both servers", || {
        let text = asked();
        (text.contains("192.0.2.1") && text.contains("192.0.2.2")).then_some(())
    });
    wait_for("the message", || bed.printed().contains("%NTP-6-SERVERS").then_some(()));
    bed.configure("no ntp server 192.0.2.1");
    wait_for("one server", || {
        let text = asked();
        (!text.contains("192.0.2.1") && text.contains("192.0.2.2")).then_some(())
    });
    show_ntp_reports_the_servers_of_chrony(&bed);
    let line = "ntp server 192.0.2.2 prefer";
    assert!(bed.exec(&["show running-config"]).contains(line));
    bed.end_daemon(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(std::fs::read_to_string(&file).expect("it stays"), "server 192.0.2.2 prefer\n");
    bed.start();
    // The startup-config has no server: the daemon removes the servers that the previous daemon has left.
    wait_for("no server", || (!file.exists() && asked().trim().is_empty()).then_some(()));
    bed.configure(line);
    wait_for("the server", || asked().contains("192.0.2.2").then_some(()));
    bed.detach().expect("detached");
    assert!(!file.exists());
    assert!(asked().trim().is_empty());
}

/// `show ntp`, with another chronyd as the server, which keeps time by its own clock.
fn show_ntp_reports_the_servers_of_chrony(bed: &Bed) {
    let status = bed.show("show ntp status");
    assert_eq!((&status["client"], &status["synchronized"]), (&"chrony".into(), &false.into()), "{status}");
    assert!(bed.exec(&["show ntp status"]).starts_with("Clock is unsynchronized, stratum 16"));
    let config = bed.file("server.conf");
    let pid = bed.file("server.pid");
    let text =
        format!("local stratum 3\nallow all\ncmdport 0\nbindcmdaddress /\npidfile {}\n", pid.display());
    std::fs::write(&config, text).expect("written");
    let mut command = Command::new("/usr/sbin/chronyd");
    command.args(["-x", "-d", "-u", "root", "-f"]).arg(&config).stdout(Stdio::null()).stderr(Stdio::null());
    let server = Server(bed.net.spawn(&mut command));
    bed.configure("ntp server 127.0.0.1 iburst");
    let status = wait_for("the server", || {
        let status = bed.show("show ntp status");
        (status["synchronized"] == true).then_some(status)
    });
    assert_eq!((&status["stratum"], &status["reference"]), (&4.into(), &"127.0.0.1".into()), "{status}");
    assert!(status["offset_s"].as_f64().is_some_and(|offset| offset.abs() < 1.0), "{status}");
    let list = bed.show("show ntp associations");
    let of = |address: &str| {
        let list = list["associations"].as_array().expect("a list");
        list.iter().find(|server| server["address"] == address).cloned().unwrap_or_default()
    };
    let (followed, silent) = (of("127.0.0.1"), of("192.0.2.2"));
    assert_eq!((&followed["state"], &followed["stratum"]), (&"selected".into(), &3.into()), "{list}");
    assert!(followed["delay_s"].as_f64().is_some_and(|delay| delay > 0.0), "{list}");
    assert_eq!((&silent["state"], &silent["reach"]), (&"unusable".into(), &0.into()), "{list}");
    let text = bed.exec(&["show ntp status"]);
    assert!(text.starts_with("Clock is synchronized, stratum 4, reference is 127.0.0.1\n"), "{text}");
    let text = bed.exec(&["show ntp associations"]);
    assert!(text.contains("*~127.0.0.1 ") && text.contains(" ~192.0.2.2 "), "{text}");
    assert_eq!(bed.exec(&["show ntp associations | include 192.0.2.2"]).lines().count(), 1);
    drop(server);
    bed.configure("no ntp server 127.0.0.1");
}

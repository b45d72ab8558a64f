//! Network namespaces: devices that move between them, and named ones.

use super::*;

#[test]
fn a_netdev_stays_in_its_namespace() {
    in_namespace(|outer| {
        pair(outer);
        let (ns, inner) = netns::run_in_new(|| (netns::current().unwrap(), Netdev::open().unwrap())).unwrap();
        let names = |netdev: &Netdev| netdev.links().unwrap().into_iter().map(|l| l.name).collect::<Vec<_>>();
        assert_eq!(names(&inner), ["lo"]);

        let p1 = outer.link("p1").unwrap().ifindex;
        outer.move_to_netns(p1, ns.as_fd()).unwrap();
        assert_eq!(names(outer), ["lo", "p0"]);
        assert_eq!(netns::run_in(&ns, || names(&Netdev::open().unwrap())).unwrap(), ["lo", "p1"]);
        let id = outer.netns_id(ns.as_fd()).unwrap();
        assert!(id.is_some());
        let p0 = outer.link("p0").unwrap();
        assert_eq!((p0.peer_netnsid, p0.peer_ifindex), (id, Some(inner.link("p1").unwrap().ifindex)));
        assert_eq!(outer.netns_ids().unwrap(), [id.unwrap()]);
        let far = outer.link_in_netns(id.unwrap(), p0.peer_ifindex.unwrap()).unwrap();
        assert_eq!((far.name.as_str(), far.mac), ("p1", MAC_B));
        refused(outer.link_in_netns(id.unwrap(), 9999), Error::is_gone, "interface 9999 of namespace");

        let far = Veth { name: "q0", peer: "q1", peer_netns: Some(ns.as_fd()), ..Veth::default() };
        outer.create_veth(&far).unwrap();
        assert_eq!(inner.link("q1").unwrap().peer_ifindex, Some(outer.link("q0").unwrap().ifindex));
        refused(outer.link("q1"), Error::is_gone, "q1");
        let file = std::fs::File::open("/dev/null").unwrap();
        refused(outer.netns_id(file.as_fd()), |e| e.errno().is_some(), "namespace");
        assert!(netns::run_in(&file, || panic!("ran outside")).is_err());
    });
}

/// Deletes a named namespace however the test ends.
struct Named(String);

impl Drop for Named {
    fn drop(&mut self) {
        let _ = netns::delete(&self.0);
    }
}

#[test]
fn named_namespaces() {
    let named = Named(format!("lanyard-test-{}", std::process::id()));
    let name = named.0.as_str();
    match netns::create(name) {
        Err(e)
            if matches!(
                e.kind(),
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::StorageFull
            ) =>
        {
            return println!("skipped: no named namespace: {e}");
        }
        outcome => outcome.unwrap(),
    }
    assert_eq!(netns::create(name).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert!(netns::list().unwrap().contains(&named.0));
    let ns = netns::open(name).unwrap();
    let links = netns::run_in(&ns, || Netdev::open().unwrap().links().unwrap()).unwrap();
    assert_eq!(links.iter().map(|l| l.name.as_str()).collect::<Vec<_>>(), ["lo"]);
    match std::process::Command::new("ip").args(["-n", name, "link", "add", "v0", "type", "veth"]).status() {
        Ok(status) => {
            assert!(status.success(), "iproute2 takes the namespace for its own");
            assert_eq!(netns::run_in(&ns, || Netdev::open().unwrap().links().unwrap().len()).unwrap(), 3);
        }
        Err(e) => println!("skipped: ip: {e}"),
    }
    netns::delete(name).unwrap();
    assert!(!netns::list().unwrap().contains(&named.0));
    assert_eq!(netns::delete(name).unwrap_err().kind(), ErrorKind::NotFound);
    for bad in ["", "..", "a/b"] {
        assert_eq!(netns::create(bad).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

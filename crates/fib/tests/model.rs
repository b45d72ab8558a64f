//! Both tables against a naive longest-prefix match: after every update, and between any two stores of an update.

use ipnet::{Ipv4Net, Ipv6Net};
use lanyard_fib::{Full, LINE, NONE, Rib, View, Words, Writer, ipv4, ipv6};
use lanyard_types::Rng;
use prefix_trie::{Prefix, PrefixMap};
use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Memory that looks up some addresses after every store: each result must be the one from before the update or from after it.
struct Watched<A> {
    words: Vec<Cell<u32>>,
    lookup: fn(&Self, A) -> u32,
    /// Addresses, each with its result before and after the update.
    watch: RefCell<Vec<(A, u32, u32)>>,
    stores: Cell<u64>,
}

impl<A: Copy + std::fmt::Debug> Watched<A> {
    fn new(lines: u32, lookup: fn(&Self, A) -> u32) -> Self {
        let words = vec![Cell::new(0); lines as usize * LINE];
        Self { words, lookup, watch: RefCell::new(Vec::new()), stores: Cell::new(0) }
    }
    fn look(&self) {
        for (address, before, after) in self.watch.borrow().iter() {
            let got = (self.lookup)(self, *address);
            assert!(got == *before || got == *after, "{address:?}: {got}, not {before} or {after}");
        }
    }
}

impl<A: Copy + std::fmt::Debug> Words for Watched<A> {
    fn load(&self, at: usize) -> u32 {
        self.words[at].get()
    }
    fn store(&self, at: usize, word: u32) {
        self.words[at].set(word);
        self.stores.set(self.stores.get() + 1);
        self.look();
    }
}

/// The longest-prefix match by comparing all routes.
fn naive<P: Prefix + Copy>(routes: &[(P, u32)], contains: impl Fn(P) -> bool) -> u32 {
    let matching = routes.iter().filter(|(prefix, _)| contains(*prefix));
    matching.max_by_key(|(prefix, _)| prefix.prefix_len()).map_or(NONE, |(_, word)| *word)
}

fn word(value: &u32) -> u32 {
    *value
}

trait Family: Copy + std::fmt::Debug {
    type Net: Prefix + Copy + PartialEq + std::fmt::Debug;
    type Writer: Writer<Net = Self::Net>;
    /// Lines of the memory at first and after it has grown.
    const SIZES: &'static [u32];
    /// Lines that remain in use when all routes are removed: the buckets.
    const LEFT: u32;
    fn lookup(words: &Watched<Self>, address: Self) -> u32;
    fn contains(prefix: Self::Net, address: Self) -> bool;
    fn prefix(rng: &mut Rng) -> Self::Net;
    fn address(rng: &mut Rng, near: Self::Net) -> Self;
}

impl Family for Ipv4Addr {
    type Net = Ipv4Net;
    type Writer = ipv4::Writer;
    const SIZES: &'static [u32] = &[4097 + 48, 4097 + 128, 4097 + 700];
    const LEFT: u32 = 18;
    fn lookup(words: &Watched<Self>, address: Self) -> u32 {
        ipv4::lookup(words, address)
    }
    fn contains(prefix: Ipv4Net, address: Self) -> bool {
        prefix.contains(&address)
    }
    fn prefix(rng: &mut Rng) -> Ipv4Net {
        let len = rng
            .pick(&[0, 7, 11, 12, 12, 13, 14, 16, 20, 22, 23, 24, 24, 25, 26, 28, 30, 31, 32, 32])
            .expect("a choice");
        let [second, third] = [&[0, 1, 16, 255][..], &[0, 1, 128]].map(|of| rng.pick(of).expect("a choice"));
        let address = Ipv4Addr::new(10, second, third, rng.pick(&[0, 1, 128, 255]).expect("a choice"));
        Ipv4Net::new(address, len).expect("a length").trunc()
    }
    fn address(rng: &mut Rng, near: Ipv4Net) -> Self {
        match rng.below(4) {
            0 => near.network(),
            1 => near.broadcast(),
            2 => Ipv4Addr::from(u32::from(near.broadcast()).wrapping_add(1)),
            _ => Self::prefix(rng).network(),
        }
    }
}

impl Family for Ipv6Addr {
    type Net = Ipv6Net;
    type Writer = ipv6::Writer;
    const SIZES: &'static [u32] = &[4097 + 48, 4097 + 64, 4097 + 96];
    const LEFT: u32 = 38;
    fn lookup(words: &Watched<Self>, address: Self) -> u32 {
        ipv6::lookup(words, address)
    }
    fn contains(prefix: Ipv6Net, address: Self) -> bool {
        prefix.contains(&address)
    }
    fn prefix(rng: &mut Rng) -> Ipv6Net {
        let len = rng
            .pick(&[
                0, 12, 15, 16, 17, 19, 20, 21, 24, 31, 32, 33, 36, 40, 47, 48, 48, 49, 52, 63, 64, 64, 65,
                127, 128, 128,
            ])
            .expect("a choice");
        let odd = [0, 0, 1, 0x8000, 0x1000, 0xffff];
        let words: [u16; 8] = std::array::from_fn(|n| {
            if n == 0 {
                rng.pick(&[0x2001, 0x2002]).expect("a choice")
            } else {
                rng.pick(&odd).expect("a choice")
            }
        });
        Ipv6Net::new(Ipv6Addr::from(words), len).expect("a length").trunc()
    }
    fn address(rng: &mut Rng, near: Ipv6Net) -> Self {
        match rng.below(4) {
            0 => near.network(),
            1 => near.broadcast(),
            2 => Ipv6Addr::from(u128::from(near.broadcast()).wrapping_add(1)),
            _ => Self::prefix(rng).network(),
        }
    }
}

/// Random insertions, changes and removals. At the end everything is removed, and no line may remain in use but the buckets.
/// The routes `others`, each with its own leaf, stay all the time.
fn churn<A: Family>(seeds: std::ops::Range<u64>, updates: usize, others: &[A::Net]) {
    let (mut refused, mut stores, mut moves) = (0, 0, 0);
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let mut writer = A::Writer::new(A::SIZES);
        let mut words = Watched::new(A::SIZES[0], A::lookup);
        let mut map = PrefixMap::new();
        let most = rng.pick(&[4, 12, 40]).expect("a choice");
        for (leaf, prefix) in (1000..).zip(others) {
            while writer.set(&words, *prefix, NONE, leaf, &View::new(&map, word)).is_err() {
                words = larger(&mut writer, words);
            }
            map.insert(*prefix, leaf);
        }
        for _ in 0..updates {
            let done = update::<A>(&mut rng, &words, &mut writer, &mut map, most + others.len() as u64);
            refused += u64::from(!done);
            if rng.below(4) == 0 {
                writer.settle();
            }
            if !done && rng.below(2) == 0 && writer.larger().is_some() {
                stores += words.stores.get();
                (words, moves) = (larger(&mut writer, words), moves + 1);
            }
        }
        while let Some((prefix, old)) = map.iter().next().map(|(prefix, word)| (prefix, *word)) {
            map.remove(&prefix);
            writer.set(&words, prefix, old, NONE, &View::new(&map, word)).expect("removing takes nothing");
        }
        writer.settle();
        stores += words.stores.get();
        let left = writer.lines().used();
        assert!(left <= A::LEFT, "seed {seed}: {left} lines are left");
        for _ in 0..64 {
            let near = A::prefix(&mut rng);
            assert_eq!(A::lookup(&words, A::address(&mut rng, near)), NONE, "seed {seed}");
        }
    }
    let short = refused > 0 && moves > 0 || !others.is_empty();
    assert!(stores > 10_000 && short, "{stores} stores, {refused} refused, {moves} moves");
}

/// Copies a table into larger memory.
fn larger<A: Family>(writer: &mut A::Writer, words: Watched<A>) -> Watched<A> {
    let next = Watched::new(writer.larger().expect("room"), A::lookup);
    writer.move_to(&words, &next);
    assert_eq!(next.words.len(), writer.lines().capacity() as usize * LINE);
    next
}

/// Performs one watched update; false when it was refused.
fn update<A: Family>(
    rng: &mut Rng,
    words: &Watched<A>,
    writer: &mut A::Writer,
    map: &mut PrefixMap<A::Net, u32>,
    most: u64,
) -> bool {
    let routes: Vec<(A::Net, u32)> = map.iter().map(|(prefix, word)| (prefix, *word)).collect();
    let full = routes.len() as u64 >= most;
    let old = (full || rng.below(3) == 0) && !routes.is_empty();
    let prefix = if old { routes[rng.below(routes.len() as u64) as usize].0 } else { A::prefix(rng) };
    // Removing a prefix that is not there changes nothing.
    let gone = old && (full || rng.below(2) == 0) || rng.below(10) == 0;
    let new = if gone { NONE } else { 1 + rng.below(5) as u32 };
    let before = map.get(&prefix).copied();
    match new {
        NONE => _ = map.remove(&prefix),
        new => _ = map.insert(prefix, new),
    }
    let after: Vec<(A::Net, u32)> = map.iter().map(|(prefix, word)| (prefix, *word)).collect();
    let mut addresses: Vec<A> = (0..24).map(|_| A::address(rng, prefix)).collect();
    addresses.extend(routes.iter().take(12).map(|(near, _)| A::address(rng, *near)));
    let meets = |routes: &[(A::Net, u32)], address: A| naive(routes, |prefix| A::contains(prefix, address));
    let watch = addresses.iter().map(|address| (*address, meets(&routes, *address), meets(&after, *address)));
    words.watch.replace(watch.collect());
    words.look();
    let done = writer.set(words, prefix, before.unwrap_or(NONE), new, &View::new(map, word));
    let now = if done.is_ok() { &after } else { &routes };
    for address in addresses {
        assert_eq!(
            A::lookup(words, address),
            meets(now, address),
            "{address:?} after {prefix:?} -> {new}: {done:?}"
        );
    }
    words.watch.borrow_mut().clear();
    if done.is_err() {
        match before {
            Some(before) => _ = map.insert(prefix, before),
            None => _ = map.remove(&prefix),
        }
    }
    done.is_ok()
}

#[test]
fn ipv4_answers_the_old_or_the_new() {
    churn::<Ipv4Addr>(0..6, 400, &[]);
}

/// As the test above. Other routes have enough next hops that the table starts with wide entries and must widen them again
/// during the test.
#[test]
fn ipv4_answers_the_old_or_the_new_with_many_next_hops() {
    let others = |count| -> Vec<Ipv4Net> {
        (0..count).map(|n: u32| Ipv4Net::new_assert(Ipv4Addr::from(0x0a02_0000 + (n << 8)), 24)).collect()
    };
    churn::<Ipv4Addr>(6..12, 400, &others(11));
    churn::<Ipv4Addr>(12..15, 400, &others(252));
}

#[test]
fn ipv6_answers_the_old_or_the_new() {
    churn::<Ipv6Addr>(0..300, 200, &[]);
}

/// A table whose memory grows when it is full.
struct Growing<W> {
    words: Vec<AtomicU32>,
    writer: W,
}

fn zeros(lines: u32) -> Vec<AtomicU32> {
    (0..lines as usize * LINE).map(|_| AtomicU32::new(0)).collect()
}

impl<W: Writer> Growing<W> {
    fn new(sizes: &'static [u32]) -> Self {
        Self { words: zeros(sizes[0]), writer: W::new(sizes) }
    }
    fn set(&mut self, prefix: W::Net, old: u32, new: u32, rib: &impl Rib<W::Net>)
    where
        W::Net: Copy,
    {
        while self.writer.set(&self.words[..], prefix, old, new, rib).is_err() {
            self.writer.settle();
            if self.writer.set(&self.words[..], prefix, old, new, rib).is_ok() {
                return;
            }
            let larger = zeros(self.writer.larger().expect("room"));
            self.writer.move_to(&self.words[..], &larger[..]);
            self.words = larger;
        }
    }
}

/// The memory sizes of the eBPF plane's tables.
const SIZES: &[u32] = &[1 << 14, 1 << 18, 1 << 19, 1 << 20, 1 << 21];

/// One block with more and more next hops, each looked up; when they are removed, no line remains in use.
#[test]
fn many_ipv4_next_hops() {
    let mut table = Growing::<ipv4::Writer>::new(SIZES);
    let mut map = PrefixMap::<Ipv4Net, u32>::new();
    let prefix = |n: u32| Ipv4Net::new_assert(Ipv4Addr::from(0x0a00_0000 | n << 8), 24);
    let look = |table: &Growing<ipv4::Writer>, n: u32| {
        ipv4::lookup(&table.words[..], Ipv4Addr::from(0x0a00_0000 | n << 8 | 7))
    };
    for round in 0..4 {
        let mut lines = Vec::new();
        for n in 1..=3000 {
            map.insert(prefix(n), n);
            table.set(prefix(n), NONE, n, &View::new(&map, word));
            table.writer.settle();
            lines.push(table.writer.lines().used());
        }
        lines.dedup();
        assert_eq!(lines, [8, 16, 32, 16 + 64, 256], "round {round}");
        assert!((1..=3000).all(|n| look(&table, n) == n), "round {round}");
        for n in 1..=3000 {
            map.remove(&prefix(n));
            table.set(prefix(n), n, NONE, &View::new(&map, word));
        }
        table.writer.settle();
        assert_eq!(table.writer.lines().used(), 0);
        assert!((1..=3000).all(|n| look(&table, n) == NONE), "round {round}");
    }
}

/// Next hops that come and go reuse quarantined indices after a grace period instead of growing the table.
#[test]
fn freed_indices_are_reused() {
    let mut table = Growing::<ipv4::Writer>::new(SIZES);
    let mut map = PrefixMap::<Ipv4Net, u32>::new();
    let [stays, changes] = ["10.1.0.0/16", "10.2.0.0/16"].map(|net| net.parse::<Ipv4Net>().expect(net));
    map.insert(stays, 7);
    table.set(stays, NONE, 7, &View::new(&map, word));
    for leaf in 1000..2000 {
        let old = map.insert(changes, leaf).unwrap_or(NONE);
        table.set(changes, old, leaf, &View::new(&map, word));
        let found = [stays, changes].map(|net| ipv4::lookup(&table.words[..], net.network()));
        assert_eq!(found, [7, leaf]);
    }
    assert!(table.writer.lines().used() <= 32, "{} lines", table.writer.lines().used());
    table.writer.settle();
    for n in 0..1000 {
        let leaf = 3000 + n % 2;
        let old = map.insert(changes, leaf).unwrap_or(NONE);
        table.set(changes, old, leaf, &View::new(&map, word));
    }
    assert!(table.writer.waiting() < 64, "{} wait", table.writer.waiting());
}

/// Keys that come and go reuse the slots of their bucket after a grace period instead of growing the table.
#[test]
fn freed_slots_are_reused() {
    let mut table = Growing::<ipv6::Writer>::new(SIZES);
    let mut map = PrefixMap::<Ipv6Net, u32>::new();
    for n in 0..20_000_u128 {
        let net = Ipv6Net::new_assert(Ipv6Addr::from((0x2001 << 32 | n) << 80), 48);
        map.insert(net, 1);
        let writer = &mut table.writer;
        while writer.set(&table.words[..], net, NONE, 1, &View::new(&map, word)).is_err() {
            assert!(writer.waiting() > 0 && writer.worth_waiting(), "{n}: it would grow");
            writer.settle();
        }
        map.remove(&net);
        writer.set(&table.words[..], net, 1, NONE, &View::new(&map, word)).expect("removing takes nothing");
    }
}

/// A full table refuses an update and keeps its routes.
#[test]
fn a_full_table_refuses_and_keeps_its_routes() {
    let sizes = &[4097 + 64];
    let (words, mut writer) = (zeros(sizes[0]), ipv4::Writer::new(sizes));
    let mut map = PrefixMap::<Ipv4Net, u32>::new();
    let prefix = |n: u32| Ipv4Net::new_assert(Ipv4Addr::from(n << 20 | 0x0100), 24);
    let fits = (1..200).find(|n| {
        map.insert(prefix(*n), 5);
        let done = writer.set(&words[..], prefix(*n), NONE, 5, &View::new(&map, word));
        done.inspect_err(|Full| _ = map.remove(&prefix(*n))).is_err()
    });
    let fits = fits.expect("an end");
    assert!((6..9).contains(&fits), "{fits}");
    assert_eq!(writer.larger(), None);
    let look = |n| ipv4::lookup(&words[..], prefix(n).network());
    assert!((1..fits).all(|n| look(n) == 5) && look(fits) == NONE);
    writer
        .set(&words[..], "0.0.0.0/0".parse().expect("a net"), NONE, 6, &View::new(&map, word))
        .expect("no room");
    writer
        .set(&words[..], "64.0.0.0/3".parse().expect("a net"), NONE, 7, &View::new(&map, word))
        .expect("no room");
    assert_eq!((look(fits), look(1024 + 7)), (6, 7));
}

/// The memory of many divided /24s with one prefix each, and of one /24 full of host routes.
#[test]
fn long_ipv4_prefixes() {
    let mut table = Growing::<ipv4::Writer>::new(SIZES);
    let mut map = PrefixMap::<Ipv4Net, u32>::new();
    let mut set = |prefix: Ipv4Net, leaf| {
        map.insert(prefix, leaf);
        table.set(prefix, NONE, leaf, &View::new(&map, word));
    };
    assert_eq!(set(Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8), 1), ());
    for n in 0..60_000_u32 {
        set(Ipv4Net::new_assert(Ipv4Addr::from(n << 8 | 0x0a00_0040), 28), 2);
    }
    for n in 0..256_u32 {
        set(Ipv4Net::new_assert(Ipv4Addr::from(0x0aff_ff00 + n), 32), 3 + n);
    }
    let at = |text: &str| ipv4::lookup(&table.words[..], text.parse().expect(text));
    let found = ["10.0.7.63", "10.0.7.64", "10.0.7.80", "10.255.255.9", "10.255.254.9"].map(at);
    assert_eq!(found, [1, 2, 1, 12, 1]);
    let lines = table.writer.lines().used();
    println!("{lines} lines, {} bytes", table.words.len() * 4);
    // One node each; buckets of seven slots, at least half full; and the entries of 16 blocks.
    assert!(lines < 62_000 + 16_384 + 16 * 16, "{lines} lines for 60,000 divided /24s");
}

/// A realistic mix of many routes: every one is looked up, and the memory is measured.
#[test]
fn a_large_ipv6_table() {
    const ROUTES: u32 = 200_000;
    let mut table = Growing::<ipv6::Writer>::new(SIZES);
    let mut map = PrefixMap::<Ipv6Net, u32>::new();
    let mut rng = Rng::new(7);
    for n in 1..=ROUTES {
        let high = 0x2000_0000_0000_0000 | rng.next_u64() >> 3;
        let len = rng.pick(&[48, 48, 48, 48, 32, 36, 40, 44, 46, 56, 64]).expect("a choice");
        let prefix = Ipv6Net::new(Ipv6Addr::from(u128::from(high) << 64), len).expect("a length").trunc();
        let old = map.insert(prefix, n).unwrap_or(NONE);
        table.set(prefix, old, n, &View::new(&map, word));
    }
    for (prefix, _) in &map {
        let inside =
            u128::from(prefix.network()) | u128::from(rng.next_u64()) << 40 & u128::from(prefix.hostmask());
        let want = map.get_lpm(&Ipv6Addr::from(inside).into()).map_or(NONE, |(_, word)| *word);
        assert_eq!(ipv6::lookup(&table.words[..], Ipv6Addr::from(inside)), want, "{prefix}");
    }
    let (bytes, lines) = (table.words.len() * 4, table.writer.lines().used());
    println!("{lines} lines, {bytes} bytes for {ROUTES} routes");
    assert!(bytes < 32 << 20, "{bytes} bytes for {ROUTES} routes");
}

/// Of many random /48s and /64s nearly all are in the first line of their bucket.
#[test]
fn few_buckets_have_a_second_line() {
    const ROUTES: u32 = 100_000;
    let mut table = Growing::<ipv6::Writer>::new(SIZES);
    let mut map = PrefixMap::<Ipv6Net, u32>::new();
    let mut rng = Rng::new(11);
    for n in 1..=2 * ROUTES {
        let address = Ipv6Addr::from((0x2000_u128 << 48 | u128::from(rng.next_u64() >> 16)) << 64);
        let prefix = Ipv6Net::new(address, if n % 2 == 0 { 48 } else { 64 }).expect("a length").trunc();
        let old = map.insert(prefix, n).unwrap_or(NONE);
        table.set(prefix, old, n, &View::new(&map, word));
    }
    let lines = table.writer.lines().used();
    println!("{lines} lines, {} bytes", table.words.len() * 4);
    let further = lines - (24_576 + 32_768); // behind the buckets of each
    assert!(further < ROUTES / 10, "{further} further lines for {ROUTES} of each");
}

/// A /24 is divided and made whole again while a reader on another processor looks up an address that always has a route.
#[test]
fn ipv4_readers_on_other_processors() {
    let mut table = Growing::<ipv4::Writer>::new(&[1 << 13]);
    let mut map = PrefixMap::<Ipv4Net, u32>::new();
    let net = |text: &str| text.parse::<Ipv4Net>().expect(text);
    for prefix in ["10.0.0.0/8", "10.1.2.0/26", "10.1.2.16/28"] {
        map.insert(net(prefix), 1);
        table.set(net(prefix), NONE, 1, &View::new(&map, word));
    }
    let (words, stop) = (&table.words[..], &AtomicBool::new(false));
    let (ready, looks) = (&std::sync::Barrier::new(2), &AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            ready.wait();
            while !stop.load(Ordering::Relaxed) {
                let got = ipv4::lookup(words, Ipv4Addr::new(10, 1, 2, 17));
                // A reader that has failed must not keep the writer waiting.
                let _end = (!(1..=3).contains(&got)).then(|| Stop(stop));
                assert!((1..=3).contains(&got), "{got}");
                looks.fetch_add(1, Ordering::AcqRel);
            }
        });
        ready.wait();
        let at_the_end = Stop(stop);
        for n in 0..10_000 {
            for (prefix, new) in [("10.1.2.0/26", n), ("10.1.2.16/28", n), ("10.0.0.0/8", n / 2)] {
                let gone = new % 2 == 0 && prefix != "10.0.0.0/8";
                let (prefix, new) = (net(prefix), if gone { NONE } else { 2 + new % 2 });
                let old = map.get(&prefix).copied().unwrap_or(NONE);
                match new {
                    NONE => _ = map.remove(&prefix),
                    new => _ = map.insert(prefix, new),
                }
                while table.writer.set(words, prefix, old, new, &View::new(&map, word)).is_err() {
                    // After the look-up under way and one more have ended, quarantined memory may be written again.
                    let seen = looks.load(Ordering::Acquire);
                    while looks.load(Ordering::Acquire) < seen + 2 && !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                    table.writer.settle();
                }
            }
        }
        drop(at_the_end);
    });
}

/// Ends the reader when the test ends, also by a panic.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A reader on another processor sees only the route that is always there or the one that comes and goes; and where the
/// shorter route is removed after the longer one has come, only one of these two.
#[test]
fn readers_on_other_processors() {
    let mut writer = ipv6::Writer::new(&[1 << 13]);
    let mut map = PrefixMap::<Ipv6Net, u32>::new();
    let net = |text: &str| text.parse::<Ipv6Net>().expect(text);
    let probe: Ipv6Addr = "2001:db8:1:2::3".parse().expect("an address");
    let mut words = zeros(1 << 13);
    for prefix in ["2001::/16", "2001:db8:1::/48", "2001:db8:1:2::/64"] {
        map.insert(net(prefix), 1);
        while writer.set(&words[..], net(prefix), NONE, 1, &View::new(&map, word)).is_err() {
            let larger = zeros(writer.larger().expect("room"));
            writer.move_to(&words[..], &larger[..]);
            words = larger;
        }
    }
    let (words, stop) = (&words[..], &AtomicBool::new(false));
    let ready = &std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut looks = 0_u64;
            ready.wait();
            while looks == 0 || !stop.load(Ordering::Relaxed) {
                let got = ipv6::lookup(words, probe);
                assert!((1..=3).contains(&got), "{got}");
                looks += 1;
            }
            looks
        });
        ready.wait();
        let at_the_end = Stop(stop);
        let mut turn = |prefix: Ipv6Net, new: u32| {
            let old = map.get(&prefix).copied().unwrap_or(NONE);
            match new {
                NONE => _ = map.remove(&prefix),
                new => _ = map.insert(prefix, new),
            }
            writer.set(words, prefix, old, new, &View::new(&map, word)).expect("room");
        };
        // From here on one of the two routes is always there, so the default route must never match.
        turn(net("2001::/16"), NONE);
        let lengths = [net("2001:db8:1::/48"), net("2001:db8:1:2::/64"), net("2001::/16")];
        turn(lengths[1], NONE);
        for n in 0..60_000 {
            let (comes, goes) = (lengths[(n + 1) % 3], lengths[n % 3]);
            turn(comes, 2 + (n % 2) as u32);
            turn(goes, NONE);
        }
        turn(lengths[0], 1);
        for n in 0..300 {
            let prefix = net(["2001:db8:1::/49", "2001:db8:1:2::/65", "2001:db8:1:2::3/128"][n % 3]);
            turn(prefix, 2);
            // No settle: freed lines keep their content, as they do until a grace period has passed.
            turn(prefix, NONE);
        }
        drop(at_the_end);
        assert!(reader.join().expect("the reader") > 0);
    });
}
